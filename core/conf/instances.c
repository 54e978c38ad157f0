/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instances.c - checks the form of what names plugins: the maps of instances, the graph of stages, and the
 * lists of instances to use. Whether a plugin exists and takes the options is seen when it is opened.
 */
#include <stdio.h>
#include <string.h>

#include "conf/option.h"
#include "conf/validate.h"

#define INSTANCE_NAME_MAX 63u
#define COUNT(array)      (sizeof(array) / sizeof *(array))

/* A member that names a plugin: false if it is there and no such name. */
static bool check_plugin_name(struct bps_check *check, const char *path, const struct bps_conf_node *node)
{
    if (node->kind == BPS_CONF_SCALAR && bps_plugin_name_valid(node->text)) {
        return true;
    }
    bps_check_problem(check, node->origin,
                      "%s: not the name of a plugin; expected at most %u lower case letters, digits and _",
                      bps_node_subject(path, node->name, node).text, BPS_PLUGIN_NAME_MAX);
    return false;
}

/* ---- maps ---- */

static void check_instance(struct bps_check *check, const struct bps_instance_map *map,
                           const struct bps_conf_node *node)
{
    char path[160];
    snprintf(path, sizeof path, "%s.%.*s", map->name, (int)INSTANCE_NAME_MAX, node->name);
    const struct bps_conf_node *plugin = bps_conf_member(node, "plugin");
    if (strlen(node->name) > INSTANCE_NAME_MAX) {
        bps_check_problem(check, node->origin, "%s...: the name is too long; expected at most %u bytes", path,
                          INSTANCE_NAME_MAX);
    } else if (node->kind != BPS_CONF_GROUP) {
        bps_check_problem(check, node->origin, "%s: not a group; expected %s = { plugin = \"NAME\"; ... };",
                          bps_node_subject(map->name, node->name, node).text, node->name);
    } else if (plugin != NULL) {
        check_plugin_name(check, path, plugin);
    } else if (map->kind != BPS_KIND_FRAMEWORK) {
        bps_check_problem(check, node->origin, "%s: no plugin; expected plugin = \"NAME\"; among its members", path);
    }
}

static void check_map(struct bps_check *check, const struct bps_instance_map *map)
{
    const struct bps_conf_node *node = bps_conf_member(check->conf->root, map->name);
    for (uint32_t i = 0; node != NULL && node->kind == BPS_CONF_GROUP && i < node->count; i++) {
        if (bps_check_is_over(check)) {
            return;
        }
        check_instance(check, map, node->children[i]);
    }
}

/* ---- uses ---- */

