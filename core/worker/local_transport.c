/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_transport.c - the transport to the processes of this host: for the group of workers here, and for the servers
 * here.
 */
#include "base/log.h"
#include "group/local.h"
#include "node/transport.h"
#include "plugin/memory.h"
#include "worker/local_transport.h"

#define LOG "worker"

static bool wants_group(const struct bps_worker *worker)
{
    return worker->conf->worker.hierarchy != BPS_HIERARCHY_OFF && worker->graph->local &&
           worker->conf->cluster.workers > 1;
}

static bps_status local_transport_open_parts(struct bps_worker *worker, struct bps_report *report)
{
    bps_status status = bps_transport_open_local(worker->conf, worker->loop, &worker->local_transport, report);
    if (status == BPS_OK) {
        const struct bps_transport_ops *local = worker->local_transport->ops;
        const struct bps_memory_user user = {worker->local_transport, local->attach, local->detach};
        status = bps_memory_join(&user, report);
    }
    if (status == BPS_OK && wants_group(worker)) {
        status = bps_local_open(worker, &worker->local, report);
    }
    return status;
}

bps_status bps_local_transport_open(struct bps_worker *worker, struct bps_report *report)
{
    struct bps_report reason = {""};
    bool group = wants_group(worker);
    if (!group && !worker->conf->server.local) {
        return BPS_OK;
    }
    bps_status status = local_transport_open_parts(worker, &reason);
    if (status == BPS_OK) {
        return BPS_OK;
    }
    bps_local_transport_close(worker);
    if (group && worker->conf->worker.hierarchy == BPS_HIERARCHY_ON) {
        BPS_REPORT(report, "worker.hierarchy = on, but the workers of a host cannot sum among themselves: %s",
                   reason.text);
        return status;
    }
    if (status == BPS_ERR_CONF) { /* somebody has written it, and wants to know */
        BPS_REPORT(report, "%s", reason.text);
        return status;
    }
    bps_warn(LOG, "%s: %s",
             group ? "workers of this host do not sum among themselves first"
                   : "servers of this host are reached through the network",
             reason.text);
    return BPS_OK;
}

void bps_local_transport_close(struct bps_worker *worker)
{
    bps_local_free(worker->local);
    worker->local = NULL;
    bps_memory_close(worker->local_transport);
    worker->local_transport = NULL;
}
