/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - opening the transports of a job, and what is told of them. */
#include "node/transport.h"

#include <string.h>

#include <byteps/transport.h>

#include "base/log.h"
#include "base/report.h"
#include "base/route.h"
#include "base/text.h"
#include "plugin/returned.h"
#include "plugin/use.h"

#define LOG "transport"

static const struct bps_conf_node *transport_use_of(const struct bps_conf *conf, const char *name)
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

bps_status bps_transport_check_secret(const struct bps_conf *conf, struct bps_report *report)
{
    if (!conf->cluster.encrypt || conf->has_secret) {
        return BPS_OK;
    }
    return bps_fail(report, BPS_ERR_CONF,
                    "cluster.encrypt = true: there is no secret to derive keys from; give all processes of the job the "
                    "same " BPS_SECRET_VARIABLE ", such as openssl rand -hex 32 prints, or a file of it by "
                    "cluster.secret_file; byteps run generates one");
}

bps_status bps_transport_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                              struct bps_report *report)
{
    bool alone = conf->cluster.scheduler[0] == '\0';
    bps_status status = alone ? BPS_OK : bps_transport_check_secret(conf, report);
    return status != BPS_OK ? status
                            : bps_use_open(conf, BPS_KIND_TRANSPORT, "transports", transport_use_of(conf, "push_pull"),
                                           "net", loop, out, report);
}

bps_status bps_transport_open_local(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                                    struct bps_report *report)
{
    return bps_use_open(conf, BPS_KIND_TRANSPORT, "transports", transport_use_of(conf, "local_reduce"), "local", loop,
                        out, report);
}

bps_status bps_transport_check_host(const struct bps_conf *conf, const char *address, struct bps_report *report)
{
    if (conf->has_secret || bps_route_is_loopback(address)) {
        return BPS_OK;
    }
    BPS_REPORT(report,
               "other hosts can reach %s, but this job has no secret to authenticate its members; give all of "
               "them the same " BPS_SECRET_VARIABLE ", such as openssl rand -hex 32 prints, or a file of it by "
               "cluster.secret_file; byteps run generates one",
               address);
    return BPS_ERR_CONF;
}

uint32_t bps_transport_lanes(const struct bps_instance *transport, uint32_t times)
{
    uint32_t lanes = transport->attr.transport.lanes * times;
    return lanes < BPS_LANES_LIMIT ? lanes : BPS_LANES_LIMIT;
}

void bps_transport_attach(void *transport, const struct bps_region *region)
{
    const struct bps_instance *net = transport;
    const struct bps_transport_ops *ops = net->ops;
    struct bps_report report = {""};
    BPS_CALLING(net, "attach", NULL);
    bps_status status = ops->attach(net->self, region, &report);
    if (bps_returned_told(net, "attach", status, &report) != BPS_OK) {
        bps_warn(LOG, "%s", report.text);
    }
}

void bps_transport_detach(void *transport, const struct bps_region *region)
{
    const struct bps_instance *net = transport;
    const struct bps_transport_ops *ops = net->ops;
    BPS_CALLING(net, "detach", NULL);
    ops->detach(net->self, region);
}

/* ---- what is told of them ---- */

static void add_bytes(void *arg, const char *name, const char *help, uint64_t value)
{
    struct bps_text *line = arg;
    (void)help;
    if (strncmp(name, "bytes_", 6) == 0 && value > 0) {
        bps_text_add(line, "%s%s %lu", line->length > 0 ? ", " : "", name + 6, value);
    }
}

void bps_transport_log_bytes(const struct bps_instance *instance)
{
    char text[400];
    struct bps_text line = bps_text_in(text, sizeof text);
    if (instance != NULL) {
        bps_host_counters(instance->host, add_bytes, &line);
    }
    if (line.length > 0) {
        bps_info(LOG, "bytes through '%s': %s", instance->name, text);
    }
}
