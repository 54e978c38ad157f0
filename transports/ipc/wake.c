/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wake.c - telling a peer what is new, and waking it if it sleeps.
 *
 * Who writes an index and then looks whether the other sleeps, and who says that it sleeps and then looks at
 * the index (poll.c), have a full fence in between: one of them sees the other.
 */
#include "ipc.h"

#include <unistd.h>

bool ipc_waits(const struct bps_channel *channel)
{
    return channel->starved || channel->finishing || channel->tickets.first != IPC_NONE;
}

void ipc_flush(struct bps_channel *channel)
{
    struct ipc_ring *ring = &channel->ring;
    const uint64_t one = 1;
    bool records = ring->announced != ring->tail;
    if (!ipc_ring_tell(ring) && !records) {
        return;
    }
    ring->announced = ring->tail;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&ring->peer->sleeping, memory_order_acquire) == 0 ||
        (!records && atomic_load_explicit(&ring->peer->waiting, memory_order_relaxed) == 0)) {
        return;
    }
    if (atomic_exchange(&ring->peer->sleeping, 0) != 0) {
        ++*channel->ipc->count.wakeups;
        if (write(channel->event, &one, sizeof one) != sizeof one) {
            return; /* its counter is full: the event is there already */
        }
    }
}
