/* SPDX-License-Identifier: Apache-2.0 */
/* route.c - own addresses, as the kernel's routes choose them: a datagram socket is connected, and says its own. */
#include "base/route.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool source_towards(const struct addrinfo *peer, char *out, size_t n, bool *ourselves)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char text[NI_MAXHOST], other[NI_MAXHOST];
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool ok = connect(fd, peer->ai_addr, peer->ai_addrlen) == 0 &&
              getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
              getnameinfo((struct sockaddr *)&own, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
              getnameinfo(peer->ai_addr, peer->ai_addrlen, other, sizeof other, NULL, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (ok) {
        *ourselves = strcmp(text, other) == 0;
        snprintf(out, n, peer->ai_family == AF_INET6 ? "[%s]" : "%s", text);
    }
    return ok;
}

bool bps_route_source(const char *host, char *out, size_t n, bool *ourselves)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    if (getaddrinfo(host, "9", &hints, &found) != 0) {
        return false;
    }
    bool ok = false;
    for (const struct addrinfo *peer = found; peer != NULL && !ok; peer = peer->ai_next) {
        ok = source_towards(peer, out, n, ourselves);
    }
    freeaddrinfo(found);
    return ok;
}

bool bps_route_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}
