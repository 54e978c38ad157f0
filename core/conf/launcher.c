/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c - programs that start several processes and know nothing of BytePS: torchrun, srun, mpirun.
 *
 * Each such process learns its own place in the job from what they have told it. Where the job has no scheduler yet,
 * the processes meet first (core/meeting), so that none takes itself for a job of its own.
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

/*
 * SLURM_NTASKS is the number of a whole allocation where it has come from salloc or sbatch. In a step, which is
 * what srun starts, SLURM_STEP_NUM_TASKS is the number that counts.
 */
static bool is_of_allocation(void)
{
    return bps_variable("SLURM_STEP_NUM_TASKS") != NULL ||
           (bps_variable("SLURM_JOB_ID") != NULL && bps_variable("SLURM_STEP_ID") == NULL);
}

/* What a launcher tells each process by variables. */
struct launcher {
    const char *name, *size, *rank, *local_rank, *local_size; /* NULL: it does not tell that */
    bool (*means_else)(void);                                 /* whether `size` is another number; NULL: never */
    bool several_programs; /* may have started `byteps server`, too, whose processes come last */
};

static const struct launcher launchers[] = {
    {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, false},
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, true},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
     NULL, true},
    {"mpirun", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, true},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL, NULL, true},
    {"srun", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL, is_of_allocation, true},
};

/* The launcher that has started this process as one of several, and how many these are; NULL: there is none. */
static const struct launcher *find_launcher(int64_t *processes)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *launcher = &launchers[i];
        bool counts = bps_variable(launcher->size) != NULL && (launcher->means_else == NULL || !launcher->means_else());
        if (counts && bps_parse_int(getenv(launcher->size), processes) == BPS_OK && *processes > 1) {
            return launcher;
        }
    }
    return NULL;
}

/* ---- a place in a job ---- */

static bool launcher_conf_is_default(const struct bps_conf *conf, const char *path)
{
    return strcmp(bps_conf_find(conf, path)->origin, "default") == 0;
}

/* Takes a value of the section `cluster` that a variable has told, unless somebody has given one. */
static void launcher_conf_put(struct bps_check *check, const char *key, const char *value, const char *variable)
{
    char path[40];
    struct bps_report why = {""};
    snprintf(path, sizeof path, "cluster.%s", key);
    if (!launcher_conf_is_default(check->conf, path)) {
        return;
    }
    bps_status status = bps_conf_put_cluster(check->conf, key, value, variable, &why);
    if (status == BPS_ERR_CONF) {
        bps_check_problem(check, variable, "%s = %.40s: %.300s", path, value, why.text);
    } else if (status != BPS_OK) {
        check->status = status;
    }
}

static void launcher_conf_take(struct bps_check *check, const char *key, const char *variable)
{
    int64_t number;
    if (variable != NULL && bps_variable(variable) != NULL && bps_parse_int(getenv(variable), &number) == BPS_OK) {
        launcher_conf_put(check, key, getenv(variable), variable);
    }
}

/*
 * How many of the processes are servers. Where the scheduler is known the servers may be anywhere; else they must meet
 * the workers, and so are of the same launcher.
 */
static int64_t servers_among(const struct launcher *launcher, const struct bps_conf_cluster *cluster)
{
    return launcher->several_programs && cluster->scheduler[0] == '\0' ? cluster->servers : 0;
}

/* Whether all can be told beforehand where the scheduler will be (core/meeting/master.c). */
static bool has_master(void)
{
    return bps_variable("MASTER_ADDR") != NULL && bps_variable("MASTER_PORT") != NULL &&
           bps_variable("TORCHELASTIC_USE_AGENT_STORE") == NULL;
}

static void launcher_conf_check_place(struct bps_check *check, const struct launcher *launcher, int64_t processes)
{
    const struct bps_conf_cluster *cluster = &check->conf->cluster;
    int64_t servers = servers_among(launcher, cluster), workers = processes - servers;
    char text[24];
    if (cluster->role == BPS_ROLE_SERVER && servers == 0) {
        return;
    }
    if (!launcher_conf_is_default(check->conf, "cluster.workers") && cluster->workers != workers) {
        return;
    }
    if (cluster->servers > servers && cluster->scheduler[0] == '\0' && !has_master()) {
        bps_check_problem(check, launcher->size,
                          "cluster.servers = %" PRId64 ", but %s starts workers only, and servers that others start "
                          "would not find them; set cluster.scheduler = \"HOST:PORT\" for all and run `byteps "
                          "scheduler` there, or leave cluster.servers out: then workers sum",
                          cluster->servers, launcher->name);
        return;
    }
    if (workers < 1) {
        bps_check_problem(check, launcher->size,
                          "%s has started %" PRId64 " processes, of which cluster.servers = %" PRId64
                          " are servers; expected at least one worker",
                          launcher->name, processes, servers);
        return;
    }
    check->conf->launcher = launcher->name;
    snprintf(text, sizeof text, "%" PRId64, workers);
    launcher_conf_put(check, "workers", text, launcher->size);
    if (cluster->role == BPS_ROLE_WORKER) {
        launcher_conf_take(check, "rank", launcher->rank);
    }
    if (servers == 0) { /* else servers may be among those that it has counted on this host */
        launcher_conf_take(check, "local_rank", launcher->local_rank);
        launcher_conf_take(check, "local_size", launcher->local_size);
    }
}

void bps_check_launcher(struct bps_check *check)
{
    int64_t processes;
    const struct launcher *launcher = find_launcher(&processes);
    if (launcher != NULL && check->conf->cluster.role != BPS_ROLE_SCHEDULER) {
        launcher_conf_check_place(check, launcher, processes);
    }
}
