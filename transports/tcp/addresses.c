/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addresses.c - the addresses of a member with several interfaces.
 *
 * It listens at one for each, and tells the others all of them. Lane i of a peer goes to address i, and leaves by the
 * interface in that subnet. The lanes take frames from one queue (send.c tells in which order).
 */
#include "tcp.h"

#include <netdb.h>
#include <stdatomic.h>
#include <string.h>

/* ---- as text ---- */

/* The text of item i, up to a comma or to the end of the list; NULL: there are not so many. */
static const char *item(const char *text, uint32_t i, size_t *length)
{
    for (; i > 0; i--) {
        text = strchr(text, ',');
        if (text == NULL) {
            return NULL;
        }
        text++;
    }
    *length = strcspn(text, ",");
    return text;
}

bool tcp_addresses_split(const char *text, uint32_t i, char *out, size_t n)
{
    size_t length;
    const char *host = item(text, i, &length);
    if (host == NULL) {
        return false;
    }
    const char *port = host[length] == ',' ? strrchr(host, ':') : NULL; /* the last item has it already */
    snprintf(out, n, "%.*s%s", (int)length, host, port != NULL ? port : "");
    return true;
}

static uint32_t count(const char *text)
{
    uint32_t commas = 0;
    for (const char *at = strchr(text, ','); at != NULL; at = strchr(at + 1, ',')) {
        commas++;
    }
    return commas + 1;
}

/* ---- of this host ---- */

/* Whether that is the address of one of the interfaces. */
static bool is_of_interface(const struct tcp *tcp, const char *host)
{
    const struct bps_list *interfaces = &tcp->options.interface;
    struct sockaddr_storage address;
    char text[NI_MAXHOST];
    for (uint32_t i = 0; i < interfaces->count; i++) {
        if (tcp_interface_address(interfaces->items[i], bps_util_family(tcp->options.family), &address)) {
            bps_util_host_text((struct sockaddr *)&address, text, sizeof text);
            if (strcmp(text, host) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void list_interfaces(const struct tcp *tcp, char *host, size_t n)
{
    const struct bps_list *interfaces = &tcp->options.interface;
    struct sockaddr_storage address;
    char text[NI_MAXHOST];
    host[0] = '\0';
    for (uint32_t i = 0; i < interfaces->count; i++) {
        if (tcp_interface_address(interfaces->items[i], bps_util_family(tcp->options.family), &address)) {
            bps_util_host_text((struct sockaddr *)&address, text, sizeof text);
            bps_util_append(host, n, "%s%s", host[0] != '\0' ? "," : "", text);
        }
    }
}

void tcp_local_host(struct bps_channel *channel, char *host, size_t n)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    const struct tcp *tcp = channel->tcp;
    const char *chosen = tcp->options.host;
    snprintf(host, n, strchr(chosen, ':') != NULL ? "[%s]" : "%s", chosen);
    if (*chosen == '\0' && channel->fd >= 0 && getsockname(channel->fd, (struct sockaddr *)&own, &length) == 0) {
        bps_util_host_text((struct sockaddr *)&own, host, n);
        if (tcp->options.interface.count > 1 && is_of_interface(tcp, host)) {
            list_interfaces(tcp, host, n);
        }
    }
}

bps_status tcp_addresses_check(const struct tcp *tcp, struct bps_report *report)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const struct bps_list *interfaces = &tcp->options.interface;
    int family = bps_util_family(tcp->options.family);
    struct sockaddr_storage address;
    uint32_t a, b;
    for (uint32_t i = 0; i < interfaces->count; i++) {
        bps_status status = tcp_interface_check(interfaces->items[i], report);
        if (status != BPS_OK) {
            return status;
        }
        if (interfaces->count > 1 && !tcp_interface_address(interfaces->items[i], family, &address)) {
            BPS_REPORT(report, "interface '%.64s' has no Internet address, or is down", interfaces->items[i]);
            return BPS_ERR_CONF;
        }
    }
    if (tcp_interfaces_share_link(interfaces, family, &a, &b) && !atomic_flag_test_and_set(&warned)) {
        tcp->host->log(
            tcp->host, BPS_LOG_WARN,
            "interfaces %s and %s are in one subnet: without rules for routes by source address (ip-rule(8)) "
            "all bytes leave by one of them; give each a subnet of its own",
            interfaces->items[a], interfaces->items[b]);
    }
    return BPS_OK;
}

/* ---- of a peer ---- */

uint32_t tcp_lanes(const struct tcp *tcp)
{
    uint32_t streams = (uint32_t)tcp->options.streams, interfaces = tcp->options.interface.count;
    return streams > interfaces ? streams : interfaces;
}

/* A lane beyond the first goes to a shard, and so does any to several addresses; the scheduler has one of each. */
void tcp_addresses_compare(const struct tcp *tcp, const char *text, uint32_t lane)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint32_t own = tcp->options.interface.count, addresses = count(text);
    bool unused = own > 1 && own != addresses && (lane > 0 || addresses > 1);
    if ((unused || addresses > tcp_lanes(tcp)) && !atomic_flag_test_and_set(&warned)) {
        tcp->host->log(
            tcp->host, BPS_LOG_WARN,
            "the peer at %s listens on %u interface%s, and transports.net.interface names %u here: some stay "
            "unused; give it as many on all hosts",
            text, addresses, addresses > 1 ? "s" : "", own);
    }
}

void tcp_addresses_pick(const char *text, uint32_t lane, char *out, size_t n)
{
    size_t length = 0;
    const char *chosen = item(text, lane % count(text), &length);
    snprintf(out, n, "%.*s", (int)length, chosen);
}
