/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - from what a program asks for to a configuration. */
#ifndef BPS_WORKER_OPTIONS_H
#define BPS_WORKER_OPTIONS_H

#include <byteps/byteps.h>

#include "conf/conf.h"

/*
 * Loads it, and logs from then on as it says. `role`, as "cluster.role=server", is stronger than all else; NULL: what
 * the configuration says. `options` may be NULL.
 */
bps_status bps_options_load(const struct bps_init_options *options, const char *role, struct bps_conf **out,
                            struct bps_report *report);

#endif
