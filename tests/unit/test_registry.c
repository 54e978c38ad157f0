/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_registry.c - the rules for descriptors and operations, the search for files, the services for
 * instances, and the life of an instance with a real plugin: the reducer cpu, where it is built.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checks.h"
#include "base/log.h"
#include "conf/option.h"
#include "plugin/check.h"
#include "plugin/host.h"
#include "plugin/instance.h"
#include "base/report.h"
#include "plugin/search.h"

static struct bps_report report;

/* ---- a right plugin, of which each test changes one thing -----------------------------------------------
 */

struct settings {
    int64_t count;
    uint32_t mode;
    const char *word;
    struct bps_list words;
};

static const struct bps_option rows[] = {
    {"count", BPS_OPT_INT, 0, offsetof(struct settings, count), "3", "0..", "A count."},
    {"mode", BPS_OPT_CHOICE, 0, offsetof(struct settings, mode), "b", "a|b", "A mode."},
    {"word", BPS_OPT_STRING, 0, offsetof(struct settings, word), "", NULL, "A word."},
    {"words", BPS_OPT_LIST, 0, offsetof(struct settings, words), "a b", NULL, "Some words."},
    {0},
};

static bps_status open_any(const struct bps_host *host, const void *options, void **instance_out,
                           struct bps_report *out)
{
    (void)host;
    (void)options;
    (void)instance_out;
    (void)out;
    return BPS_OK;
}

static void close_any(void *instance)
{
    (void)instance;
}

static void query_stage(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    (void)out;
}

static bps_status run_stage(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *out)
{
    (void)instance;
    (void)state;
    (void)task;
    (void)out;
    return BPS_OK;
}

static const struct bps_stage_ops stage_ops = {
    .size = sizeof stage_ops, .open = open_any, .close = close_any, .query = query_stage, .run = run_stage};

static const struct bps_plugin right_plugin = {
    .size = sizeof right_plugin,
    .kind = BPS_KIND_STAGE,
    .name = "x",
    .summary = "for tests",
    .options = rows,
    .options_size = sizeof(struct settings),
    .ops = &stage_ops,
};

static const struct bps_plugin *const list[] = {&right_plugin};

static const struct bps_module right_module = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof right_module,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "m",
    .version = "1",
    .license = "Apache-2.0",
    .nplugins = 1,
    .plugins = list,
};

#define ck_says(status, want)                                                                                          \
    do {                                                                                                               \
        ck_assert_int_eq(status, BPS_ERR_PLUGIN);                                                                      \
        ck_assert_str_eq(report.text, want);                                                                           \
    } while (0)

/* ---- modules and operations --------------------------------------------------------------------------- */

START_TEST(a_right_module)
{
    const struct bps_plugin *plugin;
    struct bps_descriptor made;

    ck_assert_int_eq(bps_module_check(&right_module, &report), BPS_OK);
    ck_assert_int_eq(bps_module_find(&right_module, BPS_KIND_STAGE, "x", &plugin, &report), BPS_OK);
    ck_assert_ptr_eq(plugin, &right_plugin);
    ck_assert_int_eq(bps_descriptor_make(&right_module, plugin, &made, &report), BPS_OK);
    bps_descriptor_free(&made);
    ck_assert_int_eq(bps_module_find(&right_module, BPS_KIND_STAGE, "y", &plugin, NULL), BPS_ERR_PLUGIN);
}
END_TEST

START_TEST(larger_tables_are_taken)
{
    struct {
        struct bps_stage_ops ops;
        void (*from_the_future)(void);
    } newer = {stage_ops, NULL};
    struct bps_plugin plugin = right_plugin;
    struct bps_descriptor made;

    newer.ops.size = sizeof newer;
    plugin.size += 8;
    plugin.ops = &newer;
    ck_assert_int_eq(bps_descriptor_make(&right_module, &plugin, &made, &report), BPS_OK);
    ck_assert_uint_eq(made.tables.ops.stage.size, sizeof(struct bps_stage_ops));
    bps_descriptor_free(&made);
}
END_TEST

START_TEST(stubs_for_optional_operations)
{
    struct bps_tensor_info tensor = {.name = "t"};
    char text[8] = "before";
    void *state = NULL;
    struct bps_tables tables;

    ck_assert_int_eq(bps_ops_complete(BPS_KIND_STAGE, &stage_ops, &tables, &report), BPS_OK);
    const struct bps_stage_ops *ops = &tables.ops.stage;
    ck_assert_int_eq(ops->bind(NULL, &tensor, &state, &report), BPS_OK);
    ck_assert_ptr_null(state);
    ops->unbind(NULL, state);
    ops->describe(NULL, text, 0);
    ck_assert_str_eq(text, "before");
    ops->describe(NULL, text, sizeof text);
    ck_assert_str_eq(text, "");
    ck_assert(ops->run == run_stage);
}
END_TEST

