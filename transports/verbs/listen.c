/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listeners, and the channels that peers open. */
#include "verbs.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define BACKLOG 4096

struct verbs_listener {
    LIST_ENTRY(verbs_listener) entry;
    struct rdma_cm_id *id;
    bps_accept_fn accept;
    void *arg;
};

/* ---- accepting ---- */

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    verbs_drop(channel);
}

static bool accept_request(struct bps_channel *channel, const struct verbs_terms *terms, struct bps_report *report)
{
    uint8_t own[VERBS_TERMS_BYTES];
    struct rdma_conn_param parameters;
    struct verbs_pair *pair = verbs_pair_new(channel, report);
    if (pair == NULL) {
        return false;
    }
    verbs_pair_agree(pair, terms);
    verbs_pair_parameters(pair, own, &parameters);
    if (!verbs_pair_ready(pair) || rdma_accept(channel->id, &parameters) != 0) {
        BPS_REPORT(report, "accept: %s", strerror(errno));
        return false;
    }
    pair->connected = true;
    return true;
}

/* A name that nobody guesses. False: the kernel has none. */
static bool name(struct bps_channel *channel, const struct verbs_terms *terms)
{
    channel->lasting = terms->lasting;
    return !terms->lasting || getrandom(&channel->token, sizeof channel->token, 0) == sizeof channel->token;
}

/* The peer has lost its way to a channel, and has found another. */
static void resume(struct bps_channel *channel, struct rdma_cm_id *id, const struct verbs_terms *terms,
                   const char *peer)
{
    const struct bps_host *host = channel->verbs->host;
    struct bps_report report = {"out of memory"};
    verbs_channel_disconnect(channel); /* an earlier attempt of the peer's */
    channel->id = id;
    id->context = channel;
    if (!accept_request(channel, terms, &report)) {
        host->log(host, BPS_LOG_WARN, "connection of %s: %s", peer, report.text);
        verbs_channel_disconnect(channel);
    }
}

/* The accepted channel that the peer means; NULL: none. */
static struct bps_channel *channel_of(const struct verbs *verbs, uint64_t token)
{
    struct bps_channel *channel;
    LIST_FOREACH(channel, &verbs->channels, entry) {
        if (channel->token == token && channel->dial == NULL &&
            (channel->state == VERBS_OPEN || channel->state == VERBS_SUSPENDED)) {
            return channel;
        }
    }
    return NULL;
}

static void refuse(struct rdma_cm_id *id)
{
    (void)rdma_reject(id, NULL, 0);
    rdma_destroy_id(id);
}

void verbs_listen_request(struct verbs *verbs, struct verbs_listener *listener, struct rdma_cm_id *id, const void *data,
                          size_t bytes)
{
    const struct bps_host *host = verbs->host;
    struct verbs_terms terms;
    struct bps_report report = {"out of memory"};
    char peer[BPS_UTIL_ADDRESS_TEXT];
    bps_util_address_text(rdma_get_peer_addr(id), peer, sizeof peer);
    id->context = NULL;
    if (!verbs_terms_get(data, bytes, &terms)) {
        host->log(host, BPS_LOG_WARN, "%s is not a peer of this transport, or has a different version", peer);
        refuse(id);
        return;
    }
    struct bps_channel *channel = terms.token != 0 ? channel_of(verbs, terms.token) : NULL;
    if (channel != NULL &&
        (channel->state == VERBS_SUSPENDED || verbs_suspend(channel, "the peer comes another way"))) {
        resume(channel, id, &terms, peer);
        return;
    }
    channel = terms.token == 0 ? verbs_channel_new(verbs) : NULL;
    if (channel == NULL) {
        refuse(id);
        return;
    }
    channel->state = VERBS_ACCEPTING;
    channel->id = id;
    channel->accept = listener->accept;
    channel->accept_arg = listener->arg;
    id->context = channel;
    if (!name(channel, &terms) || !accept_request(channel, &terms, &report)) {
        host->log(host, BPS_LOG_WARN, "connection of %s: %s", peer, report.text);
        verbs_drop(channel);
        return;
    }
    channel->timer = host->timer(host, verbs->options.timeout, 0, on_timeout, channel);
}

