/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial.c - channels to peers, which connect.c connects.
 *
 * A name is looked up by the C library, which may block as long as the name service takes. Numbers never do.
 */
#include "tcp.h"

#include <netdb.h>

/*
 * A name that is not known (yet) is a refusal like any other: it is told by closed, and may be tried again.
 */
static void look_up(struct bps_channel *channel, const struct bps_util_target *target)
{
    struct tcp_dial *dial = channel->dial;
    struct bps_report report = {""};
    dial->list = dial->at = bps_util_resolve(target, channel->tcp->options.family, &report);
    snprintf(dial->failure, sizeof dial->failure, "%.255s", report.text);
}

bps_status tcp_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                    const struct bps_channel_events *events, void *user, struct bps_channel **out,
                    struct bps_report *report)
{
    struct tcp *tcp = instance;
    struct bps_util_target target;
    char one[300];
    (void)key;
    tcp_addresses_pick(address, lane, one, sizeof one);
    bps_status status = bps_util_target_parse_peer(one, &target, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_channel *channel = tcp_channel_new(tcp);
    struct tcp_dial *dial = tcp->host->alloc(tcp->host, sizeof *dial, 8);
    if (channel == NULL || dial == NULL) {
        tcp->host->release(tcp->host, dial);
        tcp_drop(channel);
        BPS_REPORT(report, "dial %.200s: out of memory", address);
        return BPS_ERR_NOMEM;
    }
    *dial = (struct tcp_dial){.lane = lane};
    channel->dial = dial;
    channel->events = events;
    channel->user = user;
    look_up(channel, &target);
    if (dial->list != NULL && !bps_util_is_loopback(dial->list->ai_addr)) {
        tcp_addresses_compare(tcp, address, lane);
    }
    tcp_connect_begin(channel);
    if (dial->at == NULL) {
        tcp_channel_queue(channel);
    }
    *out = channel;
    return BPS_OK;
}
