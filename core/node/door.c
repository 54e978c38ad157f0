/* SPDX-License-Identifier: Apache-2.0 */
/* door.c - listening with a transport of the job. */
#include "node/door.h"

#include "base/log.h"
#include "node/transport.h"

#define LOG "server"

void bps_door_init(struct bps_door *door, const struct bps_link_handler *handler, void *host)
{
    *door = (struct bps_door){.transport = NULL};
    bps_lobby_init(&door->lobby, handler, NULL, host);
}

static bps_status listen_at(struct bps_door *door, const char *address, struct bps_report *report)
{
    const struct bps_transport_ops *transport = door->transport->ops;
    door->lobby.transport = transport;
    bps_status status = transport->listen(door->transport->self, address, bps_lobby_accept, &door->lobby,
                                          door->address, sizeof door->address, report);
    if (status != BPS_OK) {
        bps_door_close(door);
    }
    return status;
}

bps_status bps_door_open_net(struct bps_door *door, const struct bps_conf *conf, struct bps_loop *loop,
                             const char *host, struct bps_report *report)
{
    char address[80];
    bps_status status = bps_transport_open(conf, loop, &door->transport, report);
    snprintf(address, sizeof address, "%s:0", host);
    return status == BPS_OK ? listen_at(door, address, report) : status;
}

bps_status bps_door_open_near(struct bps_door *door, const struct bps_conf *conf, struct bps_loop *loop,
                              struct bps_report *report)
{
    struct bps_report reason = {""};
    bps_status status = bps_transport_open_local(conf, loop, &door->transport, &reason);
    if (status == BPS_OK) {
        status = listen_at(door, "", &reason);
    }
    if (status == BPS_ERR_CONF) {
        BPS_REPORT(report, "%s", reason.text);
        return status;
    }
    if (status != BPS_OK) {
        bps_warn(LOG, "workers of this host reach this server as all others do: %s", reason.text);
    }
    return BPS_OK;
}

void bps_door_close(struct bps_door *door)
{
    bps_lobby_fini(&door->lobby);
    bps_transport_log_bytes(door->transport);
    bps_instance_close(door->transport);
    door->transport = NULL;
    door->address[0] = '\0';
}
