/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_conf.c - what a loaded configuration holds: defaults, layers and their order, origins, settings; how
 * it is read, and what must agree on all members.
 */
#include "conf_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/load.h"
#include "conf/option.h"
#include "conf/tree.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- defaults ---- */

START_TEST(nothing_at_all_is_a_job_of_one)
{
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    const struct bps_conf_cluster *cluster = &conf->cluster;
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
    ck_assert_uint_eq(conf->worker.partition, 4194304);
    ck_assert_uint_eq(conf->worker.slice, 49152);
    ck_assert_int_eq(conf->worker.threads, 0);
    ck_assert_str_eq(conf->server.use.items[0], "sum");
    ck_assert_uint_eq(conf->server.order, BPS_ORDER_ARRIVAL);
    ck_assert_uint_eq(conf->log.level, BPS_LOG_WARN - 1);
    ck_assert_uint_eq(conf->worker.hierarchy, BPS_HIERARCHY_AUTO);
    rig_expect_node(conf, "worker.graph",
                    "( { stage = \"local_reduce\"; use = ( \"local\" ); }, "
                    "{ stage = \"push_pull\"; use = ( \"net\" ); }, { stage = \"local_broadcast\"; } )",
                    "default");
    rig_expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    rig_expect_node(conf, "transports.local.plugin", "\"ipc\"", "default");
    rig_expect_node(conf, "reducers.sum.plugin", "\"cpu\"", "default");
    rig_expect(conf, "worker.partition", "4 MiB", "default");
    bps_conf_free(conf);
    ck_assert_int_eq(rmdir("etc/conf.d"), 0);
    ck_assert_int_eq(rmdir("etc"), 0);
    bps_conf_free(rig_load(NULL, NULL, NULL));
    bps_conf_free(NULL);
}
END_TEST

START_TEST(what_is_told_of_plugins)
{
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    ck_assert_uint_eq(conf->log.levels.count, 0);
    ck_assert_uint_eq(conf->log.calls.count, 0);
    ck_assert(!conf->plugins.guard);
    bps_conf_free(conf);
    rig_write("my.conf", "log = { levels = [ \"net=debug\", \"worker.graph[0]=trace\" ]; calls = \"clip sum\"; };\n"
                         "plugins = { guard = true; };\n");
    conf = rig_load("my.conf", NULL, NULL);
    rig_expect_node(conf, "log.levels", "( \"net=debug\", \"worker.graph[0]=trace\" )", "my.conf:1");
    ck_assert_str_eq(conf->log.levels.items[1], "worker.graph[0]=trace");
    ck_assert_uint_eq(conf->log.calls.count, 2);
    ck_assert_str_eq(conf->log.calls.items[1], "sum");
    rig_expect(conf, "plugins.guard", "true", "my.conf:2");
    ck_assert(conf->plugins.guard);
    bps_conf_free(conf);
    rig_refuse(NULL, "log.levels=net=loud",
               "--set: log.levels = \"net=loud\": 'net=loud' is not NAME=LEVEL; expected an instance or a plugin and "
               "error, warn, info, debug or trace, such as net=debug");
    rig_refuse(NULL, "plugins.gard=true", "--set: plugins.gard: unknown key; did you mean plugins.guard?");
}
END_TEST

START_TEST(defaults_follow_other_values)
{
    struct bps_conf *conf = rig_load(NULL, "worker.partition=64 KiB", NULL);
    ck_assert_uint_eq(conf->worker.slice, 49152);
    rig_expect(conf, "worker.slice", "48 KiB", "default");
    ck_assert_str_eq(bps_conf_find(conf, "worker.slice")->text, "48 KiB");
    bps_conf_free(conf);
    conf = rig_load(NULL, "cluster.role=scheduler", "cluster.workers=4");
    ck_assert_str_eq(conf->cluster.scheduler, "127.0.0.1:0");
    rig_expect_node(conf, "cluster.scheduler", "\"127.0.0.1:0\"", "default");
    bps_conf_free(conf);
}
END_TEST

/* ---- layers ---- */

