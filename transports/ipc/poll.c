/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c - looking at the rings, and going to sleep, from which peers wake us (wake.c). */
#include "ipc.h"

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
