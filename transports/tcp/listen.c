/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets and the channels that peers open. */
#include "tcp.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG         1024
#define ACCEPT_PER_TURN 64
#define ACCEPT_PAUSE    100000000ull /* ns without accepting when there is no descriptor left */

struct tcp_listener {
    LIST_ENTRY(tcp_listener) entry;
    struct tcp *tcp;
    int fd;
    struct bps_watch *watch;
    struct bps_timer *pause;
    bool deferred; /* a turn of accepting is coming */
    bool starved;  /* has warned that there are no descriptors */
    bps_accept_fn accept;
    void *arg;
};

/* ---- accepting ---- */

static struct bps_channel *adopt(struct tcp *tcp, int fd)
{
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

/* The descriptor, or -1 and errno. *out: its channel, NULL where there was no memory for one. */
static int accept_one(struct tcp_listener *listener, struct sockaddr_storage *address,
                      struct bps_channel **out)
{
    socklen_t length = sizeof *address;
    tcp_fork_hold();
    int fd = accept4(listener->fd, (struct sockaddr *)address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int error = errno;
    *out = fd >= 0 ? adopt(listener->tcp, fd) : NULL;
    tcp_fork_release();
    errno = error;
    return fd;
}

static void welcome(struct tcp_listener *listener, struct bps_channel *channel,
                    const struct sockaddr *address)
{
    char peer[TCP_ADDRESS_TEXT];
    tcp_address_text(address, peer, sizeof peer);
    tcp_hold(channel);
    const struct bps_channel_events *events = listener->accept(listener->arg, channel, peer, &channel->user);
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

static void accept_some(struct tcp_listener *listener);

static void accept_later(void *arg)
{
    struct tcp_listener *listener = arg;
    listener->deferred = false;
    accept_some(listener);
}

static void accept_again(void *arg)
{
    struct tcp_listener *listener = arg;
    listener->pause = NULL;
    accept_some(listener);
}

/* No descriptor or memory is left: trying at once again would spin. */
static void take_a_pause(struct tcp_listener *listener, int error)
{
    const struct bps_host *host = listener->tcp->host;
    if (!listener->starved) {
        listener->starved = true;
        host->log(host, BPS_LOG_WARN,
                  "accept: %s; peers wait until there is room again (see ulimit -n of this process)",
                  strerror(error));
    }
    listener->pause = host->timer(host, ACCEPT_PAUSE, 0, accept_again, listener);
}

/* Errors that belong to the connection that was to be accepted, not to the listener. */
static bool is_of_connection(int error)
{
    switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EPERM:
    case EOPNOTSUPP:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

static void accept_some(struct tcp_listener *listener)
{
    const struct bps_host *host = listener->tcp->host;
    if (listener->pause != NULL || listener->deferred) {
        return;
    }
    for (int i = 0; i < ACCEPT_PER_TURN; i++) {
        struct sockaddr_storage address;
        struct bps_channel *channel;
        int fd = accept_one(listener, &address, &channel);
        if (fd >= 0) {
            listener->starved = false;
            if (channel != NULL) {
                welcome(listener, channel, (struct sockaddr *)&address);
            }
        } else if (errno == EAGAIN) {
            return;
        } else if (!is_of_connection(errno)) {
            take_a_pause(listener, errno);
            return;
        }
    }
    listener->deferred = true;
    host->defer(host, accept_later, listener);
}

static void on_event(void *arg, uint32_t events)
{
    (void)events;
    accept_some(arg);
}

/* ---- listening ---- */

/* The host to listen on when none is given. */
static bps_status own_choice(const struct tcp *tcp, struct tcp_target *target, struct bps_report *report)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    const struct tcp_options *o = &tcp->options;
    struct sockaddr_storage address;
    const char *host = o->family == TCP_FAMILY_IPV6 ? "::1" : "127.0.0.1";
    char text[NI_MAXHOST];
    if (*o->host != '\0') {
        host = o->host;
    } else if (o->interface.count > 0) {
        const char *name = o->interface.items[0];
        if (!tcp_interface_address(name, families[o->family], &address) ||
            getnameinfo((struct sockaddr *)&address, tcp_address_length((struct sockaddr *)&address), text,
                        sizeof text, NULL, 0, NI_NUMERICHOST) != 0) {
            BPS_REPORT(report, "interface %s has no address to listen on", name);
            return BPS_ERR_CONF;
        }
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
    /* A restarted process must not wait for the connections of its predecessor to time out. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (address->sa_family == AF_INET6) {
        const int *only = tcp->options.family == TCP_FAMILY_IPV6 ? &yes : &no;
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
    }
    if (bind(fd, address, tcp_address_length(address)) != 0 || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static bps_status listen_failed(const struct sockaddr *address, int error, struct bps_report *report)
{
    const char *remedy = "";
    char text[TCP_ADDRESS_TEXT];
    if (error == EADDRINUSE) {
        remedy = "; another process has this port: choose a different one, or 0 for any free one";
    } else if (error == EADDRNOTAVAIL) {
        remedy = "; this is not an address of this host";
    } else if (error == EACCES) {
        remedy = "; ports below 1024 are for privileged processes";
    }
    tcp_address_text(address, text, sizeof text);
    BPS_REPORT(report, "listen %s: %s%s", text, strerror(error), remedy);
    return BPS_ERR_IO;
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
    if (tcp_is_wildcard(address)) {
        uint16_t port = ((struct sockaddr_in *)address)->sin_port; /* lies at the same place in IPv6 */
        int family = address->sa_family == AF_INET || v6_only ? address->sa_family : AF_UNSPEC;
        if (!tcp_interface_address(NULL, family, &outward)) {
            tcp_interface_address("lo", family, &outward);
        }
        address = (struct sockaddr *)&outward;
        tcp_set_port(address, ntohs(port));
    }
    tcp_address_text(address, actual, n);
}

static struct tcp_listener *listener_new(struct tcp *tcp, int fd, bps_accept_fn accept, void *arg)
{
    const struct bps_host *host = tcp->host;
    struct tcp_listener *listener = host->alloc(host, sizeof *listener, 8);
    if (listener == NULL) {
        return NULL;
    }
    *listener = (struct tcp_listener){.tcp = tcp, .fd = fd, .accept = accept, .arg = arg};
    listener->watch = host->watch(host, fd, on_event, listener);
    if (listener->watch == NULL) {
        host->release(host, listener);
        return NULL;
    }
    LIST_INSERT_HEAD(&tcp->listeners, listener, entry);
    return listener;
}

bps_status tcp_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                      size_t n, struct bps_report *report)
{
    struct tcp *tcp = instance;
    struct tcp_target target;
    bps_status status = tcp_target_parse(address, &target, report);
    if (status == BPS_OK && target.host[0] == '\0') {
        status = own_choice(tcp, &target, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    struct addrinfo *list = tcp_resolve(&target, tcp->options.family, report);
    if (list == NULL) {
        return BPS_ERR_IO;
    }
    tcp_fork_hold();
    int fd = bind_and_listen(tcp, list->ai_addr);
    if (fd < 0) {
        status = listen_failed(list->ai_addr, errno, report);
    } else if (listener_new(tcp, fd, accept, arg) == NULL) {
        close(fd);
        BPS_REPORT(report, "listen %s: out of memory", address);
        status = BPS_ERR_NOMEM;
    } else {
        announce(fd, tcp->options.family == TCP_FAMILY_IPV6, actual, n);
    }
    tcp_fork_release();
    freeaddrinfo(list);
    return status;
}

void tcp_listeners_close(struct tcp *tcp)
{
    const struct bps_host *host = tcp->host;
    while (!LIST_EMPTY(&tcp->listeners)) {
        struct tcp_listener *listener = LIST_FIRST(&tcp->listeners);
        LIST_REMOVE(listener, entry);
        if (listener->pause != NULL) {
            host->cancel(host, listener->pause);
        }
        tcp_fork_hold();
        host->unwatch(host, listener->watch);
        close(listener->fd);
        tcp_fork_release();
        host->release(host, listener);
    }
}
