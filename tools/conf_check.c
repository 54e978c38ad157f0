/* SPDX-License-Identifier: Apache-2.0 */
/* conf_check.c - `byteps conf check`: the configuration, the plugins that it names, and their options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/layer.h"
#include "conf/option.h"
#include "conf/schema.h"
#include "conf/tree.h"
#include "graph/graph.h"
#include "plugin/kinds.h"
#include "plugin/registry.h"
#include "tools/conf.h"

struct check {
    const struct bps_conf *conf;
    struct bps_findings found;
};

/* ---- plugins and their options ------------------------------------------------------------------------- */

static void add_line(void *lines, const char *text)
{
    bps_text_add(lines, "%s\n", text);
}

static bps_status try_options(const struct bps_plugin *plugin, const struct bps_conf_node *group, const char *path,
                              struct bps_text *lines)
{
    static const struct bps_option none[] = {{0}};
    const struct bps_option *table = plugin->options != NULL ? plugin->options : none;
    const struct bps_conf_listener listener = {add_line, lines};
    void *options = bps_cmd_alloc(1, plugin->options_size + 1);
    bps_status status =
        bps_conf_options_all(group, path, bps_kind_members(plugin->kind), table, options, &listener, NULL);
    if (status == BPS_OK) {
        bps_options_release(table, options);
    }
    free(options);
    return status;
}

/* What the core does with a compressor's losses has options, too. */
static bps_status try_coding(const struct bps_conf_node *group, const char *path, struct bps_text *lines)
{
    struct bps_codings codings;
    struct bps_coding *coding;
    struct bps_report report = {""};
    bps_codings_init(&codings, 1);
    bps_status status = bps_codings_of_group(&codings, group, path, false, &coding, &report);
    if (status != BPS_OK) {
        add_line(lines, report.text);
    }
    bps_codings_fini(&codings);
    return status;
}

/* Opens a plugin and tries the options of a group on it. Adds a line for each problem. */
static bps_status try_plugin(uint32_t kind, const struct bps_conf_node *name, const struct bps_conf_node *group,
                             const char *path, struct bps_text *lines)
{
    const struct bps_loaded *loaded;
    struct bps_report report;
    char *used_by = bps_cmd_print("%s: %s", name->origin, path);
    bps_status status = bps_plugin_open(kind, name->text, used_by, &loaded, &report);
    free(used_by);
    if (status != BPS_OK) {
        add_line(lines, report.text);
        return status;
    }
    status = try_options(loaded->plugin, group, path, lines);
    return status == BPS_OK && kind == BPS_KIND_COMPRESSOR ? try_coding(group, path, lines) : status;
}

/* Calls fn with each of the lines, and frees them. */
static void tell_lines(struct bps_text *lines, void (*fn)(void *arg, const char *text), void *arg)
{
    char *rest = lines->data;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        fn(arg, line);
    }
    bps_text_free(lines);
}

/* ---- preference lists --------------------------------------------------------------------------------- */

/* Something that needs one of the instances of a map. */
struct demand {
    const struct bps_conf_node *use; /* a name or a list of them; NULL: `fallback` */
    const char *fallback;
    const char *without; /* what a job would do without it; NULL: it cannot run */
    uint32_t usable;
};

static bool is_list(const struct demand *demand)
{
    return demand->use != NULL && demand->use->kind == BPS_CONF_LIST && demand->use->count > 1;
}

static bool demands(const struct demand *demand, const char *name)
{
    if (demand->use == NULL || demand->use->kind != BPS_CONF_LIST) {
        return strcmp(demand->use == NULL ? demand->fallback : demand->use->text, name) == 0;
    }
    for (uint32_t i = 0; i < demand->use->count; i++) {
        if (strcmp(demand->use->children[i]->text, name) == 0) {
            return true;
        }
    }
    return false;
}

/* What a job would do without the transport between processes of a host; NULL: not run. */
static const char *without_local(const struct bps_conf *conf, bool group)
{
    if (!group) {
        return "workers would reach the servers of their own host through the network";
    }
    return conf->worker.hierarchy == BPS_HIERARCHY_ON ? NULL
                                                      : "workers of one host would not sum among themselves first";
}

