/* SPDX-License-Identifier: Apache-2.0 */
/* use.h - preference lists in the configuration: use = "net" or use = ["verbs", "tcp"]. */
#ifndef BPS_PLUGIN_USE_H
#define BPS_PLUGIN_USE_H

#include <byteps/device.h>
#include <byteps/reducer.h>

#include "plugin/instance.h"

/*
 * Opens the first usable instance that `use` names (a scalar or a list; NULL: `fallback`) among the groups of
 * the map `map` ("transports", "reducers"). An instance that cannot be opened is a warning if another one
 * follows; the report has the last reason if none was usable.
 */
bps_status bps_use_open(const struct bps_conf *conf, uint32_t kind, const char *map, const struct bps_conf_node *use,
                        const char *fallback, struct bps_loop *loop, struct bps_instance **out,
                        struct bps_report *report);

/*
 * The reducers that sum: the usable instances of server.use, of which the first is in front of the others and the one
 * that is asked first. Does nothing if *out has them already.
 */
bps_status bps_reducer_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                            struct bps_report *report);

/*
 * The kernels for BPS_SUM and so on of a type, and who has them. An error comes with "reducer 'sum' has no ...", or
 * whose fault it is.
 */
bps_status bps_reducer_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype, struct bps_kernels *out,
                               const struct bps_instance **by, struct bps_report *report);

/*
 * The reducer that reaches the memory of tensors: the first usable instance of worker.use. *out is NULL if
 * that one has no devices, so that tensors lie in host memory.
 */
bps_status bps_device_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                           struct bps_report *report);
/* The operations of its devices; NULL: it has none. */
const struct bps_device_ops *bps_device_ops(const struct bps_instance *reducer);

#endif