/* All operations there, except the one with this index; the pointers are never called. */
static bps_status complete_without(uint32_t kind, size_t count, size_t missing)
{
    union {
        union bps_ops ops;
        struct {
            size_t size;
            void (*fn[16])(void);
        } table;
    } all = {.table = {.size = sizeof all}};
    struct bps_tables out;

    for (size_t i = 0; i < count; i++) {
        all.table.fn[i] = i == missing ? NULL : (void (*)(void))close_any;
    }
    return bps_ops_complete(kind, &all, &out, &report);
}

START_TEST(each_required_operation_is_named)
{
    static const struct {
        uint32_t kind;
        const char *name;
        const char *ops[11]; /* in the order of the struct; those in brackets are optional */
    } kinds[] = {
        {BPS_KIND_TRANSPORT,
         "transport",
         {"open", "close", "query", "listen", "dial", "kick", "finish", "drop", "local_host", "[describe]"}},
        {BPS_KIND_REDUCER, "reducer", {"open", "close", "kernels", "[describe]"}},
        {BPS_KIND_STAGE, "stage", {"open", "close", "query", "[bind]", "[unbind]", "run", "[describe]"}},
    };

    for (size_t k = 0; k < 3; k++) {
        size_t count = 0;
        while (kinds[k].ops[count]) {
            count++;
        }
        ck_assert_int_eq(complete_without(kinds[k].kind, count, count), BPS_OK);
        for (size_t i = 0; i < count; i++) {
            char want[128];
            snprintf(want, sizeof want, "operation %s is missing; set it in struct bps_%s_ops", kinds[k].ops[i],
                     kinds[k].name);
            bps_status status = complete_without(kinds[k].kind, count, i);
            if (kinds[k].ops[i][0] == '[') {
                ck_assert_int_eq(status, BPS_OK);
            } else {
                ck_says(status, want);
            }
        }
    }
}
END_TEST

START_TEST(endless_option_table)
{
    struct bps_option *many = calloc(300, sizeof *many);
    char names[300][8];
    char room[300];

    ck_assert_ptr_nonnull(many);
    for (size_t i = 0; i < 300; i++) {
        snprintf(names[i], sizeof names[i], "o%zu", i);
        many[i] = (struct bps_option){names[i], BPS_OPT_BOOL, 0, i, "true", NULL, "One of many."};
    }
    ck_says(bps_options_check(many, sizeof room, &report),
            "option table has more than 256 rows; end it with a row whose name is NULL");
    ck_says(bps_options_check(many, (size_t)1 << 40, &report),
            "options_size is 1099511627776, expected at most 1048576; set it to the size of the option struct");
    free(many);
}
END_TEST

/* ---- kinds, names, directories ------------------------------------------------------------------------- */

START_TEST(kinds_have_names)
{
    static const char *const names[] = {"transport", "reducer", "compressor", "framework", "stage"};

    for (uint32_t kind = 1; kind <= 5; kind++) {
        ck_assert_str_eq(bps_kind_name(kind), names[kind - 1]);
        ck_assert_uint_eq(bps_kind_from_name(names[kind - 1]), kind);
    }
    ck_assert_str_eq(bps_kind_name(0), "?");
    ck_assert_str_eq(bps_kind_name(7), "?");
    ck_assert_uint_eq(bps_kind_from_name("stages"), 0);
}
END_TEST

START_TEST(names_are_words)
{
    ck_assert(bps_plugin_name_valid("a"));
    ck_assert(bps_plugin_name_valid("abcdefghijklmnopqrstuvwxyz_0123"));
    ck_assert(!bps_plugin_name_valid("abcdefghijklmnopqrstuvwxyz_01234"));
    ck_assert(!bps_plugin_name_valid(""));
    ck_assert(!bps_plugin_name_valid("1a"));
    ck_assert(!bps_plugin_name_valid("_a"));
    ck_assert(!bps_plugin_name_valid("A"));
    ck_assert(!bps_plugin_name_valid("a/b"));
    ck_assert(!bps_plugin_name_valid("a.b"));
    ck_assert(!bps_plugin_name_valid("a\n"));
}
END_TEST

