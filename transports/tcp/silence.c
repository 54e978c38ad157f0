/* SPDX-License-Identifier: Apache-2.0 */
/*
 * silence.c - finds peers that are gone: something waits for an acknowledgement, and none at all has come for
 * `user_timeout`.
 *
 * The kernel's own TCP_USER_TIMEOUT was seen to end connections that were only congested: with losses on a slow
 * link, while peers answered. It also ends those to a peer that is alive and reads nothing.
 */
#include "tcp.h"

#include <errno.h>
#include <linux/mptcp.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#define LOOKS 8 /* within user_timeout */

#ifndef SOL_MPTCP
#define SOL_MPTCP 284 /* not in the C library yet */
#endif

/* True if the peer has acknowledged new bytes since the last look, over whichever path. */
static bool has_progress(struct bps_channel *channel)
{
    struct mptcp_info info;
    socklen_t length = sizeof info;
    if (!channel->tcp->options.multipath || getsockopt(channel->fd, SOL_MPTCP, MPTCP_INFO, &info, &length) != 0) {
        return false;
    }
    bool progress = info.mptcpi_snd_una != channel->acknowledged;
    channel->acknowledged = info.mptcpi_snd_una;
    return progress;
}

/*
 * When the kernel last had an acknowledgement of the peer, of new bytes or of old ones. Of a connection over
 * several paths it tells that of the first path only.
 */
static uint64_t last_heard(const struct bps_channel *channel, uint64_t now)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (getsockopt(channel->fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return now;
    }
    return now - info.tcpi_last_ack_recv * 1000000ull;
}

static bool is_silent(struct bps_channel *channel, uint64_t now)
{
    int waiting = 0; /* bytes that the peer has not acknowledged */
    if (channel->state != TCP_OPEN || ioctl(channel->fd, SIOCOUTQ, &waiting) != 0 || waiting == 0) {
        channel->silent_since = 0;
        return false;
    }
    uint64_t heard = has_progress(channel) ? now : last_heard(channel, now);
    if (channel->silent_since == 0) {
        channel->silent_since = now;
    } else if (heard > channel->silent_since) {
        channel->silent_since = heard;
    }
    return now - channel->silent_since >= channel->tcp->options.user_timeout;
}

static void look(void *arg)
{
    const struct tcp *tcp = arg;
    struct bps_channel *channel;
    uint64_t now = tcp->host->now();
    LIST_FOREACH(channel, &tcp->channels, entry) {
        if (is_silent(channel, now)) {
            tcp_channel_fail(channel, "send", ETIMEDOUT);
            tcp_channel_queue(channel);
        }
    }
}

void tcp_silence_watch(struct tcp *tcp)
{
    uint64_t period = tcp->options.user_timeout / LOOKS;
    if (tcp->silence == NULL && period > 0) {
        tcp->silence = tcp->host->timer(tcp->host, period, period, look, tcp);
    }
}

void tcp_silence_unwatch(struct tcp *tcp)
{
    bps_util_cancel(tcp->host, &tcp->silence);
}
