/* SPDX-License-Identifier: Apache-2.0 */
/* run_bind.c - binds a worker process to cores, if it is configured, before it becomes the command. */
#include "tools/run.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "node/pinning.h"

static bool is_wanted(const struct bps_conf_affinity *affinity)
{
    return affinity->numa == BPS_NUMA_ON || *affinity->cores != '\0' || *affinity->avoid != '\0';
}

static bps_status bind_process(const struct bps_conf *conf, struct bps_report *report)
{
    const struct bps_conf_cluster *cluster = &conf->cluster;
    unsigned rank = cluster->local_rank > 0 ? (unsigned)cluster->local_rank : 0;
    unsigned size = cluster->local_size > 0 ? (unsigned)cluster->local_size : 1;
    struct bps_pinning pinning;
    struct bps_pin pin = {.bound = false};
    bps_status status = bps_pinning_init(&pinning, conf, report);
    if (status != BPS_OK) {
        return status;
    }
    status = bps_pinning_process(&pinning, rank, size, &pin, report);
    if (status == BPS_OK) {
        /* The cores decide: a page comes from the node of the core that touches it first. */
        pin.memory = NULL;
        bps_pinning_apply(&pinning, &pin, "process");
    }
    bps_pin_fini(&pin);
    bps_pinning_fini(&pinning);
    return status;
}

void bps_run_bind(const struct bps_run *run)
{
    struct bps_conf *conf;
    struct bps_report report = {""};
    if (bps_conf_load(NULL, NULL, 0, &conf, NULL) != BPS_OK) {
        return; /* the command will say so when it joins the job; perhaps it never does */
    }
    bps_log_set_level(conf->log.level + 1);
    bps_status status = is_wanted(&conf->affinity) ? bind_process(conf, &report) : BPS_OK;
    bps_conf_free(conf);
    if (status != BPS_OK) {
        fprintf(stderr, "byteps %s: %s\n", run->name, report.text);
        _exit(BPS_EXIT_FAILURE);
    }
}
