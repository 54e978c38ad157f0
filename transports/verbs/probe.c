/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - losses that nothing under way would notice: the side that has dialled probes its peers once a second, and
 * leaves an own port that is down at once.
 */
#include "verbs.h"

#define PROBE_PERIOD 1000000000ull /* ns */

/* ---- ports that are down ---- */

static void leave_port(struct verbs *verbs, const struct verbs_rail *rail)
{
    struct bps_channel *channel;
    char text[32];
    snprintf(text, sizeof text, "port %u is down", rail->port);
    LIST_FOREACH(channel, &verbs->channels, entry) {
        if (channel->state == VERBS_OPEN && channel->dial != NULL && channel->pair->device == rail->device &&
            channel->id->port_num == rail->port) {
            (void)verbs_suspend(channel, text); /* false: it has nothing more to send or to receive */
        }
    }
}

void verbs_leave_ports(struct verbs *verbs)
{
    bool active[VERBS_RAILS], any = false;
    for (uint32_t i = 0; i < verbs->nrails; i++) {
        active[i] = verbs_port_is_active(verbs->rails[i].device->context, verbs->rails[i].port);
        any = any || active[i];
    }
    for (uint32_t i = 0; i < verbs->nrails && any; i++) {
        if (!active[i]) {
            leave_port(verbs, &verbs->rails[i]);
        }
    }
}

/* ---- peers ---- */

/* Only one instance of a process reads an event of a device: the others see here that a port is down. */
static void probe_all(void *arg)
{
    struct verbs *verbs = arg;
    struct bps_channel *channel;
    verbs_leave_ports(verbs);
    LIST_FOREACH(channel, &verbs->channels, entry) {
        struct verbs_pair *pair = channel->pair;
        if (channel->state == VERBS_OPEN && channel->token != 0 && channel->dial != NULL && !pair->probing &&
            verbs_post_room(pair)) {
            verbs_post_probe(pair);
        }
    }
}

void verbs_probe_start(struct verbs *verbs)
{
    if (verbs->probe == NULL) {
        verbs->probe = verbs->host->timer(verbs->host, PROBE_PERIOD, PROBE_PERIOD, probe_all, verbs);
    }
}

void verbs_probe_stop(struct verbs *verbs)
{
    bps_util_cancel(verbs->host, &verbs->probe);
}
