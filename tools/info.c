/* SPDX-License-Identifier: Apache-2.0 */
/* info.c - `byteps info`: what this installation is, and what of this machine matters to it. */
#include "tools/info.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <byteps/byteps.h>
#include <byteps/plugin.h>
#include <byteps/transport.h>

#include "base/place.h"
#include "conf/option.h"
#include "plugin/ask.h"
#include "plugin/registry.h"
#include "tools/build_info.h"
#include "tools/plan.h"

#define NAME "info"

/* ---- transports ---- */

void bps_transport_text(const struct bps_instance *instance, char *text, size_t n)
{
    char own[256];
    bps_ask_describe(instance, own, sizeof own);
    snprintf(text, n, "%s: plugin %s, %s", instance->name, instance->loaded->plugin->name, own);
}

void bps_transport_text_local(const struct bps_conf *conf, struct bps_loop *loop, char *text, size_t n)
{
    struct bps_instance *instance;
    struct bps_report report = {""};
    if (bps_transport_open_local(conf, loop, &instance, &report) == BPS_OK) {
        bps_transport_text(instance, text, n);
        bps_instance_close(instance);
    } else {
        snprintf(text, n, "none: %.400s", report.text);
    }
}

/* ---- the subcommand ---- */

static int help(void)
{
    fputs("Usage: byteps info [--build] [--json] [--model MODEL] [OPTIONS]\n"
          "       byteps info NAME [OPTIONS]\n"
          "\n"
          "Shows information about this installation and this machine; where the machine\n"
          "has several NUMA nodes or the configuration chooses cores, also what runs where;\n"
          "and with a model, what each server of the configured job would get of it. With\n"
          "the NAME of a line, such as pkg-config, its value alone.\n"
          "\n"
          "      --build            show what configure found, and why a plugin was not\n"
          "                         built\n"
          "      --json             for programs\n" BPS_PLAN_HELP BPS_CMD_CONF_HELP
          "  -h, --help             show this text\n",
          stdout);
    return bps_cmd_finish(NAME, 0);
}

/* The value of the first line "name : value" of a file, "" if there is none. */
static void line_value(const char *path, const char *name, char *out, size_t n)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    *out = '\0';
    while (file && !*out && getline(&line, &size, file) > 0) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, name, strlen(name)) == 0) {
            colon += strspn(colon, ": \t");
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, n, "%s", colon);
        }
    }
    free(line);
    if (file) {
        fclose(file);
    }
}

static void first_line(const char *path, char *out, size_t n)
{
    FILE *file = fopen(path, "re");
    *out = '\0';
    if (file) {
        if (fgets(out, (int)n, file)) {
            out[strcspn(out, "\n")] = '\0';
        }
        fclose(file);
    }
}

/* The instruction sets that the reducers know, as far as this CPU has them. */
static json_t *vector_sets(void)
{
    static const char *const known[] = {"avx2",     "fma",         "f16c",        "avx512f", "avx512bw", "avx512dq",
                                        "avx512vl", "avx512_bf16", "avx512_fp16", "asimd",   "sve"};
    char line[8192], flags[sizeof(line) + 2], word[64];
    json_t *sets = json_array();
    line_value("/proc/cpuinfo", "flags", line, sizeof(line));
    if (!*line) {
        line_value("/proc/cpuinfo", "Features", line, sizeof(line));
    }
    snprintf(flags, sizeof(flags), " %s ", line);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        snprintf(word, sizeof(word), " %s ", known[i]);
        if (strstr(flags, word)) {
            json_array_append_new(sets, json_string(known[i]));
        }
    }
    return sets;
}

/* The words of "a, b" */
static json_t *list_of(char *text)
{
    json_t *list = json_array();
    for (char *rest = text, *word; (word = strtok_r(rest, ", ", &rest)) != NULL;) {
        json_array_append_new(list, json_string(word));
    }
    return list;
}

/* The cores that this process may use, which in a container may be fewer than there are. */
static int usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* A folder that may be absent. */
static void add_folder(json_t *object, const char *key, const char *path)
{
    json_object_set_new(object, key, json_string(access(path, F_OK) == 0 ? path : "none"));
}

static void add(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(*text ? text : "unknown"));
}

/* By what workers reach servers. */
static void transports(json_t *info, const struct bps_conf *conf)
{
    char text[512];
    struct bps_instance *net;
    struct bps_report report = {""};
    struct bps_loop *loop = bps_loop_new();
    if (!loop) {
        return;
    }
    if (bps_transport_open(conf, loop, &net, &report) == BPS_OK) {
        bps_transport_text(net, text, sizeof(text));
        bps_instance_close(net);
    } else {
        snprintf(text, sizeof(text), "none: %.400s", report.text);
    }
    add(info, "servers", text);
    if (conf->server.local) {
        bps_transport_text_local(conf, loop, text, sizeof(text));
    } else {
        snprintf(text, sizeof(text), "as all others: server.local = false");
    }
    add(info, "servers of this host", text);
    bps_loop_free(loop);
}

