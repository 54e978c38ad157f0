/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial.c - connecting to a peer: every address of its name in turn, each for a limited time.
 *
 * A name is looked up by the C library, which may block as long as the name service takes. Numbers never do.
 */
#include "tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static void note_failure(struct bps_channel *channel, int error)
{
    struct tcp_dial *dial = channel->dial;
    char address[BPS_UTIL_ADDRESS_TEXT], reason[100];
    bps_util_address_text(dial->at->ai_addr, address, sizeof address);
    tcp_reason(channel->tcp, error, reason, sizeof reason);
    snprintf(dial->failure, sizeof dial->failure, "connect %s: %s", address, reason);
}

/* Leaves by the interface that has a link to the peer, else by that of this lane, if there are any. */
static int bind_to_interface(const struct bps_channel *channel, int fd, const struct sockaddr *peer)
{
    const struct bps_list *interfaces = &channel->tcp->options.interface;
    struct sockaddr_storage own;
    const int yes = 1;
    if (interfaces->count == 0 || bps_util_is_loopback(peer)) {
        return 0;
    }
    if (!tcp_interface_towards(interfaces, channel->dial->lane, peer, &own)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    /* The port is chosen by connect, so that it may serve towards several peers. */
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    bps_util_set_port((struct sockaddr *)&own, 0);
    return bind(fd, (struct sockaddr *)&own, bps_util_address_length((struct sockaddr *)&own));
}

static void on_timeout(void *arg);

/* A watched socket that connects to the address that is to be tried; false: it failed at once. */
static bool connect_socket(struct bps_channel *channel)
{
    const struct addrinfo *at = channel->dial->at;
    int fd = tcp_socket(channel->tcp, at->ai_family);
    if (fd < 0) {
        note_failure(channel, errno);
        return false;
    }
    if (bind_to_interface(channel, fd, at->ai_addr) != 0 ||
        (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        note_failure(channel, errno);
        close(fd);
        return false;
    }
    if (!tcp_channel_attach(channel, fd)) {
        note_failure(channel, ENOMEM);
        close(fd);
        return false;
    }
    return true;
}

static bool attempt(struct bps_channel *channel)
{
    const struct tcp *tcp = channel->tcp;
    bps_util_fork_hold();
    bool begun = connect_socket(channel);
    bps_util_fork_release();
    if (begun && tcp->options.user_timeout > 0) {
        channel->timer = tcp->host->timer(tcp->host, tcp->options.user_timeout, 0, on_timeout, channel);
    }
    return begun;
}

/* Goes through the addresses until one connects or is under way. */
static void attempt_rest(struct bps_channel *channel)
{
    while (channel->dial->at != NULL && !attempt(channel)) {
        channel->dial->at = channel->dial->at->ai_next;
    }
}

/* This address is done with: the next one, or the end. */
static void give_up(struct bps_channel *channel, int error)
{
    note_failure(channel, error);
    tcp_channel_detach(channel);
    channel->dial->at = channel->dial->at->ai_next;
    attempt_rest(channel);
    if (channel->dial->at == NULL) {
        tcp_channel_end(channel, BPS_ERR_IO, channel->dial->failure);
    }
}

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    tcp_hold(channel);
    give_up(channel, ETIMEDOUT);
    tcp_release(channel);
}

/*
 * Dialling a free port of this host again and again meets, sooner or later, the very port that the kernel
 * picks for our own end: the socket is then connected to itself.
 */
static bool is_connected_to_itself(int fd, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    char a[BPS_UTIL_ADDRESS_TEXT], b[BPS_UTIL_ADDRESS_TEXT];
    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
        return false;
    }
    bps_util_address_text((const struct sockaddr *)&own, a, sizeof a);
    bps_util_address_text((const struct sockaddr *)peer, b, sizeof b);
    return strcmp(a, b) == 0;
}

void tcp_dial_continue(struct bps_channel *channel)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer, size = sizeof(int);
    int error = 0;
    if (channel->dial->at == NULL) {
        tcp_channel_end(channel, BPS_ERR_IO, channel->dial->failure);
        return;
    }
    if (getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error == 0 && getpeername(channel->fd, (struct sockaddr *)&peer, &length) != 0) {
        return; /* not yet */
    }
    if (error == 0 && is_connected_to_itself(channel->fd, &peer)) {
        error = ECONNREFUSED;
    }
    if (error != 0) {
        give_up(channel, error);
        return;
    }
    bps_util_cancel(channel->tcp->host, &channel->timer);
    tcp_dial_free(channel);
    tcp_channel_open(channel);
    channel->events->connected(channel->user);
}

void tcp_dial_free(struct bps_channel *channel)
{
    struct tcp_dial *dial = channel->dial;
    if (dial == NULL) {
        return;
    }
    if (dial->list != NULL) {
        freeaddrinfo(dial->list);
    }
    channel->tcp->host->release(channel->tcp->host, dial);
    channel->dial = NULL;
}

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

bps_status tcp_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_events *events,
                    void *user, struct bps_channel **out, struct bps_report *report)
{
    struct tcp *tcp = instance;
    struct bps_util_target target;
    char one[300];
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
    attempt_rest(channel);
    if (dial->at == NULL) {
        tcp_channel_queue(channel);
    }
    *out = channel;
    return BPS_OK;
}
