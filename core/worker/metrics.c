/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - see metrics.h. The core thread gets what threads of the application ask. */
#include "worker/metrics.h"

#include <string.h>

#include "base/report.h"
#include "group/local.h"
#include "node/late_message.h"
#include "server/server.h"

void bps_metrics_seen(struct bps_worker *worker, struct bps_lateness *into)
{
    if (worker->server != NULL) {
        bps_server_lateness(worker->server, into);
    }
    bps_local_lateness(worker->local, into);
}

bps_status bps_metrics_told(struct bps_worker *worker, struct bps_reader *message)
{
    if (worker->view == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    pthread_mutex_lock(&worker->late_lock);
    bps_lateness_fini(&worker->late);
    bps_lateness_init(&worker->late, worker->job.size);
    bps_status status = bps_lateness_read(message, &worker->late);
    pthread_mutex_unlock(&worker->late_lock);
    return status;
}

bps_status bps_metrics_lateness(struct bps_worker *worker, uint32_t rank, struct bps_worker_lateness *out,
                                struct bps_report *report)
{
    if (rank >= worker->job.size) {
        return bps_fail(report, BPS_ERR_INVALID, "%u is not a worker of this job (0..%u)", rank, worker->job.size - 1);
    }
    pthread_mutex_lock(&worker->late_lock);
    const struct bps_book *book = worker->view != NULL ? &worker->view->book : NULL; /* NULL: alone */
    const struct bps_lateness *l = &worker->late;
    struct bps_late own = {0}, host = {0};
    if (l->count != NULL) {
        own = bps_lateness_of(l, rank);
        host = bps_lateness_of(l, worker->job.size + book->member[rank].group);
        out->waited = l->span > 0 ? own.seconds * 1e9 / (double)l->span : 0;
    }
    out->rounds = l->waits;
    snprintf(out->host, sizeof out->host, "%s", book != NULL ? book->member[rank].host : "");
    pthread_mutex_unlock(&worker->late_lock);
    out->last = own.last;
    out->host_last = host.last;
    out->median_seconds = own.median;
    out->host_median_seconds = host.median;
    return BPS_OK;
}
