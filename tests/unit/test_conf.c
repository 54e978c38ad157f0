/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_conf.c - loading: layers and their order, origins, old variables, settings, errors word by word,
 * access.
 *
 * Each test runs in a process of its own, so that it may change variables and the working directory.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/layer.h"
#include "conf/load.h"
#include "conf/option.h"
#include "conf/tree.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- a folder and an environment for each test ---- */

static char folder[64];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/byteps-conf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(mkdir("etc", 0755), 0);
    ck_assert_int_eq(mkdir("etc/conf.d", 0755), 0);
    ck_assert_int_eq(clearenv(), 0);
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "/bin/rm -rf '%s'", folder);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* Loads with etc as the system's directory, a file (or NULL) and up to two settings (or NULL). */
static struct bps_conf *load(const char *file, const char *set, const char *set2)
{
    const char *const all[] = {set, set2};
    struct bps_conf_request request = {
        .confdir = "etc", .file = file, .set = all, .nset = set2 != NULL ? 2 : set != NULL ? 1 : 0,
    };
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    bps_status status = bps_conf_load_from(&request, &conf, &report);
    ck_assert_msg(status == BPS_OK, "%d: %s", status, report.text);
    ck_assert_str_eq(report.text, "");
    return conf;
}

static void refuse(const char *file, const char *set, const char *expected)
{
    struct bps_conf_request request = {.confdir = "etc", .file = file, .set = &set, .nset = set != NULL};
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, expected);
    ck_assert_ptr_null(conf);
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, NULL), BPS_ERR_CONF);
}

/* ---- one key by bps_conf_each() ---- */

struct wanted {
    const char *key;
    char text[256], origin[256];
};

static void catch (void *arg, const char *key, const char *text, const char *origin,
                   const struct bps_option *option)
{
    struct wanted *wanted = arg;
    ck_assert_ptr_nonnull(option);
    if (strcmp(key, wanted->key) == 0) {
        snprintf(wanted->text, sizeof wanted->text, "%s", text);
        snprintf(wanted->origin, sizeof wanted->origin, "%s", origin);
    }
}

static void expect(const struct bps_conf *conf, const char *key, const char *text, const char *origin)
{
    struct wanted wanted = {.key = key, .text = "(no such key)"};
    bps_conf_each(conf, catch, &wanted);
    ck_assert_msg(strcmp(wanted.text, text) == 0, "%s is %s, not %s", key, wanted.text, text);
    ck_assert_msg(strcmp(wanted.origin, origin) == 0, "%s is from %s, not %s", key, wanted.origin, origin);
}

/* Of values without a table. */
static void expect_node(const struct bps_conf *conf, const char *path, const char *value, const char *origin)
{
    const struct bps_conf_node *node = bps_conf_find(conf, path);
    ck_assert_msg(node != NULL, "there is no %s", path);
    struct bps_text text = {0};
    bps_text_value(&text, node);
    ck_assert_str_eq(text.data, value);
    ck_assert_str_eq(node->origin, origin);
    bps_text_free(&text);
}

/* ---- defaults ---- */

START_TEST(nothing_at_all_is_a_job_of_one)
{
    struct bps_conf *conf = load(NULL, NULL, NULL);
    const struct bps_conf_cluster *cluster = bps_conf_cluster(conf);
    ck_assert_uint_eq(cluster->role, BPS_ROLE_WORKER);
    ck_assert_str_eq(cluster->scheduler, "");
    ck_assert_str_eq(cluster->job, "default");
    ck_assert_int_eq(cluster->workers, 1);
    ck_assert_int_eq(cluster->servers, 0);
    ck_assert_int_eq(cluster->rank, -1);
    ck_assert_uint_eq(cluster->rendezvous_timeout, 120000000000);
    ck_assert_uint_eq(cluster->peer_timeout, 20000000000);
    ck_assert_uint_eq(cluster->stall_warning, 60000000000);
    ck_assert_uint_eq(cluster->stall_timeout, 1800000000000);
    ck_assert(!cluster->stay);
    ck_assert_uint_eq(bps_conf_worker(conf)->partition, 4194304);
    ck_assert_uint_eq(bps_conf_worker(conf)->slice, 262144);
    ck_assert_int_eq(bps_conf_worker(conf)->threads, 0);
    ck_assert_str_eq(bps_conf_server(conf)->use, "sum");
    ck_assert_uint_eq(bps_conf_server(conf)->order, BPS_ORDER_ARRIVAL);
    ck_assert_uint_eq(bps_conf_log(conf)->level, BPS_LOG_WARN - 1);
    ck_assert_uint_eq(bps_conf_worker(conf)->hierarchy, BPS_HIERARCHY_AUTO);
    expect_node(conf, "worker.graph",
                "( { stage = \"local_reduce\"; use = ( \"local\" ); }, "
                "{ stage = \"push_pull\"; use = ( \"net\" ); }, { stage = \"local_broadcast\"; } )",
                "default");
    expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    expect_node(conf, "transports.local.plugin", "\"ipc\"", "default");
    expect_node(conf, "reducers.sum.plugin", "\"cpu\"", "default");
    expect(conf, "worker.partition", "4 MiB", "default");
    bps_conf_free(conf);
    ck_assert_int_eq(rmdir("etc/conf.d"), 0);
    ck_assert_int_eq(rmdir("etc"), 0);
    bps_conf_free(load(NULL, NULL, NULL));
    bps_conf_free(NULL);
}
END_TEST

