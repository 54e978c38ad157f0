/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - asks hwloc for the machine, and sysfs for the nodes of network interfaces. */
#include "base/topology.h"

#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

/* hwloc has locks of its own and loads its plugins: fork() waits meanwhile, so that a child can do the same. */
static pthread_mutex_t hwloc_mutex = PTHREAD_MUTEX_INITIALIZER;

static void topology_lock(void)
{
    pthread_mutex_lock(&hwloc_mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&hwloc_mutex);
}

__attribute__((constructor)) static void topology_prepare_for_fork(void)
{
    pthread_atfork(topology_lock, unlock, unlock);
}

/* hwloc reads another machine's description below a directory that holds its sys. */
static bps_status look_at(const char *sysfs, struct bps_report *report)
{
    char root[512];
    const char *name = strrchr(sysfs, '/');
    if (name == NULL || strcmp(name, BPS_SYSFS) != 0) {
        BPS_REPORT(report, "affinity.sysfs = \"%.200s\": expected a path that ends in " BPS_SYSFS, sysfs);
        return BPS_ERR_CONF;
    }
    snprintf(root, sizeof root, "%.*s", (int)(name - sysfs), sysfs);
    setenv("HWLOC_FSROOT", root, 1);
    return BPS_OK;
}

bool bps_topology_is_flat(const char *sysfs)
{
    char path[512], online[8];
    snprintf(path, sizeof path, "%s/devices/system/node/online", sysfs);
    bps_first_line(path, online, sizeof online);
    return strcmp(online, "0\n") == 0;
}

static bool topology_load(hwloc_topology_t machine)
{
    hwloc_topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_cache_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_NONE);
    /* It would move this thread from core to core, for nothing that Linux does not tell. */
    hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    return hwloc_topology_load(machine) == 0;
}

bps_status bps_topology_load(const char *sysfs, struct bps_topology *out, struct bps_report *report)
{
    bool elsewhere = strcmp(sysfs, BPS_SYSFS) != 0;
    bps_status status = elsewhere ? look_at(sysfs, report) : BPS_OK;
    unsigned n = 1;
    *out = (struct bps_topology){.sysfs = sysfs};
    if (status != BPS_OK) {
        return status;
    }
    topology_lock();
    if (hwloc_topology_init(&out->machine) != 0 || !topology_load(out->machine)) {
        BPS_REPORT(report, "hwloc cannot read the cores of this machine: %s", strerror(errno));
        status = BPS_ERR_IO;
    }
    unlock();
    if (elsewhere) {
        unsetenv("HWLOC_FSROOT");
    }
    if (status != BPS_OK) {
        bps_topology_fini(out);
        return status;
    }
    hwloc_distances_get_by_name(out->machine, "NUMALatency", &n, &out->distances, 0);
    return BPS_OK;
}

void bps_topology_fini(struct bps_topology *topology)
{
    if (topology->distances != NULL) {
        hwloc_distances_release(topology->machine, topology->distances);
    }
    topology_lock();
    if (topology->machine != NULL) {
        hwloc_topology_destroy(topology->machine);
    }
    unlock();
    *topology = (struct bps_topology){.machine = NULL};
}

/* ---- nodes ---- */

hwloc_obj_t bps_topology_node(hwloc_obj_t core)
{
    while (core->memory_first_child == NULL) {
        core = core->parent;
    }
    return core->memory_first_child;
}

/* hwloc counts the cores that are near to a node of memory alone as that node's, too. */
hwloc_obj_t bps_topology_next(const struct bps_topology *topology, hwloc_obj_t last)
{
    hwloc_topology_t machine = topology->machine;
    while ((last = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, last)) != NULL) {
        hwloc_obj_t core = hwloc_get_next_obj_covering_cpuset_by_type(machine, last->cpuset, HWLOC_OBJ_PU, NULL);
        if (core != NULL && bps_topology_node(core) == last) {
            return last;
        }
    }
    return NULL;
}

unsigned bps_topology_places(const struct bps_topology *topology)
{
    unsigned places = 0;
    for (hwloc_obj_t node = NULL; (node = bps_topology_next(topology, node)) != NULL;) {
        places++;
    }
    return places;
}

uint64_t bps_topology_distance(const struct bps_topology *topology, hwloc_obj_t from, hwloc_obj_t to)
{
    hwloc_uint64_t there = from == to ? 10 : 20, back; /* unless the kernel tells */
    if (topology->distances != NULL) {
        hwloc_distances_obj_pair_values(topology->distances, from, to, &there, &back);
    }
    return there;
}

/* ---- network interfaces ---- */

/* Of a bond, a bridge or a VLAN the link lower_NAME leads to what is below it: a VLAN on a bond on a card. */
hwloc_obj_t bps_topology_interface_node(const struct bps_topology *topology, const char *interface)
{
    char pattern[1024];
    glob_t found;
    unsigned id = 0;
    bool known = false;
    snprintf(pattern, sizeof pattern, "%s/class/net/%s/{,lower_*/{,lower_*/{,lower_*/}}}device/numa_node",
             topology->sysfs, interface);
    if (*interface != '\0' && strchr(interface, '/') == NULL && glob(pattern, GLOB_BRACE, NULL, &found) == 0) {
        char line[16];
        bps_first_line(found.gl_pathv[0], line, sizeof line);
        known = sscanf(line, "%u", &id) == 1;
        globfree(&found);
    }
    return known ? hwloc_get_numanode_obj_by_os_index(topology->machine, id) : NULL;
}

hwloc_obj_t bps_topology_address_node(const struct bps_topology *topology, const char *address)
{
    char host[128];
    hwloc_obj_t node = NULL;
    struct ifaddrs *list;
    size_t n = strcspn(address += *address == '[', "]%");
    if (getifaddrs(&list) != 0) {
        return NULL;
    }
    for (const struct ifaddrs *entry = list; entry != NULL && node == NULL; entry = entry->ifa_next) {
        int family = entry->ifa_addr != NULL ? entry->ifa_addr->sa_family : AF_UNSPEC;
        socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if ((family == AF_INET || family == AF_INET6) &&
            getnameinfo(entry->ifa_addr, size, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0 &&
            strcspn(host, "%") == n && strncmp(host, address, n) == 0) {
            node = bps_topology_interface_node(topology, entry->ifa_name);
        }
    }
    freeifaddrs(list);
    return node;
}
