/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - the addresses that a text stands for, and the own one of a device. */
#include "verbs.h"

#include <netdb.h>
#include <string.h>

#define TARGET_TEXT 264u /* the longest host, and a port */

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
    char one[TARGET_TEXT];
    struct bps_util_target target;
    bps_status status = BPS_OK;
    while (text != NULL && status == BPS_OK) {
        text = first_target(text, one, sizeof one);
        status = bps_util_target_parse_peer(one, &target, report);
    }
    return status;
}

/* Appends all addresses of "host:port". False: it has none. */
static bool resolve_one(const struct verbs *verbs, const char *text, struct sockaddr_storage *out, uint32_t *count,
                        struct bps_report *report)
{
    struct bps_util_target target;
    struct sockaddr_storage own;
    if (bps_util_target_parse(text, &target, report) != BPS_OK) {
        return false;
    }
    if (target.host[0] == '\0') {
        const struct verbs_rail *rail = &verbs->rails[0];
        if (!verbs_own_address(verbs, rail, bps_util_family(verbs->options.family), &own)) {
            BPS_REPORT(report,
                       "device %s port %u has no Internet address to listen on: give its interface one, or set "
                       "host",
                       ibv_get_device_name(rail->device->context->device), rail->port);
            return false;
        }
        bps_util_number_text((struct sockaddr *)&own, target.host, sizeof target.host);
    }
    struct addrinfo *list = bps_util_resolve(&target, verbs->options.family, report);
    for (const struct addrinfo *at = list; at != NULL && *count < VERBS_TARGETS; at = at->ai_next) {
        bps_util_address_copy(at->ai_addr, &out[(*count)++]);
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    return list != NULL;
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
static bool find_gid(const struct verbs *verbs, const struct verbs_rail *rail, int family, struct sockaddr_storage *out)
{
    const struct verbs_options *o = &verbs->options;
    struct ibv_gid_entry entry;
    struct sockaddr_storage found;
    bool have = false;
    uint32_t first = o->gid_index >= 0 ? (uint32_t)o->gid_index : 0, last = o->gid_index >= 0 ? first : 1023;
    for (uint32_t i = first; i <= last; i++) {
        if (ibv_query_gid_ex(rail->device->context, rail->port, i, &entry, 0) != 0 ||
            (entry.gid_type != IBV_GID_TYPE_ROCE_V2 && o->gid_index < 0) || !verbs_gid_address(&entry.gid, &found) ||
            (family != AF_UNSPEC && found.ss_family != family)) {
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
    struct bps_util_target target = {.port = 0};
    bool found = false;
    if (*rail->host == '\0') {
        return find_gid(verbs, rail, family, out);
    }
    snprintf(target.host, sizeof target.host, "%.255s", rail->host);
    struct addrinfo *list = bps_util_resolve(&target, verbs->options.family, NULL);
    for (const struct addrinfo *at = list; at != NULL && !found; at = at->ai_next) {
        if (family == AF_UNSPEC || family == at->ai_family) {
            bps_util_address_copy(at->ai_addr, out);
            found = true;
        }
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    return found;
}

void verbs_local_host(struct bps_channel *channel, char *host, size_t n)
{
    snprintf(host, n, "%s", "");
    if (channel->id != NULL) {
        bps_util_host_text(rdma_get_local_addr(channel->id), host, n);
    }
}
