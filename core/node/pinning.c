/* SPDX-License-Identifier: Apache-2.0 */
/* pinning.c - configured cores, the cores there are, and the nodes they are on. */
#include "node/pinning.h"

#include <stdio.h>

#include "base/log.h"

#define LOG "affinity"

/* Cores that are listed must be there: a slip of the pen or the file of another machine is noticed. */
static bps_status check_exist(const struct bps_pinning *pinning, const char *key, const char *lists,
                              struct bps_report *report)
{
    for (unsigned i = 0, n = bps_cpus_lists(lists); i < n; i++) {
        struct bps_cpus cpus, missing;
        char absent[64], there[128];
        bps_status status = bps_cpus_list(lists, i, &cpus, report);
        if (status != BPS_OK) {
            return status;
        }
        bps_cpus_without(&cpus, &pinning->topology.online, &missing);
        if (!bps_cpus_empty(&missing)) {
            bps_cpus_format(&missing, absent, sizeof absent);
            bps_cpus_format(&pinning->topology.online, there, sizeof there);
            BPS_REPORT(report, "affinity.%s = \"%.200s\": this machine has no core %s; it has %s", key, lists,
                       absent, there);
            return BPS_ERR_CONF;
        }
    }
    return BPS_OK;
}

static bps_status restrict_cores(struct bps_pinning *pinning, struct bps_report *report)
{
    struct bps_cpus avoid, before = pinning->allowed;
    char there[128];
    if (*pinning->conf->avoid == '\0') {
        return BPS_OK;
    }
    bps_status status = bps_cpus_list(pinning->conf->avoid, 0, &avoid, report);
    if (status == BPS_OK) {
        bps_cpus_without(&before, &avoid, &pinning->allowed);
        pinning->avoids = !bps_cpus_equal(&before, &pinning->allowed);
    }
    if (status == BPS_OK && bps_cpus_empty(&pinning->allowed)) {
        bps_cpus_format(&before, there, sizeof there);
        BPS_REPORT(report, "affinity.avoid = \"%.200s\": no core is left; this process may use %s",
                   pinning->conf->avoid, there);
        status = BPS_ERR_CONF;
    }
    return status;
}

/* What the kernel says of nodes may be incomplete in a container: that must not keep a job from running. */
static bps_status read_machine(struct bps_pinning *pinning)
{
    struct bps_report why = {""};
    const char *sysfs = pinning->conf->sysfs;
    bps_status status = bps_topology_read(sysfs, &pinning->topology, &why);
    if (status == BPS_ERR_IO) {
        snprintf(pinning->fault, sizeof pinning->fault, "%s", why.text);
        bps_info(LOG, "%s; all cores count as one node", pinning->fault);
        status = bps_topology_flat(sysfs, &pinning->topology);
    }
    return status;
}

bps_status bps_pinning_init(struct bps_pinning *pinning, const struct bps_conf *conf,
                            struct bps_report *report)
{
    *pinning = (struct bps_pinning){.conf = &conf->affinity, .nic = -1};
    bps_status status = read_machine(pinning);
    if (status != BPS_OK) {
        return status;
    }
    pinning->numa = pinning->conf->numa != BPS_NUMA_OFF && bps_topology_places(&pinning->topology) > 1;
    bps_cpus_allowed(&pinning->allowed);
    if (strcmp(pinning->conf->sysfs, BPS_SYSFS) != 0) {
        pinning->allowed = pinning->topology.online; /* a machine that is only looked at */
    }
    status = restrict_cores(pinning, report);
    if (status == BPS_OK) {
        status = check_exist(pinning, "cores", pinning->conf->cores, report);
    }
    if (status == BPS_OK) {
        status = check_exist(pinning, "server_cores", pinning->conf->server_cores, report);
    }
    if (status != BPS_OK) {
        bps_pinning_fini(pinning);
    }
    return status;
}

void bps_pinning_fini(struct bps_pinning *pinning)
{
    bps_topology_fini(&pinning->topology);
}

void bps_pinning_address(struct bps_pinning *pinning, const char *address)
{
    if (pinning->numa) {
        pinning->nic = bps_topology_address_node(&pinning->topology, address);
    }
}

/* ---- places ---- */

static struct bps_place place_of(const struct bps_pinning *pinning, unsigned rank, unsigned size)
{
    return (struct bps_place){
        .topology = &pinning->topology,
        .cpus = pinning->allowed,
        .numa = pinning->numa,
        .nic = pinning->nic,
        .rank = rank,
        .size = size,
    };
}

