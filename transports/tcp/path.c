/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - what the kernel knows of a path, and another congestion control for long paths that lose.
 *
 * cubic takes each loss for a full queue, and sends three tenths less. Where queues are long beside the path, as
 * between hosts of one room, they keep the link full meanwhile, and connections that share it get even parts. Where the
 * path is longer than the queue the link runs empty for many round trips, whatever the reason of the loss; there the
 * system's default is used, if it is another one. One that goes by rates, such as bbr, divides links with short queues
 * badly, so that it is not the first choice.
 *
 * The kernel tells the round trip with and without queues. A segment that came twice was not lost, only late.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "tcp.h"

#define PERIOD  20000000ull /* ns, between two looks */
#define VERDICT 2
#define FAR     500            /* us: on a longer path a loss costs so much that the first one counts */
#define LOWEST  (-4 * VERDICT) /* so that a path that was full for hours may begin to lose */
#define UNKNOWN UINT32_MAX

static bool get_info(const struct bps_channel *channel, struct tcp_info *info)
{
    socklen_t length = sizeof *info;
    memset(info, 0, sizeof *info); /* older kernels tell less */
    return channel->fd >= 0 && getsockopt(channel->fd, IPPROTO_TCP, TCP_INFO, info, &length) == 0;
}

static void change(struct bps_channel *channel)
{
    const char *name = channel->tcp->other_congestion;
    (void)setsockopt(channel->fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    channel->path.changed = true;
}

void tcp_path_look(struct bps_channel *channel)
{
    struct tcp_path *path = &channel->path;
    struct tcp *tcp = channel->tcp;
    struct tcp_info info;
    if (tcp->other_congestion[0] == '\0' || path->changed) {
        return;
    }
    uint64_t now = tcp->host->now();
    if (now - path->looked < PERIOD) {
        return;
    }
    path->looked = now;
    if (!get_info(channel, &info)) {
        return;
    }
    uint32_t lost = info.tcpi_total_retrans - info.tcpi_dsack_dups;
    if (lost != path->lost && info.tcpi_min_rtt != UNKNOWN) {
        /* With a queue of half the trip the window still covers the path after it was cut by three tenths. */
        if (info.tcpi_rtt < info.tcpi_min_rtt + info.tcpi_min_rtt / 2) {
            path->verdict += info.tcpi_min_rtt < FAR ? 1 : VERDICT;
        } else if (path->verdict > LOWEST) {
            path->verdict--;
        }
    }
    path->lost = lost;
    if (path->verdict >= VERDICT) {
        change(channel);
    }
}

uint64_t tcp_round_trip(struct bps_channel *channel)
{
    struct tcp_info info;
    bool timed = get_info(channel, &info) && info.tcpi_min_rtt != UNKNOWN;
    return timed ? info.tcpi_min_rtt * 1000ull : 0;
}

bool tcp_delivered(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy)
{
    struct tcp_info info;
    if (!get_info(channel, &info)) {
        return false;
    }
    *bytes = info.tcpi_bytes_acked;
    *busy = info.tcpi_busy_time * 1000ull;
    return true;
}