static uint32_t find_demands(const struct bps_conf *conf, uint32_t kind, struct demand out[2])
{
    const struct bps_conf_node *graph = bps_conf_find(conf, "worker.graph"), *local = NULL;
    bool group = false;
    if (kind == BPS_KIND_REDUCER) {
        out[0] = (struct demand){.use = bps_conf_find(conf, "server.use"), .fallback = "sum"};
        out[1] = (struct demand){.use = bps_conf_find(conf, "worker.use"), .fallback = "sum"};
        return 2;
    }
    if (kind != BPS_KIND_TRANSPORT) {
        return 0;
    }
    out[0] = (struct demand){.fallback = "net"};
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct bps_conf_node *use = bps_conf_member(graph->children[i], "use");
        enum bps_node_kind stage = bps_node_kind_of(bps_conf_member(graph->children[i], "stage")->text);
        if (stage == BPS_NODE_PUSH_PULL) {
            out[0].use = use;
        } else if (stage == BPS_NODE_LOCAL_REDUCE) {
            group = conf->worker.hierarchy != BPS_HIERARCHY_OFF;
            local = use;
        }
    }
    if (!group && !conf->server.local) {
        return 1;
    }
    out[1] = (struct demand){.use = local, .fallback = "local", .without = without_local(conf, group)};
    return 2;
}

/* ---- instances and stages ----------------------------------------------------------------------------- */

/*
 * Whether a job would miss an instance that cannot be used. Not if another one may stand in for it. A wrong
 * option is a mistake in any case; a plugin that is not there is none if nothing uses it and nobody has asked
 * for it.
 */
static bool is_missed(const struct demand *demand, uint32_t n, const struct bps_conf_node *instance, bps_status status)
{
    bool named = false, missed = false;
    for (uint32_t i = 0; i < n; i++) {
        if (demands(&demand[i], instance->name)) {
            named = true;
            missed = missed || (!is_list(&demand[i]) && (demand[i].without == NULL || status == BPS_ERR_CONF));
        }
    }
    if (named) {
        return missed;
    }
    return status == BPS_ERR_CONF || strcmp(bps_conf_member(instance, "plugin")->origin, "default") != 0;
}

static void check_instance(struct check *check, const struct bps_instance_map *map,
                           const struct bps_conf_node *instance, struct demand *demand, uint32_t n)
{
    const struct bps_conf_node *plugin = bps_conf_member(instance, "plugin");
    char *path = bps_cmd_print("%s.%s", map->name, instance->name);
    struct bps_text lines = {0};
    bool named = false;
    bps_status status = try_plugin(map->kind, plugin, instance, path, &lines);
    for (uint32_t i = 0; i < n; i++) {
        bool its = demands(&demand[i], instance->name);
        named = named || its;
        demand[i].usable += its && status == BPS_OK;
    }
    if (status != BPS_OK && is_missed(demand, n, instance, status)) {
        tell_lines(&lines, bps_findings_problem, &check->found);
    } else if (status != BPS_OK && named) {
        tell_lines(&lines, bps_findings_note, &check->found);
    }
    bps_text_free(&lines);
    free(path);
}

