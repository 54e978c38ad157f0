/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - a summation server: shards, each one thread with its own event loop, connections and keys.
 *
 * It runs in a process of its own (`byteps server`) or inside a worker's.
 */
#ifndef BPS_SERVER_SERVER_H
#define BPS_SERVER_SERVER_H

#include "base/lateness.h"
#include "node/view.h"
#include "node/pinning.h"

struct bps_server;

/*
 * Starts the shards; they listen at `host` (the transport may know better) and wait for bps_server_serve().
 * The pinning, which knows of the host, outlives them.
 */
bps_status bps_server_new(const struct bps_conf *conf, const struct bps_pinning *pinning, const char *host,
                          struct bps_server **out, struct bps_report *report);
/* Stops the shards at once and frees everything. */
void bps_server_free(struct bps_server *server);
/* Writes the shards' addresses as an ENDPOINTS message has them. */
void bps_server_endpoints(const struct bps_server *server, struct bps_writer *endpoints);
/* A generation of the job begins: forget all keys, let in the workers of this view, which it holds. */
bps_status bps_server_serve(struct bps_server *server, struct bps_view *view);
uint32_t bps_server_shards(const struct bps_server *server);
/* Writes what its channels have delivered, as a RATES message has it. Returns to how many. [the thread that serves] */
uint32_t bps_server_delivered(const struct bps_server *server, struct bps_writer *w);
/* Adds who was late since the last time. [the thread that serves] */
void bps_server_lateness(const struct bps_server *server, struct bps_lateness *into);
/* How many shards a server on this machine has that is reached at this address; "": any of a network. */
uint32_t bps_server_count_shards(const struct bps_conf *conf, const struct bps_pinning *pinning, const char *host);

/*
 * Joins the job as a server, or comes into one that runs, and serves until it is over. Returns BPS_OK, or why the job
 * failed.
 * `stop` is a descriptor that becomes readable when the process shall end; -1 for none.
 */
bps_status bps_server_run(const struct bps_conf *conf, bool comes_in, int stop, struct bps_report *report);

#endif
