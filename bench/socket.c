/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c - plain blocking TCP sockets, which `byteps bench transport` compares a network's transport
 * with. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/transport.h"

#define PATIENCE 10 /* s, of each call */

static bool send_all(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t bytes)
{
    uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n <= 0) {
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void set_up(int fd)
{
    const struct timeval patience = {.tv_sec = PATIENCE};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* of connect, too */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    /* What paces itself, as bbr does, is slower on short ways and would flatter what it is compared with. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
}

/* ---- making a connection ---- */

static int bind_any(int family, uint16_t *port)
{
    struct sockaddr_in6 address = {.sin6_family = (sa_family_t)family}; /* all zero is any address of either */
    socklen_t n = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    }
    if (bind(fd, (struct sockaddr *)&address, n) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) < 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(address.sin6_port); /* where IPv4 has it, too */
    return fd;
}

int bps_bench_socket_listen(uint16_t *port)
{
    int fd = bind_any(AF_INET6, port);
    return fd >= 0 ? fd : bind_any(AF_INET, port);
}

int bps_bench_socket_accept(int listener, uint64_t word)
{
    uint64_t end = bps_now() + PATIENCE * BPS_S / 2; /* the asking end waits for longer */
    int found = -1;
    while (found < 0 && bps_now() < end) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        int fd = poll(&ready, 1, (int)((end - bps_now()) / BPS_MS) + 1) == 1
                     ? accept4(listener, NULL, NULL, SOCK_CLOEXEC)
                     : -1;
        uint64_t said = ~word;
        if (fd >= 0) {
            set_up(fd);
        }
        if (fd >= 0 && receive_all(fd, &said, sizeof said) && said == word) {
            found = fd;
        } else if (fd >= 0) {
            close(fd);
        }
    }
    close(listener);
    return found;
}

/* Looks up the host of "host:port" or "[host]:port". */
static int look_up(const char *address, uint16_t port, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char host[128], service[8];
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : strlen(address);
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)n, address);
    snprintf(service, sizeof service, "%u", port);
    return getaddrinfo(host, service, &hints, out);
}

int bps_bench_socket_connect(const char *address, uint16_t port, uint64_t word, struct bps_report *report)
{
    struct addrinfo *found;
    int code = look_up(address, port, &found);
    if (code != 0) {
        BPS_REPORT(report, "%s: %s", address, gai_strerror(code));
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        set_up(fd);
    }
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 || !send_all(fd, &word, sizeof word)) {
        BPS_REPORT(report, "connect to port %u: %s", port, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* ---- pieces ---- */

bool bps_bench_socket_answer(int fd, bool echo, uint8_t *memory, size_t bytes, uint64_t count)
{
    bool good = send_all(fd, "", 1);
    while (good && count-- > 0) {
        good = receive_all(fd, memory, bytes) && (!echo || send_all(fd, memory, bytes));
    }
    return good && (echo || send_all(fd, "", 1));
}

bool bps_bench_socket_begin(int fd)
{
    return receive_all(fd, &(uint8_t){0}, 1);
}

bool bps_bench_socket_trip(int fd, uint8_t *memory, size_t bytes)
{
    return send_all(fd, memory, bytes) && receive_all(fd, memory, bytes);
}

bool bps_bench_socket_stream(int fd, const uint8_t *memory, size_t bytes, uint64_t count)
{
    bool good = true;
    while (good && count-- > 0) {
        good = send_all(fd, memory, bytes);
    }
    return good && receive_all(fd, &(uint8_t){0}, 1);
}