START_TEST(each_layer_is_stronger_than_the_one_before)
{
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "worker.threads", "0", "default");
    bps_conf_free(conf);

    rig_write("etc/byteps.conf", "# system-wide\nworker = { threads = 1;\n partition = \"1 MiB\"; };\n");
    conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "worker.threads", "1", "etc/byteps.conf:2");
    rig_expect(conf, "worker.partition", "1 MiB", "etc/byteps.conf:3");
    bps_conf_free(conf);

    rig_write("etc/conf.d/20-b.conf", "worker = { threads = 3; };\n");
    rig_write("etc/conf.d/10-a.conf", "worker = { threads = 2; partition = \"2 MiB\"; };\n");
    rig_write("etc/conf.d/.hidden.conf", "syntax error\n");
    rig_write("etc/conf.d/README", "syntax error\n");
    rig_write("etc/conf.d/30-c.conf.bak", "syntax error\n");
    conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "worker.threads", "3", "etc/conf.d/20-b.conf:1");
    rig_expect(conf, "worker.partition", "2 MiB", "etc/conf.d/10-a.conf:1");
    bps_conf_free(conf);

    rig_write("my.conf", "worker = {\n threads = 4; };\n");
    conf = rig_load("my.conf", NULL, NULL);
    rig_expect(conf, "worker.threads", "4", "my.conf:2");
    rig_expect(conf, "worker.partition", "2 MiB", "etc/conf.d/10-a.conf:1");
    bps_conf_free(conf);

    setenv("BYTEPS_PARTITION_BYTES", "3145728", 1);
    conf = rig_load("my.conf", NULL, NULL);
    rig_expect(conf, "worker.partition", "3 MiB", "BYTEPS_PARTITION_BYTES");
    bps_conf_free(conf);

    setenv("BYTEPS_SET", "worker.threads=5\n\nworker.partition=5MiB\n", 1);
    conf = rig_load("my.conf", NULL, NULL);
    rig_expect(conf, "worker.threads", "5", "BYTEPS_SET");
    rig_expect(conf, "worker.partition", "5 MiB", "BYTEPS_SET");
    bps_conf_free(conf);

    conf = rig_load("my.conf", "worker.threads=6", "worker.threads = 7");
    rig_expect(conf, "worker.threads", "7", "--set");
    rig_expect(conf, "worker.partition", "5 MiB", "BYTEPS_SET");
    bps_conf_free(conf);
}
END_TEST

static void add_source(void *arg, const char *name, bool is_file)
{
    bps_text_add(arg, is_file ? " %s" : " [%s]", name);
}

static void expect_sources(const char *set, bps_status status, const char *expected)
{
    struct bps_text text = {0};
    const struct bps_conf_sources sources = {add_source, &text};
    struct bps_conf_request request = {
        .confdir = "etc", .file = "my.conf", .set = &set, .nset = 1, .sources = &sources};
    struct bps_conf *conf = NULL;
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, NULL), status);
    ck_assert_str_eq(text.data, expected);
    bps_text_free(&text);
    bps_conf_free(conf);
}

START_TEST(sources_are_told_from_the_weakest_to_the_strongest)
{
    rig_write("etc/byteps.conf", "");
    rig_write("etc/conf.d/20-b.conf", "");
    rig_write("etc/conf.d/10-a.conf", "@include \"more\"\n");
    rig_write("etc/conf.d/more", "");
    rig_write("my.conf", "log = { level = \"info\"; };\n");
    setenv("DMLC_NUM_WORKER", "1", 1);
    setenv("DMLC_WORKER_ID", "", 1);
    setenv("BYTEPS_SET", "worker.threads=5", 1);
    expect_sources("worker.threads=6", BPS_OK,
                   " etc/byteps.conf etc/conf.d/10-a.conf etc/conf.d/more etc/conf.d/20-b.conf my.conf"
                   " [DMLC_NUM_WORKER] [BYTEPS_SET] [--set]");
    rig_write("my.conf", "log = {\n");
    expect_sources("worker.threads=6", BPS_ERR_CONF,
                   " etc/byteps.conf etc/conf.d/10-a.conf etc/conf.d/more etc/conf.d/20-b.conf my.conf");
}
END_TEST

