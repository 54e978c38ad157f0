/* SPDX-License-Identifier: Apache-2.0 */
/* run_address.c - which host is this one, and where the scheduler listens: on the way to the first other. */
#include "tools/run.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/route.h"

char *bps_run_choose_address(const struct bps_run_options *options)
{
    char address[128];
    bool ourselves;
    for (size_t i = 0; i < options->nhosts; i++) {
        const char *name = options->hosts[i].name, *at = name ? strrchr(name, '@') : NULL;
        if (!name) {
            continue;
        }
        /* A name that only ssh knows says nothing; then the default route is the best guess. */
        if (!bps_route_source(at != NULL ? at + 1 : name, address, sizeof address, &ourselves) &&
            !bps_route_source(BPS_ROUTE_OUTSIDE, address, sizeof address, &ourselves)) {
            break;
        }
        if (!ourselves) {
            return bps_cmd_print("%s:0", address);
        }
    }
    /* Hosts that come later may be others. */
    bool outside = options->script && bps_route_source(BPS_ROUTE_OUTSIDE, address, sizeof address, &ourselves);
    return bps_cmd_print("%s:0", outside ? address : "127.0.0.1");
}

/* As another user it is reached like any other host. */
bool bps_run_is_here(const char *host)
{
    char address[128];
    bool ourselves;
    return strchr(host, '@') == NULL && bps_route_source(host, address, sizeof address, &ourselves) && ourselves;
}

/* "[::1]:0" in parts. */
static struct addrinfo *resolve(const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    const char *colon = strrchr(address, ':');
    bool brackets = *address == '[';
    if (!colon || colon - address < 2 * brackets) {
        return NULL;
    }
    char *host = bps_cmd_print("%.*s", (int)(colon - address) - 2 * brackets, address + brackets);
    list = getaddrinfo(host, colon + 1, &hints, &list) == 0 ? list : NULL;
    free(host);
    return list;
}

/* The port that this socket has got; 0: it has none. */
static unsigned take_port(int fd, const struct addrinfo *at)
{
    int on = 1;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char port[NI_MAXSERV];
    bool has = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
               bind(fd, at->ai_addr, at->ai_addrlen) == 0 && getsockname(fd, (void *)&own, &size) == 0 &&
               getnameinfo((void *)&own, size, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0;
    return has ? (unsigned)strtoul(port, NULL, 10) : 0;
}

char *bps_run_hold_address(const char *address)
{
    struct addrinfo *list = resolve(address);
    int fd = list ? socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    unsigned port = list ? take_port(fd, list) : 0;
    if (list) {
        freeaddrinfo(list);
    }
    if (port == 0 && fd >= 0) {
        close(fd);
    }
    return port == 0 ? bps_cmd_print("%s", address)
                     : bps_cmd_print("%.*s:%u", (int)(strrchr(address, ':') - address), address, port);
}