START_TEST(defaults_follow_other_values)
{
    struct bps_conf *conf = load(NULL, "worker.partition=64 KiB", NULL);
    ck_assert_uint_eq(bps_conf_worker(conf)->slice, 65536);
    expect(conf, "worker.slice", "64 KiB", "default");
    ck_assert_str_eq(bps_conf_find(conf, "worker.slice")->text, "64 KiB");
    bps_conf_free(conf);
    conf = load(NULL, "cluster.role=scheduler", "cluster.workers=4");
    ck_assert_str_eq(bps_conf_cluster(conf)->scheduler, "127.0.0.1:0");
    expect_node(conf, "cluster.scheduler", "\"127.0.0.1:0\"", "default");
    bps_conf_free(conf);
}
END_TEST

/* ---- layers ---- */

START_TEST(each_layer_is_stronger_than_the_one_before)
{
    struct bps_conf *conf = load(NULL, NULL, NULL);
    expect(conf, "worker.threads", "0", "default");
    bps_conf_free(conf);

    write_file("etc/byteps.conf", "# system-wide\nworker = { threads = 1;\n partition = \"1 MiB\"; };\n");
    conf = load(NULL, NULL, NULL);
    expect(conf, "worker.threads", "1", "etc/byteps.conf:2");
    expect(conf, "worker.partition", "1 MiB", "etc/byteps.conf:3");
    bps_conf_free(conf);

    write_file("etc/conf.d/20-b.conf", "worker = { threads = 3; };\n");
    write_file("etc/conf.d/10-a.conf", "worker = { threads = 2; partition = \"2 MiB\"; };\n");
    write_file("etc/conf.d/.hidden.conf", "syntax error\n");
    write_file("etc/conf.d/README", "syntax error\n");
    write_file("etc/conf.d/30-c.conf.bak", "syntax error\n");
    conf = load(NULL, NULL, NULL);
    expect(conf, "worker.threads", "3", "etc/conf.d/20-b.conf:1");
    expect(conf, "worker.partition", "2 MiB", "etc/conf.d/10-a.conf:1");
    bps_conf_free(conf);

    write_file("my.conf", "worker = {\n threads = 4; };\n");
    conf = load("my.conf", NULL, NULL);
    expect(conf, "worker.threads", "4", "my.conf:2");
    expect(conf, "worker.partition", "2 MiB", "etc/conf.d/10-a.conf:1");
    bps_conf_free(conf);

    setenv("BYTEPS_PARTITION_BYTES", "3145728", 1);
    conf = load("my.conf", NULL, NULL);
    expect(conf, "worker.partition", "3 MiB", "BYTEPS_PARTITION_BYTES");
    bps_conf_free(conf);

    setenv("BYTEPS_SET", "worker.threads=5\n\nworker.partition=5MiB\n", 1);
    conf = load("my.conf", NULL, NULL);
    expect(conf, "worker.threads", "5", "BYTEPS_SET");
    expect(conf, "worker.partition", "5 MiB", "BYTEPS_SET");
    bps_conf_free(conf);

    conf = load("my.conf", "worker.threads=6", "worker.threads = 7");
    expect(conf, "worker.threads", "7", "--set");
    expect(conf, "worker.partition", "5 MiB", "BYTEPS_SET");
    bps_conf_free(conf);
}
END_TEST

START_TEST(variable_names_the_file_unless_one_is_given)
{
    write_file("a.conf", "worker = { threads = 1; };\n");
    write_file("b.conf", "worker = { threads = 2; };\n");
    setenv("BYTEPS_CONF", "a.conf", 1);
    struct bps_conf *conf = load(NULL, NULL, NULL);
    expect(conf, "worker.threads", "1", "a.conf:1");
    bps_conf_free(conf);
    conf = load("b.conf", NULL, NULL);
    expect(conf, "worker.threads", "2", "b.conf:1");
    bps_conf_free(conf);
    setenv("BYTEPS_CONF", "", 1);
    conf = load(NULL, NULL, NULL);
    expect(conf, "worker.threads", "0", "default");
    bps_conf_free(conf);
    setenv("BYTEPS_CONF", "missing.conf", 1);
    refuse(NULL, NULL, "missing.conf: cannot be opened: No such file or directory");
}
END_TEST

START_TEST(groups_merge_and_lists_replace)
{
    write_file("a.conf",
               "transports = { net = { streams = 4; }; fast = { plugin = \"verbs\"; depth = 8; }; };\n"
               "worker = { graph = ( { stage = \"clip\"; limit = 1.0; }, { stage = \"push_pull\"; } ); };\n");
    struct bps_conf *conf = load("a.conf", "transports.fast.depth=16", "server.use=[\"sum\"]");
    expect_node(conf, "transports.net", "{ plugin = \"tcp\"; streams = 4; }", "a.conf:1");
    expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    expect_node(conf, "transports.net.streams", "4", "a.conf:1");
    expect_node(conf, "transports.fast", "{ plugin = \"verbs\"; depth = 16; }", "a.conf:1");
    expect_node(conf, "worker.graph", "( { stage = \"clip\"; limit = 1; }, { stage = \"push_pull\"; } )",
                "a.conf:2");
    expect_node(conf, "server.use", "( \"sum\" )", "--set");
    bps_conf_free(conf);
}
END_TEST

