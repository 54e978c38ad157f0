/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll.c - looking at the rings, going to sleep, and waking peers.
 *
 * Who writes an index and then looks whether the other sleeps, and who says that it sleeps and then looks at
 * the index, have a full fence in between: one of them sees the other.
 */
#include "ipc.h"

#include <unistd.h>

bool ipc_waits(const struct bps_channel *channel)
{
    return channel->starved || channel->finishing || channel->tickets.first != IPC_NONE;
}

static bool has_work(const struct bps_channel *channel)
{
    return channel->state == IPC_OPEN &&
           (ipc_ring_ready(&channel->ring) || (ipc_waits(channel) && ipc_ring_moved(&channel->ring)));
}

static void disarm(struct ipc *ipc)
{
    const struct bps_channel *channel;
    ipc->armed = false;
    LIST_FOREACH(channel, &ipc->channels, entry) {
        if (channel->state == IPC_OPEN) {
            atomic_store_explicit(&channel->ring.own->sleeping, 0, memory_order_relaxed);
        }
    }
}

bool ipc_poll(void *arg)
{
    struct ipc *ipc = arg;
    struct bps_channel *channel;
    bool worked = false;
    if (ipc->armed) {
        disarm(ipc);
    }
    for (channel = LIST_FIRST(&ipc->channels); channel != NULL; channel = ipc->cursor) {
        ipc->cursor = LIST_NEXT(channel, entry);
        if (has_work(channel)) {
            ipc_channel_turn(channel);
            worked = true;
        }
    }
    if (worked) {
        bps_util_turns_run(&ipc->turns);
    }
    return worked;
}

bool ipc_arm(void *arg)
{
    struct ipc *ipc = arg;
    const struct bps_channel *channel;
    ipc->armed = true;
    LIST_FOREACH(channel, &ipc->channels, entry) {
        if (channel->state == IPC_OPEN) {
            struct ipc_side *own = channel->ring.own;
            atomic_store_explicit(&own->waiting, ipc_waits(channel), memory_order_relaxed);
            atomic_store_explicit(&own->sleeping, 1, memory_order_release);
        }
    }
    atomic_thread_fence(memory_order_seq_cst);
    LIST_FOREACH(channel, &ipc->channels, entry) {
        if (has_work(channel)) {
            return false;
        }
    }
    return true;
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