START_TEST(variable_names_the_file_unless_one_is_given)
{
    rig_write("a.conf", "worker = { threads = 1; };\n");
    rig_write("b.conf", "worker = { threads = 2; };\n");
    setenv("BYTEPS_CONF", "a.conf", 1);
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "worker.threads", "1", "a.conf:1");
    bps_conf_free(conf);
    conf = rig_load("b.conf", NULL, NULL);
    rig_expect(conf, "worker.threads", "2", "b.conf:1");
    bps_conf_free(conf);
    setenv("BYTEPS_CONF", "", 1);
    conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "worker.threads", "0", "default");
    bps_conf_free(conf);
    setenv("BYTEPS_CONF", "missing.conf", 1);
    rig_refuse(NULL, NULL, "missing.conf: cannot be opened: No such file or directory");
}
END_TEST

START_TEST(groups_merge_and_lists_replace)
{
    rig_write("a.conf", "transports = { net = { streams = 4; }; fast = { plugin = \"verbs\"; depth = 8; }; };\n"
                        "worker = { graph = ( { stage = \"clip\"; limit = 1.0; }, { stage = \"push_pull\"; } ); };\n");
    struct bps_conf *conf = rig_load("a.conf", "transports.fast.depth=16", "server.use=[\"sum\"]");
    rig_expect_node(conf, "transports.net", "{ plugin = \"tcp\"; streams = 4; }", "a.conf:1");
    rig_expect_node(conf, "transports.net.plugin", "\"tcp\"", "default");
    rig_expect_node(conf, "transports.net.streams", "4", "a.conf:1");
    rig_expect_node(conf, "transports.fast", "{ plugin = \"verbs\"; depth = 16; }", "a.conf:1");
    rig_expect_node(conf, "worker.graph", "( { stage = \"clip\"; limit = 1; }, { stage = \"push_pull\"; } )",
                    "a.conf:2");
    rig_expect_node(conf, "server.use", "( \"sum\" )", "--set");
    bps_conf_free(conf);
}
END_TEST

START_TEST(included_files_are_found_from_the_including_one)
{
    ck_assert_int_eq(mkdir("etc/parts", 0755), 0);
    ck_assert_int_eq(mkdir("etc/parts/more", 0755), 0);
    rig_write("etc/byteps.conf", "log = { level = \"info\"; };\n"
                                 "/* @include \"in a comment\"\n@include \"in a comment\" */\n"
                                 "# @include \"in a comment\"\n"
                                 "  @include \"parts/one.inc\" // and on\n"
                                 "server = { shards = 2; };\n");
    rig_write("etc/parts/one.inc", "worker = {\n@include \"more/two.inc\"\n};");
    rig_write("etc/parts/more/two.inc", "# no newline at the end\nthreads = 3;");
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
    rig_expect(conf, "log.level", "info", "etc/byteps.conf:1");
    rig_expect(conf, "worker.threads", "3", "etc/parts/more/two.inc:2");
    rig_expect(conf, "server.shards", "2", "etc/byteps.conf:6");
    bps_conf_free(conf);
}
END_TEST

START_TEST(strings_may_hold_anything)
{
    rig_write("a.conf", "cluster = { job = \"a\"  \"b\"; };\n"
                        "transports = { x = { plugin = \"x\"; text = \"@include \\\"y\\\"\n@include "
                        "\\\"z\\\" # {[( \\\\\"; }; };\n");
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
    rig_expect(conf, "cluster.job", "ab", "a.conf:1");
    ck_assert_str_eq(bps_conf_find(conf, "transports.x.text")->text, "@include \"y\"\n@include \"z\" # {[( \\");
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
    struct bps_conf *conf = rig_load(NULL, settings[_i].set, NULL);
    const struct bps_conf_node *node = bps_conf_find(conf, settings[_i].path);
    ck_assert_ptr_nonnull(node);
    rig_expect_node(conf, settings[_i].path, settings[_i].value, "--set");
    bps_conf_free(conf);
}
END_TEST

