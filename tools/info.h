/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - the parts of `byteps info`. */
#ifndef BPS_CMD_INFO_H
#define BPS_CMD_INFO_H

#include <jansson.h>

#include "tools/cmd.h"

/* Adds the NUMA nodes and what is bound to which cores, if there is anything to tell (info_cores.c). */
void bps_info_cores(json_t *info, const struct bps_conf *conf);

#endif
