/* SPDX-License-Identifier: Apache-2.0 */
/*
 * congestion.c - preloaded into every contestant: all TCP sockets use the congestion control that
 * $BENCH_CONGESTION names, whatever the system's default. A default that paces, such as bbr, would make any
 * comparison on loopback one of congestion controls.
 */
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
    static int (*next)(int, int, int);
    const char *name = getenv("BENCH_CONGESTION");

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "socket");
    }
    int fd = next(domain, type, protocol);
    if (fd >= 0 && name != NULL && (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    }
    return fd;
}
