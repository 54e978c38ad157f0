/* SPDX-License-Identifier: Apache-2.0 */
/* ports.h - which ports a job listens on. */
#ifndef BPS_NODE_PORTS_H
#define BPS_NODE_PORTS_H

#include "conf/conf.h"
#include "plugin/instance.h"
#include "wire/lobby.h"

/*
 * Listens with a transport, for guests of the lobby. Where the address has port 0 that is the first free one of
 * cluster.ports. actual[n] receives the address to dial. BPS_ERR_CONF: none of them is free.
 */
bps_status bps_ports_listen(const struct bps_conf *conf, const struct bps_instance *transport, const char *address,
                            struct bps_lobby *lobby, char *actual, size_t n, struct bps_report *report);

#endif
