/* SPDX-License-Identifier: Apache-2.0 */
/* interface.c - the network interfaces of this host, and their addresses. */
#include "tcp.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

/*
 * How much we would like to use an address; 0: not at all. Link-local ones have a meaning on one link only.
 */
static int rank(const struct ifaddrs *entry, const char *name, int family)
{
    if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0 ||
        (name != NULL ? strcmp(entry->ifa_name, name) != 0 : (entry->ifa_flags & IFF_LOOPBACK) != 0)) {
        return 0;
    }
    int is = entry->ifa_addr->sa_family;
    if ((is != AF_INET && is != AF_INET6) || (family != AF_UNSPEC && family != is)) {
        return 0;
    }
    if (is == AF_INET) {
        return 3;
    }
    const struct sockaddr_in6 *v6 = (const void *)entry->ifa_addr;
    return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? 1 : 2;
}

bool tcp_interface_address(const char *name, int family, struct sockaddr_storage *out)
{
    struct ifaddrs *list;
    int best = 0;
    if (getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        int candidate = rank(entry, name, family);
        if (candidate > best) {
            best = candidate;
            bps_util_address_copy(entry->ifa_addr, out);
        }
    }
    freeifaddrs(list);
    return best > 0;
}

bps_status tcp_interface_check(const char *name, struct bps_report *report)
{
    char known[512] = "";
    if (if_nametoindex(name) != 0) {
        return BPS_OK;
    }
    struct if_nameindex *list = if_nameindex();
    for (struct if_nameindex *entry = list; entry != NULL && entry->if_index != 0; entry++) {
        bps_util_append(known, sizeof known, " %s", entry->if_name);
    }
    if (list != NULL) {
        if_freenameindex(list);
    }
    BPS_REPORT(report, "interface '%.64s': there is no such network interface; this host has%s", name, known);
    return BPS_ERR_CONF;
}
