/* SPDX-License-Identifier: Apache-2.0 */
/* side.c - instances of a transport, opened and asked for their counters. */
#include "side.h"

#include <stdio.h>
#include <string.h>

#include "conf/conf.h"
#include "must.h"

bps_status side_try(struct side *side, struct bps_loop *loop, const char *const *options, struct bps_report *report)
{
    static _Thread_local struct bps_conf_node nodes[8];
    static _Thread_local char names[8][256];
    struct bps_conf_node *children[8];
    struct bps_conf_node group = {.kind = BPS_CONF_GROUP, .origin = "test", .children = children};
    for (; options != NULL && options[group.count] != NULL; group.count++) {
        char *name = names[group.count], *value;
        snprintf(name, sizeof names[0], "%s", options[group.count]);
        value = strchr(name, '=');
        *value = '\0';
        nodes[group.count] = (struct bps_conf_node){.name = name, .text = value + 1, .origin = "test"};
        children[group.count] = &nodes[group.count];
    }
    bps_status status = bps_instance_open(BPS_KIND_TRANSPORT, side_kind.plugin, side_kind.name, &group, side_kind.path,
                                          loop, &side->instance, report);
    if (status == BPS_OK) {
        side->loop = loop;
        side->ops = side->instance->ops;
    }
    return status;
}

void side_open(struct side *side, struct bps_loop *loop, const char *const *options)
{
    struct bps_report report = {""};
    must(side_try(side, loop, options, &report) == BPS_OK, "%s", report.text);
}

void side_close(struct side *side)
{
    bps_instance_close(side->instance);
}

struct wanted {
    const char *name;
    uint64_t value;
};

static void match_counter(void *arg, const char *name, const char *help, uint64_t value)
{
    struct wanted *wanted = arg;
    must(help != NULL);
    if (strcmp(name, wanted->name) == 0) {
        wanted->value = value;
    }
}

uint64_t side_counter(const struct side *side, const char *name)
{
    struct wanted wanted = {name, UINT64_MAX};
    bps_host_counters(side->instance->host, match_counter, &wanted);
    must(wanted.value != UINT64_MAX, "no counter %s", name);
    return wanted.value;
}
