/* SPDX-License-Identifier: Apache-2.0 */
/* end.c - the end in order: it waits for the peer as long as that takes bytes, but not for ever. */
#include "tcp.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

static void on_linger(void *arg)
{
    struct bps_channel *channel = arg;
    int left = 0;
    channel->timer = NULL;
    (void)ioctl(channel->fd, SIOCOUTQ, &left);
    if (channel->progress || left != channel->left) {
        channel->left = left;
        tcp_linger(channel);
    } else {
        tcp_channel_end(channel, BPS_ERR_TIMEOUT,
                        channel->shut ? "the peer has not closed the connection within 5 s"
                                      : "the peer has not taken what was left to send within 5 s");
        tcp_channel_queue(channel);
    }
}

void tcp_linger(struct bps_channel *channel)
{
    const struct bps_host *host = channel->tcp->host;
    channel->progress = false;
    if (channel->timer == NULL) {
        channel->timer = host->timer(host, TCP_LINGER, 0, on_linger, channel);
    }
}

void tcp_finish(struct bps_channel *channel)
{
    if (channel->state == TCP_DEAD || channel->finishing) {
        return;
    }
    channel->finishing = true;
    if (channel->state == TCP_OPEN) {
        tcp_linger(channel);
    }
    tcp_kick(channel);
}
