/* SPDX-License-Identifier: Apache-2.0 */
/* role.h - what the processes `byteps server` and `byteps scheduler` share. */
#ifndef BPS_CMD_ROLE_H
#define BPS_CMD_ROLE_H

#include "conf/conf.h"
#include "tools/cmd.h"

/*
 * The configuration for `byteps COMMAND`, and what lets other hosts come in. NULL after a message if it is wrong, which
 * no new start mends: the process then ends with BPS_EXIT_USAGE, by which units for systemd know it.
 */
struct bps_conf *bps_role_conf(const char *command, const struct bps_cmd_conf *lines);
/* Sets the log as configured, with this identity. */
void bps_role_begin(const struct bps_conf *conf, const char *identity);
/* A descriptor that becomes readable when the process is asked to end (SIGTERM, SIGINT, SIGHUP); -1: none. */
int bps_role_stop_fd(void);

#endif
