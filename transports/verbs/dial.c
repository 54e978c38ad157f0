/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial.c - channels to peers, which connect.c connects.
 *
 * A name is looked up by the C library, which may block as long as the name service takes. Numbers never do.
 */
#include "verbs.h"

#include <string.h>

bps_status verbs_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                      const struct bps_channel_events *events, void *user, struct bps_channel **out,
                      struct bps_report *report)
{
    struct verbs *verbs = instance;
    struct bps_report reason = {""};
    (void)key;
    bps_status status = verbs_check_target(address, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_channel *channel = verbs_channel_new(verbs);
    struct verbs_dial *dial = verbs->host->alloc(verbs->host, sizeof *dial, 8);
    if (channel == NULL || dial == NULL) {
        verbs->host->release(verbs->host, dial);
        verbs_drop(channel);
        BPS_REPORT(report, "dial %.200s: out of memory", address);
        return BPS_ERR_NOMEM;
    }
    channel->dial = dial;
    channel->lasting = verbs->nrails > 1 || strchr(address, ',') != NULL;
    channel->events = events;
    channel->user = user;
    /* A name that is not known (yet) is a refusal like any other: told by closed, and may be tried again. */
    *dial = (struct verbs_dial){.lane = lane};
    dial->ntargets = verbs_resolve(verbs, address, dial->targets, &reason);
    dial->left = dial->ntargets * verbs->nrails;
    snprintf(dial->failure, sizeof dial->failure, "%.255s", reason.text);
    verbs_connect_begin(channel);
    if (dial->left == 0) {
        verbs_channel_queue(channel);
    }
    if (channel->lasting) {
        verbs_probe_start(verbs);
    }
    *out = channel;
    return BPS_OK;
}
