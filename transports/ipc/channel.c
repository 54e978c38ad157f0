/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - what every part may do with a channel: give it a turn, note that it is to end, take its messages. */
#include "ipc.h"

void ipc_channel_queue(struct bps_channel *channel)
{
    if (channel->state != IPC_DEAD) {
        bps_util_turn_queue(&channel->ipc->turns, &channel->turn);
    }
}

void ipc_kick(struct bps_channel *channel)
{
    channel->kicked = !channel->shut; /* after its last BPS_AGAIN `next` is not asked again */
    if (channel->state == IPC_OPEN && !channel->starved && !channel->sends) {
        ipc_channel_queue(channel);
    }
}

void ipc_channel_end(struct bps_channel *channel, bps_status status, const char *reason)
{
    if (channel->state != IPC_ENDING && channel->state != IPC_DEAD) {
        channel->state = IPC_ENDING;
        channel->status = status;
        channel->reason = reason;
    }
}

static void on_hurry(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    ipc_channel_end(channel, BPS_ERR_TIMEOUT, "the peer has not answered in time");
    ipc_channel_queue(channel);
}

void ipc_channel_hurry(struct bps_channel *channel)
{
    const struct ipc *ipc = channel->ipc;
    channel->timer = ipc->host->timer(ipc->host, ipc->options.timeout, 0, on_hurry, channel);
}

/* ---- messages ---- */

bps_status ipc_channel_receive(struct bps_channel *channel, struct ipc_message *message)
{
    bps_util_fork_hold();
    bps_status status = ipc_message_receive(channel->fd, message, channel->fds);
    bps_util_fork_release();
    return status;
}

void ipc_channel_close_fds(struct bps_channel *channel)
{
    for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
        ipc_fork_close(&channel->fds[i]);
    }
}
