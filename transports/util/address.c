/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - Internet addresses as text and as the kernel has them. */
#include "util.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

/* ---- from text ---- */

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

bps_status bps_util_target_parse(const char *text, struct bps_util_target *out, struct bps_report *report)
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
        BPS_REPORT(report, "'%.200s' is not an address; expected host:port or [IPv6]:port, port 0 to 65535", text);
        return BPS_ERR_INVALID;
    }
    memcpy(out->host, start, length);
    out->host[length] = '\0';
    return BPS_OK;
}

bps_status bps_util_host_check(const char *host, struct bps_report *report)
{
    const char *colon = strchr(host, ':');
    if (host[0] != '[' && (colon == NULL || strchr(colon + 1, ':') != NULL)) {
        return BPS_OK;
    }
    BPS_REPORT(report,
               "host = \"%.200s\": expected a name or an address alone, an IPv6 one without brackets; cluster.ports "
               "sets the ports",
               host);
    return BPS_ERR_CONF;
}

bps_status bps_util_target_parse_peer(const char *text, struct bps_util_target *out, struct bps_report *report)
{
    bps_status status = bps_util_target_parse(text, out, report);
    if (status == BPS_OK && (out->host[0] == '\0' || out->port == 0)) {
        BPS_REPORT(report, "'%.200s' cannot be dialled; expected a host and a port from 1 to 65535", text);
        status = BPS_ERR_INVALID;
    }
    return status;
}

int bps_util_family(uint32_t option)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    return families[option];
}

struct addrinfo *bps_util_resolve(const struct bps_util_target *target, uint32_t family, struct bps_report *report)
{
    static const char *const suffix[] = {"", " (family ipv4)", " (family ipv6)"};
    struct addrinfo hints = {
        .ai_family = bps_util_family(family), .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
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

/* ---- to text ---- */

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

void bps_util_number_text(const struct sockaddr *address, char *text, size_t n)
{
    struct sockaddr_in v4;
    address = unmapped(address, &v4);
    if (getnameinfo(address, bps_util_address_length(address), text, (socklen_t)n, NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(text, n, "?");
    }
}

void bps_util_host_text(const struct sockaddr *address, char *text, size_t n)
{
    char number[NI_MAXHOST];
    bps_util_number_text(address, number, sizeof number);
    snprintf(text, n, strchr(number, ':') != NULL ? "[%s]" : "%s", number);
}

void bps_util_address_text(const struct sockaddr *address, char *text, size_t n)
{
    char host[BPS_UTIL_ADDRESS_TEXT];
    bps_util_host_text(address, host, sizeof host);
    snprintf(text, n, "%s:%u", host, bps_util_port(address));
}

/* ---- as the kernel has them ---- */

/* The port lies at the same place in IPv6. */
uint16_t bps_util_port(const struct sockaddr *address)
{
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

void bps_util_set_port(struct sockaddr *address, uint16_t port)
{
    ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

socklen_t bps_util_address_length(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void bps_util_address_copy(const struct sockaddr *address, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out, address, bps_util_address_length(address));
}

bool bps_util_is_loopback(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    address = unmapped(address, &v4);
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    uint32_t number = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
    return number >> 24 == IN_LOOPBACKNET;
}

bool bps_util_is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}