START_TEST(directories_in_order)
{
    struct bps_dirs dirs;

    setenv("BYTEPS_PLUGIN_PATH", "::/b/:/a:rel::/b:/a//:/", 1);
    ck_assert_int_eq(bps_dirs_get(&dirs, &report), BPS_OK);
    ck_assert_uint_eq(dirs.count, 5);
    ck_assert_str_eq(dirs.items[0], "/b");
    ck_assert_str_eq(dirs.items[1], "/a");
    ck_assert_str_eq(dirs.items[2], "rel");
    ck_assert_str_eq(dirs.items[3], "/");
    ck_assert_str_eq(dirs.items[4], bps_plugin_dir());
    bps_dirs_release(&dirs);

    unsetenv("BYTEPS_PLUGIN_PATH");
    ck_assert_int_eq(bps_dirs_get(&dirs, &report), BPS_OK);
    ck_assert_uint_eq(dirs.count, 1);
    bps_dirs_release(&dirs);
}
END_TEST

START_TEST(a_missing_plugin)
{
    const struct bps_loaded *loaded = NULL;
    char directory[] = "/tmp/byteps-registry-XXXXXX";
    char want[1024];
    struct stat st;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    setenv("BYTEPS_PLUGIN_PATH", directory, 1);
    snprintf(want, sizeof want, " no file reducer_qqqqqqqqqq.so in %s, %s%s", directory, bps_plugin_dir(),
             stat(bps_plugin_dir(), &st) != 0 ? " (which does not exist)" : "");
    bps_status status = bps_plugin_open(BPS_KIND_REDUCER, "qqqqqqqqqq", "x.conf:7: reducers.sum", &loaded, &report);
    rmdir(directory);
    ck_assert_int_eq(status, BPS_ERR_PLUGIN);
    ck_assert_ptr_null(loaded);
    ck_assert_msg(strstr(report.text, "x.conf:7: reducers.sum: there is no reducer 'qqqqqqqqqq'; ") == report.text,
                  "%s", report.text);
    ck_assert_msg(strstr(report.text, want), "%s", report.text);
    ck_assert_int_eq(bps_plugin_open(BPS_KIND_REDUCER, "qqqqqqqqqq", NULL, &loaded, NULL), BPS_ERR_PLUGIN);
}
END_TEST

START_TEST(requests_that_are_no_plugins)
{
    const struct bps_loaded *loaded;

    ck_says(bps_plugin_open(BPS_KIND_FRAMEWORK, "python", "x.conf:3: frameworks.f", &loaded, &report),
            "x.conf:3: frameworks.f: framework 'python' is not opened by the core: its framework loads it, as "
            "'import byteps' does; do not name it as a plugin");
    ck_says(bps_plugin_open(7, "engine", NULL, &loaded, &report),
            "kind 7 (?) of plugin 'engine' is not supported, expected transport, reducer, compressor, stage or "
            "launcher");
    ck_says(bps_plugin_open(BPS_KIND_STAGE, "../../x", NULL, &loaded, &report),
            "stage '../../x': this name is not allowed, expected a lower-case letter, then letters, digits "
            "and _, at "
            "most 31");
}
END_TEST

START_TEST(long_places_do_not_hide_the_reason)
{
    char where[3000];

    memset(where, 'd', sizeof where - 1);
    strcpy(where + sizeof where - 6, "/x.so");
    bps_report_at(&report, where, "it is wrong; mend it");
    ck_assert_uint_eq(strlen(report.text), sizeof report.text - 1);
    ck_assert_int_eq(strncmp(report.text, "...ddd", 6), 0);
    ck_assert_str_eq(report.text + sizeof report.text - 1 - 27, "/x.so: it is wrong; mend it");
}
END_TEST

/* ---- services for an instance ---------------------------------------------------------------------------
 */

static void sum_counters(void *arg, const char *name, const char *help, uint64_t value)
{
    char *text = arg;
    snprintf(text + strlen(text), 64, "%s(%s)=%llu ", name, help, (unsigned long long)value);
}

START_TEST(counters)
{
    struct bps_host *host = bps_host_new("transports.net", NULL);
    char text[256] = "";

    ck_assert_ptr_nonnull(host);
    ck_assert_str_eq(host->instance, "transports.net");
    uint64_t *bytes = host->counter(host, "bytes", "sent");
    *bytes += 5;
    *host->counter(host, "frames", NULL) += 1;
    ck_assert_ptr_eq(host->counter(host, "bytes", "again"), bytes);
    bps_host_counters(host, sum_counters, text);
    ck_assert_str_eq(text, "bytes(sent)=5 frames()=1 ");
    bps_host_free(host);
    bps_host_free(NULL);
}
END_TEST

