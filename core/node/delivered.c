/* SPDX-License-Identifier: Apache-2.0 */
/* delivered.c - what channels have delivered. */
#include "node/delivered.h"

#include "plugin/use.h"

void bps_delivered_look(struct bps_delivered *delivered, struct bps_delivered_mark *mark, const struct bps_link *link)
{
    struct bps_delivered_mark now;
    if (link->channel == NULL || link->state != BPS_LINK_OPEN) {
        return;
    }
    const struct bps_transport_ops *transport = link->transport->ops;
    BPS_CALLING(link->transport, "delivered", NULL);
    if (!transport->delivered(link->channel, &now.bytes, &now.busy)) {
        return;
    }
    if (now.bytes >= mark->bytes && now.busy >= mark->busy) { /* else it is another connection than before */
        atomic_fetch_add_explicit(&delivered->bytes, now.bytes - mark->bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&delivered->busy, now.busy - mark->busy, memory_order_relaxed);
    }
    *mark = now;
}

uint32_t bps_delivered_report(struct bps_delivered *delivered, uint32_t member, struct bps_writer *w)
{
    uint64_t bytes = atomic_exchange_explicit(&delivered->bytes, 0, memory_order_relaxed);
    uint64_t busy = atomic_exchange_explicit(&delivered->busy, 0, memory_order_relaxed);
    if (bytes == 0) {
        return 0;
    }
    bps_put_u32(w, member);
    bps_put_u64(w, bytes);
    bps_put_u64(w, busy);
    return 1;
}
