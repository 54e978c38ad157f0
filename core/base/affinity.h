/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affinity.h - which cores and which memory a thread should use: decided on a topology, and applied.
 *
 * The decisions depend on their arguments only. Where a machine has one node, or this process may use the
 * cores of one node only, every thread that is placed by node lands there, so that nothing changes.
 */
#ifndef BPS_BASE_AFFINITY_H
#define BPS_BASE_AFFINITY_H

#include "base/topology.h"

/* A process, and the machine it is on. */
struct bps_place {
    const struct bps_topology *topology;
    struct bps_cpus cpus; /* those to choose from */
    bool numa;            /* choose by node; else all of them are used */
    int nic;              /* index of the node of the network interface; -1: not known */
    unsigned rank, size;  /* among the processes of its kind on this host */
};

struct bps_affinity {
    struct bps_cpus cpus;
    int node; /* index of the node whose memory is used; -1: as it comes */
};

/* For the threads of a worker: one node, the NIC's for a worker that is alone on its host, else its share. */
void bps_affinity_worker(const struct bps_place *place, struct bps_affinity *out);
/* For shard `index` of `count`: near the NIC as far as there are cores, then on the nearest other nodes. */
void bps_affinity_shard(const struct bps_place *place, unsigned index, unsigned count,
                        struct bps_affinity *out);
/*
 * For a whole worker process: its share of its node's cores, hardware threads of a core together. `quota` is
 * how many cores it gets; 0: the node's cores are divided evenly between the workers that are there.
 */
void bps_affinity_process(const struct bps_place *place, unsigned quota, struct bps_affinity *out);

/* Binds the calling thread. An error is one of the machine: the caller may go on without. */
bps_status bps_affinity_apply(const struct bps_affinity *affinity, const struct bps_topology *topology,
                              struct bps_report *report);

#endif