/* ---- listening ---- */

/* The addresses that peers can dial. A wildcard is no such address; it stands for those of all rails. */
static void announce(const struct verbs *verbs, struct rdma_cm_id *id, char *actual, size_t n)
{
    const struct sockaddr *bound = rdma_get_local_addr(id);
    struct sockaddr_storage own;
    char host[BPS_UTIL_ADDRESS_TEXT];
    size_t used = 0;
    for (uint32_t i = 0; bps_util_is_wildcard(bound) && i < verbs->nrails; i++) {
        if (verbs_own_address(verbs, &verbs->rails[i], bound->sa_family, &own)) {
            bps_util_host_text((struct sockaddr *)&own, host, sizeof host);
            /* Those without room are not told: they are reached by those that are. */
            if (used + strlen(host) + sizeof ",:65535" <= n) {
                used += (size_t)snprintf(actual + used, n - used, "%s%s", used > 0 ? "," : "", host);
            }
        }
    }
    if (used == 0) {
        bps_util_host_text(bound, host, sizeof host);
        used = (size_t)snprintf(actual, n, "%s", host);
    }
    snprintf(actual + used, n - used, ":%u", ntohs(rdma_get_src_port(id)));
}

/* With several rails they are listened on together. */
static void open_to_all(const struct verbs *verbs, struct sockaddr *address)
{
    if (verbs->nrails > 1 && address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)address)->sin6_addr = in6addr_any;
    } else if (verbs->nrails > 1) {
        ((struct sockaddr_in *)(void *)address)->sin_addr.s_addr = htonl(INADDR_ANY);
    }
}

static bool start(struct verbs *verbs, struct verbs_listener *listener, struct sockaddr *address)
{
    return rdma_create_id(verbs->manager, &listener->id, listener, RDMA_PS_TCP) == 0 &&
           rdma_bind_addr(listener->id, address) == 0 && rdma_listen(listener->id, BACKLOG) == 0;
}

static void listener_free(struct verbs *verbs, struct verbs_listener *listener)
{
    if (listener->id != NULL) {
        rdma_destroy_id(listener->id);
    }
    verbs->host->release(verbs->host, listener);
}

bps_status verbs_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                        struct bps_report *report)
{
    struct verbs *verbs = instance;
    bps_status status = BPS_OK;
    struct sockaddr_storage targets[VERBS_TARGETS];
    struct sockaddr *first = (struct sockaddr *)targets;
    if (verbs_resolve(verbs, address, targets, report) == 0) {
        return BPS_ERR_CONF;
    }
    open_to_all(verbs, first);
    struct verbs_listener *listener = verbs->host->alloc(verbs->host, sizeof *listener, 8);
    if (listener == NULL) {
        BPS_REPORT(report, "listen %s: out of memory", address);
        return BPS_ERR_NOMEM;
    }
    *listener = (struct verbs_listener){.accept = accept, .arg = arg};
    if (start(verbs, listener, first)) {
        LIST_INSERT_HEAD(&verbs->listeners, listener, entry);
        announce(verbs, listener->id, actual, n);
    } else {
        status = bps_util_listen_failed(first, errno, "no RDMA device of this host has this address", report);
        listener_free(verbs, listener);
    }
    return status;
}

void verbs_listeners_close(struct verbs *verbs)
{
    while (!LIST_EMPTY(&verbs->listeners)) {
        struct verbs_listener *listener = LIST_FIRST(&verbs->listeners);
        LIST_REMOVE(listener, entry);
        listener_free(verbs, listener);
    }
}

bool verbs_listens_by(const struct verbs *verbs, const struct rdma_cm_id *id)
{
    const struct verbs_listener *listener = LIST_FIRST(&verbs->listeners);
    while (listener != NULL && listener->id != id) {
        listener = LIST_NEXT(listener, entry);
    }
    return listener != NULL;
}
