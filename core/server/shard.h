/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - one thread of a server. */
#ifndef BPS_SERVER_SHARD_H
#define BPS_SERVER_SHARD_H

#include "base/lateness.h"
#include "node/view.h"
#include "node/pinning.h"

struct bps_shard;

/*
 * Starts a thread, of this number in its process, on the cores of `pin` that listens at `host`, any port, and if
 * `local`, also for the workers of this host; where that does not work, the log says why. `pinning` outlives the
 * shard, which takes `pin`.
 */
bps_status bps_shard_new(const struct bps_conf *conf, uint32_t number, const char *host, bool local,
                         const struct bps_pinning *pinning, struct bps_pin *pin, struct bps_shard **out,
                         struct bps_report *report);
/* Ends the thread and frees the shard. */
void bps_shard_free(struct bps_shard *shard);
/* The address to dial. */
const char *bps_shard_address(const struct bps_shard *shard);
/* The same for workers of this host; "": none. */
const char *bps_shard_local(const struct bps_shard *shard);
/*
 * Drops the last generation's peers and keys and lets in those of this view, which it holds; within an epoch
 * only the view is another one. Returns when it is done.
 */
bps_status bps_shard_serve(struct bps_shard *shard, struct bps_view *view);
/* Writes what its channels have delivered since the last time. Returns how many entries. [the thread that serves] */
uint32_t bps_shard_delivered(struct bps_shard *shard, struct bps_writer *w);
/* Adds who was late since the last time. [the thread that serves] */
void bps_shard_lateness(struct bps_shard *shard, struct bps_lateness *into);

#endif
