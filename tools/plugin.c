/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - `byteps plugin list` shows what the plugin directories hold, without running any of it;
 * `byteps plugin info` opens one plugin and shows its options; `byteps plugin new` begins one,
 * `byteps plugin check` tests one, and `byteps plugin bench` measures one.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "conf/option.h"
#include "conf/value.h"
#include "plugin/registry.h"
#include "tools/check/command.h"
#include "tools/cmd.h"
#include "tools/plugin_bench.h"
#include "tools/plugin_new.h"
#include "tools/plugin_serves.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps plugin list [--json]\n"
    "       byteps plugin info NAME [--kind KIND] [--json]\n"
    "       byteps plugin new KIND NAME\n"
    "       byteps plugin check NAME|FILE [--kind KIND] [--set OPTION=VALUE]...\n"
    "                           [--only TEXT] [--limit SECONDS] [--json]\n"
    "       byteps plugin bench NAME|FILE [--kind KIND] [--set OPTION=VALUE]...\n"
    "                           [--bytes SIZE]... [--rounds R] [--json]\n"
    "\n"
    "list shows every plugin in the directories of $BYTEPS_PLUGIN_PATH and in the\n"
    "plugin directory, and why one of them would be refused; of a framework binding,\n"
    "which frameworks it serves, and which versions of them the python3 of the PATH\n"
    "has. It runs none of their code. info opens one plugin and shows its options.\n"
    "new makes the folder NAME with a small plugin that works, its test, a sample\n"
    "configuration and a Makefile for: make && make check && make install\n"
    "check runs the conformance suite of the plugin's kind, each test in a process of\n"
    "its own, and prints TAP; the exit status is 1 if a test has failed.\n"
    "bench measures a plugin in turn with the reference of its kind: a transport with\n"
    "tcp, a reducer with cpu, a compressor with that of BytePS which codes to nearly\n"
    "as many bytes, a stage with a copy.\n"
    "\n"
    "      --kind KIND        transport, reducer, compressor, stage, launcher or\n"
    "                         framework; needed where several have this name\n"
    "      --json             print JSON\n"
    "      --set OPTION=VALUE for check and bench: an option of the plugin; may be\n"
    "                         repeated\n"
    "      --only TEXT        for check: tests with TEXT in their names\n"
    "      --limit SECONDS    for check: what a test may take (default: 10)\n"
    "      --bytes SIZE       for bench: of a message, buffer or partition; may be\n"
    "                         repeated (default: 64KiB and 4MiB)\n"
    "      --rounds R         for bench: of each figure (default: 10)\n"
    "      --help             print this\n";
/* clang-format on */

struct request {
    const char *name; /* of `info`; NULL: `list` */
    uint32_t kind;    /* 0: any */
    bool json;
    struct bps_check_request check;        /* what only `check` takes */
    struct bps_plugin_bench_request bench; /* what only `bench` takes */
    const char *set[32];
};

/* ---- rows --------------------------------------------------------------------------------------------- */

struct rows {
    struct bps_plugin_row *items;
    size_t count, room;
    bool lost; /* there was no memory for one */
};

static void add_row(void *arg, const struct bps_plugin_row *row)
{
    struct rows *rows = arg;

    rows->lost |= !bps_array_reserve(rows->items, rows->room, rows->count + 1);
    if (!rows->lost) {
        rows->items[rows->count++] = *row;
    }
}

static bps_status get_rows(struct rows *out, struct bps_report *report)
{
    struct rows rows = {0};
    bps_status status = bps_plugin_each(0, add_row, &rows, report);

    if (status == BPS_OK && rows.lost) {
        BPS_REPORT(report, "out of memory while listing plugins");
        status = BPS_ERR_NOMEM;
    }
    if (status != BPS_OK) {
        free(rows.items);
        return status;
    }
    *out = rows;
    return BPS_OK;
}

/* File names are foreign text: a terminal must not obey them. */
static void print_clean(const char *text)
{
    for (; *text; text++) {
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    }
}

/* JSON has no place for bytes that are not UTF-8. */
static json_t *json_text(const char *text)
{
    json_t *json = json_string(text);

    if (!json) {
        char *copy = bps_cmd_print("%s", text);
        for (char *c = copy; *c; c++) {
            *c = (unsigned char)*c < 0x80 ? *c : '?';
        }
        json = json_string(copy);
        free(copy);
    }
    return json;
}

static int print_json(json_t *json)
{
    if (!json || json_dumpf(json, stdout, JSON_INDENT(2)) != 0) {
        json_decref(json);
        return bps_cmd_failure("plugin", "cannot write JSON");
    }
    json_decref(json);
    putchar('\n');
    return bps_cmd_finish("plugin", 0);
}

