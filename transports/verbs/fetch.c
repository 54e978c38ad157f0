/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - completions of a device: those that have been fetched, and waiting for those of a queue pair. */
#include "verbs.h"

#include <string.h>

static void fetch_more(struct verbs_device *device, int most)
{
    int n = ibv_poll_cq(device->cq, most, device->wc + device->nwc);
    device->nwc += n > 0 ? n : 0;
}

bool verbs_fetch(struct verbs_device *device)
{
    if (device->first == device->nwc) {
        device->first = device->nwc = 0;
        fetch_more(device, VERBS_POLL);
    }
    return device->nwc > device->first;
}

/* Reads of the pair among the completions that have been fetched. */
static uint32_t returned_reads(const struct verbs_pair *pair)
{
    const struct verbs_device *device = pair->device;
    uint32_t reads = 0;
    for (int i = device->first; i < device->nwc; i++) {
        const struct ibv_wc *wc = &device->wc[i];
        reads +=
            wc->qp_num == pair->number && verbs_wr_is_own(wc->wr_id) && verbs_wr_kind(wc->wr_id) == VERBS_PIECE_READ;
    }
    return reads;
}

/* Nobody may be called back here: what is fetched meanwhile is dealt with later. */
bool verbs_await_reads(struct verbs_pair *pair)
{
    struct verbs_device *device = pair->device;
    const struct bps_host *host = device->verbs->host;
    uint64_t limit = host->now() + VERBS_FLUSH;
    device->nwc -= device->first;
    memmove(device->wc, device->wc + device->first, (size_t)device->nwc * sizeof *device->wc);
    device->first = 0;
    while (returned_reads(pair) < pair->reads) {
        if (device->nwc == (int)device->cq_room || host->now() > limit) {
            return false;
        }
        fetch_more(device, (int)device->cq_room - device->nwc);
    }
    return true;
}
