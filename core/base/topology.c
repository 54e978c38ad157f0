/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - reads the description of a machine that the kernel gives in sysfs. */
#include "base/topology.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HERE  10u /* a node's distance to itself; others follow from the kernel, or count as twice as far */
#define LOWER 4   /* interfaces on interfaces: a VLAN on a bond on a card */

/* ---- files ---- */

/* The text of a file below the root, "" if there is none. True: there is one. */
__attribute__((format(printf, 4, 5))) static bool read_text(const char *root, char *text, size_t n,
                                                            const char *format, ...)
{
    char name[256], path[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (file == NULL) {
        return false;
    }
    text[fread(text, 1, n - 1, file)] = '\0';
    fclose(file);
    return true;
}

void bps_cpus_allowed(struct bps_cpus *out)
{
    bps_cpus_clear(out);
    if (sched_getaffinity(0, sizeof *out, (cpu_set_t *)(void *)out) != 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        for (long cpu = 0; cpu < n && cpu < (long)BPS_CPUS_LIMIT; cpu++) {
            bps_cpus_add(out, (unsigned)cpu);
        }
    }
}

/* ---- nodes ---- */

static void read_distances(const struct bps_topology *t, unsigned index)
{
    struct bps_numa_node *node = &t->node[index];
    char text[8192], *at = text, *end;
    read_text(t->root, text, sizeof text, "devices/system/node/node%u/distance", node->id);
    for (unsigned i = 0; i < t->nodes; i++) {
        unsigned long value = strtoul(at, &end, 10);
        node->distance[i] = end != at && value > 0 && value <= 255 ? (unsigned)value
                            : i == index                           ? HERE
                                                                   : 2 * HERE;
        at = end;
    }
}

/* "Node 0 MemTotal:  8049272 kB" */
static uint64_t read_memory(const struct bps_topology *t, unsigned id)
{
    char text[8192];
    read_text(t->root, text, sizeof text, "devices/system/node/node%u/meminfo", id);
    const char *total = strstr(text, "MemTotal:");
    return total == NULL ? 0 : strtoull(total + strlen("MemTotal:"), NULL, 10) * 1024;
}

static bps_status read_node(const struct bps_topology *t, unsigned index, struct bps_report *report)
{
    struct bps_numa_node *node = &t->node[index];
    struct bps_report why;
    char text[8192];
    read_text(t->root, text, sizeof text, "devices/system/node/node%u/cpulist", node->id);
    if (bps_cpus_parse(text, &node->cpus, &why) != BPS_OK) {
        BPS_REPORT(report, "%s/devices/system/node/node%u/cpulist: %.400s", t->root, node->id, why.text);
        return BPS_ERR_IO;
    }
    bps_cpus_and(&node->cpus, &t->online, &node->cpus);
    node->memory = read_memory(t, node->id);
    node->distance = calloc(t->nodes, sizeof *node->distance);
    if (node->distance == NULL) {
        return BPS_ERR_NOMEM;
    }
    read_distances(t, index);
    return BPS_OK;
}

/* The numbers of a list, as a set; what cannot be read is as if it were not there. */
static bool read_set(const char *root, const char *name, struct bps_cpus *out)
{
    char text[8192];
    return read_text(root, text, sizeof text, "%s", name) && bps_cpus_parse(text, out, NULL) == BPS_OK &&
           !bps_cpus_empty(out);
}

static void read_cores(struct bps_topology *t, const char *root)
{
    snprintf(t->root, sizeof t->root, "%s", root);
    if (!read_set(root, "devices/system/cpu/online", &t->online)) {
        bps_cpus_allowed(&t->online);
    }
}

bps_status bps_topology_flat(const char *root, struct bps_topology *out)
{
    struct bps_topology t = {.nodes = 1, .node = calloc(1, sizeof *t.node)};
    unsigned *distance = malloc(sizeof *distance);
    if (t.node == NULL || distance == NULL) {
        free(t.node);
        free(distance);
        return BPS_ERR_NOMEM;
    }
    read_cores(&t, root);
    *distance = HERE;
    t.node[0].cpus = t.online;
    t.node[0].memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    t.node[0].distance = distance;
    *out = t;
    return BPS_OK;
}

bps_status bps_topology_read(const char *root, struct bps_topology *out, struct bps_report *report)
{
    struct bps_topology t = {.nodes = 0};
    struct bps_cpus ids;
    bps_status status = BPS_OK;
    if (!read_set(root, "devices/system/node/online", &ids)) {
        return bps_topology_flat(root, out);
    }
    read_cores(&t, root);
    t.nodes = bps_cpus_count(&ids);
    t.node = calloc(t.nodes, sizeof *t.node);
    if (t.node == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (unsigned i = 0, id = 0; i < t.nodes && status == BPS_OK; i++, id++) {
        id = bps_cpus_next(&ids, id);
        t.node[i].id = id;
        status = read_node(&t, i, report);
    }
    if (status == BPS_OK && bps_topology_places(&t) == 0) {
        BPS_REPORT(report, "%s/devices/system/node: no node has cores", root);
        status = BPS_ERR_IO;
    }
    if (status != BPS_OK) {
        bps_topology_fini(&t);
        return status;
    }
    *out = t;
    return BPS_OK;
}

void bps_topology_fini(struct bps_topology *topology)
{
    for (unsigned i = 0; i < topology->nodes && topology->node != NULL; i++) {
        free(topology->node[i].distance);
    }
    free(topology->node);
    topology->node = NULL;
    topology->nodes = 0;
}

unsigned bps_topology_places(const struct bps_topology *topology)
{
    unsigned places = 0;
    for (unsigned i = 0; i < topology->nodes; i++) {
        places += !bps_cpus_empty(&topology->node[i].cpus);
    }
    return places;
}

void bps_topology_siblings(const struct bps_topology *topology, unsigned cpu, struct bps_cpus *out)
{
    char name[96];
    snprintf(name, sizeof name, "devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (!read_set(topology->root, name, out)) {
        bps_cpus_clear(out);
    }
    bps_cpus_and(out, &topology->online, out);
    bps_cpus_add(out, cpu);
}

/* ---- network interfaces ---- */

/* The interface below a bond, a bridge or a VLAN: its directory has a link lower_NAME. */
static bool lower_interface(const struct bps_topology *t, const char *interface, char *lower, size_t n)
{
    char path[1024];
    bool found = false;
    snprintf(path, sizeof path, "%s/class/net/%s", t->root, interface);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        found = strncmp(entry->d_name, "lower_", 6) == 0;
        if (found) {
            snprintf(lower, n, "%s", entry->d_name + 6);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

int bps_topology_interface_node(const struct bps_topology *topology, const char *interface)
{
    char name[256], lower[256], text[64], *end;
    snprintf(name, sizeof name, "%s", interface);
    for (int depth = 0; depth < LOWER && name[0] != '\0' && strchr(name, '/') == NULL; depth++) {
        if (read_text(topology->root, text, sizeof text, "class/net/%s/device/numa_node", name)) {
            long id = strtol(text, &end, 10);
            for (unsigned i = 0; end != text && i < topology->nodes; i++) {
                if (id == (long)topology->node[i].id) {
                    return (int)i;
                }
            }
            return -1;
        }
        if (!lower_interface(topology, name, lower, sizeof lower)) {
            return -1;
        }
        snprintf(name, sizeof name, "%s", lower);
    }
    return -1;
}

static bool has_address(const struct ifaddrs *entry, int family, const void *number)
{
    if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != family) {
        return false;
    }
    if (family == AF_INET) {
        return memcmp(&((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr, number, 4) == 0;
    }
    return memcmp(&((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr, number, 16) == 0;
}

int bps_topology_address_node(const struct bps_topology *topology, const char *address)
{
    char host[64];
    unsigned char number[16];
    struct ifaddrs *list;
    int node = -1, family = AF_INET;
    bool brackets = *address == '[';
    snprintf(host, sizeof host, "%s", address + brackets);
    host[strcspn(host, "]%")] = '\0';
    if (inet_pton(family, host, number) != 1) {
        family = AF_INET6;
        if (inet_pton(family, host, number) != 1) {
            return -1;
        }
    }
    if (getifaddrs(&list) != 0) {
        return -1;
    }
    for (const struct ifaddrs *entry = list; entry != NULL && node < 0; entry = entry->ifa_next) {
        if (has_address(entry, family, number)) {
            node = bps_topology_interface_node(topology, entry->ifa_name);
        }
    }
    freeifaddrs(list);
    return node;
}
