/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - the transports of a job: the network's, between all
 * members, and the one between processes of a host.
 */
#ifndef BPS_NODE_TRANSPORT_H
#define BPS_NODE_TRANSPORT_H

#include "plugin/instance.h"

/*
 * Opens the first usable instance of the list `use` of the stage push_pull. Says in the log which ones were
 * not usable and why; the report has the reasons if none was.
 */
bps_status bps_transport_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                              struct bps_report *report);

/* The same for the processes of one host: the list `use` of the stage local_reduce. */
bps_status bps_transport_open_local(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                                    struct bps_report *report);

/*
 * Whether members of the job may meet at "HOST" or "HOST:PORT". BPS_ERR_CONF, with what to do: other hosts can reach
 * that, and the job has no secret.
 */
bps_status bps_transport_check_host(const struct bps_conf *conf, const char *address, struct bps_report *report);
/*
 * Whether what travels can be encrypted, if it is to be; bps_transport_open() asks as well. BPS_ERR_CONF, with what to
 * do: there is no secret.
 */
bps_status bps_transport_check_secret(const struct bps_conf *conf, struct bps_report *report);

#define BPS_LANES_LIMIT 16u /* links of a worker to one shard */
#define BPS_LANES_TIMES 2u  /* as many as the transport asks for, or up to so many times that */
/* So many times the lanes that the transport asks for; at most BPS_LANES_LIMIT. */
uint32_t bps_transport_lanes(const struct bps_instance *transport, uint32_t times);

/*
 * The `transport` may learn of the region, which blocks of a pool lie in; one that does not know it copies. And it must
 * forget it: for a pool's owner (bps_pool_fn).
 */
void bps_transport_attach(void *transport, const struct bps_region *region);
void bps_transport_detach(void *transport, const struct bps_region *region);

/* Says in the log how many bytes it has carried which way, as far as it counts them. NULL is allowed. */
void bps_transport_log_bytes(const struct bps_instance *instance);

#endif
