/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c - a new queue pair takes over from the one that a channel has lost (suspend.c). */
#include "verbs.h"

/* Who has said all may not learn whether the peer has heard it. */
bps_status verbs_status_of_loss(const struct bps_channel *channel)
{
    return channel->out.finished ? BPS_OK : BPS_ERR_TIMEOUT;
}

static bool fits(const struct verbs_pair *pair, const struct verbs_pair *former)
{
    const struct verbs_terms *a = &pair->peer, *b = &former->peer;
    return former->slot - a->received <= b->credits && a->credits == b->credits && a->eager == b->eager &&
           a->block == b->block;
}

void verbs_resume(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair, *former = channel->former;
    if (!fits(pair, former)) {
        verbs_channel_end(channel, BPS_ERR_PROTOCOL, "the peer has resumed a different connection");
        return;
    }
    uint32_t missing = former->slot - pair->peer.received;
    verbs_pair_inherit(pair, former);
    channel->former = NULL;
    verbs_pair_leave(former);
    bps_util_cancel(channel->verbs->host, &channel->timer);
    channel->out.finish_done = channel->out.finished && missing == 0;
    if (!verbs_send_again(channel, missing)) {
        verbs_channel_end(channel, BPS_ERR_IO, "another RDMA device refused the memory of a frame");
        return;
    }
    verbs_channel_open(channel);
}
