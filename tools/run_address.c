/* SPDX-License-Identifier: Apache-2.0 */
/* run_address.c - where the scheduler of a job over several hosts listens: on the way to the first other. */
#include "tools/run.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Any address outside tells which of ours the default route takes; nothing is sent. */
#define SOMEWHERE "192.0.2.1"

/* The address that we use towards a host, in brackets if IPv6; whether that host is ourselves. */
static bool local_address(const char *host, char *out, size_t n, bool *ourselves)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    const char *at = strrchr(host, '@');
    if (getaddrinfo(at ? at + 1 : host, "9", &hints, &found) != 0) {
        return false;
    }
    bool ok = false;
    for (const struct addrinfo *a = found; a && !ok; a = a->ai_next) {
        struct sockaddr_storage own;
        socklen_t size = sizeof(own);
        char text[NI_MAXHOST], peer[NI_MAXHOST];
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            continue;
        }
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
            getnameinfo((struct sockaddr *)&own, size, text, sizeof(text), NULL, 0, NI_NUMERICHOST) == 0 &&
            getnameinfo(a->ai_addr, a->ai_addrlen, peer, sizeof(peer), NULL, 0, NI_NUMERICHOST) == 0) {
            *ourselves = strcmp(text, peer) == 0;
            snprintf(out, n, a->ai_family == AF_INET6 ? "[%s]" : "%s", text);
            ok = true;
        }
        close(fd);
    }
    freeaddrinfo(found);
    return ok;
}

char *bps_run_choose_address(const struct bps_run_options *options)
{
    char address[NI_MAXHOST + 2];
    bool ourselves;
    for (size_t i = 0; i < options->nhosts; i++) {
        /* A name that only ssh knows says nothing; then the default route is the best guess. */
        if (!local_address(options->hosts[i].name, address, sizeof(address), &ourselves) &&
            !local_address(SOMEWHERE, address, sizeof(address), &ourselves)) {
            break;
        }
        if (!ourselves) {
            return bps_cmd_print("%s:0", address);
        }
    }
    return bps_cmd_print("127.0.0.1:0");
}
