/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - addresses as text and as the kernel has them, and the interfaces of this host. */
#include "tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>

static bool parse_port(const char *text, uint16_t *out)
{
    unsigned value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0') {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    *out = (uint16_t)value;
    return value <= UINT16_MAX;
}

bps_status tcp_target_parse(const char *text, struct tcp_target *out, struct bps_report *report)
{
    const char *colon = strrchr(text, ':');
    const char *start = text, *end = colon;
    if (colon != NULL && text[0] == '[' && colon > text + 1 && colon[-1] == ']') {
        start = text + 1;
        end = colon - 1;
    }
    size_t length = (size_t)(end - start);
    if (colon == NULL || length >= sizeof out->host || strcspn(start, "[]") < length ||
        !parse_port(colon + 1, &out->port)) {
        BPS_REPORT(report, "'%.200s' is not an address; expected host:port or [IPv6]:port, port 0 to 65535",
                   text);
        return BPS_ERR_INVALID;
    }
    memcpy(out->host, start, length);
    out->host[length] = '\0';
    return BPS_OK;
}

struct addrinfo *tcp_resolve(const struct tcp_target *target, uint32_t family, struct bps_report *report)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    static const char *const suffix[] = {"", " (family ipv4)", " (family ipv6)"};
    struct addrinfo hints = {.ai_family = families[family],
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", target->port);
    int error = getaddrinfo(target->host, port, &hints, &list);
    if (error == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV;
        error = getaddrinfo(target->host, port, &hints, &list);
    }
    if (error != 0) {
        BPS_REPORT(report, "resolve %s%s: %s", target->host, suffix[family], gai_strerror(error));
        return NULL;
    }
    return list;
}

/* An IPv4 peer of an IPv6 socket is shown as what it is. */
static const struct sockaddr *unmapped(const struct sockaddr *address, struct sockaddr_in *v4)
{
    const struct sockaddr_in6 *v6 = (const void *)address;
    if (address->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        return address;
    }
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = v6->sin6_port};
    memcpy(&v4->sin_addr, v6->sin6_addr.s6_addr + 12, 4);
    return (const struct sockaddr *)v4;
}

static void numbers(const struct sockaddr *address, char *host, size_t host_room, char *port,
                    size_t port_room)
{
    struct sockaddr_in v4;
    address = unmapped(address, &v4);
    char name[NI_MAXHOST];
    if (getnameinfo(address, tcp_address_length(address), name, sizeof name, port, (socklen_t)port_room,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(host, host_room, "?");
        snprintf(port, port_room, "0");
        return;
    }
    snprintf(host, host_room, address->sa_family == AF_INET6 ? "[%s]" : "%s", name);
}

void tcp_address_text(const struct sockaddr *address, char *text, size_t n)
{
    char host[TCP_ADDRESS_TEXT], port[16];
    numbers(address, host, sizeof host, port, sizeof port);
    snprintf(text, n, "%s:%s", host, port);
}

void tcp_host_text(const struct sockaddr *address, char *text, size_t n)
{
    char port[16];
    numbers(address, text, n, port, sizeof port);
}

void tcp_set_port(struct sockaddr *address, uint16_t port)
{
    if (address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
    }
}

socklen_t tcp_address_length(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool tcp_is_loopback(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    address = unmapped(address, &v4);
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    uint32_t number = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
    return number >> 24 == IN_LOOPBACKNET;
}

bool tcp_is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

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
            memset(out, 0, sizeof *out);
            memcpy(out, entry->ifa_addr, tcp_address_length(entry->ifa_addr));
        }
    }
    freeifaddrs(list);
    return best > 0;
}

bps_status tcp_interface_check(const char *name, struct bps_report *report)
{
    char known[512] = "";
    size_t used = 0;
    if (if_nametoindex(name) != 0) {
        return BPS_OK;
    }
    struct if_nameindex *list = if_nameindex();
    for (struct if_nameindex *entry = list; entry != NULL && entry->if_index != 0; entry++) {
        int n = snprintf(known + used, sizeof known - used, " %s", entry->if_name);
        used += n > 0 && (size_t)n < sizeof known - used ? (size_t)n : 0;
    }
    if (list != NULL) {
        if_freenameindex(list);
    }
    BPS_REPORT(report, "interface '%.64s': there is no such network interface; this host has%s", name, known);
    return BPS_ERR_CONF;
}