/* ---- list --------------------------------------------------------------------------------------------- */

static json_t *row_json(const struct bps_plugin_row *row, const struct bps_serves *serves)
{
    json_t *json = json_object();

    json_object_set_new(json, "kind", json_text(bps_kind_name(row->kind)));
    json_object_set_new(json, "name", json_text(row->name));
    json_object_set_new(json, "version", row->version[0] ? json_text(row->version) : json_null());
    json_object_set_new(json, "file", json_text(row->path));
    json_object_set_new(json, "refusal", row->refusal[0] ? json_text(row->refusal) : json_null());
    if (row->kind == BPS_KIND_FRAMEWORK) {
        json_object_set_new(json, "serves", bps_serves_json(serves, row));
    }
    return json;
}

static int list_json(const struct rows *rows, const struct bps_serves *serves)
{
    json_t *json = json_array();

    for (size_t i = 0; i < rows->count; i++) {
        json_array_append_new(json, row_json(&rows->items[i], serves));
    }
    return print_json(json);
}

static int wider(int width, const char *text)
{
    int n = (int)strlen(text);
    return n > width ? n : width;
}

static int list_text(const struct rows *rows, const struct bps_serves *serves)
{
    int kind = 4, name = 4, version = 7;

    for (size_t i = 0; i < rows->count; i++) {
        kind = wider(kind, bps_kind_name(rows->items[i].kind));
        name = wider(name, rows->items[i].name);
        version = wider(version, rows->items[i].version);
    }
    printf("%-*s  %-*s  %-*s  FILE\n", kind, "KIND", name, "NAME", version, "VERSION");
    for (size_t i = 0; i < rows->count; i++) {
        const struct bps_plugin_row *row = &rows->items[i];
        printf("%-*s  ", kind, bps_kind_name(row->kind));
        print_clean(row->name);
        printf("%*s  %-*s  ", name - (int)strlen(row->name), "", version, row->version[0] ? row->version : "-");
        print_clean(row->path);
        if (row->refusal[0]) {
            printf("\n    not usable: ");
            print_clean(row->refusal);
        }
        putchar('\n');
        bps_serves_print(serves, row);
    }
    return bps_cmd_finish("plugin", 0);
}

static int list(bool json)
{
    struct rows rows;
    struct bps_report report;
    struct bps_serves serves;
    int result;

    if (get_rows(&rows, &report) != BPS_OK) {
        return bps_cmd_failure("plugin", "%s", report.text);
    }
    bps_serves_ask(&serves, rows.items, rows.count);
    result = json ? list_json(&rows, &serves) : list_text(&rows, &serves);
    free(rows.items);
    return result;
}

/* ---- info --------------------------------------------------------------------------------------------- */

static json_t *option_json(const struct bps_option *option)
{
    json_t *json = json_object();

    json_object_set_new(json, "name", json_text(option->name));
    json_object_set_new(json, "type", json_text(bps_option_type(option->type)->name));
    json_object_set_new(json, "default", json_text(option->fallback));
    json_object_set_new(json, "range", option->range ? json_text(option->range) : json_null());
    json_object_set_new(json, "agree", json_boolean(option->flags & BPS_OPT_AGREE));
    json_object_set_new(json, "help", json_text(option->help));
    return json;
}

static int info_json(const struct bps_loaded *loaded)
{
    const struct bps_module *module = loaded->module;
    const struct bps_plugin *plugin = loaded->plugin;
    json_t *json = json_object();
    json_t *options = json_array();
    char *abi = bps_cmd_print("%u.%u", module->abi_major, module->abi_minor);

    json_object_set_new(json, "kind", json_text(bps_kind_name(plugin->kind)));
    json_object_set_new(json, "name", json_text(plugin->name));
    json_object_set_new(json, "summary", json_text(plugin->summary));
    json_object_set_new(json, "file", json_text(loaded->path));
    json_object_set_new(json, "module", json_text(module->name));
    json_object_set_new(json, "version", json_text(module->version));
    json_object_set_new(json, "format", json_integer(plugin->format));
    json_object_set_new(json, "license", json_text(module->license));
    json_object_set_new(json, "abi", json_text(abi));
    for (const struct bps_option *option = plugin->options; option && option->name; option++) {
        json_array_append_new(options, option_json(option));
    }
    json_object_set_new(json, "options", options);
    free(abi);
    return print_json(json);
}

static void print_options(const struct bps_option *options)
{
    if (!options || !options->name) {
        printf("\nIt has no options.\n");
        return;
    }
    printf("\nOptions:\n");
    for (; options->name; options++) {
        printf("  %s = \"%s\"  (%s", options->name, options->fallback, bps_option_type(options->type)->name);
        if (options->range) {
            printf(": %s", options->range);
        }
        printf("%s)\n      %s\n", options->flags & BPS_OPT_AGREE ? "; equal on all members" : "", options->help);
    }
}