static void instances_check_name(struct bps_check *check, const struct bps_instance_map *map, const char *path,
                                 const struct bps_conf_node *item)
{
    const struct bps_conf_node *instances = bps_conf_member(check->conf->root, map->name);
    if (item->kind != BPS_CONF_SCALAR) {
        bps_check_problem(check, item->origin, "%s: not a name; expected the name of a member of %s", path, map->name);
        return;
    }
    if (instances == NULL || instances->kind != BPS_CONF_GROUP || bps_conf_member(instances, item->text) != NULL) {
        return;
    }
    if (map->kind == BPS_KIND_COMPRESSOR && strcmp(item->text, "auto") == 0 && instances->count > 0) {
        return; /* the first one, where it pays */
    }
    const char *names[64], *nearest;
    size_t n = 0;
    for (uint32_t i = 0; i < instances->count && n < COUNT(names); i++) {
        names[n++] = instances->children[i]->name;
    }
    nearest = bps_nearest(item->text, names, n);
    bps_check_problem(check, item->origin, "%s = %s: %s has no such member; %s%.100s%s", path,
                      bps_shown(item->text).text, map->name, nearest != NULL ? "did you mean \"" : "add it there",
                      nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}

/* A name or a list of names of instances. */
static void check_use(struct bps_check *check, const struct bps_instance_map *map, const char *path,
                      const struct bps_conf_node *use)
{
    if (use->kind == BPS_CONF_SCALAR) {
        instances_check_name(check, map, path, use);
        return;
    }
    if (use->kind == BPS_CONF_GROUP || use->count == 0) {
        bps_check_problem(check, use->origin, "%s: no names; expected the name of a member of %s or a list of them",
                          path, map->name);
    }
    for (uint32_t i = 0; use->kind == BPS_CONF_LIST && i < use->count && !bps_check_is_over(check); i++) {
        instances_check_name(check, map, path, use->children[i]);
    }
}

static const struct bps_instance_map *map_of_kind(uint32_t kind)
{
    const struct bps_instance_map *map = bps_instance_maps;
    while (map->kind != kind) {
        map++;
    }
    return map;
}

/* ---- the graph ---- */

/* The map that a built-in stage takes its instances from; NULL: the stage brings its own. */
static const struct bps_instance_map *map_of_stage(const char *stage)
{
    if (strcmp(stage, "push_pull") == 0 || strcmp(stage, "local_reduce") == 0) {
        return map_of_kind(BPS_KIND_TRANSPORT);
    }
    if (strcmp(stage, "compress") == 0) {
        return map_of_kind(BPS_KIND_COMPRESSOR);
    }
    return NULL;
}

static void check_stage(struct bps_check *check, const char *path, const struct bps_conf_node *node)
{
    const struct bps_conf_node *stage = bps_conf_member(node, "stage");
    const struct bps_conf_node *when = bps_conf_member(node, "when");
    const struct bps_conf_node *use = bps_conf_member(node, "use");
    if (stage == NULL) {
        bps_check_problem(check, node->origin, "%s: no stage; expected a group such as { stage = \"push_pull\"; }",
                          bps_node_subject(path, "", node).text);
        return;
    }
    if (!check_plugin_name(check, path, stage)) {
        return;
    }
    if (when != NULL && when->kind != BPS_CONF_SCALAR && !bps_check_is_over(check)) {
        bps_check_problem(check, when->origin, "%s.when: not a string; expected a condition", path);
    }
    const struct bps_instance_map *map = map_of_stage(stage->text);
    if (use != NULL && map != NULL && !bps_check_is_over(check)) {
        char use_path[80];
        snprintf(use_path, sizeof use_path, "%s.use", path);
        check_use(check, map, use_path, use);
    }
}

static void instances_check_graph(struct bps_check *check)
{
    const struct bps_conf_node *graph = bps_conf_find(check->conf, "worker.graph");
    if (graph == NULL) {
        return; /* worker is no group, which has been said */
    }
    if (graph->kind != BPS_CONF_LIST) {
        bps_check_problem(check, graph->origin,
                          "%s: not a list; expected stages such as ( { stage = \"push_pull\"; } )",
                          bps_node_subject("worker", "graph", graph).text);
        return;
    }
    for (uint32_t i = 0; i < graph->count && !bps_check_is_over(check); i++) {
        char path[64];
        snprintf(path, sizeof path, "worker.graph[%u]", i);
        check_stage(check, path, graph->children[i]);
    }
}

/* What is no list of words has been refused because of its type. */
static bool has_words_only(const struct bps_conf_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->children[i]->kind != BPS_CONF_SCALAR) {
            return false;
        }
    }
    return node->kind != BPS_CONF_GROUP;
}

static void check_reducers(struct bps_check *check, const char *path)
{
    const struct bps_conf_node *use = bps_conf_find(check->conf, path);
    if (use != NULL && has_words_only(use) && !bps_check_is_over(check)) {
        check_use(check, map_of_kind(BPS_KIND_REDUCER), path, use);
    }
}

void bps_check_instances(struct bps_check *check)
{
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        if (bps_check_is_over(check)) {
            return;
        }
        check_map(check, map);
    }
    if (!bps_check_is_over(check)) {
        instances_check_graph(check);
    }
    check_reducers(check, "server.use");
    check_reducers(check, "worker.use");
}
