/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c - the options of sockets, and the words for their errors. */
#include "tcp.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Options are wishes: where the kernel has none of them, the socket works all the same. */
static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static int clamp(uint64_t value)
{
    return value < INT_MAX ? (int)value : INT_MAX;
}

static int seconds(uint64_t ns)
{
    return clamp((ns + 999999999) / 1000000000);
}

/* Three probes: after `keepalive` without traffic, then every third of that. */
static void set_keepalive(int fd, uint64_t keepalive)
{
    int third = seconds(keepalive / 3);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(keepalive));
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, third > 0 ? third : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void tcp_socket_tune(const struct tcp *tcp, int fd)
{
    const struct tcp_options *o = &tcp->options;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (o->notsent_lowat > 0) {
        set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, clamp(o->notsent_lowat));
    }
    if (o->keepalive > 0) {
        set_keepalive(fd, o->keepalive);
    }
}

bps_status tcp_multipath_check(struct bps_report *report)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);
    if (fd < 0) {
        BPS_REPORT(report,
                   "multipath: this kernel has no Multipath TCP: %s; see to sysctl net.mptcp.enabled = 1, or "
                   "set multipath = false",
                   strerror(errno));
        return BPS_ERR_UNSUPPORTED;
    }
    close(fd);
    return BPS_OK;
}

int tcp_socket(const struct tcp *tcp, int family)
{
    const struct tcp_options *o = &tcp->options;
    int protocol = o->multipath ? IPPROTO_MPTCP : IPPROTO_TCP;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (fd < 0) {
        return -1;
    }
    /*
     * A restarted process must not wait for the connections of its predecessor to time out; and the port that the
     * kernel picks for a connection may be one that somebody is about to listen on: it must not be in the way.
     */
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    /* These must stand before the handshake: it settles the window's scale. */
    if (o->send_buffer > 0) {
        set(fd, SOL_SOCKET, SO_SNDBUF, clamp(o->send_buffer));
    }
    if (o->receive_buffer > 0) {
        set(fd, SOL_SOCKET, SO_RCVBUF, clamp(o->receive_buffer));
    }
    if (tcp->set_congestion) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, tcp->congestion, (socklen_t)strlen(tcp->congestion));
    }
    tcp_socket_tune(tcp, fd);
    return fd;
}

/* Of many instances in a process the first one says it. */
static void warn_of_congestion(const struct tcp *tcp, int error)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char allowed[256];
    if (atomic_flag_test_and_set(&warned)) {
        return;
    }
    bps_util_read_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed, sizeof allowed);
    tcp->host->log(tcp->host, BPS_LOG_WARN, "congestion control '%s' was refused (%s); using %s. The kernel allows: %s",
                   tcp->options.congestion, strerror(error), tcp->congestion, allowed);
}

void tcp_choose_congestion(struct tcp *tcp)
{
    bool automatic = strcmp(tcp->options.congestion, "auto") == 0;
    const char *wanted = automatic ? "cubic" : tcp->options.congestion;
    socklen_t length = sizeof tcp->congestion - 1;
    bps_util_fork_hold();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    int error = 0;
    socklen_t other = sizeof tcp->other_congestion - 1;
    if (!automatic || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, tcp->other_congestion, &other) != 0) {
        tcp->other_congestion[0] = '\0';
    }
    if (*wanted != '\0') {
        error = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted, (socklen_t)strlen(wanted)) != 0 ? errno : 0;
        tcp->set_congestion = error == 0;
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, tcp->congestion, &length) != 0) {
        snprintf(tcp->congestion, sizeof tcp->congestion, "unknown");
    }
    if (strcmp(tcp->congestion, tcp->other_congestion) == 0) {
        tcp->other_congestion[0] = '\0';
    }
    if (fd >= 0) {
        close(fd);
    }
    bps_util_fork_release();
    if (error != 0 && !automatic) {
        warn_of_congestion(tcp, error);
    }
}

static void time_text(uint64_t ns, char *text, size_t n)
{
    if (ns % 1000000000 == 0) {
        snprintf(text, n, "%llu s", (unsigned long long)(ns / 1000000000));
    } else {
        snprintf(text, n, "%llu ms", (unsigned long long)(ns / 1000000));
    }
}

void tcp_reason(const struct tcp *tcp, int error, char *text, size_t n)
{
    char time[32];
    if (error != ETIMEDOUT || tcp->options.user_timeout == 0) {
        snprintf(text, n, "%s", strerror(error));
        return;
    }
    time_text(tcp->options.user_timeout, time, sizeof time);
    snprintf(text, n, "no answer for %s", time);
}