/* What a plugin needs of the core, without linking to it. */
START_TEST(words_and_sizes)
{
    struct bps_host *host = bps_host_new("transports.net", NULL);

    ck_assert_uint_eq(host->dtype_size(BPS_INT64), 8);
    ck_assert_uint_eq(host->dtype_size(BPS_DTYPES), 0);
    ck_assert_str_eq(host->dtype_name(BPS_BFLOAT16), "bfloat16");
    ck_assert_str_eq(host->op_name(BPS_AVERAGE), "average");
    ck_assert_str_eq(host->status_text(BPS_ERR_NOMEM), bps_strerror(BPS_ERR_NOMEM));
    ck_assert(host->logs(host, BPS_LOG_ERROR) && !host->logs(host, BPS_LOG_TRACE));
    host->undefer(host, NULL, NULL); /* as there is no loop, there are no calls */
    bps_host_free(host);
}
END_TEST

START_TEST(memory_is_aligned)
{
    struct bps_host *host = bps_host_new("x", NULL);

    for (size_t align = sizeof(void *); align <= 4096; align *= 2) {
        void *memory = host->alloc(host, align == 64 ? 0 : 100, align);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % align, 0);
        host->release(host, memory);
    }
    host->release(host, NULL);
    ck_assert_uint_gt(host->now(), 0);
    bps_host_free(host);
}
END_TEST

struct events {
    struct bps_host *host;
    struct bps_loop *loop;
    struct bps_watch *watch;
    int ends[2];
    char order[16];
};

static void note_event(struct events *events, char event)
{
    size_t n = strlen(events->order);
    ck_assert_uint_lt(n, sizeof events->order - 1);
    events->order[n] = event;
}

static void on_timer(void *arg)
{
    note_event(arg, 't');
    bps_loop_stop(((struct events *)arg)->loop);
}

static void on_defer(void *arg)
{
    struct events *events = arg;
    note_event(events, 'd');
    ck_assert_ptr_nonnull(events->host->timer(events->host, 1, 0, on_timer, events));
}

static void on_readable(void *arg, uint32_t what)
{
    struct events *events = arg;
    char byte;

    if (what & BPS_READABLE) {
        ck_assert_int_eq(read(events->ends[0], &byte, 1), 1);
        note_event(events, 'r');
        events->host->unwatch(events->host, events->watch);
        events->host->defer(events->host, on_defer, events);
    }
}

START_TEST(events_come_through_the_loop)
{
    struct events events = {.loop = bps_loop_new()};

    ck_assert_ptr_nonnull(events.loop);
    events.host = bps_host_new("x", events.loop);
    ck_assert_int_eq(pipe(events.ends), 0);
    events.watch = events.host->watch(events.host, events.ends[0], on_readable, &events);
    ck_assert_ptr_nonnull(events.watch);
    events.host->cancel(events.host, events.host->timer(events.host, 0, 0, on_timer, &events));
    ck_assert_int_eq(write(events.ends[1], "x", 1), 1);
    bps_loop_run(events.loop);
    ck_assert_str_eq(events.order, "rdt");
    bps_host_free(events.host);
    bps_loop_free(events.loop);
}
END_TEST

/* A plugin that is not made for a loop gets plain failures, not a crash. */
START_TEST(services_without_a_loop)
{
    struct bps_host *host = bps_host_new("x", NULL);

    ck_assert_ptr_null(host->watch(host, 0, on_readable, NULL));
    ck_assert_ptr_null(host->timer(host, 1, 0, on_timer, NULL));
    bps_log_set_level(0);
    host->defer(host, on_defer, NULL);
    host->log(host, BPS_LOG_ERROR, "not %s", "shown");
    bps_host_free(host);
}
END_TEST

/* ---- a real plugin --------------------------------------------------------------------------------------
 */

static void find_cpu(void *arg, const struct bps_plugin_row *row)
{
    if (row->kind == BPS_KIND_REDUCER && strcmp(row->name, "cpu") == 0 && !row->refusal[0]) {
        *(bool *)arg = true;
    }
}

static bool have_cpu(void)
{
    bool found = false;
    return bps_plugin_each(0, find_cpu, &found, &report) == BPS_OK && found;
}

static void *open_cpu(void *arg)
{
    const struct bps_loaded *loaded = NULL;

    (void)arg;
    ck_assert_int_eq(bps_plugin_open(BPS_KIND_REDUCER, "cpu", NULL, &loaded, NULL), BPS_OK);
    return (void *)loaded;
}

