/* SPDX-License-Identifier: Apache-2.0 */
/* listener.c - listening with a transport of the job. */
#include "node/listener.h"

#include "base/log.h"
#include "node/ports.h"
#include "node/transport.h"

#define LOG "server"

void bps_listener_init(struct bps_listener *listener, const struct bps_link_handler *handler, void *host)
{
    *listener = (struct bps_listener){.transport = NULL};
    bps_lobby_init(&listener->lobby, handler, NULL, host, 0);
}

static bps_status listener_listen_at(struct bps_listener *listener, const struct bps_conf *conf, const char *address,
                                     struct bps_report *report)
{
    listener->lobby.members =
        (uint32_t)conf->cluster.workers * bps_transport_lanes(listener->transport, BPS_LANES_TIMES);
    bps_status status = bps_ports_listen(conf, listener->transport, address, &listener->lobby, listener->address,
                                         sizeof listener->address, report);
    if (status != BPS_OK) {
        bps_listener_close(listener);
    }
    return status;
}

bps_status bps_listener_open_net(struct bps_listener *listener, const struct bps_conf *conf, struct bps_loop *loop,
                                 const char *host, struct bps_report *report)
{
    char address[270];
    bps_status status = bps_transport_check_host(conf, host, report);
    if (status == BPS_OK) {
        status = bps_transport_open(conf, loop, &listener->transport, report);
    }
    snprintf(address, sizeof address, "%s:0", host);
    return status == BPS_OK ? listener_listen_at(listener, conf, address, report) : status;
}

bps_status bps_listener_open_local(struct bps_listener *listener, const struct bps_conf *conf, struct bps_loop *loop,
                                   struct bps_report *report)
{
    struct bps_report reason = {""};
    bps_status status = bps_transport_open_local(conf, loop, &listener->transport, &reason);
    if (status == BPS_OK) {
        status = listener_listen_at(listener, conf, "", &reason);
    }
    if (status == BPS_ERR_CONF) {
        BPS_REPORT(report, "%s", reason.text);
        return status;
    }
    if (status != BPS_OK) {
        bps_warn(LOG, "workers of this host reach this server through the network: %s", reason.text);
    }
    return BPS_OK;
}

void bps_listener_close(struct bps_listener *listener)
{
    bps_lobby_fini(&listener->lobby);
    bps_transport_log_bytes(listener->transport);
    bps_instance_close(listener->transport);
    listener->transport = NULL;
    listener->address[0] = '\0';
}