static int info_text(const struct bps_loaded *loaded)
{
    const struct bps_module *module = loaded->module;
    const struct bps_plugin *plugin = loaded->plugin;

    printf("%s %s: %s\n\n", bps_kind_name(plugin->kind), plugin->name, plugin->summary);
    printf("  file     ");
    print_clean(loaded->path);
    printf("\n  module   %s %s\n", module->name, module->version);
    printf("  format   %u\n", plugin->format);
    printf("  license  %s\n", module->license);
    printf("  ABI      %u.%u\n", module->abi_major, module->abi_minor);
    print_options(plugin->options);
    return bps_cmd_finish("plugin", 0);
}

/* A binding is opened by its framework, not by us: all we know is its note. */
static int info_framework(const struct bps_plugin_row *row, bool json)
{
    struct bps_serves serves;

    bps_serves_ask(&serves, row, 1);
    if (json) {
        return print_json(row_json(row, &serves));
    }
    printf("framework %s: a binding that its framework opens\n\n  file     ", row->name);
    print_clean(row->path);
    printf("\n  version  %s\n", row->version);
    bps_serves_print(&serves, row);
    return bps_cmd_finish("plugin", 0);
}

static int info_open(uint32_t kind, const struct request *request)
{
    const struct bps_loaded *loaded;
    struct bps_report report;

    bps_cmd_guard(NULL);
    if (bps_plugin_open(kind, request->name, NULL, &loaded, &report) != BPS_OK) {
        return bps_cmd_failure("plugin", "%s", report.text);
    }
    return request->json ? info_json(loaded) : info_text(loaded);
}

static int no_such_name(const struct rows *rows, const char *name)
{
    const char **names = bps_cmd_alloc(rows->count + 1, sizeof *names);
    const char *near;

    for (size_t i = 0; i < rows->count; i++) {
        names[i] = rows->items[i].name;
    }
    near = bps_nearest(name, names, rows->count);
    free(names);
    if (near) {
        return bps_cmd_failure("plugin", "there is no plugin '%s'; did you mean '%s'?", name, near);
    }
    return bps_cmd_failure("plugin", "there is no plugin '%s'; 'byteps plugin list' shows all plugins", name);
}

/* Which of the rows is meant. A plugin that is hidden by another of its kind and name is not counted. */
static int info_of(const struct rows *rows, const struct request *request)
{
    const struct bps_plugin_row *found = NULL;

    for (size_t i = 0; i < rows->count; i++) {
        const struct bps_plugin_row *row = &rows->items[i];
        if (strcmp(row->name, request->name) != 0 || (request->kind && row->kind != request->kind)) {
            continue;
        }
        if (found && found->kind != row->kind) {
            return bps_cmd_failure("plugin", "'%s' is the name of a %s and of a %s; add --kind", request->name,
                                   bps_kind_name(found->kind), bps_kind_name(row->kind));
        }
        found = found ? found : row;
    }
    if (!found && !request->kind) {
        return no_such_name(rows, request->name);
    }
    if (found && found->kind == BPS_KIND_FRAMEWORK && !found->refusal[0]) {
        return info_framework(found, request->json);
    }
    return info_open(found ? found->kind : request->kind, request);
}

static int info(const struct request *request)
{
    struct rows rows;
    struct bps_report report;
    int result;

    if (get_rows(&rows, &report) != BPS_OK) {
        return bps_cmd_failure("plugin", "%s", report.text);
    }
    result = info_of(&rows, request);
    free(rows.items);
    return result;
}

/* ---- the command line --------------------------------------------------------------------------------- */

static bool take_limit(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 1 && *out <= 3600;
}

static bool take_bench(int code, const char *text, struct bps_plugin_bench_request *out)
{
    int64_t rounds;
    if (code == 'b') {
        bool room = out->sizes < BPS_PLUGIN_BENCH_SIZES;
        if (room) {
            out->bytes[out->sizes++] = text;
        }
        return room;
    }
    bool good = bps_parse_int(text, &rounds) == BPS_OK && rounds >= 1 && rounds <= 10000;
    out->rounds = good ? (uint32_t)rounds : 0;
    return good;
}

