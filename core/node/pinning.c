/* SPDX-License-Identifier: Apache-2.0 */
/* pinning.c - configured cores, the cores there are, and the nodes they are on. */
#include "node/pinning.h"

#include <sched.h>
#include <stdio.h>

#include "base/log.h"

#define LOG "affinity"

/* Cores that are listed must be there: a slip of the pen or the file of another machine is noticed. */
static bps_status check_exist(const struct bps_pinning *pinning, const char *key, const char *lists,
                              hwloc_cpuset_t cpus, struct bps_report *report)
{
    hwloc_const_cpuset_t online = hwloc_topology_get_topology_cpuset(pinning->topology.machine);
    char absent[64], there[128];
    for (unsigned i = 0, n = bps_cpus_lists(lists); i < n; i++) {
        bps_status status = bps_cpus_list(lists, i, cpus, report);
        if (status != BPS_OK) {
            return status;
        }
        hwloc_bitmap_andnot(cpus, cpus, online);
        if (!hwloc_bitmap_iszero(cpus)) {
            bps_cpus_format(cpus, absent, sizeof absent);
            bps_cpus_format(online, there, sizeof there);
            BPS_REPORT(report, "affinity.%s = \"%.200s\": this machine has no core %s; it has %s", key, lists, absent,
                       there);
            return BPS_ERR_CONF;
        }
    }
    return BPS_OK;
}

static bps_status restrict_cores(struct bps_pinning *pinning, hwloc_cpuset_t avoid, struct bps_report *report)
{
    hwloc_cpuset_t allowed = pinning->allowed;
    char there[128];
    bool any = *pinning->conf->avoid != '\0';
    bps_status status = any ? bps_cpus_list(pinning->conf->avoid, 0, avoid, report) : BPS_OK;
    if (status != BPS_OK) {
        return status;
    }
    if (hwloc_bitmap_isincluded(allowed, avoid)) {
        bps_cpus_format(allowed, there, sizeof there);
        BPS_REPORT(report, "affinity.avoid = \"%.200s\": no core is left; this process may use %s",
                   pinning->conf->avoid, there);
        return BPS_ERR_CONF;
    }
    pinning->avoids = hwloc_bitmap_intersects(allowed, avoid);
    hwloc_bitmap_andnot(allowed, allowed, avoid);
    return BPS_OK;
}

/* Which cores the kernel lets this process use, and the configuration. */
static bps_status find_cores(struct bps_pinning *pinning, struct bps_report *report)
{
    hwloc_topology_t machine = pinning->topology.machine;
    hwloc_const_cpuset_t online = hwloc_topology_get_topology_cpuset(machine);
    hwloc_cpuset_t some = hwloc_bitmap_alloc();
    bps_status status = BPS_ERR_NOMEM;
    pinning->allowed = hwloc_bitmap_alloc();
    if (some != NULL && pinning->allowed != NULL) {
        if (hwloc_get_cpubind(machine, pinning->allowed, HWLOC_CPUBIND_THREAD) != 0) {
            hwloc_bitmap_fill(pinning->allowed);
        }
        hwloc_bitmap_and(pinning->allowed, pinning->allowed, online);
        status = restrict_cores(pinning, some, report);
    }
    if (status == BPS_OK) {
        status = check_exist(pinning, "cores", pinning->conf->cores, some, report);
    }
    if (status == BPS_OK) {
        status = check_exist(pinning, "server_cores", pinning->conf->server_cores, some, report);
    }
    hwloc_bitmap_free(some);
    return status;
}

/* Nothing is to be decided: so what the kernel says is enough, as hwloc takes longer than all else of a start. */
static bool pinning_is_plain(struct bps_pinning *pinning)
{
    const struct bps_conf_affinity *conf = pinning->conf;
    unsigned long cores[BPS_CPUS_LIMIT / 8 / sizeof(unsigned long)] = {0};
    if (*conf->cores || *conf->server_cores || *conf->avoid || !bps_topology_is_flat(conf->sysfs)) {
        return false;
    }
    pinning->allowed = hwloc_bitmap_alloc();
    return pinning->allowed != NULL && sched_getaffinity(0, sizeof cores, (cpu_set_t *)cores) == 0 &&
           hwloc_bitmap_from_ulongs(pinning->allowed, sizeof cores / sizeof *cores, cores) == 0;
}

bps_status bps_pinning_init(struct bps_pinning *pinning, const struct bps_conf *conf, struct bps_report *report)
{
    *pinning = (struct bps_pinning){.conf = &conf->affinity};
    if (pinning_is_plain(pinning)) {
        return BPS_OK;
    }
    hwloc_bitmap_free(pinning->allowed);
    bps_status status = bps_topology_load(pinning->conf->sysfs, &pinning->topology, report);
    if (status == BPS_OK) {
        pinning->numa = pinning->conf->numa != BPS_NUMA_OFF && bps_topology_places(&pinning->topology) > 1;
        status = find_cores(pinning, report);
    }
    if (status != BPS_OK) {
        bps_pinning_fini(pinning);
    }
    return status;
}

