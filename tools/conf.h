/* SPDX-License-Identifier: Apache-2.0 */
/* conf.h - the parts of `byteps conf`. */
#ifndef BPS_CMD_CONF_H
#define BPS_CMD_CONF_H

#include "tools/cmd.h"

/* What `conf check` and `conf show` look at. */
struct bps_conf_command {
    struct bps_cmd_conf conf;
    bool json, origin;
};

/* Each returns the exit status. */
int bps_conf_command_check(const struct bps_conf_command *command);
int bps_conf_command_show(const struct bps_conf_command *command);
int bps_conf_command_sample(void);

/*
 * Loads the configuration; problems go to standard error, one per line. NULL: nothing could be read. *good: there
 * were none.
 */
struct bps_conf *bps_conf_command_load(const struct bps_conf_command *command, bool *good);

#endif
