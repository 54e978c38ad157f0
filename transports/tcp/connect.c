/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c - connecting to a peer: every address of its name in turn, each for a limited time. */
#include "tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

void tcp_channel_open(struct bps_channel *channel)
{
    channel->state = TCP_OPEN;
    bps_util_cancel(channel->tcp->host, &channel->timer);
    tcp_silence_watch(channel->tcp);
    tcp_send_room(channel);
    if (channel->finishing) {
        tcp_linger(channel);
    }
}

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

void tcp_connect_begin(struct bps_channel *channel)
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
    tcp_connect_begin(channel);
    if (channel->dial->at == NULL) {
        tcp_channel_end(channel, BPS_ERR_IO, channel->dial->failure);
    }
}

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    give_up(channel, ETIMEDOUT);
    if (channel->state == TCP_ENDING) {
        tcp_channel_queue(channel);
    }
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

void tcp_connect_continue(struct bps_channel *channel)
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
    tcp_connect_free(channel);
    tcp_channel_open(channel);
    channel->events->connected(channel->user);
}

void tcp_connect_free(struct bps_channel *channel)
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