START_TEST(included_files_are_found_from_the_including_one)
{
    ck_assert_int_eq(mkdir("etc/parts", 0755), 0);
    ck_assert_int_eq(mkdir("etc/parts/more", 0755), 0);
    write_file("etc/byteps.conf", "log = { level = \"info\"; };\n"
                                  "/* @include \"in a comment\"\n@include \"in a comment\" */\n"
                                  "# @include \"in a comment\"\n"
                                  "  @include \"parts/one.inc\" // and on\n"
                                  "server = { shards = 2; };\n");
    write_file("etc/parts/one.inc", "worker = {\n@include \"more/two.inc\"\n};");
    write_file("etc/parts/more/two.inc", "# no newline at the end\nthreads = 3;");
    struct bps_conf *conf = load(NULL, NULL, NULL);
    expect(conf, "log.level", "info", "etc/byteps.conf:1");
    expect(conf, "worker.threads", "3", "etc/parts/more/two.inc:2");
    expect(conf, "server.shards", "2", "etc/byteps.conf:6");
    bps_conf_free(conf);
}
END_TEST

START_TEST(strings_may_hold_anything)
{
    write_file("a.conf", "cluster = { job = \"a\"  \"b\"; };\n"
                         "transports = { x = { plugin = \"x\"; text = \"@include \\\"y\\\"\n@include "
                         "\\\"z\\\" # {[( \\\\\"; }; };\n");
    struct bps_conf *conf = load("a.conf", NULL, NULL);
    expect(conf, "cluster.job", "ab", "a.conf:1");
    ck_assert_str_eq(bps_conf_find(conf, "transports.x.text")->text,
                     "@include \"y\"\n@include \"z\" # {[( \\");
    bps_conf_free(conf);
}
END_TEST

/* ---- settings ---- */

static const struct {
    const char *set, *path, *value;
} settings[] = {
    {"worker.partition=8MiB", "worker.partition", "\"8MiB\""},
    {" worker.partition =  8 MiB ", "worker.partition", "\"8 MiB\""},
    {"worker.threads=3", "worker.threads", "3"},
    {"cluster.job=\"quoted\"", "cluster.job", "\"quoted\""},
    {"cluster.scheduler=", "cluster.scheduler", "\"\""},
    {"cluster.scheduler=a=b:1", "cluster.scheduler", "\"a=b:1\""},
    {"worker.graph=({stage=\"clip\";limit=1.5;},{stage=\"push_pull\";})", "worker.graph",
     "( { stage = \"clip\"; limit = \"1.5\"; }, { stage = \"push_pull\"; } )"},
    {"transports.net={streams=2; congestion=\"bbr\"}", "transports.net",
     "{ plugin = \"tcp\"; streams = 2; congestion = \"bbr\"; }"},
    {"transports={net={streams=2}}", "transports.net.streams", "2"},
    {"server.use=[\"sum\", \"sum\"]", "server.use", "( \"sum\", \"sum\" )"},
    {"transports.my-net_2.plugin=tcp", "transports.my-net_2.plugin", "\"tcp\""},
};

START_TEST(setting_is_taken)
{
    struct bps_conf *conf = load(NULL, settings[_i].set, NULL);
    const struct bps_conf_node *node = bps_conf_find(conf, settings[_i].path);
    ck_assert_ptr_nonnull(node);
    expect_node(conf, settings[_i].path, settings[_i].value, "--set");
    bps_conf_free(conf);
}
END_TEST

#define NO_SETTING ": not a setting; expected KEY=VALUE, such as \"worker.partition=8 MiB\""

static const struct {
    const char *set, *error;
} bad_settings[] = {
    {"", "--set: \"\"" NO_SETTING},
    {"worker.partition", "--set: \"worker.partition\"" NO_SETTING},
    {"=3", "--set: \"=3\"" NO_SETTING},
    {"worker..threads=3", "--set: \"worker..threads=3\"" NO_SETTING},
    {".threads=3", "--set: \".threads=3\"" NO_SETTING},
    {"worker.=3", "--set: \"worker.=3\"" NO_SETTING},
    {"worker threads=3", "--set: \"worker threads=3\"" NO_SETTING},
    {"a.b.c.d.e.f.g.h.i=3", "--set: \"a.b.c.d.e.f.g.h.i=3\"" NO_SETTING},
    {"worker.partiton=3", "--set: worker.partiton: unknown key; did you mean worker.partition?"},
    {"worker.threads=many", "--set: worker.threads = \"many\": not a whole number; expected 0..256"},
    {"worker.threads=", "--set: worker.threads = \"\": not a whole number; expected 0..256"},
    {"worker.threads.x=1", "--set: worker.threads: a group is not allowed here; expected 0..256"},
    {"worker=3", "--set: worker = 3: not a group; expected worker = { ... };"},
    {"worker.graph=({stage=;})", "--set: syntax error at or before \"value = ({stage=;})\""},
    {"worker.graph=({stage=\"push_pull\";}", "--set:1: a bracket that is not closed"},
    {"worker.graph=(); other=3", "--set: more than one value in \"(); other=3\""},
    {"cluster.workers=4",
     "--set: cluster.workers = 4: the scheduler is not known; start the job with byteps run, or set "
     "cluster.scheduler = \"HOST:PORT\""},
};