/* ---- numbers ---- */

static const struct {
    const char *written, *value;
} numbers[] = {
    {"0", "0"},
    {"-0", "0"},
    {"7", "7"},
    {"+7", "7"},
    {"-7", "-7"},
    {"7L", "7"},
    {"7LL", "7"},
    {"2147483647", "2147483647"},
    {"2147483648", "2147483648"},
    {"-2147483649", "-2147483649"},
    {"4294967298", "4294967298"},
    {"99999999999", "99999999999"},
    {"999999999999999999", "999999999999999999"},
    {"-999999999999999999", "-999999999999999999"},
    {"0x10", "16"},
    {"0X100000002", "4294967298"},
    {"0xfffffffff", "68719476735"},
    {"0xffL", "255"},
    {"1.5", "\"1.5\""},
    {"1.", "1"},
    {".5", "\"0.5\""},
    {"1e3", "1000"},
    {"25e-1", "\"2.5\""},
    {"1.5e+2", "150"},
    {"-4294967298.0", "-4294967298"},
    {"\"4294967298\"", "4294967298"},
    {"/* 1 */ 2 # 3", "2"},
    {"[ 1, 4294967298, 3L ]", "( 1, 4294967298, 3 )"},
};

START_TEST(numbers_arrive_as_they_were_written)
{
    char text[200];
    snprintf(text, sizeof text, "transports = { net-2 = { plugin = \"tcp\"; x_1-2 = %s\n; }; };\n",
             numbers[_i].written);
    rig_write("a.conf", text);
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
    rig_expect_node(conf, "transports.net-2.x_1-2", numbers[_i].value, "a.conf:1");
    bps_conf_free(conf);
}
END_TEST

/* ---- files as editors write them ---- */

START_TEST(byte_order_marks_and_other_line_ends)
{
    rig_write("inner.conf", "\xef\xbb\xbfworker = { threads = 3; };\r\n");
    rig_write("a.conf", "\xef\xbb\xbf@include \"inner.conf\"\r\nlog = { level = \"warn\"; };\r\n");
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
    rig_expect(conf, "worker.threads", "3", "inner.conf:1");
    rig_expect(conf, "log.level", "warn", "a.conf:2");
    bps_conf_free(conf);
    rig_write("a.conf", "\xef\xbb\xbf");
    bps_conf_free(rig_load("a.conf", NULL, NULL));
    rig_write("a.conf", "log = { };\n\xef\xbb\xbfworker = { };\n");
    rig_refuse("a.conf", NULL, "a.conf:2: syntax error at or before \"\xef\xbb\xbfworker = { };\"");
}
END_TEST

/* ---- reading ---- */

START_TEST(preference_lists_can_be_read)
{
    rig_write("a.conf", "reducers = { gpu = { plugin = \"cuda\"; }; };\nserver = { use = [ \"gpu\", \"sum\" ]; };\n");
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
    ck_assert_str_eq(conf->server.use.items[0], "gpu");
    rig_expect(conf, "server.use", "gpu sum", "a.conf:2");
    const struct bps_conf_node *use = bps_conf_find(conf, "server.use");
    ck_assert_uint_eq(use->kind, BPS_CONF_LIST);
    ck_assert_uint_eq(use->count, 2);
    ck_assert_str_eq(use->children[1]->text, "sum");
    bps_conf_free(conf);
    conf = rig_load(NULL, "server.use=sum", NULL);
    ck_assert_uint_eq(bps_conf_find(conf, "server.use")->kind, BPS_CONF_SCALAR);
    bps_conf_free(conf);
}
END_TEST

