/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - the NUMA nodes of a machine: their cores, their memory, what is near to what.
 *
 * Everything is read below one directory, so that tests can describe machines of any shape. It is the
 * kernel's view of the whole machine; which cores this process may use is another question
 * (bps_cpus_allowed).
 */
#ifndef BPS_BASE_TOPOLOGY_H
#define BPS_BASE_TOPOLOGY_H

#include "base/cpus.h"

#define BPS_SYSFS "/sys"

struct bps_numa_node {
    unsigned id;          /* the kernel's number, which may leave gaps */
    struct bps_cpus cpus; /* online; none: memory only */
    uint64_t memory;      /* bytes; 0: cores only */
    unsigned *distance;   /* to the node of each index; 10 is here */
};

struct bps_topology {
    char root[512];
    struct bps_cpus online;
    unsigned nodes; /* at least 1 */
    struct bps_numa_node *node;
};

/* Reads the machine described below `root` (BPS_SYSFS). A machine without NUMA is one node. */
bps_status bps_topology_read(const char *root, struct bps_topology *out, struct bps_report *report);
/* The same without looking for nodes: all cores are one. */
bps_status bps_topology_flat(const char *root, struct bps_topology *out);
void bps_topology_fini(struct bps_topology *topology);

/* How many nodes have cores: with one of them there is nothing to decide. */
unsigned bps_topology_places(const struct bps_topology *topology);
/* The hardware threads of the core that `cpu` is one of. */
void bps_topology_siblings(const struct bps_topology *topology, unsigned cpu, struct bps_cpus *out);
/* The index of the node that a network interface is plugged into; -1: none, or not known. */
int bps_topology_interface_node(const struct bps_topology *topology, const char *interface);
/* The same for the interface that has this address ("10.0.0.1", "[fd00::1]"). */
int bps_topology_address_node(const struct bps_topology *topology, const char *address);

/* The cores that the kernel lets this process use. */
void bps_cpus_allowed(struct bps_cpus *out);

#endif
