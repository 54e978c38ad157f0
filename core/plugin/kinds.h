/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds.h - the kinds of plugins: their operations, which of them are required, and stubs for the others.
 */
#ifndef BPS_PLUGIN_KINDS_H
#define BPS_PLUGIN_KINDS_H

#include <byteps/compressor.h>
#include <byteps/launcher.h>
#include <byteps/reducer.h>
#include <byteps/stage.h>
#include <byteps/transport.h>

/* Room for the operations of any kind, beginning with what all kinds have in common. */
struct bps_ops_common {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance);
};
union bps_ops {
    struct bps_ops_common common;
    struct bps_transport_ops transport;
    struct bps_reducer_ops reducer;
    struct bps_compressor_ops compressor;
    struct bps_stage_ops stage;
    struct bps_launcher_ops launcher;
};

/* Kinds with code that the core runs; the others are refused before. */
bool bps_kind_opens(uint32_t kind);

/* Members of the group of such an instance that are the core's own, not options of the plugin; ends with NULL. */
const char *const *bps_kind_members(uint32_t kind);

/*
 * Copies a plugin's operations and puts stubs where it has none, so that callers never test for NULL. The
 * report names a table that is too small or the missing operation.
 */
bps_status bps_ops_complete(uint32_t kind, const void *ops, union bps_ops *out, struct bps_report *report);

#endif
