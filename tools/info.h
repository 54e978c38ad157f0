/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - the parts of `byteps info`, and what other subcommands tell as it does. */
#ifndef BPS_CMD_INFO_H
#define BPS_CMD_INFO_H

#include <jansson.h>

#include "node/transport.h"
#include "tools/cmd.h"

/* Adds the NUMA nodes and what is bound to which cores, if there is anything to tell (info_cores.c). */
void bps_info_cores(json_t *info, const struct bps_conf *conf);

/*
 * "local: plugin ipc, ring 64 KiB, ...", of an instance; and of the one
 * that would be opened, or "none: " and why.
 */
void bps_transport_text(const struct bps_instance *instance, char *text, size_t n);
void bps_transport_text_local(const struct bps_conf *conf, struct bps_loop *loop, char *text, size_t n);

#endif
