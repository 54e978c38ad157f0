/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets and the channels that peers open. */
#include "tcp.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 4096

/* ---- accepting ---- */

static struct bps_channel *adopt(void *instance, int fd)
{
    struct tcp *tcp = instance;
    struct bps_channel *channel = tcp_channel_new(tcp);
    if (channel == NULL) {
        close(fd);
        return NULL;
    }
    tcp_socket_tune(tcp, fd);
    if (!tcp_channel_attach(channel, fd)) {
        close(fd);
        tcp_drop(channel);
        return NULL;
    }
    return channel;
}

static void welcome(struct bps_util_listener *listener, struct bps_channel *channel, const struct sockaddr *address)
{
    char peer[BPS_UTIL_ADDRESS_TEXT];
    const struct bps_channel_key *key;
    bps_util_address_text(address, peer, sizeof peer);
    tcp_hold(channel);
    const struct bps_channel_events *events = listener->accept(listener->arg, channel, peer, &channel->user, &key);
    if (channel->state != TCP_DEAD) {
        channel->events = events;
        if (events != NULL) {
            tcp_channel_open(channel);
        } else {
            tcp_drop(channel);
        }
    }
    tcp_release(channel);
}

static const struct bps_util_acceptor acceptor = {.adopt = adopt, .welcome = welcome};

/* ---- listening ---- */

/* The host to listen on when none is given. */
static bps_status own_choice(const struct tcp *tcp, struct bps_util_target *target, struct bps_report *report)
{
    const struct tcp_options *o = &tcp->options;
    struct sockaddr_storage address;
    const char *host = o->family == BPS_UTIL_FAMILY_IPV6 ? "::1" : "127.0.0.1";
    char text[NI_MAXHOST];
    if (*o->host != '\0') {
        host = o->host;
    } else if (o->interface.count > 0) {
        const char *name = o->interface.items[0];
        if (!tcp_interface_address(name, bps_util_family(o->family), &address)) {
            BPS_REPORT(report, "interface %s has no address to listen on", name);
            return BPS_ERR_CONF;
        }
        bps_util_number_text((struct sockaddr *)&address, text, sizeof text);
        host = text;
    }
    snprintf(target->host, sizeof target->host, "%.255s", host);
    return BPS_OK;
}

static int bind_and_listen(const struct tcp *tcp, const struct sockaddr *address)
{
    const int yes = 1, no = 0;
    int fd = tcp_socket(tcp, address->sa_family);
    if (fd < 0) {
        return -1;
    }
    if (address->sa_family == AF_INET6) {
        const int *only = tcp->options.family == BPS_UTIL_FAMILY_IPV6 ? &yes : &no;
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
    }
    return bps_util_bind_and_listen(fd, address, bps_util_address_length(address), BACKLOG) ? fd : -1;
}

/* The address that peers can dial. A wildcard is no such address. */
static void announce(int fd, bool v6_only, char *actual, size_t n)
{
    struct sockaddr_storage bound, outward;
    socklen_t length = sizeof bound;
    struct sockaddr *address = (struct sockaddr *)&bound;
    memset(&bound, 0, sizeof bound);
    memset(&outward, 0, sizeof outward);
    (void)getsockname(fd, address, &length);
    if (bps_util_is_wildcard(address)) {
        uint16_t port = bps_util_port(address);
        int family = address->sa_family == AF_INET || v6_only ? address->sa_family : AF_UNSPEC;
        if (!tcp_interface_address(NULL, family, &outward)) {
            tcp_interface_address("lo", family, &outward);
        }
        address = (struct sockaddr *)&outward;
        bps_util_set_port(address, port);
    }
    bps_util_address_text(address, actual, n);
}

static bps_status listen_at(struct tcp *tcp, const char *address, bps_accept_fn accept, void *arg, char *actual,
                            size_t n, struct bps_report *report)
{
    struct bps_util_target target;
    bps_status status = bps_util_target_parse(address, &target, report);
    if (status == BPS_OK && target.host[0] == '\0') {
        status = own_choice(tcp, &target, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    struct addrinfo *list = bps_util_resolve(&target, tcp->options.family, report);
    if (list == NULL) {
        return BPS_ERR_IO;
    }
    struct bps_util_listener listener = {
        .host = tcp->host, .acceptor = &acceptor, .instance = tcp, .accept = accept, .arg = arg};
    bps_util_fork_hold();
    int fd = listener.fd = bind_and_listen(tcp, list->ai_addr);
    if (fd < 0) {
        status = bps_util_listen_failed(list->ai_addr, errno, "this is not an address of this host", report);
    } else if (!bps_util_listener_add(&tcp->listeners, &listener)) {
        close(fd);
        BPS_REPORT(report, "listen %s: out of memory", address);
        status = BPS_ERR_NOMEM;
    } else {
        announce(fd, tcp->options.family == BPS_UTIL_FAMILY_IPV6, actual, n);
    }
    bps_util_fork_release();
    freeaddrinfo(list);
    return status;
}

bps_status tcp_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                      struct bps_report *report)
{
    struct tcp *tcp = instance;
    const struct bps_util_listener *before = LIST_FIRST(&tcp->listeners);
    char one[300], own[BPS_UTIL_ADDRESS_TEXT];
    size_t used = 0;
    bps_status status = BPS_OK;
    for (uint32_t i = 0; status == BPS_OK && tcp_addresses_split(address, i, one, sizeof one); i++) {
        status = listen_at(tcp, one, accept, arg, own, sizeof own, report);
        used += status == BPS_OK ? (size_t)snprintf(actual + used, n - used, i > 0 ? ",%s" : "%s", own) : 0;
        if (used >= n) {
            BPS_REPORT(report, "interface: the addresses of the interfaces do not fit in %zu bytes; give fewer", n);
            status = BPS_ERR_CONF;
        }
    }
    if (status != BPS_OK) {
        bps_util_listeners_close_until(&tcp->listeners, before);
    }
    return status;
}