static json_t *collect(const struct bps_conf *conf)
{
    char text[1024];
    struct utsname system;
    json_t *info = json_object();
    add(info, "version", bps_version());
    snprintf(text, sizeof(text), "%u.%u", BPS_ABI_MAJOR, BPS_ABI_MINOR);
    add(info, "plugin abi", text);
    add(info, "plugins", bps_plugin_dir());
    add(info, "configuration", bps_conf_dir());
    add_folder(info, "python package", bps_place(BPS_PLACE_PACKAGE));
    add_folder(info, "pkg-config", bps_place(BPS_PLACE_PKGCONFIG));
    bps_model_list(text, sizeof(text));
    json_object_set_new(info, "models", list_of(text));
    line_value("/proc/cpuinfo", "model name", text, sizeof(text));
    add(info, "cpu", text);
    json_object_set_new(info, "vector instructions", vector_sets());
    json_object_set_new(info, "cores", json_integer(usable_cores()));
    bps_info_cores(info, conf);
    transports(info, conf);
    if (uname(&system) == 0) {
        snprintf(text, sizeof(text), "%s %s %s", system.sysname, system.release, system.machine);
        add(info, "system", text);
    }
    first_line("/proc/sys/net/ipv4/tcp_congestion_control", text, sizeof(text));
    add(info, "tcp congestion control", text);
    return info;
}

static void print_value(const json_t *value)
{
    size_t i;
    const json_t *item;
    if (json_is_integer(value)) {
        printf("%lld\n", (long long)json_integer_value(value));
        return;
    }
    if (json_is_string(value)) {
        puts(json_string_value(value));
        return;
    }
    json_array_foreach(value, i, item)
    {
        printf("%s%s", i > 0 ? ", " : "", json_string_value(item));
    }
    putchar('\n');
}

static void print(json_t *info)
{
    const char *key;
    json_t *value;
    json_object_foreach(info, key, value)
    {
        printf("%-24s", key);
        print_value(value);
    }
}

/* One of them, by the name that print() shows, for scripts. */
static int print_one(json_t *info, const char *name)
{
    const char *names[256], *key;
    size_t n = 0;
    const json_t *value = json_object_get(info, name);
    json_t *any;
    if (value) {
        print_value(value);
        return 0;
    }
    json_object_foreach(info, key, any)
    {
        if (n < 256) {
            names[n++] = key;
        }
    }
    const char *near = bps_nearest(name, names, n);
    return near ? bps_cmd_usage(NAME, "there is no '%s'; did you mean '%s'?", name, near)
                : bps_cmd_usage(NAME, "there is no '%s'", name);
}

/* Programs like their keys without blanks. */
static void print_json(json_t *info, bool build, json_t *placement)
{
    const char *key;
    json_t *value, *out = json_object();
    json_object_foreach(info, key, value)
    {
        char name[64];
        snprintf(name, sizeof(name), "%s", key);
        for (char *c = name; *c; c++) {
            *c = *c == ' ' ? '_' : *c;
        }
        json_object_set(out, name, value);
    }
    if (build) {
        add(out, "build", BPS_BUILD_TABLE);
    }
    if (placement) {
        json_object_set_new(out, "placement", placement);
    }
    json_dumpf(out, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(out);
}

static int show(const struct bps_conf *conf, const struct bps_plan_request *request, bool build, bool json,
                const char *name)
{
    struct bps_model model = {0};
    struct bps_plan plan = {0};
    bool planned = request->model;
    int result = planned ? bps_plan_load(NAME, request, conf, &model, &plan) : 0;
    if (result) {
        return result;
    }
    json_t *info = collect(conf);
    if (name) {
        result = print_one(info, name);
    } else if (json) {
        print_json(info, build, planned ? bps_plan_json(&plan, &model) : NULL);
    } else {
        print(info);
    }
    if (planned && !json) {
        putchar('\n');
        bps_plan_print(&plan, &model);
    }
    json_decref(info);
    bps_plan_fini(&plan);
    bps_model_fini(&model);
    return result;
}

int bps_cmd_info(int argc, char **argv)
{
    static const struct option options[] = {BPS_CMD_CONF_OPTIONS,
                                            BPS_PLAN_OPTIONS,
                                            {"build", no_argument, NULL, 'b'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct bps_cmd_conf request = {0};
    struct bps_plan_request plan = {0};
    bool build = false, json = false;
    int code;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&request, code, optarg) || bps_plan_take(&plan, code, optarg)) {
            continue;
        }
        build = build || code == 'b';
        json = json || code == 'j';
        if (code == 'h') {
            return help();
        }
        if (code != 'b' && code != 'j') {
            return bps_cmd_bad_option(NAME, code, argv);
        }
    }
    const char *name = optind < argc ? argv[optind] : NULL;
    if (optind + 1 < argc) {
        return bps_cmd_usage(NAME, "unexpected argument '%s'", argv[optind + 1]);
    }
    if (name && (build || json || plan.model)) {
        return bps_cmd_usage(NAME, "'%s' is printed alone: without --build, --json or --model", name);
    }
    if (!plan.model && plan.bandwidth) {
        return bps_cmd_usage(NAME, "--bandwidth needs --model");
    }
    if (build && !json) {
        fputs(BPS_BUILD_TABLE, stdout);
        return bps_cmd_finish(NAME, 0);
    }
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request, "scheduler");
    bps_cmd_conf_fini(&request);
    if (!conf) {
        return BPS_EXIT_FAILURE;
    }
    bps_cmd_guard(conf);
    int result = show(conf, &plan, build, json, name);
    bps_conf_free(conf);
    return bps_cmd_finish(NAME, result);
}
