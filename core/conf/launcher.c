/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c - programs that start several processes and know nothing of BytePS: torchrun, srun, mpirun.
 *
 * Each such process would take itself for a job of its own, and all would train apart without a word.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/tree.h"
#include "conf/value.h"

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

/*
 * SLURM_NTASKS is the number of a whole allocation where it has come from salloc or sbatch. In a step, which is
 * what srun starts, SLURM_STEP_NUM_TASKS is the number that counts.
 */
static bool is_of_allocation(void)
{
    return is_set("SLURM_STEP_NUM_TASKS") || (is_set("SLURM_JOB_ID") && !is_set("SLURM_STEP_ID"));
}

static const struct {
    const char *variable, *launcher; /* the variable has the number of processes that the launcher started */
    bool (*means_else)(void);        /* whether it has another number; NULL: never */
} launchers[] = {
    {"WORLD_SIZE", "torchrun", NULL},        {"OMPI_COMM_WORLD_SIZE", "mpirun", NULL},
    {"MV2_COMM_WORLD_SIZE", "mpirun", NULL}, {"PMI_SIZE", "mpirun", NULL},
    {"SLURM_STEP_NUM_TASKS", "srun", NULL},  {"SLURM_NTASKS", "srun", is_of_allocation},
};

/* A job that somebody has described, be it that of one worker. */
static bool is_described(const struct bps_conf *conf)
{
    const struct bps_conf_node *workers = bps_conf_find(conf, "cluster.workers");
    return conf->cluster.scheduler[0] != '\0' || strcmp(workers->origin, "default") != 0;
}

bps_status bps_conf_refuse_apart(const struct bps_conf *conf, struct bps_report *report)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !is_described(conf); i++) {
        const char *name = launchers[i].variable;
        bool counts = is_set(name) && (launchers[i].means_else == NULL || !launchers[i].means_else());
        int64_t processes;
        if (counts && bps_parse_int(getenv(name), &processes) == BPS_OK && processes > 1) {
            return bps_fail(report, BPS_ERR_CONF,
                            "%s = %" PRId64 ": %s has started several processes, but the configuration describes "
                            "no job, so that each of them would train alone; start them by `byteps run -n %" PRId64
                            " -- python3 train.py` (on several hosts `byteps run -H host1:n,host2:n -- python3 "
                            "train.py`), or set cluster.workers = 1 if each shall be alone",
                            name, processes, launchers[i].launcher, processes);
        }
    }
    return BPS_OK;
}