/* However many threads ask at once, a plugin is opened once. */
START_TEST(opened_once)
{
    pthread_t threads[8];
    void *first, *other;

    for (size_t i = 0; i < 8; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, open_cpu, NULL), 0);
    }
    pthread_join(threads[0], &first);
    for (size_t i = 1; i < 8; i++) {
        pthread_join(threads[i], &other);
        ck_assert_ptr_eq(first, other);
    }
    ck_assert_ptr_eq(open_cpu(NULL), first);
    ck_assert_str_eq(((struct bps_loaded *)first)->plugin->name, "cpu");
}
END_TEST

static bps_status open_reducer(const char *set, struct bps_instance **out)
{
    const char *const sets[] = {set};
    struct bps_conf *conf = NULL;
    bps_status status = bps_conf_load(NULL, sets, 1, &conf, &report);

    ck_assert_msg(status == BPS_OK, "%s", report.text);
    status = bps_instance_open(BPS_KIND_REDUCER, NULL, "sum", bps_conf_find(conf, "reducers.sum"), "reducers.sum", NULL,
                               out, &report);
    bps_conf_free(conf);
    return status;
}

START_TEST(an_instance)
{
    struct bps_instance *instance;
    struct bps_kernels kernels;
    float sum = 1, more = 2;

    ck_assert_msg(open_reducer("reducers.sum.isa=baseline", &instance) == BPS_OK, "%s", report.text);
    ck_assert_str_eq(instance->name, "sum");
    ck_assert_str_eq(instance->host->instance, "reducers.sum");
    const struct bps_reducer_ops *ops = instance->ops;
    ck_assert_int_eq(ops->kernels(instance->self, BPS_SUM, BPS_FLOAT32, &kernels), BPS_OK);
    kernels.fold(kernels.context, &sum, &more, 1, 1.0);
    ck_assert_float_eq(sum, 3);
    bps_instance_close(instance);
    bps_instance_close(NULL);
}
END_TEST

START_TEST(an_instance_with_wrong_options)
{
    struct bps_instance *instance = NULL;

    ck_assert_int_eq(open_reducer("reducers.sum.iza=baseline", &instance), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, "reducers.sum.iza") && strstr(report.text, "isa"), "%s", report.text);
    ck_assert_int_eq(open_reducer("reducers.sum.isa=sse", &instance), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, "reducers.sum.isa") && strstr(report.text, "baseline"), "%s", report.text);
    ck_assert_int_eq(open_reducer("reducers.sum.plugin=cqu", &instance), BPS_ERR_PLUGIN);
    ck_assert_msg(strstr(report.text, "--set: reducers.sum: there is no reducer 'cqu'; ") == report.text, "%s",
                  report.text);
    ck_assert_msg(strstr(report.text, "; did you mean 'cpu'?"), "%s", report.text);
    ck_assert_ptr_null(instance);
}
END_TEST

static TCase *rules(void)
{
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, a_right_module);
    tcase_add_test(tcase, larger_tables_are_taken);
    tcase_add_test(tcase, stubs_for_optional_operations);
    tcase_add_test(tcase, each_required_operation_is_named);
    tcase_add_test(tcase, endless_option_table);
    tcase_add_test(tcase, kinds_have_names);
    tcase_add_test(tcase, names_are_words);
    tcase_add_test(tcase, directories_in_order);
    tcase_add_test(tcase, a_missing_plugin);
    tcase_add_test(tcase, requests_that_are_no_plugins);
    tcase_add_test(tcase, long_places_do_not_hide_the_reason);
    return tcase;
}

static TCase *services(void)
{
    TCase *tcase = tcase_create("services");

    tcase_add_test(tcase, counters);
    tcase_add_test(tcase, memory_is_aligned);
    tcase_add_test(tcase, words_and_sizes);
    tcase_add_test(tcase, events_come_through_the_loop);
    tcase_add_test(tcase, services_without_a_loop);
    return tcase;
}

static TCase *instances(void)
{
    TCase *tcase = tcase_create("instances");

    tcase_add_test(tcase, opened_once);
    tcase_add_test(tcase, an_instance);
    tcase_add_test(tcase, an_instance_with_wrong_options);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("registry");

    suite_add_tcase(suite, rules());
    suite_add_tcase(suite, services());
    if (have_cpu()) {
        suite_add_tcase(suite, instances());
    } else {
        printf("without the tests of instances: the reducer cpu is not built\n");
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
