/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affinity.h - which cores and which memory a thread should use: decided on a topology, and applied.
 *
 * The decisions depend on their arguments only. They are for machines with several nodes; where a process may
 * use the cores of one node only, all its threads land there. A pin has the cores to choose from, and is left
 * with those that are to be used.
 */
#ifndef BPS_BASE_AFFINITY_H
#define BPS_BASE_AFFINITY_H

#include "base/topology.h"

struct bps_pin {
    hwloc_cpuset_t cpus; /* of the topology */
    hwloc_obj_t memory;  /* the node whose memory is used; NULL: as it comes */
    bool bound;          /* false: the thread is left alone */
};

/* For the threads of a worker: one node, the NIC's for a worker that is alone on its host, else its share. */
void bps_affinity_worker(const struct bps_topology *topology, unsigned rank, unsigned size, struct bps_pin *pin);
/* For a shard: near the NIC as far as there are cores, then on the nearest other nodes. */
void bps_affinity_shard(const struct bps_topology *topology, unsigned index, unsigned count, struct bps_pin *pin);
/*
 * For a whole worker process that is not alone on its host: its share of its node's cores, hardware threads of a
 * core together. `quota` is how many cores it gets; 0: the node's cores are divided evenly between the workers
 * that are there.
 */
void bps_affinity_process(const struct bps_topology *topology, unsigned rank, unsigned size, unsigned quota,
                          struct bps_pin *pin);

/* Binds the calling thread. An error is one of the machine: the caller may go on without. */
bps_status bps_affinity_apply(const struct bps_topology *topology, const struct bps_pin *pin,
                              struct bps_report *report);

#endif
