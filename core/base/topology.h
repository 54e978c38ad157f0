/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - the NUMA nodes of a machine, as hwloc finds them, and which of them a network card is near.
 *
 * It is the whole machine; which cores this process may use is another question.
 */
#ifndef BPS_BASE_TOPOLOGY_H
#define BPS_BASE_TOPOLOGY_H

#include <stdbool.h>

#include "base/cpus.h"

#define BPS_SYSFS "/sys"

struct bps_topology {
    hwloc_topology_t machine;
    const char *sysfs;
    struct hwloc_distances_s *distances; /* between the nodes; NULL: the kernel does not tell */
    hwloc_obj_t nic; /* the node of the interface by which this process speaks to others; NULL: not known */
};

/* Whether the kernel tells of one node of memory only: with that there is nothing to decide. */
bool bps_topology_is_flat(const char *sysfs);
/* Another `sysfs` than BPS_SYSFS, a directory of the name sys, describes another machine to look at. */
bps_status bps_topology_load(const char *sysfs, struct bps_topology *out, struct bps_report *report);
void bps_topology_fini(struct bps_topology *topology);

/* The node after `last` that has cores, NULL: the first one. A machine without NUMA is one node. */
hwloc_obj_t bps_topology_next(const struct bps_topology *topology, hwloc_obj_t last);
/* How many nodes have cores: with one of them there is nothing to decide. */
unsigned bps_topology_places(const struct bps_topology *topology);
/* The node of a core. */
hwloc_obj_t bps_topology_node(hwloc_obj_t core);
/* 10 is here. */
uint64_t bps_topology_distance(const struct bps_topology *topology, hwloc_obj_t from, hwloc_obj_t to);

/* The node that a network interface is plugged into; NULL: none, or not known. */
hwloc_obj_t bps_topology_interface_node(const struct bps_topology *topology, const char *interface);
/* The same for the interface that has this address ("10.0.0.1", "[fd00::1]"). */
hwloc_obj_t bps_topology_address_node(const struct bps_topology *topology, const char *address);

#endif
