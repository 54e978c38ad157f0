/* SPDX-License-Identifier: Apache-2.0 */
/* info_cores.c - the NUMA nodes of this machine, and where the threads of a job would run on it. */
#include "tools/info.h"

#include <dirent.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "server/server.h"

/* Of a machine with very many workers and shards, so many are shown. */
#define SHOWN 64

/* Adds a line under a key that is printed. */
__attribute__((format(printf, 3, 4))) static void add(json_t *info, const char *text, const char *format, ...)
{
    char key[64];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    json_object_set_new(info, key, json_string(text));
}

/* ---- nodes ---- */

static void list_interfaces(const struct bps_topology *topology, hwloc_obj_t node, char *text, size_t n)
{
    char path[600];
    struct bps_text out = bps_text_in(text, n);
    snprintf(path, sizeof path, "%s/class/net", topology->sysfs);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.' && bps_topology_interface_node(topology, entry->d_name) == node) {
            bps_text_add(&out, "%s%s", out.length > 0 ? " " : "", entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void add_node(json_t *info, const struct bps_topology *topology, hwloc_obj_t node, bool has_cores)
{
    uint64_t bytes = node->attr->numanode.local_memory;
    char cpus[256], memory[32], interfaces[256], text[700];
    bps_cpus_format(node->cpuset, cpus, sizeof cpus);
    snprintf(memory, sizeof memory, "%.1f GiB", (double)bytes / (1u << 30));
    list_interfaces(topology, node, interfaces, sizeof interfaces);
    snprintf(text, sizeof text, "%s%s, %s%s%s", has_cores ? "cores " : "no cores", has_cores ? cpus : "",
             bytes > 0 ? memory : "no memory", interfaces[0] != '\0' ? ", interfaces " : "", interfaces);
    add(info, text, "numa node %u", node->os_index);
}

static void add_nodes(json_t *info, const struct bps_topology *topology)
{
    hwloc_obj_t node = NULL, with_cores = bps_topology_next(topology, NULL);
    while ((node = hwloc_get_next_obj_by_type(topology->machine, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        add_node(info, topology, node, node == with_cores);
        with_cores = node == with_cores ? bps_topology_next(topology, node) : with_cores;
    }
}

/* ---- the interface ---- */

/* The own address from which the scheduler is reached; nothing is sent. */
static bool route_to(const char *scheduler, char *address, size_t n)
{
    char host[256];
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    const char *colon = strrchr(scheduler, ':');
    bool brackets = *scheduler == '[', found = false;
    if (colon == NULL) {
        return false;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - scheduler) - 2 * brackets, scheduler + brackets);
    if (getaddrinfo(host, "9", &hints, &list) != 0) {
        return false;
    }
    int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &size) == 0) {
        found = getnameinfo((struct sockaddr *)&own, size, address, (socklen_t)n, NULL, 0, NI_NUMERICHOST) == 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    freeaddrinfo(list);
    return found;
}

static void find_interface(struct bps_pinning *pinning, const struct bps_conf *conf)
{
    const struct bps_conf_node *name = bps_conf_find(conf, "transports.net.interface");
    char address[128];
    while (name != NULL && name->text == NULL && name->count > 0) {
        name = name->children[0];
    }
    if (name != NULL && name->text != NULL) {
        pinning->topology.nic = bps_topology_interface_node(&pinning->topology, name->text);
    } else if (route_to(conf->cluster.scheduler, address, sizeof address)) {
        bps_pinning_address(pinning, address);
    }
}

/* ---- threads ---- */

static void add_pin(json_t *info, bps_status status, const struct bps_pin *pin, const struct bps_report *why,
                    const char *key)
{
    char text[400];
    if (status == BPS_OK) {
        bps_pin_text(pin, text, sizeof text);
    }
    add(info, status == BPS_OK ? text : why->text, "%s", key);
}

static void add_threads(json_t *info, const struct bps_pinning *pinning, const struct bps_conf *conf)
{
    int64_t workers = conf->cluster.local_size < 1 ? 1 : conf->cluster.local_size;
    char address[128];
    bool network = route_to(conf->cluster.scheduler, address, sizeof address);
    unsigned shards = bps_server_count_shards(conf, pinning, network ? address : "127.0.0.1");
    struct bps_pin process = {.bound = false}, pin = {.bound = false};
    struct bps_report why = {""};
    char key[64];
    for (unsigned i = 0; i < workers && i < SHOWN; i++) {
        bps_status status = bps_pinning_process(pinning, i, (unsigned)workers, &process, &why);
        snprintf(key, sizeof key, "worker %u process", i);
        add_pin(info, status, &process, &why, key);
        struct bps_pinning inside = *pinning; /* what the worker finds when it has been bound */
        inside.allowed = status == BPS_OK ? process.cpus : inside.allowed;
        status = bps_pinning_worker(&inside, i, (unsigned)workers, &pin, &why);
        snprintf(key, sizeof key, "worker %u threads", i);
        add_pin(info, status, &pin, &why, key);
    }
    for (unsigned i = 0; i < shards && i < SHOWN; i++) {
        bps_status status = bps_pinning_shard(pinning, i, shards, &pin, &why);
        snprintf(key, sizeof key, "server shard %u", i);
        add_pin(info, status, &pin, &why, key);
    }
    bps_pin_fini(&process);
    bps_pin_fini(&pin);
}

void bps_info_cores(json_t *info, const struct bps_conf *conf)
{
    const struct bps_conf_affinity *affinity = &conf->affinity;
    struct bps_pinning pinning;
    struct bps_report why = {""};
    if (bps_pinning_init(&pinning, conf, &why) != BPS_OK) {
        add(info, why.text, "affinity");
        return;
    }
    bool several = pinning.topology.machine != NULL && bps_topology_places(&pinning.topology) > 1;
    if (several) {
        find_interface(&pinning, conf);
        add_nodes(info, &pinning.topology);
    }
    if (several || *affinity->cores != '\0' || *affinity->server_cores != '\0' || *affinity->avoid != '\0') {
        add_threads(info, &pinning, conf);
    }
    bps_pinning_fini(&pinning);
}