/* Lowers the place to list `index` of those that are configured. */
static bps_status take_list(struct bps_place *place, const char *key, const char *lists, unsigned index,
                            struct bps_report *report)
{
    struct bps_cpus cpus, both;
    char there[128];
    bps_status status = bps_cpus_list(lists, index, &cpus, report);
    if (status != BPS_OK) {
        return status;
    }
    bps_cpus_and(&cpus, &place->cpus, &both);
    if (bps_cpus_empty(&both)) {
        bps_cpus_format(&place->cpus, there, sizeof there);
        BPS_REPORT(
            report,
            "affinity.%s = \"%.200s\": this process may use none of these cores, but %s (by its affinity, "
            "its cgroup, and affinity.avoid)",
            key, lists, there);
        return BPS_ERR_CONF;
    }
    place->cpus = both;
    return BPS_OK;
}

/* A worker's place; *own: it has a list of its own, which is not to be shared out further. */
static bps_status worker_place(const struct bps_pinning *pinning, unsigned rank, unsigned size,
                               struct bps_place *out, bool *own, struct bps_report *report)
{
    const char *cores = pinning->conf->cores;
    unsigned lists = bps_cpus_lists(cores);
    *out = place_of(pinning, rank, size > 0 ? size : 1);
    *own = lists > 1;
    if (lists > 1 && rank >= lists) {
        BPS_REPORT(
            report,
            "affinity.cores = \"%.200s\": %u lists, but this is the worker of local rank %u; expected a "
            "list for each of the %u workers here, or one for all",
            cores, lists, rank, size);
        return BPS_ERR_CONF;
    }
    return lists == 0 ? BPS_OK : take_list(out, "cores", cores, lists > 1 ? rank : 0, report);
}

bps_status bps_pinning_worker(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                              struct bps_pin *out, struct bps_report *report)
{
    struct bps_place place;
    bool own;
    bps_status status = worker_place(pinning, local_rank, local_size, &place, &own, report);
    if (status == BPS_OK) {
        bps_affinity_worker(&place, &out->affinity);
        out->bound = pinning->avoids || *pinning->conf->cores != '\0' || out->affinity.node >= 0;
    }
    return status;
}

bps_status bps_pinning_process(const struct bps_pinning *pinning, unsigned local_rank, unsigned local_size,
                               struct bps_pin *out, struct bps_report *report)
{
    const struct bps_conf_affinity *conf = pinning->conf;
    bool last = local_rank + 1 == local_size, own;
    struct bps_place place;
    bps_status status = worker_place(pinning, local_rank, local_size, &place, &own, report);
    if (status == BPS_OK) {
        place.numa = place.numa && conf->numa == BPS_NUMA_ON && !own;
        bps_affinity_process(&place,
                             (unsigned)(last && conf->root_quota > 0 ? conf->root_quota : conf->quota),
                             &out->affinity);
        out->bound = pinning->avoids || *conf->cores != '\0' || out->affinity.node >= 0;
    }
    return status;
}

bps_status bps_pinning_shard(const struct bps_pinning *pinning, unsigned index, unsigned count,
                             struct bps_pin *out, struct bps_report *report)
{
    const char *cores = pinning->conf->server_cores;
    unsigned lists = bps_cpus_lists(cores);
    struct bps_place place = place_of(pinning, index, count);
    bps_status status = lists == 0 ? BPS_OK : take_list(&place, "server_cores", cores, index % lists, report);
    if (status == BPS_OK) {
        bps_affinity_shard(&place, index, count, &out->affinity);
        out->bound = pinning->avoids || lists > 0 || out->affinity.node >= 0;
    }
    return status;
}

/* ---- application and words ---- */

void bps_pin_text(const struct bps_pinning *pinning, const struct bps_pin *pin, char *text, size_t n)
{
    char cpus[256];
    bps_cpus_format(&pin->affinity.cpus, cpus, sizeof cpus);
    if (pin->affinity.node >= 0) {
        snprintf(text, n, "cores %s, memory of node %u", cpus, pinning->topology.node[pin->affinity.node].id);
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
    if (bps_affinity_apply(&pin->affinity, &pinning->topology, &why) != BPS_OK) {
        bps_warn(LOG, "%s: %s; it runs where the kernel likes", who, why.text);
        return;
    }
    bps_pin_text(pinning, pin, text, sizeof text);
    bps_info(LOG, "%s: %s", who, text);
}
