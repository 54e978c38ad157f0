/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pinning.h - what the section `affinity` of the configuration means on this machine, for this process.
 *
 * A thread is left alone (bound = false) where nobody has asked for anything and the machine has one node.
 */
#ifndef BPS_NODE_PINNING_H
#define BPS_NODE_PINNING_H

#include "base/affinity.h"
#include "conf/conf.h"

struct bps_pinning {
    const struct bps_conf_affinity *conf;
    struct bps_topology topology; /* without a machine, if there is nothing to decide */
    hwloc_cpuset_t allowed;       /* for this process, less what is to be avoided */
    bool avoids;                  /* something of what it might use */
    bool numa;                    /* several nodes, and nobody has switched it off */
};

/* Reads the machine and checks the configured cores against it. */
bps_status bps_pinning_init(struct bps_pinning *pinning, const struct bps_conf *conf, struct bps_report *report);
void bps_pinning_fini(struct bps_pinning *pinning);
/* The process speaks to the others from this address. */
void bps_pinning_address(struct bps_pinning *pinning, const char *address);

/*
 * What is decided goes into a pin that is zero or was decided before, and is released by bps_pin_fini.
 *
 * For the core thread and the pool of a worker.
 */
bps_status bps_pinning_worker(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                              struct bps_pin *out, struct bps_report *report);
/* For a shard of a server, alone or in a worker's process. */
bps_status bps_pinning_shard(const struct bps_pinning *pinning, unsigned index, unsigned count, struct bps_pin *out,
                             struct bps_report *report);
/* For a worker process as a whole, where `byteps run` or `byteps launch` starts it. */
bps_status bps_pinning_process(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                               struct bps_pin *out, struct bps_report *report);
/* Binds the calling thread, if it is to be bound. What the machine refuses is logged; the job goes on. */
void bps_pinning_apply(const struct bps_pinning *pinning, const struct bps_pin *pin, const char *who);
void bps_pin_fini(struct bps_pin *pin);
/* "cores 0-3, memory of node 0" */
void bps_pin_text(const struct bps_pin *pin, char *text, size_t n);

#endif
