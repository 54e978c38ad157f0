/* SPDX-License-Identifier: Apache-2.0 */
/* affinity.c - places threads on nodes. */
#include "base/affinity.h"

#include <errno.h>
#include <string.h>

/* ---- nodes ---- */

/* How many of the cores are on a node. */
static unsigned usable(hwloc_const_cpuset_t cpus, hwloc_obj_t node)
{
    unsigned count = 0, cpu;
    hwloc_bitmap_foreach_begin(cpu, node->cpuset)
    {
        count += hwloc_bitmap_isset(cpus, cpu) != 0;
    }
    hwloc_bitmap_foreach_end();
    return count;
}

/* The node of the share `rank` when all cores are divided into equal shares, node after node. */
static hwloc_obj_t share_node(hwloc_topology_t machine, unsigned rank, unsigned size, hwloc_const_cpuset_t cpus)
{
    uint64_t total = (unsigned)hwloc_get_nbobjs_inside_cpuset_by_type(machine, cpus, HWLOC_OBJ_PU);
    uint64_t middle = (2 * (uint64_t)rank + 1) * total / (2 * (uint64_t)size);
    return bps_topology_node(hwloc_get_obj_inside_cpuset_by_type(machine, cpus, HWLOC_OBJ_PU,
                                                                 (unsigned)(middle < total ? middle : total - 1)));
}

/* The nearest node with memory: some have none. */
static hwloc_obj_t memory_of(const struct bps_topology *t, hwloc_obj_t from)
{
    hwloc_obj_t best = NULL;
    for (hwloc_obj_t node = NULL; (node = hwloc_get_next_obj_by_type(t->machine, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        if (node->attr->numanode.local_memory > 0 &&
            (best == NULL || bps_topology_distance(t, from, node) < bps_topology_distance(t, from, best))) {
            best = node;
        }
    }
    return best;
}

static void take_node(const struct bps_topology *t, hwloc_obj_t node, struct bps_pin *pin)
{
    if (node != NULL) {
        hwloc_bitmap_and(pin->cpus, pin->cpus, node->cpuset);
        pin->memory = memory_of(t, node);
        pin->bound |= pin->memory != NULL;
    }
}

/* ---- workers ---- */

void bps_affinity_worker(const struct bps_topology *topology, unsigned rank, unsigned size, struct bps_pin *pin)
{
    hwloc_obj_t node = share_node(topology->machine, rank, size, pin->cpus), nic = topology->nic;
    if (size == 1 && !hwloc_bitmap_isincluded(pin->cpus, node->cpuset)) {
        node = nic != NULL && hwloc_bitmap_intersects(pin->cpus, nic->cpuset) ? nic : NULL;
    }
    take_node(topology, node, pin);
}

/* The next core with all its hardware threads, of which some may be used. */
static hwloc_obj_t next_core(hwloc_topology_t machine, hwloc_const_cpuset_t cpus, hwloc_obj_t last)
{
    int depth = hwloc_get_type_or_below_depth(machine, HWLOC_OBJ_CORE);
    return hwloc_get_next_obj_covering_cpuset_by_depth(machine, cpus, depth, last);
}

static unsigned count_cores(hwloc_topology_t machine, hwloc_const_cpuset_t cpus)
{
    unsigned count = 0;
    for (hwloc_obj_t core = NULL; (core = next_core(machine, cpus, core)) != NULL;) {
        count++;
    }
    return count;
}

/* Lowers `cpus` to `count` of its cores from `first` on, around its end. */
static void take_cores(hwloc_topology_t machine, hwloc_cpuset_t cpus, unsigned cores, unsigned first, unsigned count)
{
    hwloc_obj_t core = NULL;
    for (unsigned i = 0; (core = next_core(machine, cpus, core)) != NULL; i++) {
        if ((i + cores - first % cores) % cores >= count) {
            hwloc_bitmap_andnot(cpus, cpus, core->cpuset);
        }
    }
}

void bps_affinity_process(const struct bps_topology *topology, unsigned rank, unsigned size, unsigned quota,
                          struct bps_pin *pin)
{
    hwloc_topology_t machine = topology->machine;
    hwloc_obj_t node = share_node(machine, rank, size, pin->cpus);
    unsigned before = 0, there = 0;
    for (unsigned i = 0; i < size; i++) {
        bool same = share_node(machine, i, size, pin->cpus) == node;
        before += same && i < rank;
        there += same;
    }
    take_node(topology, node, pin);
    unsigned cores = count_cores(machine, pin->cpus);
    unsigned first = before * cores / there, next = (before + 1) * cores / there;
    unsigned count = quota > 0 ? quota : next > first ? next - first : 1;
    take_cores(machine, pin->cpus, cores, first, count);
}

/* ---- shards ---- */

static bool is_nearer(const struct bps_topology *t, hwloc_obj_t a, hwloc_obj_t b)
{
    uint64_t to_a = bps_topology_distance(t, t->nic, a), to_b = bps_topology_distance(t, t->nic, b);
    return to_a < to_b || (to_a == to_b && a->logical_index < b->logical_index);
}

/* The node that comes after `last` when they are sorted by their distance to the NIC. */
static hwloc_obj_t next_nearest(const struct bps_topology *t, hwloc_obj_t last)
{
    hwloc_obj_t best = NULL;
    for (hwloc_obj_t node = NULL; (node = bps_topology_next(t, node)) != NULL;) {
        if ((last == NULL || is_nearer(t, last, node)) && (best == NULL || is_nearer(t, node, best))) {
            best = node;
        }
    }
    return best;
}

/* A node has room for half as many shards as it has cores: the kernel's part of the work runs beside them. */
static hwloc_obj_t shard_near(const struct bps_topology *t, unsigned index, hwloc_const_cpuset_t cpus)
{
    unsigned total = 0;
    hwloc_obj_t node = NULL;
    while ((node = bps_topology_next(t, node)) != NULL) {
        total += (usable(cpus, node) + 1) / 2;
    }
    index %= total;
    while ((node = next_nearest(t, node)) != NULL && index >= (usable(cpus, node) + 1) / 2) {
        index -= (usable(cpus, node) + 1) / 2;
    }
    return node;
}

void bps_affinity_shard(const struct bps_topology *topology, unsigned index, unsigned count, struct bps_pin *pin)
{
    take_node(topology,
              topology->nic != NULL ? shard_near(topology, index, pin->cpus)
                                    : share_node(topology->machine, index, count, pin->cpus),
              pin);
}

/* ---- application ---- */

bps_status bps_affinity_apply(const struct bps_topology *topology, const struct bps_pin *pin, struct bps_report *report)
{
    if (hwloc_set_cpubind(topology->machine, pin->cpus, HWLOC_CPUBIND_THREAD) != 0) {
        char cpus[128];
        int error = errno;
        bps_cpus_format(pin->cpus, cpus, sizeof cpus);
        BPS_REPORT(report, "cannot bind a thread to the cores %s: %s", cpus, strerror(error));
        return BPS_ERR_IO;
    }
    if (pin->memory != NULL) {
        /* Where a container forbids it, a page still comes from the node of the core that touches it first. */
        hwloc_set_membind(topology->machine, pin->memory->nodeset, HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    }
    return BPS_OK;
}
