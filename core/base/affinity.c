/* SPDX-License-Identifier: Apache-2.0 */
/* affinity.c - places threads on nodes. */
#include "base/affinity.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>

#define NONE UINT32_MAX

/* ---- nodes ---- */

/* How many cores of the place are on a node. */
static unsigned usable(const struct bps_place *place, unsigned index)
{
    struct bps_cpus here;
    bps_cpus_and(&place->cpus, &place->topology->node[index].cpus, &here);
    return bps_cpus_count(&here);
}

static unsigned usable_nodes(const struct bps_place *place)
{
    unsigned count = 0;
    for (unsigned i = 0; i < place->topology->nodes; i++) {
        count += usable(place, i) > 0;
    }
    return count;
}

/* The node of the share `rank` of `size` when all cores are divided into equal shares, node after node. */
static unsigned share_node(const struct bps_place *place, unsigned rank, unsigned size)
{
    unsigned total = 0, last = 0;
    for (unsigned i = 0; i < place->topology->nodes; i++) {
        total += usable(place, i);
    }
    uint64_t middle = (2 * (uint64_t)rank + 1) * total, before = 0;
    for (unsigned i = 0; i < place->topology->nodes; i++) {
        before += 2 * (uint64_t)size * usable(place, i);
        last = usable(place, i) > 0 ? i : last;
        if (middle < before) {
            return i;
        }
    }
    return last;
}

/* The nearest node with memory: some have none. */
static int memory_of(const struct bps_topology *topology, unsigned index)
{
    int best = -1;
    for (unsigned i = 0; i < topology->nodes; i++) {
        const unsigned *distance = topology->node[index].distance;
        if (topology->node[i].memory > 0 && (best < 0 || distance[i] < distance[best])) {
            best = (int)i;
        }
    }
    return best;
}

static void take_node(const struct bps_place *place, unsigned index, struct bps_affinity *out)
{
    if (index == NONE) {
        *out = (struct bps_affinity){.cpus = place->cpus, .node = -1};
        return;
    }
    bps_cpus_and(&place->cpus, &place->topology->node[index].cpus, &out->cpus);
    out->node = memory_of(place->topology, index);
}

/* Whether there is anything to choose. */
static bool has_choice(const struct bps_place *place)
{
    return place->numa && bps_topology_places(place->topology) > 1 && usable_nodes(place) > 0;
}

/* ---- workers ---- */

static unsigned worker_node(const struct bps_place *place, unsigned rank)
{
    if (!has_choice(place)) {
        return NONE;
    }
    if (place->size > 1 || usable_nodes(place) == 1) {
        return share_node(place, rank, place->size);
    }
    return place->nic >= 0 && usable(place, (unsigned)place->nic) > 0 ? (unsigned)place->nic : NONE;
}

void bps_affinity_worker(const struct bps_place *place, struct bps_affinity *out)
{
    take_node(place, worker_node(place, place->rank), out);
}

/* Lowers `cpus` to `count` of its cores from `first` on, around its end, with all their hardware threads. */
static void take_cores(const struct bps_topology *topology, struct bps_cpus *cpus, unsigned cores,
                       unsigned first, unsigned count)
{
    struct bps_cpus rest = *cpus, taken, core;
    bps_cpus_clear(&taken);
    for (unsigned i = 0, cpu = 0; (cpu = bps_cpus_next(&rest, cpu)) < BPS_CPUS_LIMIT; i++) {
        bps_topology_siblings(topology, cpu, &core);
        bps_cpus_and(&core, &rest, &core);
        bps_cpus_without(&rest, &core, &rest);
        if ((i + cores - first % cores) % cores < count) {
            bps_cpus_or(&taken, &core, &taken);
        }
    }
    *cpus = taken;
}

static unsigned count_cores(const struct bps_topology *topology, const struct bps_cpus *cpus)
{
    struct bps_cpus rest = *cpus, core;
    unsigned count = 0;
    for (unsigned cpu = 0; (cpu = bps_cpus_next(&rest, cpu)) < BPS_CPUS_LIMIT; count++) {
        bps_topology_siblings(topology, cpu, &core);
        bps_cpus_without(&rest, &core, &rest);
    }
    return count;
}