START_TEST(bad_setting_is_refused_word_by_word)
{
    refuse(NULL, bad_settings[_i].set, bad_settings[_i].error);
}
END_TEST

START_TEST(somebody_must_sum)
{
    setenv("BYTEPS_SET", "cluster.scheduler=h:1\ncluster.colocated=none", 1);
    refuse(NULL, "cluster.workers=2",
           "BYTEPS_SET: cluster.colocated = \"none\": there would be no server at all, because cluster.servers = 0; "
           "expected auto, first, hosts or all");
    bps_conf_free(load(NULL, "cluster.workers=2", "cluster.servers=1"));
}
END_TEST

START_TEST(bad_line_of_settings_is_refused)
{
    setenv("BYTEPS_SET", "worker.threads=1\nnonsense\n", 1);
    refuse(NULL, NULL, "BYTEPS_SET: \"nonsense\"" NO_SETTING);
}
END_TEST

/* ---- old variables ---- */

struct old {
    const char *variables[6]; /* NAME=VALUE */
    const char *key, *text, *origin;
};

static const struct old olds[] = {
    {{"DMLC_ROLE=worker"}, "cluster.role", "worker", "DMLC_ROLE"},
    {{"DMLC_ROLE=Scheduler"}, "cluster.role", "scheduler", "DMLC_ROLE"},
    {{"DMLC_ROLE=server", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.role",
     "server",
     "DMLC_ROLE"},
    {{"DMLC_NUM_WORKER=1", "DMLC_NUM_SERVER=0"}, "cluster.scheduler", "", "default"},
    {{"DMLC_NUM_WORKER=3", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.workers",
     "3",
     "DMLC_NUM_WORKER"},
    {{"DMLC_NUM_WORKER=3", "BYTEPS_LOCAL_SIZE=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.workers",
     "6",
     "DMLC_NUM_WORKER"},
    {{"DMLC_NUM_SERVER=2", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.servers",
     "2",
     "DMLC_NUM_SERVER"},
    {{"DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_PS_ROOT_PORT=9000"},
     "cluster.scheduler",
     "10.0.0.1:9000",
     "DMLC_PS_ROOT_URI"},
    {{"DMLC_PS_ROOT_URI=fd00::1", "DMLC_PS_ROOT_PORT=9000"},
     "cluster.scheduler",
     "[fd00::1]:9000",
     "DMLC_PS_ROOT_URI"},
    {{"DMLC_PS_ROOT_URI=[fd00::1]", "DMLC_PS_ROOT_PORT=9000"},
     "cluster.scheduler",
     "[fd00::1]:9000",
     "DMLC_PS_ROOT_URI"},
    {{"DMLC_WORKER_ID=0"}, "cluster.rank", "0", "DMLC_WORKER_ID"},
    {{"DMLC_NUM_WORKER=2", "DMLC_WORKER_ID=1", "BYTEPS_LOCAL_SIZE=4", "BYTEPS_LOCAL_RANK=3",
      "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "7",
     "DMLC_WORKER_ID"},
    {{"DMLC_NUM_WORKER=2", "DMLC_WORKER_ID=1", "BYTEPS_LOCAL_SIZE=4", "DMLC_PS_ROOT_URI=h",
      "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "-1",
     "default"},
    {{"DMLC_ROLE=server", "DMLC_WORKER_ID=5", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "-1",
     "default"},
    {{"DMLC_NUM_WORKER=4", "DMLC_WORKER_ID=1", "BYTEPS_GLOBAL_RANK=2", "DMLC_PS_ROOT_URI=h",
      "DMLC_PS_ROOT_PORT=1"},
     "cluster.rank",
     "2",
     "BYTEPS_GLOBAL_RANK"},
    {{"BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=2"}, "cluster.local_rank", "1", "BYTEPS_LOCAL_RANK"},
    {{"BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=2"}, "cluster.local_size", "2", "BYTEPS_LOCAL_SIZE"},
    {{"BYTEPS_JOB_ID=mine"}, "cluster.job", "mine", "BYTEPS_JOB_ID"},
    {{"BYTEPS_PARTITION_BYTES=4096000"}, "worker.partition", "4000 KiB", "BYTEPS_PARTITION_BYTES"},
    {{"BYTEPS_PARTITION_BYTES=1"}, "worker.partition", "64", "BYTEPS_PARTITION_BYTES"},
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
};

static void set_variables(const char *const variables[6])
{
    for (size_t i = 0; i < 6 && variables[i] != NULL; i++) {
        ck_assert_int_eq(putenv((char *)variables[i]), 0);
    }
}

START_TEST(old_variable_is_understood)
{
    set_variables(olds[_i].variables);
    struct bps_conf *conf = load(NULL, NULL, NULL);
    expect(conf, olds[_i].key, olds[_i].text, olds[_i].origin);
    bps_conf_free(conf);
}
END_TEST

START_TEST(old_variables_reach_the_transport)
{
    setenv("DMLC_INTERFACE", "eth0", 1);
    setenv("DMLC_NODE_HOST", "10.0.0.2", 1);
    struct bps_conf *conf = load(NULL, NULL, NULL);
    expect_node(conf, "transports.net.interface", "\"eth0\"", "DMLC_INTERFACE");
    expect_node(conf, "transports.net.host", "\"10.0.0.2\"", "DMLC_NODE_HOST");
    expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    bps_conf_free(conf);
}
END_TEST

static const struct {
    const char *variables[6], *error;
} bad_olds[] = {
    {{"DMLC_NUM_WORKER=abc"}, "DMLC_NUM_WORKER = \"abc\": not a whole number; expected 1..65536"},
    {{"DMLC_NUM_WORKER=0"}, "DMLC_NUM_WORKER = 0: out of range; expected 1..65536"},
    {{"DMLC_NUM_WORKER=40000", "DMLC_PS_ROOT_URI=h", "DMLC_PS_ROOT_PORT=1"},
     "DMLC_NUM_WORKER: cluster.workers = 40000: out of range; expected 1..32768"},
    {{"DMLC_NUM_WORKER=2", "BYTEPS_LOCAL_SIZE=two"},
     "BYTEPS_LOCAL_SIZE = \"two\": not a whole number; expected 1..65536"},
    {{"DMLC_NUM_WORKER=2"},
     "DMLC_NUM_WORKER: cluster.workers = 2: the scheduler is not known; start the job with byteps run, or "
     "set "
     "cluster.scheduler = \"HOST:PORT\""},
    {{"DMLC_NUM_SERVER=x"},
     "DMLC_NUM_SERVER: cluster.servers = \"x\": not a whole number; expected 0..16384"},
    {{"DMLC_ROLE=joint"}, "DMLC_ROLE = \"joint\": not a role; expected worker, server or scheduler"},
    {{"DMLC_WORKER_ID=-1"}, "DMLC_WORKER_ID = -1: out of range; expected 0..65535"},
    {{"DMLC_WORKER_ID=1"},
     "DMLC_WORKER_ID: cluster.rank = 1: out of range; expected -1..0, because cluster.workers = 1"},
    {{"BYTEPS_LOCAL_RANK=x"},
     "BYTEPS_LOCAL_RANK: cluster.local_rank = \"x\": not a whole number; expected -1..32767"},
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
};

START_TEST(bad_old_variable_is_refused_word_by_word)
{
    set_variables(bad_olds[_i].variables);
    refuse(NULL, NULL, bad_olds[_i].error);
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
    setenv("BYTEPS_USE_GDR_ALLREDUCE", "1", 1);
    setenv("BYTEPS_QWXZJKVY", "1", 1);
    setenv("PS_VERBOSE", "1", 1);
    setenv("DMLC_ROLE", "worker", 1);
    setenv("BYTEPS_CONF", "x", 1);
    setenv("BYTEPS_PLUGIN_PATH", "x", 1);
    setenv("PATH", "x", 1);
    bps_environment_notes(add_note, &notes);
    ck_assert_str_eq(notes.data, "BYTEPS_NCCL_NUM_RINGS is set, but has no effect\n"
                                 "BYTEPS_NUM_SERVER is set, but not known; did you mean DMLC_NUM_SERVER?\n"
                                 "BYTEPS_QWXZJKVY is set, but not known\n"
                                 "BYTEPS_USE_GDR_ALLREDUCE is set, but has no effect\n"
                                 "DMLC_NUM_WORKERS is set, but not known; did you mean DMLC_NUM_WORKER?\n"
                                 "PS_VERBOSE is set, but has no effect\n");
    bps_text_free(&notes);
}
END_TEST

/* ---- files that are none ---- */

START_TEST(odd_files_are_refused)
{
    refuse("missing.conf", NULL, "missing.conf: cannot be opened: No such file or directory");
    refuse("etc", NULL, "etc: is a directory; expected a configuration file");
    refuse("etc/byteps.conf/x", NULL, "etc/byteps.conf/x: cannot be opened: No such file or directory");
    refuse("", NULL, ": cannot be opened: No such file or directory");
    ck_assert_int_eq(mkdir("etc/byteps.conf", 0755), 0);
    refuse(NULL, NULL, "etc/byteps.conf: is a directory; expected a configuration file");
}
END_TEST

START_TEST(a_pipe_without_a_writer_is_empty)
{
    ck_assert_int_eq(mkfifo("pipe.conf", 0600), 0);
    bps_conf_free(load("pipe.conf", NULL, NULL));
}
END_TEST

START_TEST(huge_file_is_refused)
{
    FILE *file = fopen("huge.conf", "w");
    for (int i = 0; i < 40000; i++) {
        fprintf(file, "# %d\n", i);
    }
    ck_assert_int_eq(fclose(file), 0);
    refuse("huge.conf", NULL,
           "huge.conf: too large; a configuration has at most 256 KiB with all that it includes");
    refuse("/dev/zero", NULL, "/dev/zero:1: a zero byte; expected text, is this a configuration file?");
}
END_TEST

START_TEST(includes_do_not_multiply)
{
    write_file("leaf.inc", "");
    const char *inner = "leaf.inc";
    for (int i = 0; i < 5; i++) {
        static char name[5][16];
        char line[64];
        snprintf(name[i], sizeof name[i], "level%d.inc", i);
        FILE *file = fopen(name[i], "w");
        snprintf(line, sizeof line, "@include \"%s\"\n", inner);
        for (int j = 0; j < 100; j++) {
            fputs(line, file);
        }
        ck_assert_int_eq(fclose(file), 0);
        inner = name[i];
    }
    refuse("level4.inc", NULL, "level0.inc:51: too many files are included; do they include each other?");
}
END_TEST

/* ---- golden files: NAME.conf is refused as NAME.expected says ---- */

struct golden {
    char lines[8192];
    size_t length;
};

static void add_line(void *arg, const char *text)
{
    struct golden *golden = arg;
    golden->length += (size_t)snprintf(golden->lines + golden->length, sizeof golden->lines - golden->length,
                                       "%s\n", text);
    ck_assert_uint_lt(golden->length, sizeof golden->lines);
}

static void read_expected(const char *name, char *text, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%.*s.expected", (int)(strlen(name) - strlen(".conf")), name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    size_t length = fread(text, 1, n - 1, file);
    text[length] = '\0';
    fclose(file);
}

static void check_golden(const char *name)
{
    struct golden found = {.length = 0};
    struct bps_conf_request request = {.confdir = "none", .file = name, .problem = add_line, .arg = &found};
    struct bps_conf *conf;
    struct bps_report report = {""};
    char expected[8192];
    read_expected(name, expected, sizeof expected);
    ck_assert_msg(bps_conf_load_from(&request, &conf, &report) == BPS_ERR_CONF, "%s was taken", name);
    ck_assert_msg(strcmp(found.lines, expected) == 0, "%s:\nfound:    %sexpected: %s", name, found.lines,
                  expected);
    /* The report is the first problem, and the only one that is looked for without a receiver. */
    struct bps_report first = {""};
    request.problem = NULL;
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, &first), BPS_ERR_CONF);
    ck_assert_str_eq(first.text, report.text);
    ck_assert_int_eq(strncmp(found.lines, first.text, strlen(first.text)), 0);
}

static char *golden_folder;

START_TEST(golden_files_are_refused_word_by_word)
{
    ck_assert_int_eq(chdir(golden_folder), 0);
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    unsigned files = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t n = strlen(entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0) {
            check_golden(entry->d_name);
            files++;
        }
    }
    closedir(dir);
    ck_assert_uint_ge(files, 70);
}
END_TEST

/* ---- reading ---- */

START_TEST(preference_lists_can_be_read)
{
    write_file("a.conf",
               "reducers = { gpu = { plugin = \"cuda\"; }; };\nserver = { use = [ \"gpu\", \"sum\" ]; };\n");
    struct bps_conf *conf = load("a.conf", NULL, NULL);
    ck_assert_str_eq(bps_conf_server(conf)->use, "gpu");
    expect(conf, "server.use", "gpu sum", "a.conf:2");
    const struct bps_conf_node *use = bps_conf_find(conf, "server.use");
    ck_assert_uint_eq(use->kind, BPS_CONF_LIST);
    ck_assert_uint_eq(use->count, 2);
    ck_assert_str_eq(use->children[1]->text, "sum");
    bps_conf_free(conf);
    conf = load(NULL, "server.use=sum", NULL);
    ck_assert_uint_eq(bps_conf_find(conf, "server.use")->kind, BPS_CONF_SCALAR);
    bps_conf_free(conf);
}
END_TEST

START_TEST(paths_that_lead_nowhere)
{
    struct bps_conf *conf = load(NULL, NULL, NULL);
    ck_assert_ptr_null(bps_conf_find(conf, ""));
    ck_assert_ptr_null(bps_conf_find(conf, "."));
    ck_assert_ptr_null(bps_conf_find(conf, "worker."));
    ck_assert_ptr_null(bps_conf_find(conf, "worker..graph"));
    ck_assert_ptr_null(bps_conf_find(conf, "worker.threads.x"));
    ck_assert_ptr_null(bps_conf_find(conf, "worker.graph.stage"));
    ck_assert_ptr_null(bps_conf_find(conf, "nothing"));
    ck_assert_uint_eq(bps_conf_find(conf, "worker")->kind, BPS_CONF_GROUP);
    ck_assert_ptr_null(bps_conf_member(NULL, "x"));
    ck_assert_ptr_null(bps_conf_member(bps_conf_find(conf, "worker.threads"), "x"));
    bps_conf_free(conf);
}
END_TEST

struct plugin_options {
    int64_t streams;
    const char *congestion;
    struct bps_list interface;
};

static const struct bps_option plugin_table[] = {
    {"streams", BPS_OPT_INT, 0, offsetof(struct plugin_options, streams), "1", "1..16", ""},
    {"congestion", BPS_OPT_STRING, 0, offsetof(struct plugin_options, congestion), "cubic", NULL, ""},
    {"interface", BPS_OPT_LIST, 0, offsetof(struct plugin_options, interface), "", NULL, ""},
    {0},
};
static const char *const skip[] = {"plugin", NULL};

START_TEST(plugin_options_are_filled)
{
    struct plugin_options options;
    struct bps_report report = {""};
    write_file("a.conf", "transports = { net = { streams = 4; interface = [ \"a\", \"b\" ]; }; };\n");
    struct bps_conf *conf = load("a.conf", NULL, NULL);
    const struct bps_conf_node *net = bps_conf_find(conf, "transports.net");
    ck_assert_int_eq(bps_conf_options(net, "transports.net", skip, plugin_table, &options, &report), BPS_OK);
    ck_assert_int_eq(options.streams, 4);
    ck_assert_str_eq(options.congestion, "cubic");
    ck_assert_uint_eq(options.interface.count, 2);
    ck_assert_str_eq(options.interface.items[1], "b");
    bps_options_release(plugin_table, &options);
    ck_assert_int_eq(bps_conf_options(NULL, "x", skip, plugin_table, &options, &report), BPS_OK);
    ck_assert_int_eq(options.streams, 1);
    bps_options_release(plugin_table, &options);
    bps_conf_free(conf);
}
END_TEST

static const struct {
    const char *member, *error;
} bad_options[] = {
    {"streams = 17", "a.conf:1: transports.net.streams = 17: out of range; expected 1..16"},
    {"streams = [ 1 ]", "a.conf:1: transports.net.streams: a list is not allowed here; expected 1..16"},
    {"stream = 1", "a.conf:1: transports.net.stream: unknown key; did you mean transports.net.streams?"},
    {"qqqq = 1",
     "a.conf:1: transports.net.qqqq: unknown key; expected one of streams, congestion, interface"},
    {"congestion = { a = 1; }",
     "a.conf:1: transports.net.congestion: a group is not allowed here; expected a string"},
    {"interface = ( \"a\", { } )",
     "a.conf:1: transports.net.interface: item 2 is not a string; expected a list of strings"},
};

START_TEST(bad_plugin_option_is_refused_word_by_word)
{
    struct plugin_options options;
    struct bps_report report = {""};
    char text[256];
    snprintf(text, sizeof text, "transports = { net = { congestion = \"bbr\"; %s; }; };\n",
             bad_options[_i].member);
    if (strncmp(bad_options[_i].member, "congestion", 10) == 0) {
        snprintf(text, sizeof text, "transports = { net = { %s; }; };\n", bad_options[_i].member);
    }
    write_file("a.conf", text);
    struct bps_conf *conf = load("a.conf", NULL, NULL);
    const struct bps_conf_node *net = bps_conf_find(conf, "transports.net");
    ck_assert_int_eq(bps_conf_options(net, "transports.net", skip, plugin_table, &options, &report),
                     BPS_ERR_CONF);
    ck_assert_str_eq(report.text, bad_options[_i].error);
    ck_assert_ptr_null(options.congestion);
    bps_conf_free(conf);
}
END_TEST

/* ---- agreement ---- */

static char *agreement(const char *set, const char *set2)
{
    struct bps_conf *conf = load(NULL, set, set2);
    char *text = bps_conf_agreement(conf);
    ck_assert_ptr_nonnull(text);
    bps_conf_free(conf);
    return text;
}

START_TEST(agreement_lists_what_must_be_equal)
{
    char *text = agreement("worker.partition=8192 KiB", "worker.threads=3");
    ck_assert_str_eq(text, "cluster.job = \"default\"\n"
                           "cluster.workers = 1\n"
                           "cluster.servers = 0\n"
                           "cluster.colocated = \"auto\"\n"
                           "worker.partition = \"8 MiB\"\n"
                           "worker.slice = \"256 KiB\"\n"
                           "worker.hierarchy = \"auto\"\n"
                           "server.order = \"arrival\"\n"
                           "worker.graph = ( { stage = \"local_reduce\"; use = \"local\"; }, "
                           "{ stage = \"push_pull\"; use = \"net\"; }, { stage = \"local_broadcast\"; } )\n");
    free(text);
}
END_TEST

START_TEST(agreement_does_not_depend_on_spelling)
{
    char *a = agreement("worker.graph=({limit=1.0;stage=\"clip\";},{stage=\"push_pull\";use=[\"net\"];})",
                        "worker.slice=128 KiB");
    char *b = agreement("worker.graph=({stage=\"clip\";limit=\"1e0\";},{use=\"net\";stage=\"push_pull\";})",
                        "worker.slice=131072");
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
    a = agreement("worker.graph=({stage=\"clip\";limit=1.5;},{stage=\"push_pull\";})", NULL);
    b = agreement("worker.graph=({stage=\"clip\";limit=1.25;},{stage=\"push_pull\";})", NULL);
    ck_assert_str_ne(a, b);
    free(a);
    free(b);
}
END_TEST

/* ---- round trip ---- */

START_TEST(values_survive_being_written_and_read)
{
    static const char text[] = "transports = { x = { plugin = \"x\"; a = -5; b = 0.1; c = true; d = "
                               "\"\\\"\\\\\\n\\t\\x01\\x7f\"; e = \"007\"; f = -0;\n"
                               " g = ( 1, ( 2, \"3\" ), { h = [ ]; } ); i = \"\"; j = \"true\"; k = 0x1F; l "
                               "= 123456789012345678; m = \"\xc3\xa4\"; }; };";
    write_file("a.conf", text);
    struct bps_conf *first = load("a.conf", NULL, NULL);
    struct bps_text written = {0};
    bps_text_value(&written, bps_conf_find(first, "transports.x"));
    char *set = NULL;
    ck_assert_int_gt(asprintf(&set, "transports.x=%s", written.data), 0);
    struct bps_conf *second = load(NULL, set, NULL);
    struct bps_text again = {0};
    bps_text_value(&again, bps_conf_find(second, "transports.x"));
    ck_assert_str_eq(written.data, again.data);
    ck_assert_str_eq(bps_conf_find(second, "transports.x.d")->text, "\"\\\n\t\x01\x7f");
    ck_assert_str_eq(bps_conf_find(second, "transports.x.e")->text, "007");
    ck_assert_str_eq(bps_conf_find(second, "transports.x.k")->text, "31");
    ck_assert_str_eq(bps_conf_find(second, "transports.x.b")->text, "0.1");
    free(set);
    bps_text_free(&written);
    bps_text_free(&again);
    bps_conf_free(first);
    bps_conf_free(second);
}
END_TEST

START_TEST(messages_cut_and_clean_long_values)
{
    char value[4000];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    struct bps_shown shown = bps_shown(value);
    ck_assert_uint_lt(strlen(shown.text), BPS_SHOWN_MAX);
    ck_assert_str_eq(shown.text + strlen(shown.text) - 5, "x...\"");
    memset(value, '\x1b', sizeof value - 1);
    shown = bps_shown(value);
    ck_assert_uint_lt(strlen(shown.text), BPS_SHOWN_MAX);
    ck_assert_ptr_null(strchr(shown.text, '\x1b'));
    ck_assert_str_eq(bps_shown("5").text, "5");
    ck_assert_str_eq(bps_shown("").text, "\"\"");
}
END_TEST

int main(void)
{
    const char *source = getenv("top_srcdir");
    if (asprintf(&golden_folder, "%s/tests/conf/bad", source != NULL ? source : ".") < 0) {
        return 1;
    }
    char *absolute = realpath(golden_folder, NULL);
    free(golden_folder);
    golden_folder = absolute;
    Suite *suite = suite_create("conf");
    TCase *tests = tcase_create("conf");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, nothing_at_all_is_a_job_of_one);
    tcase_add_test(tests, defaults_follow_other_values);
    tcase_add_test(tests, each_layer_is_stronger_than_the_one_before);
    tcase_add_test(tests, variable_names_the_file_unless_one_is_given);
    tcase_add_test(tests, groups_merge_and_lists_replace);
    tcase_add_test(tests, included_files_are_found_from_the_including_one);
    tcase_add_test(tests, strings_may_hold_anything);
    tcase_add_loop_test(tests, setting_is_taken, 0, COUNT(settings));
    tcase_add_loop_test(tests, bad_setting_is_refused_word_by_word, 0, COUNT(bad_settings));
    tcase_add_test(tests, somebody_must_sum);
    tcase_add_test(tests, bad_line_of_settings_is_refused);
    tcase_add_loop_test(tests, old_variable_is_understood, 0, COUNT(olds));
    tcase_add_test(tests, old_variables_reach_the_transport);
    tcase_add_loop_test(tests, bad_old_variable_is_refused_word_by_word, 0, COUNT(bad_olds));
    tcase_add_test(tests, notes_tell_of_idle_and_unknown_variables);
    tcase_add_test(tests, odd_files_are_refused);
    tcase_add_test(tests, a_pipe_without_a_writer_is_empty);
    tcase_add_test(tests, huge_file_is_refused);
    tcase_add_test(tests, includes_do_not_multiply);
    tcase_add_test(tests, golden_files_are_refused_word_by_word);
    tcase_add_test(tests, preference_lists_can_be_read);
    tcase_add_test(tests, paths_that_lead_nowhere);
    tcase_add_test(tests, plugin_options_are_filled);
    tcase_add_loop_test(tests, bad_plugin_option_is_refused_word_by_word, 0, COUNT(bad_options));
    tcase_add_test(tests, agreement_lists_what_must_be_equal);
    tcase_add_test(tests, agreement_does_not_depend_on_spelling);
    tcase_add_test(tests, values_survive_being_written_and_read);
    tcase_add_test(tests, messages_cut_and_clean_long_values);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    free(golden_folder);
    return failed != 0;
}