START_TEST(paths_that_lead_nowhere)
{
    struct bps_conf *conf = rig_load(NULL, NULL, NULL);
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
    rig_write("a.conf", "transports = { net = { streams = 4; interface = [ \"a\", \"b\" ]; }; };\n");
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
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
    {"qqqq = 1", "a.conf:1: transports.net.qqqq: unknown key; expected one of streams, congestion, interface"},
    {"congestion = { a = 1; }", "a.conf:1: transports.net.congestion: a group is not allowed here; expected a string"},
    {"interface = ( \"a\", { } )",
     "a.conf:1: transports.net.interface: item 2 is not a string; expected a list of strings"},
};

START_TEST(bad_plugin_option_is_refused_word_by_word)
{
    struct plugin_options options;
    struct bps_report report = {""};
    char text[256];
    snprintf(text, sizeof text, "transports = { net = { congestion = \"bbr\"; %s; }; };\n", bad_options[_i].member);
    if (strncmp(bad_options[_i].member, "congestion", 10) == 0) {
        snprintf(text, sizeof text, "transports = { net = { %s; }; };\n", bad_options[_i].member);
    }
    rig_write("a.conf", text);
    struct bps_conf *conf = rig_load("a.conf", NULL, NULL);
    const struct bps_conf_node *net = bps_conf_find(conf, "transports.net");
    ck_assert_int_eq(bps_conf_options(net, "transports.net", skip, plugin_table, &options, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, bad_options[_i].error);
    ck_assert_ptr_null(options.congestion);
    bps_conf_free(conf);
}
END_TEST

/* ---- agreement ---- */

static char *agreement(const char *set, const char *set2)
{
    struct bps_conf *conf = rig_load(NULL, set, set2);
    char *text = bps_conf_agreement(conf);
    ck_assert_ptr_nonnull(text);
    bps_conf_free(conf);
    return text;
}

START_TEST(agreement_lists_what_must_be_equal)
{
    char *text = agreement("worker.partition=8192 KiB", "worker.threads=3");
    ck_assert_str_eq(text, "cluster.job = \"default\"\n"
                           "cluster.checksum = \"none\"\n"
                           "cluster.encrypt = false\n"
                           "cluster.workers = 1\n"
                           "cluster.min_workers = 0\n"
                           "cluster.max_workers = 0\n"
                           "cluster.servers = 0\n"
                           "cluster.colocated = \"auto\"\n"
                           "cluster.failover = true\n"
                           "worker.partition = \"8 MiB\"\n"
                           "worker.slice = \"48 KiB\"\n"
                           "worker.hierarchy = \"auto\"\n"
                           "worker.round_on_host = true\n"
                           "worker.async = false\n"
                           "worker.staleness = -1\n"
                           "worker.device_groups = \"auto\"\n"
                           "server.order = \"arrival\"\n"
                           "server.quorum = \"n\"\n"
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
    rig_write("a.conf", text);
    struct bps_conf *first = rig_load("a.conf", NULL, NULL);
    struct bps_text written = {0};
    bps_text_value(&written, bps_conf_find(first, "transports.x"));
    char *set = NULL;
    ck_assert_int_gt(asprintf(&set, "transports.x=%s", written.data), 0);
    struct bps_conf *second = rig_load(NULL, set, NULL);
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
    Suite *suite = suite_create("conf");
    TCase *tests = tcase_create("conf");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, rig_open, rig_close);
    tcase_add_test(tests, nothing_at_all_is_a_job_of_one);
    tcase_add_test(tests, what_is_told_of_plugins);
    tcase_add_test(tests, defaults_follow_other_values);
    tcase_add_test(tests, each_layer_is_stronger_than_the_one_before);
    tcase_add_test(tests, sources_are_told_from_the_weakest_to_the_strongest);
    tcase_add_test(tests, variable_names_the_file_unless_one_is_given);
    tcase_add_test(tests, groups_merge_and_lists_replace);
    tcase_add_test(tests, included_files_are_found_from_the_including_one);
    tcase_add_test(tests, strings_may_hold_anything);
    tcase_add_loop_test(tests, setting_is_taken, 0, COUNT(settings));
    tcase_add_loop_test(tests, numbers_arrive_as_they_were_written, 0, COUNT(numbers));
    tcase_add_test(tests, byte_order_marks_and_other_line_ends);
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
    return failed != 0;
}
