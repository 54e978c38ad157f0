/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - see ports.h. Members that begin at once try the same ports: who binds one first has it. */
#include "node/ports.h"

#include <string.h>
#include <unistd.h>

#include <byteps/transport.h>

#include "plugin/ask.h"

/* Whether the address ends in port 0. */
static bool leaves_port_open(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon != NULL && colon[1] == '0' && colon[1 + strspn(colon + 1, "0")] == '\0';
}

static bps_status none_is_free(const struct bps_conf *conf, struct bps_report *report)
{
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    BPS_REPORT(
        report,
        "%s: cluster.ports = \"%s\": all of these ports are in use on host %s; configure more of them, one for each "
        "shard of a server or worker on this host and one for the scheduler, or end the processes that listen there",
        bps_conf_find(conf, "cluster.ports")->origin, conf->cluster.ports, host);
    return BPS_ERR_CONF;
}

bps_status bps_ports_listen(const struct bps_conf *conf, const struct bps_instance *transport, const char *address,
                            struct bps_lobby *lobby, char *actual, size_t n, struct bps_report *report)
{
    lobby->transport = transport;
    if (conf->ports.first == 0 || !leaves_port_open(address)) {
        return bps_ask_listen(transport, address, bps_lobby_accept, lobby, actual, n, report);
    }
    bps_status status = BPS_ERR_BUSY;
    for (uint32_t port = conf->ports.first; port <= conf->ports.last && status == BPS_ERR_BUSY; port++) {
        char at[270];
        snprintf(at, sizeof at, "%.*s:%u", (int)(strrchr(address, ':') - address), address, port);
        status = bps_ask_listen(transport, at, bps_lobby_accept, lobby, actual, n, report);
    }
    return status == BPS_ERR_BUSY ? none_is_free(conf, report) : status;
}