void bps_pinning_fini(struct bps_pinning *pinning)
{
    hwloc_bitmap_free(pinning->allowed);
    bps_topology_fini(&pinning->topology);
    *pinning = (struct bps_pinning){.numa = false};
}

void bps_pinning_address(struct bps_pinning *pinning, const char *address)
{
    if (pinning->numa) {
        pinning->topology.nic = bps_topology_address_node(&pinning->topology, address);
    }
}

/* ---- places ---- */

/* The cores to choose from: those that are allowed, of list `index` if any are configured. */
static bps_status take_list(const struct bps_pinning *pinning, const char *key, const char *lists, unsigned index,
                            struct bps_pin *out, struct bps_report *report)
{
    char there[128];
    bps_pin_fini(out);
    out->bound = pinning->avoids || *lists != '\0';
    out->cpus = hwloc_bitmap_dup(pinning->allowed);
    if (out->cpus == NULL || *lists == '\0') {
        return out->cpus == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    bps_status status = bps_cpus_list(lists, index, out->cpus, report);
    hwloc_bitmap_and(out->cpus, out->cpus, pinning->allowed);
    if (status == BPS_OK && hwloc_bitmap_iszero(out->cpus)) {
        bps_cpus_format(pinning->allowed, there, sizeof there);
        BPS_REPORT(report,
                   "affinity.%s = \"%.200s\": this process may use none of these cores, but %s (by its affinity, "
                   "its cgroup, and affinity.avoid)",
                   key, lists, there);
        status = BPS_ERR_CONF;
    }
    return status;
}

static bps_status worker_cores(const struct bps_pinning *pinning, unsigned rank, unsigned size, struct bps_pin *out,
                               struct bps_report *report)
{
    const char *cores = pinning->conf->cores;
    unsigned lists = bps_cpus_lists(cores);
    if (lists > 1 && rank >= lists) {
        BPS_REPORT(report,
                   "affinity.cores = \"%.200s\": %u lists, but this is the worker of local rank %u; expected a "
                   "list for each of the %u workers here, or one for all",
                   cores, lists, rank, size);
        return BPS_ERR_CONF;
    }
    return take_list(pinning, "cores", cores, lists > 1 ? rank : 0, out, report);
}

bps_status bps_pinning_worker(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                              struct bps_pin *out, struct bps_report *report)
{
    bps_status status = worker_cores(pinning, local_rank, local_size, out, report);
    if (status == BPS_OK && pinning->numa) {
        bps_affinity_worker(&pinning->topology, local_rank, local_size, out);
    }
    return status;
}

bps_status bps_pinning_process(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                               struct bps_pin *out, struct bps_report *report)
{
    const struct bps_conf_affinity *conf = pinning->conf;
    int64_t quota = local_rank + 1 == local_size && conf->root_quota > 0 ? conf->root_quota : conf->quota;
    /* A list of its own is not shared out further. */
    bool shared = pinning->numa && conf->numa == BPS_NUMA_ON && local_size > 1 && bps_cpus_lists(conf->cores) <= 1;
    bps_status status = worker_cores(pinning, local_rank, local_size, out, report);
    if (status == BPS_OK && shared) {
        bps_affinity_process(&pinning->topology, local_rank, local_size, (unsigned)quota, out);
    }
    return status;
}

bps_status bps_pinning_shard(const struct bps_pinning *pinning, unsigned index, unsigned count, struct bps_pin *out,
                             struct bps_report *report)
{
    const char *cores = pinning->conf->server_cores;
    unsigned lists = bps_cpus_lists(cores);
    bps_status status = take_list(pinning, "server_cores", cores, lists > 0 ? index % lists : 0, out, report);
    if (status == BPS_OK && pinning->numa) {
        bps_affinity_shard(&pinning->topology, index, count, out);
    }
    return status;
}

/* ---- application and words ---- */

void bps_pin_fini(struct bps_pin *pin)
{
    hwloc_bitmap_free(pin->cpus);
    *pin = (struct bps_pin){.bound = false};
}

void bps_pin_text(const struct bps_pin *pin, char *text, size_t n)
{
    char cpus[256];
    bps_cpus_format(pin->cpus, cpus, sizeof cpus);
    if (pin->memory != NULL) {
        snprintf(text, n, "cores %s, memory of node %u", cpus, pin->memory->os_index);
    } else {
        snprintf(text, n, "cores %s%s", cpus, pin->bound ? "" : ", not bound");
    }
}

void bps_pinning_apply(const struct bps_pinning *pinning, const struct bps_pin *pin, const char *who)
{
    struct bps_report why = {""};
    char text[320];
    if (!pin->bound) {
        return;
    }
    if (bps_affinity_apply(&pinning->topology, pin, &why) != BPS_OK) {
        bps_warn(LOG, "%s: %s; the kernel chooses its cores", who, why.text);
        return;
    }
    bps_pin_text(pin, text, sizeof text);
    bps_info(LOG, "%s: %s", who, text);
}
