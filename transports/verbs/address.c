/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - addresses as text and as the kernel has them, and the own one of a device. */
#include "verbs.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#define TARGET_TEXT 264u /* the longest host, and a port */

/* *port is NULL if the text is no address. */
static bool split(const char *text, char *host, size_t n, const char **port, struct bps_report *report)
{
    const char *colon = strrchr(text, ':');
    const char *start = text, *end = colon;
    if (colon != NULL && text[0] == '[' && colon > text + 1 && colon[-1] == ']') {
        start = text + 1;
        end = colon - 1;
    }
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    size_t length = (size_t)(end - start);
    *port = NULL;
    if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || length >= n ||
        strcspn(start, "[]") < length || strtol(colon + 1, NULL, 10) > UINT16_MAX) {
        BPS_REPORT(report, "'%.200s' is not an address; expected host:port or [IPv6]:port, port 0 to 65535",
                   text);
        return false;
    }
    memcpy(host, start, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

/* A number is never looked up, so that it does not block; a name may. */
static int look_up(const char *host, const char *port, uint32_t family, struct addrinfo **list)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    struct addrinfo hints = {.ai_family = families[family],
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    int error = getaddrinfo(host, port, &hints, list);
    if (error == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV;
        error = getaddrinfo(host, port, &hints, list);
    }
    return error;
}

static socklen_t length_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* An IPv4 peer of an IPv6 listener is shown as what it is. */
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

/* Without brackets. */
static void number_text(const struct sockaddr *address, char *text, size_t n)
{
    struct sockaddr_in v4;
    address = unmapped(address, &v4);
    if (getnameinfo(address, length_of(address), text, (socklen_t)n, NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(text, n, "?");
    }
}

/* The first of "host,host:port", as host:port, and where the rest begins; NULL: there is none. */
static const char *first_target(const char *text, char *out, size_t n)
{
    const char *comma = strchr(text, ','), *colon = strrchr(text, ':');
    if (comma == NULL || colon == NULL) {
        snprintf(out, n, "%s", text);
        return NULL;
    }
    snprintf(out, n, "%.*s%s", (int)(comma - text), text, colon);
    return comma + 1;
}

bps_status verbs_check_target(const char *text, struct bps_report *report)
{
    char one[TARGET_TEXT], host[256];
    const char *port;
    while (text != NULL) {
        text = first_target(text, one, sizeof one);
        if (!split(one, host, sizeof host, &port, report)) {
            return BPS_ERR_INVALID;
        }
        if (host[0] == '\0' || strtol(port, NULL, 10) == 0) {
            BPS_REPORT(report, "'%.200s' cannot be dialled; expected a host and a port from 1 to 65535", one);
            return BPS_ERR_INVALID;
        }
    }
    return BPS_OK;
}

/* Appends all addresses of "host:port". False: it has none. */
static bool resolve_one(const struct verbs *verbs, const char *text, struct sockaddr_storage *out,
                        uint32_t *count, struct bps_report *report)
{
    char host[256];
    const char *port;
    struct addrinfo *list = NULL;
    struct sockaddr_storage own;
    if (!split(text, host, sizeof host, &port, report)) {
        return false;
    }
    if (host[0] == '\0') {
        static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
        const struct verbs_rail *rail = &verbs->rails[0];
        if (!verbs_own_address(verbs, rail, families[verbs->options.family], &own)) {
            BPS_REPORT(
                report,
                "device %s port %u has no Internet address to listen on: give its interface one, or set "
                "host",
                ibv_get_device_name(rail->device->context->device), rail->port);
            return false;
        }
        number_text((struct sockaddr *)&own, host, sizeof host);
    }
    int error = look_up(host, port, verbs->options.family, &list);
    if (error != 0) {
        BPS_REPORT(report, "resolve %s: %s", host, gai_strerror(error));
        return false;
    }
    for (const struct addrinfo *at = list; at != NULL && *count < VERBS_TARGETS; at = at->ai_next) {
        memset(&out[*count], 0, sizeof out[*count]);
        memcpy(&out[*count], at->ai_addr, at->ai_addrlen);
        ++*count;
    }
    freeaddrinfo(list);
    return true;
}

uint32_t verbs_resolve(const struct verbs *verbs, const char *text, struct sockaddr_storage *out,
                       struct bps_report *report)
{
    char one[TARGET_TEXT];
    uint32_t count = 0;
    while (text != NULL) {
        text = first_target(text, one, sizeof one);
        if (!resolve_one(verbs, one, out, &count, report)) {
            return 0;
        }
    }
    return count;
}

void verbs_host_text(const struct sockaddr *address, char *text, size_t n)
{
    char number[NI_MAXHOST];
    number_text(address, number, sizeof number);
    snprintf(text, n, strchr(number, ':') != NULL ? "[%s]" : "%s", number);
}

uint16_t verbs_port_of(const struct sockaddr *address)
{
    /* Lies at the same place in IPv6. */
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

void verbs_address_text(const struct sockaddr *address, char *text, size_t n)
{
    char host[VERBS_ADDRESS_TEXT];
    verbs_host_text(address, host, sizeof host);
    snprintf(text, n, "%s:%u", host, verbs_port_of(address));
}

bool verbs_is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* ---- own addresses ---- */

bool verbs_gid_address(const union ibv_gid *gid, struct sockaddr_storage *out)
{
    struct in6_addr bytes;
    memcpy(&bytes, gid->raw, sizeof bytes);
    memset(out, 0, sizeof *out);
    if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
        struct sockaddr_in *v4 = (void *)out;
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, bytes.s6_addr + 12, 4);
        return true;
    }
    struct sockaddr_in6 *v6 = (void *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = bytes;
    return !IN6_IS_ADDR_LINKLOCAL(&bytes) && !IN6_IS_ADDR_UNSPECIFIED(&bytes);
}

/* IPv4 before IPv6, and that one if it is all there is. */
static bool find_gid(const struct verbs *verbs, const struct verbs_rail *rail, int family,
                     struct sockaddr_storage *out)
{
    const struct verbs_options *o = &verbs->options;
    struct ibv_gid_entry entry;
    struct sockaddr_storage found;
    bool have = false;
    uint32_t first = o->gid_index >= 0 ? (uint32_t)o->gid_index : 0, last = o->gid_index >= 0 ? first : 1023;
    for (uint32_t i = first; i <= last; i++) {
        if (ibv_query_gid_ex(rail->device->context, rail->port, i, &entry, 0) != 0 ||
            (entry.gid_type != IBV_GID_TYPE_ROCE_V2 && o->gid_index < 0) ||
            !verbs_gid_address(&entry.gid, &found) || (family != AF_UNSPEC && found.ss_family != family)) {
            continue;
        }
        if (!have || found.ss_family == AF_INET) {
            *out = found;
            have = true;
        }
        if (found.ss_family == AF_INET) {
            break;
        }
    }
    return have;
}

bool verbs_own_address(const struct verbs *verbs, const struct verbs_rail *rail, int family,
                       struct sockaddr_storage *out)
{
    struct addrinfo *list = NULL;
    bool found = false;
    if (*rail->host == '\0') {
        return find_gid(verbs, rail, family, out);
    }
    if (look_up(rail->host, "0", verbs->options.family, &list) != 0) {
        return false;
    }
    for (const struct addrinfo *at = list; at != NULL && !found; at = at->ai_next) {
        if (family == AF_UNSPEC || family == at->ai_family) {
            memset(out, 0, sizeof *out);
            memcpy(out, at->ai_addr, at->ai_addrlen);
            found = true;
        }
    }
    freeaddrinfo(list);
    return found;
}