void bps_affinity_process(const struct bps_place *place, unsigned quota, struct bps_affinity *out)
{
    unsigned node = place->size > 1 ? worker_node(place, place->rank) : NONE;
    unsigned before = 0, there = 0;
    take_node(place, node, out);
    if (node == NONE) {
        return;
    }
    for (unsigned rank = 0; rank < place->size; rank++) {
        bool same = worker_node(place, rank) == node;
        before += same && rank < place->rank;
        there += same;
    }
    unsigned cores = count_cores(place->topology, &out->cpus);
    unsigned first = before * cores / there, next = (before + 1) * cores / there;
    unsigned count = quota > 0 ? quota : next > first ? next - first : 1;
    take_cores(place->topology, &out->cpus, cores, first, count < cores ? count : cores);
}

/* ---- shards ---- */

/* The node on place `order` when the usable ones are sorted by their distance to `from`. */
static unsigned nth_nearest(const struct bps_place *place, unsigned from, unsigned order)
{
    const unsigned *distance = place->topology->node[from].distance;
    for (unsigned i = 0; i < place->topology->nodes; i++) {
        unsigned nearer = 0;
        for (unsigned k = 0; k < place->topology->nodes; k++) {
            nearer +=
                usable(place, k) > 0 && (distance[k] < distance[i] || (distance[k] == distance[i] && k < i));
        }
        if (usable(place, i) > 0 && nearer == order) {
            return i;
        }
    }
    return from;
}

/* A node has room for half as many shards as it has cores: the kernel's part of the work runs beside them. */
static unsigned shard_near(const struct bps_place *place, unsigned index)
{
    unsigned nodes = usable_nodes(place), total = 0, room;
    for (unsigned i = 0; i < place->topology->nodes; i++) {
        total += (usable(place, i) + 1) / 2;
    }
    index %= total;
    for (unsigned order = 0; order < nodes; order++) {
        unsigned node = nth_nearest(place, (unsigned)place->nic, order);
        room = (usable(place, node) + 1) / 2;
        if (index < room) {
            return node;
        }
        index -= room;
    }
    return NONE;
}

void bps_affinity_shard(const struct bps_place *place, unsigned index, unsigned count,
                        struct bps_affinity *out)
{
    unsigned node = NONE;
    if (has_choice(place)) {
        node = place->nic >= 0 ? shard_near(place, index) : share_node(place, index, count);
    }
    take_node(place, node, out);
}

/* ---- application ---- */

static bool may_use_memory(unsigned id)
{
    struct bitmask *allowed = numa_get_mems_allowed();
    bool may = numa_bitmask_isbitset(allowed, id) != 0;
    numa_bitmask_free(allowed);
    return may;
}

/* Where a container forbids it, a page still comes from the node of the core that touches it first. */
static void prefer_memory(unsigned id)
{
    if (numa_available() < 0 || id >= (unsigned)numa_num_possible_nodes() || !may_use_memory(id)) {
        return;
    }
    struct bitmask *nodes = numa_allocate_nodemask();
    numa_bitmask_setbit(nodes, id);
    set_mempolicy(MPOL_PREFERRED, nodes->maskp, nodes->size + 1);
    numa_bitmask_free(nodes);
}

bps_status bps_affinity_apply(const struct bps_affinity *affinity, const struct bps_topology *topology,
                              struct bps_report *report)
{
    const void *set = &affinity->cpus;
    if (sched_setaffinity(0, sizeof affinity->cpus, set) != 0) {
        char cpus[128];
        int error = errno;
        bps_cpus_format(&affinity->cpus, cpus, sizeof cpus);
        BPS_REPORT(report, "cannot bind a thread to the cores %s: %s", cpus, strerror(error));
        return BPS_ERR_IO;
    }
    if (affinity->node >= 0) {
        prefer_memory(topology->node[affinity->node].id);
    }
    return BPS_OK;
}
