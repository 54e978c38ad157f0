/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - the transports of a job: the one that push_pull uses between members, and that of local_reduce. */
#include "node/transport.h"

#include <string.h>

#include "graph/use.h"

static const struct bps_conf_node *use_of(const struct bps_conf *conf, const char *name)
{
    const struct bps_conf_node *graph = bps_conf_find(conf, "worker.graph");
    for (uint32_t i = 0; graph != NULL && i < graph->count; i++) {
        const struct bps_conf_node *stage = bps_conf_member(graph->children[i], "stage");
        if (stage != NULL && stage->text != NULL && strcmp(stage->text, name) == 0) {
            return bps_conf_member(graph->children[i], "use");
        }
    }
    return NULL;
}

bps_status bps_transport_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                              struct bps_report *report)
{
    return bps_use_open(conf, BPS_KIND_TRANSPORT, "transports", use_of(conf, "push_pull"), "net", loop, out, report);
}

bps_status bps_transport_open_local(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                                    struct bps_report *report)
{
    return bps_use_open(conf, BPS_KIND_TRANSPORT, "transports", use_of(conf, "local_reduce"), "local", loop, out,
                        report);
}
