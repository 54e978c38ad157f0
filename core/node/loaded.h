/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded.h - what code a member of a job runs: BytePS itself, and the plugins that it has loaded.
 */
#ifndef BPS_NODE_LOADED_H
#define BPS_NODE_LOADED_H

#include "conf/conf.h"

/*
 * A line for each, "KIND NAME<tab>VERSION format N<tab>FILE", beginning with BytePS itself, whose format is the version
 * of the wire. Loads before, without opening them, the plugins that the configuration names and that members open when
 * they need them first: compressors and the reducer of shards; those that cannot be loaded are left for then. Freed by
 * the caller; NULL: no memory.
 */
char *bps_loaded_text(const struct bps_conf *conf);

#endif
