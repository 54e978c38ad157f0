/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds.h - the kinds of plugins: their operations, which of them are required, and stubs for the others.
 */
#ifndef BPS_PLUGIN_KINDS_H
#define BPS_PLUGIN_KINDS_H

#include <byteps/compressor.h>
#include <byteps/device.h>
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

/* All tables of a plugin, with room for what those of a reducer with devices name. */
struct bps_tables {
    union bps_ops ops;
    struct bps_device_ops device;
    struct bps_group_ops group;
    struct bps_share_ops share;
};

/* What a plugin fills in has room for more: it may have been built for a newer minor, whose struct is larger. */
#define BPS_ROOM 256
#define BPS_ROOMY(struct_)                                                                                             \
    union {                                                                                                            \
        struct struct_ it;                                                                                             \
        char room[BPS_ROOM];                                                                                           \
    }

/* Kinds with code that the core runs; the others are refused before. */
bool bps_kind_opens(uint32_t kind);

/* Members of the group of such an instance that are the core's own, not options of the plugin; ends with NULL. */
const char *const *bps_kind_members(uint32_t kind);

/*
 * Copies a plugin's operations, which may be of an older or newer minor, and puts stubs where it has none, so that
 * callers never test for NULL. *out stays where it is. The report names a table that is too small or the missing
 * operation.
 */
bps_status bps_ops_complete(uint32_t kind, const void *ops, struct bps_tables *out, struct bps_report *report);

#endif
