/* SPDX-License-Identifier: Apache-2.0 */
/* interface.c - the network interfaces of this host, and their addresses. */
#include "tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

/* ---- which ones an item of the option `interface` means ---- */

struct choice {
    const char *name;  /* of an interface */
    int family;        /* AF_UNSPEC: it is none of the following, an address or a subnet */
    uint8_t bytes[16]; /* of an address */
    unsigned bits;     /* so many of them count */
};

static struct choice choose(const char *text)
{
    struct choice choice = {.name = text};
    char address[INET6_ADDRSTRLEN] = "", *end;
    size_t length = strcspn(text, "/");
    int family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    unsigned long most = family == AF_INET6 ? 128 : 32, bits = most;
    if (length < sizeof address) {
        memcpy(address, text, length);
    }
    bool valid = inet_pton(family, address, choice.bytes) == 1;
    if (valid && text[length] == '/') {
        bits = strtoul(text + length + 1, &end, 10);
        valid = end > text + length + 1 && *end == '\0' && bits <= most;
    }
    choice.family = valid ? family : AF_UNSPEC;
    choice.bits = (unsigned)bits;
    return choice;
}

static bool is_in_subnet(const struct sockaddr *address, const struct choice *choice)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    const uint8_t *bytes = choice->family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
    unsigned whole = choice->bits / 8, rest = choice->bits % 8;
    return memcmp(bytes, choice->bytes, whole) == 0 &&
           (rest == 0 || (bytes[whole] ^ choice->bytes[whole]) >> (8 - rest) == 0);
}

static bool is_meant(const struct ifaddrs *entry, const struct choice *choice)
{
    if (choice->family == AF_UNSPEC) {
        return strcmp(entry->ifa_name, choice->name) == 0;
    }
    return entry->ifa_addr != NULL && entry->ifa_addr->sa_family == choice->family &&
           is_in_subnet(entry->ifa_addr, choice);
}

static bool is_internet(const struct ifaddrs *entry)
{
    return entry->ifa_addr != NULL && (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
}

/* ---- addresses ---- */

/* How much we would like to use an address; 0: not at all. Link-local ones have a meaning on one link only. */
static int rank(const struct ifaddrs *entry, int family)
{
    if (!is_internet(entry) || (entry->ifa_flags & IFF_UP) == 0 ||
        (family != AF_UNSPEC && family != entry->ifa_addr->sa_family)) {
        return 0;
    }
    if (entry->ifa_addr->sa_family == AF_INET) {
        return 3;
    }
    const struct sockaddr_in6 *v6 = (const void *)entry->ifa_addr;
    return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? 1 : 2;
}

bool tcp_interface_address(const char *interface, int family, struct sockaddr_storage *out)
{
    struct choice choice = choose(interface != NULL ? interface : "");
    struct ifaddrs *list;
    int best = 0;
    if (getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        bool meant = interface != NULL ? is_meant(entry, &choice) : (entry->ifa_flags & IFF_LOOPBACK) == 0;
        int candidate = meant ? rank(entry, family) : 0;
        if (candidate > best) {
            best = candidate;
            bps_util_address_copy(entry->ifa_addr, out);
        }
    }
    freeifaddrs(list);
    return best > 0;
}

static const uint8_t *number_of(const struct sockaddr *address, size_t *bytes)
{
    bool v6 = address->sa_family == AF_INET6;
    *bytes = v6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
    return v6 ? (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
              : (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static bool is_in_subnet_of(const struct ifaddrs *entry, const struct sockaddr *address)
{
    size_t bytes;
    if (!is_internet(entry) || entry->ifa_netmask == NULL || entry->ifa_addr->sa_family != address->sa_family) {
        return false;
    }
    const uint8_t *own = number_of(entry->ifa_addr, &bytes), *other = number_of(address, &bytes);
    const uint8_t *mask = (const void *)entry->ifa_netmask;
    mask += own - (const uint8_t *)entry->ifa_addr; /* the kernel may leave out the family of a mask */
    for (size_t i = 0; i < bytes; i++) {
        if (((own[i] ^ other[i]) & mask[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* Whether a packet to that address needs no router. */
static bool is_on_link(const char *interface, const struct sockaddr *address)
{
    struct choice choice = choose(interface);
    struct ifaddrs *list = NULL;
    bool found = false;
    (void)getifaddrs(&list);
    for (const struct ifaddrs *entry = list; entry != NULL && !found; entry = entry->ifa_next) {
        found = is_meant(entry, &choice) && is_in_subnet_of(entry, address);
    }
    freeifaddrs(list);
    return found;
}

bool tcp_interface_towards(const struct bps_list *interfaces, uint32_t lane, const struct sockaddr *peer,
                           struct sockaddr_storage *out)
{
    uint32_t n = interfaces->count, chosen = lane % n;
    for (uint32_t i = 0; i < n && n > 1; i++) {
        if (is_on_link(interfaces->items[(lane + i) % n], peer)) {
            chosen = (lane + i) % n;
            break;
        }
    }
    return tcp_interface_address(interfaces->items[chosen], peer->sa_family, out);
}

bool tcp_interfaces_share_link(const struct bps_list *interfaces, int family, uint32_t *first, uint32_t *second)
{
    struct sockaddr_storage address;
    for (*second = 1; *second < interfaces->count; ++*second) {
        bool known = tcp_interface_address(interfaces->items[*second], family, &address);
        for (*first = 0; known && *first < *second; ++*first) {
            if (is_on_link(interfaces->items[*first], (struct sockaddr *)&address)) {
                return true;
            }
        }
    }
    return false;
}

bps_status tcp_interface_check(const char *interface, struct bps_report *report)
{
    struct choice choice = choose(interface);
    struct ifaddrs *list = NULL;
    char known[600] = "", address[BPS_UTIL_ADDRESS_TEXT];
    bool found = false;
    (void)getifaddrs(&list);
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        found |= is_meant(entry, &choice);
        if (is_internet(entry)) {
            bps_util_number_text(entry->ifa_addr, address, sizeof address);
            bps_util_append(known, sizeof known, "%s %s %s", *known != '\0' ? "," : "", entry->ifa_name, address);
        }
    }
    freeifaddrs(list);
    if (!found) {
        BPS_REPORT(report,
                   "interface '%.64s': there is no such network interface%s; expected the name of one, its address, or "
                   "a subnet such as 10.0.0.0/24; this host has%s",
                   interface, strchr(interface, ',') != NULL ? " (spaces separate several)" : "", known);
    }
    return found ? BPS_OK : BPS_ERR_CONF;
}
