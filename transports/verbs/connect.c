/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.c - connecting to a peer: every address of its name in turn, each for a limited time. An address is
 * resolved to a device, then to a route, and then the queue pair is connected.
 */
#include "verbs.h"

#include <errno.h>
#include <string.h>

#define REJECTED_NO_LISTENER 8 /* reasons of the connection manager, as events have them */
#define REJECTED_BY_PEER     28

/*
 * In each round all addresses are tried, from the next rail each; there are as many rounds as rails. So the
 * lanes of a peer are spread over both, and all ways are tried in the end.
 */
static struct sockaddr *target(struct verbs_dial *dial)
{
    return (struct sockaddr *)&dial->targets[(dial->lane + dial->attempt) % dial->ntargets];
}

static const struct verbs_rail *rail(const struct verbs *verbs, const struct verbs_dial *dial)
{
    uint32_t round = dial->attempt / dial->ntargets;
    return &verbs->rails[(dial->lane + dial->attempt % dial->ntargets + round) % verbs->nrails];
}

static void note_failure(struct bps_channel *channel, const char *reason)
{
    struct verbs_dial *dial = channel->dial;
    char address[BPS_UTIL_ADDRESS_TEXT];
    bps_util_address_text(target(dial), address, sizeof address);
    snprintf(dial->failure, sizeof dial->failure, "connect %s: %s", address, reason);
}

static int milliseconds(const struct verbs *verbs)
{
    return (int)((verbs->options.timeout + 999999) / 1000000);
}

static void set_class(const struct bps_channel *channel)
{
    uint8_t class = (uint8_t)channel->verbs->options.traffic_class;
    /* A wish: where the kernel does not know it, the connection works all the same. */
    (void)rdma_set_option(channel->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof class);
}

/* Where the options name a device or an address, connections leave from there. */
static struct sockaddr *source(const struct verbs *verbs, const struct verbs_rail *from, int family,
                               struct sockaddr_storage *own)
{
    bool named = verbs->options.device.count > 0 || verbs->options.host.count > 0 || verbs->options.gid_index >= 0;
    return named && verbs_own_address(verbs, from, family, own) ? (struct sockaddr *)own : NULL;
}

static void on_timeout(void *arg);

static bool attempt(struct bps_channel *channel)
{
    struct verbs *verbs = channel->verbs;
    struct sockaddr *to = target(channel->dial);
    struct sockaddr_storage own;
    if (rdma_create_id(verbs->manager, &channel->id, channel, RDMA_PS_TCP) != 0) {
        note_failure(channel, strerror(errno));
        return false;
    }
    set_class(channel);
    if (rdma_resolve_addr(channel->id, source(verbs, rail(verbs, channel->dial), to->sa_family, &own), to,
                          milliseconds(verbs)) != 0) {
        note_failure(channel, strerror(errno));
        rdma_destroy_id(channel->id);
        channel->id = NULL;
        return false;
    }
    channel->timer = verbs->host->timer(verbs->host, verbs->options.timeout, 0, on_timeout, channel);
    return true;
}

static void next_attempt(struct verbs_dial *dial)
{
    dial->attempt++;
    dial->left--;
}

void verbs_connect_begin(struct bps_channel *channel)
{
    while (channel->dial->left > 0 && !attempt(channel)) {
        next_attempt(channel->dial);
    }
}

void verbs_connect_lost(struct bps_channel *channel)
{
    char text[sizeof channel->lost + sizeof channel->dial->failure + 2];
    snprintf(text, sizeof text, "%s%s%s", channel->lost, channel->former != NULL ? "; " : "", channel->dial->failure);
    verbs_channel_end(channel, channel->former == NULL ? BPS_ERR_IO : verbs_status_of_loss(channel), text);
}

/* This address is done with: the next one, or the end. */
static void give_up(struct bps_channel *channel, const char *reason)
{
    note_failure(channel, reason);
    bps_util_cancel(channel->verbs->host, &channel->timer);
    verbs_channel_disconnect(channel);
    next_attempt(channel->dial);
    verbs_connect_begin(channel);
    if (channel->dial->left == 0) {
        verbs_connect_lost(channel);
    }
}

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    give_up(channel, "no answer");
    if (channel->state == VERBS_ENDING) {
        verbs_channel_queue(channel);
    }
}

static void connect_pair(struct bps_channel *channel)
{
    uint8_t terms[VERBS_TERMS_BYTES];
    struct rdma_conn_param parameters;
    struct bps_report report = {"out of memory"};
    struct verbs_pair *pair = verbs_pair_new(channel, &report);
    if (pair == NULL) {
        give_up(channel, report.text);
        return;
    }
    verbs_pair_parameters(pair, terms, &parameters);
    if (rdma_connect(channel->id, &parameters) != 0) {
        give_up(channel, strerror(errno));
    }
}

static void answered(struct bps_channel *channel, const void *data, size_t bytes)
{
    struct verbs_terms terms;
    if (!verbs_terms_get(data, bytes, &terms)) {
        give_up(channel, "the peer is not a transport of this kind, or has a different version");
        return;
    }
    verbs_pair_agree(channel->pair, &terms);
    if (!verbs_pair_ready(channel->pair) || rdma_establish(channel->id) != 0) {
        give_up(channel, strerror(errno));
        return;
    }
    channel->pair->connected = true;
    bps_util_cancel(channel->verbs->host, &channel->timer);
    if (channel->former != NULL) {
        verbs_resume(channel);
        return;
    }
    channel->token = terms.token;
    if (channel->token == 0) {
        verbs_connect_free(channel);
    }
    verbs_channel_open(channel);
    channel->events->connected(channel->user);
}

void verbs_connect_again(struct bps_channel *channel)
{
    struct verbs_dial *dial = channel->dial;
    dial->attempt++;
    dial->left = dial->ntargets * channel->verbs->nrails;
    verbs_connect_begin(channel);
    if (dial->left == 0) {
        verbs_channel_queue(channel);
    }
}

static const char *rejection(int reason)
{
    switch (reason) {
    case REJECTED_NO_LISTENER:
        return "connection refused";
    case REJECTED_BY_PEER:
        return "the peer has refused the connection; its log says why";
    default:
        return "connection rejected";
    }
}

void verbs_connect_event(struct bps_channel *channel, const struct rdma_cm_event *event, const void *data, size_t bytes)
{
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (channel->id->verbs == NULL) {
            give_up(channel, "no RDMA device has a route to this address");
        } else if (rdma_resolve_route(channel->id, milliseconds(channel->verbs)) != 0) {
            give_up(channel, strerror(errno));
        }
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        connect_pair(channel);
        break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        answered(channel, data, bytes);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        give_up(channel,
                event->status == -ENODEV ? "no RDMA device has a route to this address" : strerror(-event->status));
        break;
    case RDMA_CM_EVENT_REJECTED:
        give_up(channel, rejection(event->status));
        break;
    default:
        give_up(channel, event->status < 0 ? strerror(-event->status) : rdma_event_str(event->event));
    }
}

void verbs_connect_free(struct bps_channel *channel)
{
    channel->verbs->host->release(channel->verbs->host, channel->dial);
    channel->dial = NULL;
}
