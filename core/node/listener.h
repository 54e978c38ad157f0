/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h - a transport that others can dial, and the lobby in which they wait until they are known. */
#ifndef BPS_NODE_LISTENER_H
#define BPS_NODE_LISTENER_H

#include "plugin/instance.h"
#include "wire/lobby.h"

struct bps_listener {
    struct bps_instance *transport; /* NULL: closed */
    struct bps_lobby lobby;
    char address[128]; /* to dial; "": closed */
};

/* A listener that is closed. Its guests will be the handler's, and know of `host`. */
void bps_listener_init(struct bps_listener *listener, const struct bps_link_handler *handler, void *host);
/* Opens the network's transport and listens at `host`, a port of cluster.ports. After an error it is closed. */
bps_status bps_listener_open_net(struct bps_listener *listener, const struct bps_conf *conf, struct bps_loop *loop,
                                 const char *host, struct bps_report *report);
/*
 * The same with the transport between processes of a host. Where it does not work it stays closed, and the
 * log says why; only a wrong option is an error.
 */
bps_status bps_listener_open_local(struct bps_listener *listener, const struct bps_conf *conf, struct bps_loop *loop,
                                   struct bps_report *report);
/* Drops those who still wait. All other links of the transport have ended. */
void bps_listener_close(struct bps_listener *listener);

#endif