static int parse(int argc, char **argv, struct request *out, bool *help)
{
    static const struct option options[] = {
        {"kind", required_argument, NULL, 'k'},
        {"json", no_argument, NULL, 'j'},
        {"set", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'o'},
        {"limit", required_argument, NULL, 'l'},
        {"bytes", required_argument, NULL, 'b'},
        {"rounds", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int code;

    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (code) {
        case 'k':
            out->kind = bps_kind_from_name(optarg);
            if (!out->kind) {
                return bps_cmd_usage(
                    "plugin",
                    "unknown kind '%s'; expected transport, reducer, compressor, stage, launcher or framework", optarg);
            }
            break;
        case 'j':
            out->json = true;
            break;
        case 's':
            if (out->check.nset == sizeof out->set / sizeof *out->set) {
                return bps_cmd_usage("plugin", "--set is given more than %zu times", out->check.nset);
            }
            out->set[out->check.nset++] = optarg;
            break;
        case 'o':
            out->check.only = optarg;
            break;
        case 'l':
            if (!take_limit(optarg, &out->check.limit)) {
                return bps_cmd_usage("plugin", "--limit takes seconds, 1 to 3600, found '%s'", optarg);
            }
            break;
        case 'b':
        case 'r':
            if (!take_bench(code, optarg, &out->bench)) {
                return bps_cmd_usage("plugin",
                                     "--rounds takes a number, 1 to 10000, and --bytes is given at most %d "
                                     "times, found '%s'",
                                     BPS_PLUGIN_BENCH_SIZES, optarg);
            }
            break;
        case 'h':
            *help = true;
            return 0;
        default:
            return bps_cmd_bad_option("plugin", code, argv);
        }
    }
    return 0;
}

static int check(int count, char **rest, struct request *request)
{
    if (count != 1) {
        return bps_cmd_usage("plugin", "check takes the name or the file of one plugin, found %d", count);
    }
    request->check.plugin = rest[0];
    request->check.kind = request->kind;
    request->check.json = request->json;
    request->check.set = request->set;
    return bps_plugin_check(&request->check);
}

static int bench(int count, char **rest, struct request *request)
{
    if (count != 1) {
        return bps_cmd_usage("plugin", "bench takes the name or the file of one plugin, found %d", count);
    }
    request->bench.plugin = rest[0];
    request->bench.kind = request->kind;
    request->bench.json = request->json;
    request->bench.set = request->set;
    request->bench.nset = request->check.nset;
    request->bench.rounds = request->bench.rounds > 0 ? request->bench.rounds : 10;
    return bps_plugin_bench(&request->bench);
}

/* Options that mean nothing for a command. */
static int check_options(const char *word, const struct request *request)
{
    bool checks = strcmp(word, "check") == 0, measures = strcmp(word, "bench") == 0;
    if (request->check.only != NULL && !checks) {
        return bps_cmd_usage("plugin", "--only is for check");
    }
    if (request->check.nset > 0 && !checks && !measures) {
        return bps_cmd_usage("plugin", "--set is for check and bench");
    }
    if ((request->bench.sizes > 0 || request->bench.rounds > 0) && !measures) {
        return bps_cmd_usage("plugin", "--bytes and --rounds are for bench");
    }
    return 0;
}

static int dispatch(const char *word, int count, char **rest, struct request *request)
{
    int wrong = check_options(word, request);
    if (wrong != 0) {
        return wrong;
    }
    if (strcmp(word, "list") == 0) {
        if (count > 0 || request->kind) {
            return count > 0 ? bps_cmd_usage("plugin", "list takes no argument '%s'", rest[0])
                             : bps_cmd_usage("plugin", "list takes no --kind");
        }
        return list(request->json);
    }
    if (strcmp(word, "info") == 0) {
        if (count != 1) {
            return bps_cmd_usage("plugin", "info takes the name of one plugin, found %d", count);
        }
        request->name = rest[0];
        return info(request);
    }
    if (strcmp(word, "new") == 0) {
        if (count != 2 || request->kind || request->json) {
            return bps_cmd_usage("plugin", "new takes a kind and a name, and no options");
        }
        return bps_plugin_new(rest[0], rest[1]);
    }
    if (strcmp(word, "check") == 0) {
        return check(count, rest, request);
    }
    if (strcmp(word, "bench") == 0) {
        return bench(count, rest, request);
    }
    return bps_cmd_usage("plugin", "unknown command '%s'; expected list, info, new, check or bench", word);
}

int bps_cmd_plugin(int argc, char **argv)
{
    struct request request = {.check = {.limit = 10}};
    bool help = false;
    int result = parse(argc, argv, &request, &help);

    if (result != 0) {
        return result;
    }
    if (help) {
        fputs(help_text, stdout);
        return bps_cmd_finish("plugin", 0);
    }
    if (optind == argc) {
        return bps_cmd_usage("plugin", "no command given; expected list, info, new, check or bench");
    }
    return dispatch(argv[optind], argc - optind - 1, argv + optind + 1, &request);
}
