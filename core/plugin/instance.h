/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.h - an opened plugin with its options and its host services, bound to one event loop.
 */
#ifndef BPS_PLUGIN_INSTANCE_H
#define BPS_PLUGIN_INSTANCE_H

#include "base/loop.h"
#include "base/plugin_call.h"
#include "plugin/host.h"
#include "plugin/kinds.h"
#include "plugin/registry.h"

struct bps_instance {
    const struct bps_loaded *loaded;
    const void *ops; /* = loaded->ops */
    void *self;      /* what open returned */
    struct bps_host *host;
    void *options;                               /* filled option struct */
    const struct bps_conf *conf;                 /* of the job; NULL: not opened by a preference list */
    struct bps_plugin_names names, kernel_names; /* the latter are never timed */
    union {
        struct bps_transport_attr transport;
        struct bps_stage_attr stage;
    } attr;        /* what it said of itself when it was opened, if its kind is asked */
    char name[64]; /* of the instance in the configuration: "net" */
    /* The next one of a list of reducers, which does what this one cannot, and is closed with it; NULL: none. */
    struct bps_instance *next;
};

/* From here to the end of the block this thread is in a callback of the plugin, for a tensor or NULL. */
#define BPS_CALLING(instance_, callback_, tensor_) BPS_IN_PLUGIN(&(instance_)->names, (callback_), (tensor_))

/* The same for a kernel of a reducer. */
#define BPS_CALLING_KERNEL(instance_, callback_, tensor_)                                                              \
    BPS_IN_KERNEL(&(instance_)->kernel_names, (callback_), (tensor_))

/*
 * Opens the plugin that `group` (such as transports.net) names by its member "plugin", or `plugin` if that is
 * not NULL, with the group's options, on `loop` (may be NULL for plugins that do not use it).
 */
bps_status bps_instance_open(uint32_t kind, const char *plugin, const char *name, const struct bps_conf_node *group,
                             const char *path, struct bps_loop *loop, struct bps_instance **out,
                             struct bps_report *report);
void bps_instance_close(struct bps_instance *instance);

#endif