static void check_map(struct check *check, const struct bps_instance_map *map)
{
    const struct bps_conf_node *node = bps_conf_find(check->conf, map->name);
    struct demand demand[2];
    uint32_t n = find_demands(check->conf, map->kind, demand);
    unsigned before = check->found.problems;
    for (uint32_t i = 0; node != NULL && i < node->count; i++) {
        check_instance(check, map, node->children[i], demand, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        char *text = NULL;
        if (demand[i].usable == 0 && demand[i].without != NULL && check->found.problems == before) {
            text = bps_cmd_print("%s: no transport for it is usable", demand[i].without);
            bps_findings_note(&check->found, text);
        } else if (demand[i].usable == 0 && demand[i].without == NULL && is_list(&demand[i])) {
            text = bps_cmd_print("%s: none of the %s to use is usable", demand[i].use->origin, map->name);
            bps_findings_problem(&check->found, text);
        }
        free(text);
    }
}

static void check_stages(struct check *check)
{
    const struct bps_conf_node *graph = bps_conf_find(check->conf, "worker.graph");
    for (uint32_t i = 0; i < graph->count; i++) {
        const struct bps_conf_node *stage = bps_conf_member(graph->children[i], "stage");
        char *path = bps_cmd_print("worker.graph[%u]", i);
        struct bps_text lines = {0};
        if (bps_node_kind_of(stage->text) == BPS_NODE_PLUGIN) {
            try_plugin(BPS_KIND_STAGE, stage, graph->children[i], path, &lines);
        }
        tell_lines(&lines, bps_findings_problem, &check->found);
        free(path);
    }
}

/* Conditions, and whether neighbouring stages fit. */
static void check_graph(struct check *check)
{
    struct bps_graph *graph;
    struct bps_report report = {"worker.graph: out of memory"};
    if (bps_graph_new(check->conf, NULL, &graph, &report) == BPS_OK) {
        bps_graph_free(graph);
    } else {
        bps_findings_problem(&check->found, report.text);
    }
}

/* ---- beside other problems ------------------------------------------------------------------------------ */

/* The options of a group, if what `member` names is a plugin that is there. */
static void check_options(struct check *check, uint32_t kind, const struct bps_conf_node *group, const char *member,
                          const char *path)
{
    const struct bps_conf_node *name = bps_conf_member(group, member);
    const struct bps_loaded *loaded;
    struct bps_text lines = {0};
    if (name != NULL && name->kind == BPS_CONF_SCALAR &&
        bps_plugin_open(kind, name->text, NULL, &loaded, NULL) == BPS_OK) {
        try_options(loaded->plugin, group, path, &lines);
    }
    tell_lines(&lines, bps_findings_problem, &check->found);
}

/* The form of the rest is not known to be right, so that nothing can be said of what depends on it. */
static void check_all_options(struct check *check)
{
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        const struct bps_conf_node *node = bps_conf_find(check->conf, map->name);
        bool usable = node != NULL && node->kind == BPS_CONF_GROUP && map->kind != BPS_KIND_FRAMEWORK;
        for (uint32_t i = 0; usable && i < node->count; i++) {
            char *path = bps_cmd_print("%s.%s", map->name, node->children[i]->name);
            check_options(check, map->kind, node->children[i], "plugin", path);
            free(path);
        }
    }
    const struct bps_conf_node *graph = bps_conf_find(check->conf, "worker.graph");
    for (uint32_t i = 0; graph != NULL && graph->kind == BPS_CONF_LIST && i < graph->count; i++) {
        char *path = bps_cmd_print("worker.graph[%u]", i);
        check_options(check, BPS_KIND_STAGE, graph->children[i], "stage", path);
        free(path);
    }
}

/* ---- the command ---------------------------------------------------------------------------------------- */

static void check_plugins(struct check *check)
{
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        if (map->kind != BPS_KIND_FRAMEWORK) { /* those are opened by their frameworks */
            check_map(check, map);
        }
    }
    check_stages(check);
    if (check->found.problems == 0) {
        check_graph(check);
    }
    bps_environment_notes(bps_findings_note, &check->found);
}

int bps_conf_command_check(const struct bps_conf_command *command)
{
    struct check check = {.conf = NULL};
    const struct bps_conf_sources sources = {bps_findings_source, &check.found};
    struct bps_conf_request request = bps_conf_command_request(command);
    struct bps_conf *conf = NULL;
    bps_findings_begin(&check.found, command);
    request.problem = bps_findings_problem;
    request.arg = &check.found;
    request.sources = &sources;
    request.keep = true;
    bool good = bps_conf_load_from(&request, &conf, NULL) == BPS_OK;
    bps_cmd_guard(conf);
    check.conf = conf;
    if (good) {
        check_plugins(&check);
    } else if (conf != NULL) {
        check_all_options(&check);
    }
    if (!good && check.found.problems == 0) {
        bps_findings_problem(&check.found, "byteps: out of memory");
    }
    bps_conf_free(conf);
    return bps_findings_end(&check.found);
}
