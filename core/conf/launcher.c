/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c - programs that start several processes and know nothing of BytePS: torchrun, srun, mpirun.
 *
 * Whoever is told where the scheduler is learns its own place in the job from what they have told it. Else each such
 * process would take itself for a job of its own, and all would train apart without a word: that is refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/layer.h"
#include "conf/option.h"
#include "conf/tree.h"
#include "conf/validate.h"
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

/* What a launcher tells each process by variables. */
struct launcher {
    const char *name, *size, *rank, *local_rank, *local_size; /* NULL: it does not tell that */
    bool (*means_else)(void);                                 /* whether `size` is another number; NULL: never */
};

static const struct launcher launchers[] = {
    {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
     NULL},
    {"mpirun", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL, NULL},
    {"srun", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL, is_of_allocation},
};

/* The launcher that has started this process as one of several, and how many these are; NULL: there is none. */
static const struct launcher *find_launcher(int64_t *processes)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *launcher = &launchers[i];
        bool counts = is_set(launcher->size) && (launcher->means_else == NULL || !launcher->means_else());
        if (counts && bps_parse_int(getenv(launcher->size), processes) == BPS_OK && *processes > 1) {
            return launcher;
        }
    }
    return NULL;
}

/* ---- a place in a job ---- */

static bool is_default(const struct bps_conf *conf, const char *path)
{
    return strcmp(bps_conf_find(conf, path)->origin, "default") == 0;
}

/* Takes a value of the section `cluster` from a variable, unless somebody has given one. */
static void take(struct bps_check *check, const char *key, const char *variable)
{
    char path[40];
    int64_t number;
    struct bps_conf *conf = check->conf;
    snprintf(path, sizeof path, "cluster.%s", key);
    if (variable == NULL || !is_set(variable) || !is_default(conf, path) ||
        bps_parse_int(getenv(variable), &number) != BPS_OK) {
        return;
    }
    const struct bps_option *row = bps_option_find(bps_sections[0].table, key);
    struct bps_report why = {""};
    if (bps_option_parse(row, getenv(variable), &conf->cluster, &why) != BPS_OK) {
        bps_check_problem(check, variable, "%s = %.40s: %.300s", path, getenv(variable), why.text);
    } else if (bps_layer_scalar(conf, path, getenv(variable), variable, check->report) != BPS_OK) {
        check->status = BPS_ERR_NOMEM;
    }
}

void bps_check_launcher(struct bps_check *check)
{
    const struct bps_conf_cluster *cluster = &check->conf->cluster;
    int64_t processes;
    const struct launcher *launcher = find_launcher(&processes);
    bool joins = launcher != NULL && cluster->role == BPS_ROLE_WORKER && cluster->scheduler[0] != '\0';
    if (!joins || (!is_default(check->conf, "cluster.workers") && cluster->workers != processes)) {
        return;
    }
    take(check, "workers", launcher->size);
    take(check, "rank", launcher->rank);
    take(check, "local_rank", launcher->local_rank);
    take(check, "local_size", launcher->local_size);
}

/* ---- several jobs of one ---- */

/* A job that somebody has described, be it that of one worker. */
static bool is_described(const struct bps_conf *conf)
{
    const struct bps_conf_node *workers = bps_conf_find(conf, "cluster.workers");
    return conf->cluster.scheduler[0] != '\0' || strcmp(workers->origin, "default") != 0;
}

bps_status bps_conf_refuse_apart(const struct bps_conf *conf, struct bps_report *report)
{
    int64_t processes;
    const struct launcher *launcher = find_launcher(&processes);
    if (launcher == NULL || is_described(conf)) {
        return BPS_OK;
    }
    return bps_fail(report, BPS_ERR_CONF,
                    "%s = %" PRId64 ": %s has started several processes, but the configuration describes "
                    "no job, so that each of them would train alone; start them by `byteps run -n %" PRId64
                    " -- python3 train.py` (on several hosts `byteps run -H host1:n,host2:n -- python3 "
                    "train.py`), or set cluster.workers = 1 if each shall be alone",
                    launcher->size, processes, launcher->name, processes);
}
