/* SPDX-License-Identifier: Apache-2.0 */
/* test_conf_environment.c - the variables of the original: what they mean, which are refused or idle. */
#include "conf_rig.h"

#include <stdlib.h>

#include "conf/layer.h"
#include "conf/tree.h"
#include "worker/meet.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST         8 /* variables of a case */

struct old {
    const char *variables[MOST]; /* NAME=VALUE */
    const char *key, *text, *origin;
};

static const struct old olds[] = {
    {{"DMLC_ROLE=worker"}, "cluster.role", "worker", "DMLC_ROLE"},
    {{"DMLC_ROLE=Scheduler"}, "cluster.role", "scheduler", "DMLC_ROLE"},
    {{"DMLC_ROLE=server", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"}, "cluster.role", "server", "DMLC_ROLE"},
    {{"DMLC_NUM_WORKER=1", "DMLC_NUM_SERVER=0"}, "cluster.scheduler", "", "default"},
    {{"DMLC_NUM_WORKER=3", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"}, "cluster.workers", "3", "DMLC_NUM_WORKER"},
    {{"DMLC_NUM_WORKER=3", "BYTEPS_LOCAL_SIZE=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.workers",
     "6",
     "DMLC_NUM_WORKER"},
    {{"DMLC_NUM_SERVER=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"}, "cluster.servers", "2", "DMLC_NUM_SERVER"},
    {{"DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_PS_ROOT_PORT=9000"}, "cluster.scheduler", "10.0.0.1:9000", "DMLC_PS_ROOT_URI"},
    {{"DMLC_PS_ROOT_URI=fd00::1", "DMLC_PS_ROOT_PORT=9000"}, "cluster.scheduler", "[fd00::1]:9000", "DMLC_PS_ROOT_URI"},
    {{"DMLC_PS_ROOT_URI=[fd00::1]", "DMLC_PS_ROOT_PORT=9000"},
     "cluster.scheduler",
     "[fd00::1]:9000",
     "DMLC_PS_ROOT_URI"},
    {{"DMLC_WORKER_ID=0"}, "cluster.rank", "0", "DMLC_WORKER_ID"},
    {{"DMLC_NUM_WORKER=2", "DMLC_WORKER_ID=1", "BYTEPS_LOCAL_SIZE=4", "BYTEPS_LOCAL_RANK=3", "DMLC_PS_ROOT_URI=h",
      "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "7",
     "DMLC_WORKER_ID"},
    {{"DMLC_NUM_WORKER=2", "DMLC_WORKER_ID=1", "BYTEPS_LOCAL_SIZE=4", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "-1",
     "default"},
    {{"DMLC_ROLE=server", "DMLC_WORKER_ID=5", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "-1",
     "default"},
    {{"DMLC_NUM_WORKER=4", "DMLC_WORKER_ID=1", "BYTEPS_GLOBAL_RANK=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "2",
     "BYTEPS_GLOBAL_RANK"},
    {{"BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=2"}, "cluster.local_rank", "1", "BYTEPS_LOCAL_RANK"},
    {{"BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=2"}, "cluster.local_size", "2", "BYTEPS_LOCAL_SIZE"},
    {{"BYTEPS_JOB_ID=mine"}, "cluster.job", "mine", "BYTEPS_JOB_ID"},
    {{"BYTEPS_PARTITION_BYTES=4096000"}, "worker.partition", "4000 KiB", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_PARTITION_BYTES=1"}, "worker.partition", "64", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_NCCL_GROUP_SIZE=16"}, "worker.group_size", "16", "BYTEPS_NCCL_GROUP_SIZE"},
    {{"BYTEPS_PARTITION_BYTES=1000"}, "worker.partition", "1 KiB", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_PARTITION_BYTES=1000"}, "worker.slice", "1 KiB", "default"},
    {{"BYTEPS_SERVER_ENGINE_THREAD=4"}, "server.shards", "4", "BYTEPS_SERVER_ENGINE_THREAD"},
    {{"BYTEPS_LOG_LEVEL=TRACE"}, "log.level", "trace", "BYTEPS_LOG_LEVEL"},
    {{"BYTEPS_LOG_LEVEL=WARNING"}, "log.level", "warn", "BYTEPS_LOG_LEVEL"},
    {{"BYTEPS_LOG_LEVEL=FATAL"}, "log.level", "error", "BYTEPS_LOG_LEVEL"},
    {{"BYTEPS_LOG_LEVEL=debug"}, "log.level", "debug", "BYTEPS_LOG_LEVEL"},
    {{"BYTEPS_LOG_HIDE_TIME=1"}, "log.hide_time", "true", "BYTEPS_LOG_HIDE_TIME"},
    {{"BYTEPS_NUMA_ON=1"}, "affinity.numa", "on", "BYTEPS_NUMA_ON"},
    {{"BYTEPS_NUMA_ON=0"}, "affinity.numa", "off", "BYTEPS_NUMA_ON"},
    {{"BYTEPS_VISIBLE_CPU_CORES=1,4-5:7-11"}, "affinity.cores", "1,4-5:7-11", "BYTEPS_VISIBLE_CPU_CORES"},
    {{"BYTEPS_CPU_BLACKLIST=0,2"}, "affinity.avoid", "0,2", "BYTEPS_CPU_BLACKLIST"},
    {{"BYTEPS_CPU_BLACKLIST=-1"}, "affinity.avoid", "", "default"},
    {{"BYTEPS_NUMA_DEFAULT_QUOTA=4"}, "affinity.quota", "4", "BYTEPS_NUMA_DEFAULT_QUOTA"},
    {{"BYTEPS_NUMA_ROOT_QUOTA=6"}, "affinity.root_quota", "6", "BYTEPS_NUMA_ROOT_QUOTA"},
    {{"DMLC_NUM_WORKER=", "DMLC_ROLE="}, "cluster.workers", "1", "default"},
    /* beyond a limit */
    {{"BYTEPS_PARTITION_BYTES=2147483647"}, "worker.partition", "1 GiB", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_PARTITION_BYTES=99999999999999999999"}, "worker.partition", "1 GiB", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_NCCL_GROUP_SIZE=65"}, "worker.group_size", "64", "BYTEPS_NCCL_GROUP_SIZE"},
    {{"BYTEPS_SERVER_ENGINE_THREAD=257"}, "server.shards", "256", "BYTEPS_SERVER_ENGINE_THREAD"},
    {{"BYTEPS_NUMA_DEFAULT_QUOTA=8193"}, "affinity.quota", "8192", "BYTEPS_NUMA_DEFAULT_QUOTA"},
    {{"BYTEPS_NUMA_ROOT_QUOTA=8193"}, "affinity.root_quota", "8192", "BYTEPS_NUMA_ROOT_QUOTA"},
    /* what is not asked for is not missed */
    {{"BYTEPS_ENABLE_ASYNC=0", "BYTEPS_STALENESS=0", "BYTEPS_INTER_COMPRESSOR=none"},
     "cluster.workers",
     "1",
     "default"},
};

static void set_variables(const char *const variables[MOST])
{
    for (size_t i = 0; i < MOST && variables[i] != NULL; i++) {
        ck_assert_int_eq(putenv((char *)variables[i]), 0);
    }
}

START_TEST(old_variable_is_understood)
{
    set_variables(olds[_i].variables);
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, olds[_i].key, olds[_i].text, olds[_i].origin);
    bps_conf_free(conf);
}
END_TEST

START_TEST(old_variables_reach_the_transport)
{
    setenv("DMLC_INTERFACE", "eth0", 1);
    setenv("DMLC_NODE_HOST", "10.0.0.2", 1);
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect_node(conf, "transports.net.interface", "\"eth0\"", "DMLC_INTERFACE");
    rig_expect_node(conf, "transports.net.host", "\"10.0.0.2\"", "DMLC_NODE_HOST");
    rig_expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    bps_conf_free(conf);
}
END_TEST

START_TEST(rdma_is_asked_for)
{
    setenv("DMLC_INTERFACE", "lo", 1);
    static const char *const asking[] = {"1", "ibverbs"}, *const others[] = {"0", "zmq"};
    for (size_t i = 0; i < COUNT(asking); i++) {
        setenv("DMLC_ENABLE_RDMA", asking[i], 1);
        struct bps_conf *conf = rig_load(NULL, NULL, NULL);
        rig_expect_node(conf, "transports.net.plugin", "\"verbs\"", "DMLC_ENABLE_RDMA");
        rig_expect_node(conf, "transports.net.host", "\"127.0.0.1\"", "DMLC_INTERFACE");
        ck_assert_ptr_null(bps_conf_find(conf, "transports.net.interface"));
        bps_conf_free(conf);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        setenv("DMLC_ENABLE_RDMA", others[i], 1);
        struct bps_conf *conf = rig_load(NULL, NULL, NULL);
        rig_expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
        rig_expect_node(conf, "transports.net.interface", "\"lo\"", "DMLC_INTERFACE");
        bps_conf_free(conf);
    }
    setenv("DMLC_ENABLE_RDMA", "1", 1);
    setenv("DMLC_INTERFACE", "ib99", 1);
    setenv("DMLC_NODE_HOST", "10.0.0.2", 1);
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect_node(conf, "transports.net.host", "\"10.0.0.2\"", "DMLC_NODE_HOST");
    bps_conf_free(conf);
}
END_TEST

#define MISSING(what)                                                                                                  \
    "there is no " what " yet, and training without it gives other results; unset the variable to train "              \
    "without it"

static const struct {
    const char *variables[MOST], *error;
} bad_olds[] = {
    {{"DMLC_NUM_WORKER=abc"}, "DMLC_NUM_WORKER = \"abc\": not a whole number; expected 1..65536"},
    {{"DMLC_NUM_WORKER=0"}, "DMLC_NUM_WORKER = 0: out of range; expected 1..65536"},
    {{"DMLC_NUM_WORKER=40000", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "DMLC_NUM_WORKER: cluster.workers = 40000: out of range; expected 1..32768"},
    {{"DMLC_NUM_WORKER=2", "BYTEPS_LOCAL_SIZE=two"},
     "BYTEPS_LOCAL_SIZE = \"two\": not a whole number; expected 1..65536"},
    {{"DMLC_NUM_WORKER=2"},
     "DMLC_NUM_WORKER: cluster.workers = 2: the address of the scheduler is not set; start the job with byteps run, or "
     "set "
     "cluster.scheduler = \"HOST:PORT\""},
    {{"DMLC_NUM_SERVER=x"}, "DMLC_NUM_SERVER: cluster.servers = \"x\": not a whole number; expected 0..16384"},
    {{"DMLC_ROLE=joint"}, "DMLC_ROLE = \"joint\": not a role; expected worker, server or scheduler"},
    {{"DMLC_WORKER_ID=-1"}, "DMLC_WORKER_ID = -1: out of range; expected 0..65535"},
    {{"DMLC_WORKER_ID=1"},
     "DMLC_WORKER_ID: cluster.rank = 1: out of range; expected -1..0, because cluster.workers = 1"},
    {{"BYTEPS_LOCAL_RANK=x"}, "BYTEPS_LOCAL_RANK: cluster.local_rank = \"x\": not a whole number; expected -1..32767"},
    {{"DMLC_PS_ROOT_URI=10.0.0.1"},
     "DMLC_PS_ROOT_URI = \"10.0.0.1\": DMLC_PS_ROOT_PORT is not set; expected both, the host and the port of "
     "the "
     "scheduler"},
    {{"DMLC_PS_ROOT_PORT=9000"},
     "DMLC_PS_ROOT_PORT = 9000: DMLC_PS_ROOT_URI is not set; expected both, the host and the port of the "
     "scheduler"},
    {{"DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=http"},
     "DMLC_PS_ROOT_PORT = \"http\": not a whole number; expected 0..65535"},
    {{"BYTEPS_PARTITION_BYTES=4 MiB"},
     "BYTEPS_PARTITION_BYTES = \"4 MiB\": not a whole number; expected 1..1073741824"},
    {{"BYTEPS_PARTITION_BYTES=0"}, "BYTEPS_PARTITION_BYTES = 0: out of range; expected 1..1073741824"},
    {{"BYTEPS_LOG_LEVEL=LOUD"},
     "BYTEPS_LOG_LEVEL = \"LOUD\": not a level; expected TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"},
    {{"BYTEPS_LOG_HIDE_TIME=perhaps"},
     "BYTEPS_LOG_HIDE_TIME: log.hide_time = \"perhaps\": not a boolean; expected true or false"},
    {{"BYTEPS_JOB_ID=a b"},
     "BYTEPS_JOB_ID: cluster.job = \"a b\": not a word; expected 1..63 letters, digits, '.', '_' or '-'"},
    {{"BYTEPS_STALENESS=-2"}, "BYTEPS_STALENESS: worker.staleness = -2: out of range; expected -1..1000000"},
    {{"BYTEPS_INTRA_COMPRESSOR=dgc"},
     "BYTEPS_INTRA_COMPRESSOR = \"dgc\": " MISSING(
         "compression by a variable (byteps.conf and the dictionary of an optimizer have it)")},
    {{"BYTEPS_INTER_COMPRESSOR=onebit"},
     "BYTEPS_INTER_COMPRESSOR = \"onebit\": " MISSING(
         "compression by a variable (byteps.conf and the dictionary of an optimizer have it)")},
    {{"DMLC_ENABLE_RDMA=ucx"},
     "DMLC_ENABLE_RDMA = \"ucx\": not a supported transport; expected 1 or ibverbs for RDMA, or 0"},
    {{"DMLC_ENABLE_RDMA=1", "DMLC_INTERFACE=ib99"},
     "DMLC_INTERFACE = \"ib99\": no network interface of this host with an address; expected one, or "
     "DMLC_NODE_HOST"},
};

START_TEST(bad_old_variable_is_refused_word_by_word)
{
    set_variables(bad_olds[_i].variables);
    rig_refuse(NULL, NULL, bad_olds[_i].error);
}
END_TEST

static void add_note(void *arg, const char *text)
{
    bps_text_add(arg, "%s\n", text);
}

START_TEST(notes_tell_of_idle_and_unknown_variables)
{
    struct bps_text notes = {0};
    setenv("DMLC_NUM_WORKERS", "2", 1);
    setenv("BYTEPS_NUM_SERVER", "2", 1);
    setenv("BYTEPS_NCCL_NUM_RINGS", "2", 1);
    setenv("BYTEPS_PCIE_SWITCH_SIZE", "4", 1);
    setenv("BYTEPS_REDUCE_ROOTS", "0,4", 1);
    setenv("BYTEPS_USE_GDR_ALLREDUCE", "1", 1);
    setenv("BYTEPS_QWXZJKVY", "1", 1);
    setenv("PS_VERBOSE", "1", 1);
    setenv("BYTEPS_PARTITION_BYTES", "2147483647", 1);
    setenv("BYTEPS_ENABLE_ASYNC", "0", 1);
    setenv("DMLC_ROLE", "worker", 1);
    setenv("BYTEPS_CONF", "x", 1);
    setenv("BYTEPS_PLUGIN_PATH", "x", 1);
    setenv("BYTEPS_MIN_COMPRESS_BYTES", "1024", 1);
    setenv("PATH", "x", 1);
    bps_environment_notes(add_note, &notes);
    ck_assert_str_eq(notes.data,
                     "BYTEPS_NCCL_NUM_RINGS is set, but has no effect\n"
                     "BYTEPS_NUM_SERVER is set, but is not a known variable; did you mean DMLC_NUM_SERVER?\n"
                     "BYTEPS_PARTITION_BYTES = 2147483647 exceeds the limit and is taken as 1073741824\n"
                     "BYTEPS_PCIE_SWITCH_SIZE is set, but has no effect: the devices of a host are "
                     "one group, in which NCCL detects PCIe switches and NVLink\n"
                     "BYTEPS_QWXZJKVY is set, but is not a known variable\n"
                     "BYTEPS_REDUCE_ROOTS is set, but has no effect: each worker of a host leads its "
                     "share of the partitions\n"
                     "BYTEPS_USE_GDR_ALLREDUCE is set, but has no effect\n"
                     "DMLC_NUM_WORKERS is set, but is not a known variable; did you mean DMLC_NUM_WORKER?\n"
                     "PS_VERBOSE is set, but has no effect\n");
    bps_text_free(&notes);
}
END_TEST

/* ---- launchers ---- */

#define TAIL                                                                                                           \
    " has started several processes without a rendezvous, so that each of them would train alone; start "              \
    "them by `byteps run -n 2 -- python3 train.py` (on several hosts `byteps run -H host1:n,host2:n -- python3 "       \
    "train.py`), or give all of them MASTER_ADDR and MASTER_PORT, or BYTEPS_MEETING_FILE, a path in a folder that "    \
    "they share, or set cluster.scheduler = \"HOST:PORT\" for all and run `byteps scheduler` there, or set "           \
    "cluster.workers = 1 to train each on its own"

static const struct {
    const char *variables[MOST], *set, *error; /* no error: it may begin */
} launches[] = {
    {{"WORLD_SIZE=2"}, NULL, "WORLD_SIZE = 2: torchrun" TAIL},
    {{"OMPI_COMM_WORLD_SIZE=2"}, NULL, "OMPI_COMM_WORLD_SIZE = 2: mpirun" TAIL},
    {{"MV2_COMM_WORLD_SIZE=2"}, NULL, "MV2_COMM_WORLD_SIZE = 2: mpirun" TAIL},
    {{"PMI_SIZE=2"}, NULL, "PMI_SIZE = 2: mpirun" TAIL},
    {{"SLURM_NTASKS=2"}, NULL, "SLURM_NTASKS = 2: srun" TAIL},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=1"}, NULL, "SLURM_NTASKS = 2: srun" TAIL},
    {{"SLURM_NTASKS=4", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"},
     NULL,
     "SLURM_STEP_NUM_TASKS = 2: srun" TAIL},
    {{"SLURM_NTASKS=2", "WORLD_SIZE=1"}, NULL, "SLURM_NTASKS = 2: srun" TAIL},
    {{"WORLD_SIZE=2"}, "worker.threads=2", "WORLD_SIZE = 2: torchrun" TAIL},
    /* a step of one task; a batch script and a shell of salloc, which have the number of the allocation */
    {{"SLURM_NTASKS=2", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}, NULL, NULL},
    {{"SLURM_NTASKS=2", "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_LOCALID=0"}, NULL, NULL},
    {{"SLURM_NTASKS=2", "SLURM_JOB_ID=7"}, NULL, NULL},
    {{"WORLD_SIZE=1", "SLURM_NTASKS=1", "OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=1"}, NULL, NULL},
    {{"WORLD_SIZE=", "PMI_SIZE=many"}, NULL, NULL},
    /* somebody has said what the job is */
    {{"WORLD_SIZE=2"}, "cluster.workers=1", NULL},
    {{"WORLD_SIZE=2", "DMLC_NUM_WORKER=1"}, NULL, NULL},
    {{"WORLD_SIZE=2", "BYTEPS_SET=cluster.workers=1"}, NULL, NULL},
    {{"WORLD_SIZE=2", "DMLC_NUM_WORKER=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"}, NULL, NULL},
};

START_TEST(several_processes_without_a_job_are_refused)
{
    set_variables(launches[_i].variables);
    struct bps_conf *conf = rig_load(NULL, launches[_i].set, NULL);
    struct bps_report report = {""};
    bool refused = launches[_i].error != NULL;
    struct bps_hosting *hosting;
    ck_assert_int_eq(bps_meet(conf, &hosting, &report), refused ? BPS_ERR_CONF : BPS_OK);
    ck_assert_ptr_null(hosting);
    ck_assert_str_eq(report.text, refused ? launches[_i].error : "");
    bps_conf_free(conf);
}
END_TEST

#define HERE "BYTEPS_SET=cluster.scheduler=h:1"

/* What a launcher has told: the values, and the variables that they have come from. */
static const struct {
    const char *variables[MOST], *value[4], *origin[4];
} places[] = {
    {{HERE, "WORLD_SIZE=4", "RANK=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"},
     {"4", "2", "0", "2"},
     {"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
    {{HERE, "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=3"},
     {"3", "1", "1", "3"},
     {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {{HERE, "PMI_SIZE=2", "PMI_RANK=1", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"},
     {"2", "1", "0", "1"},
     {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
    {{HERE, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=6", "SLURM_PROCID=5",
      "SLURM_LOCALID=1"},
     {"6", "5", "1", "-1"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "default"}},
    /* who is told more keeps that; and a job of another size is not this launcher's */
    {{HERE "\ncluster.rank=3", "WORLD_SIZE=4", "RANK=2"},
     {"4", "3", "-1", "-1"},
     {"WORLD_SIZE", "BYTEPS_SET", "default", "default"}},
    {{HERE "\ncluster.workers=2", "WORLD_SIZE=4", "RANK=2"},
     {"2", "-1", "-1", "-1"},
     {"BYTEPS_SET", "default", "default", "default"}},
    /* servers are started by mpirun and srun as well, where they have to meet the workers */
    {{"BYTEPS_SET=cluster.servers=2", "PMI_SIZE=6", "PMI_RANK=1", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=3"},
     {"4", "1", "-1", "-1"},
     {"PMI_SIZE", "PMI_RANK", "default", "default"}},
    {{HERE "\ncluster.servers=2", "PMI_SIZE=6", "PMI_RANK=1"},
     {"6", "1", "-1", "-1"},
     {"PMI_SIZE", "PMI_RANK", "default", "default"}},
    {{"WORLD_SIZE=4", "RANK=2"}, {"4", "2", "-1", "-1"}, {"WORLD_SIZE", "RANK", "default", "default"}},
};

START_TEST(servers_must_be_able_to_meet_the_workers)
{
    static const char *const alone[MOST] = {"BYTEPS_SET=cluster.servers=2", "WORLD_SIZE=6", "RANK=1"};
    static const char *const crowded[MOST] = {"BYTEPS_SET=cluster.servers=6", "PMI_SIZE=6", "PMI_RANK=1"};
    set_variables(alone);
    rig_refuse(NULL, NULL,
               "WORLD_SIZE: cluster.servers = 2, but torchrun starts workers only, and "
               "servers that others start would not find them; set cluster.scheduler = "
               "\"HOST:PORT\" for all and run `byteps scheduler` there, or leave "
               "cluster.servers out: then workers sum");
    unsetenv("WORLD_SIZE");
    set_variables(crowded);
    rig_refuse(NULL, NULL,
               "PMI_SIZE: mpirun has started 6 processes, of which cluster.servers = 6 "
               "are servers; expected at least one worker");
}
END_TEST

START_TEST(a_launcher_tells_a_place)
{
    static const char *const paths[] = {"cluster.workers", "cluster.rank", "cluster.local_rank", "cluster.local_size"};
    set_variables(places[_i].variables);
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    ck_assert_ptr_nonnull(conf);
    for (int i = 0; i < 4; i++) {
        rig_expect(conf, paths[i], places[_i].value[i], places[_i].origin[i]);
    }
    ck_assert_int_eq(conf->cluster.rank, atoi(places[_i].value[1]));
    bps_conf_free(conf);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conf environment");
    TCase *tests = tcase_create("conf environment");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, rig_open, rig_close);
    tcase_add_loop_test(tests, old_variable_is_understood, 0, COUNT(olds));
    tcase_add_test(tests, old_variables_reach_the_transport);
    tcase_add_test(tests, rdma_is_asked_for);
    tcase_add_loop_test(tests, bad_old_variable_is_refused_word_by_word, 0, COUNT(bad_olds));
    tcase_add_test(tests, notes_tell_of_idle_and_unknown_variables);
    tcase_add_test(tests, servers_must_be_able_to_meet_the_workers);
    tcase_add_loop_test(tests, a_launcher_tells_a_place, 0, COUNT(places));
    tcase_add_loop_test(tests, several_processes_without_a_job_are_refused, 0, COUNT(launches));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
