/* SPDX-License-Identifier: Apache-2.0 */
/* start.c - what an instance needs from its first listener or channel on: the eventfd by which peers wake it. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

static void on_signal(void *arg, uint32_t events)
{
    (void)events;
    ipc_poll(arg); /* the counter is never read: every signal is an event */
}

bps_status ipc_start(struct ipc *ipc, struct bps_report *report)
{
    const struct bps_host *host = ipc->host;
    if (ipc->poller != NULL) {
        return BPS_OK;
    }
    bps_util_fork_hold();
    if (getrandom(&ipc->nonce, sizeof ipc->nonce, 0) != sizeof ipc->nonce ||
        (ipc->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        bps_util_fork_release();
        BPS_REPORT(report, "shared memory: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    ipc->event_watch = host->watch(host, ipc->event, on_signal, ipc);
    bps_util_fork_release();
    ipc->poller = ipc->event_watch != NULL ? host->poller(host, ipc_poll, ipc_arm, ipc) : NULL;
    if (ipc->poller == NULL) {
        if (ipc->event_watch != NULL) {
            host->unwatch(host, ipc->event_watch);
        }
        close(ipc->event);
        ipc->event = -1;
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
#ifdef PR_SET_PTRACER
    if (ipc->options.ptracer) {
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }
#endif
    return BPS_OK;
}

void ipc_stop(struct ipc *ipc)
{
    const struct bps_host *host = ipc->host;
    if (ipc->poller != NULL) {
        host->unpoll(host, ipc->poller);
        bps_util_fork_hold();
        host->unwatch(host, ipc->event_watch);
        close(ipc->event);
        bps_util_fork_release();
    }
}
