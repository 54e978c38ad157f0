/* SPDX-License-Identifier: Apache-2.0 */
/* conf_show.c - `byteps conf show`: the values in effect, as a configuration file or as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/layer.h"
#include "conf/option.h"
#include "conf/schema.h"
#include "conf/value.h"
#include "tools/conf.h"

/* ---- as a configuration file -------------------------------------------------------------------------- */

#define ORIGIN_COLUMN 48

/* Where a line's comment may come, the text being that of a whole line. */
static void print_line(const char *text, const char *origin)
{
    if (origin == NULL) {
        printf("%s\n", text);
        return;
    }
    printf("%-*s # ", ORIGIN_COLUMN, text);
    for (; *origin != '\0'; origin++) {
        putchar((unsigned char)*origin < 0x20 || *origin == 0x7f ? '?' : *origin);
    }
    putchar('\n');
}

static void out_of_memory(void)
{
    fputs("byteps: out of memory\n", stderr);
    exit(BPS_EXIT_FAILURE);
}

/* "NAME = VALUE;" with so many blanks before it. */
static void print_value(int indent, const char *name, const struct bps_conf_node *node, bool origin)
{
    struct bps_text text = {0};
    bps_text_add(&text, "%*s%s = ", indent, "", name);
    bps_text_value(&text, node);
    bps_text_add(&text, ";");
    if (text.failed) {
        out_of_memory();
    }
    print_line(text.data, origin ? node->origin : NULL);
    bps_text_free(&text);
}

/* A list of groups with one of them in each line. */
static void print_graph(const struct bps_conf_node *graph, bool origin)
{
    print_line("    graph = (", origin ? graph->origin : NULL);
    for (uint32_t i = 0; i < graph->count; i++) {
        struct bps_text text = {0};
        bps_text_add(&text, "        ");
        bps_text_value(&text, graph->children[i]);
        bps_text_add(&text, "%s", i + 1 < graph->count ? "," : "");
        if (text.failed) {
            out_of_memory();
        }
        print_line(text.data, origin ? graph->children[i]->origin : NULL);
        bps_text_free(&text);
    }
    printf("    );\n");
}

/* Core keys appear with their canonical text, whatever the file says. */
static void print_section(const struct bps_conf *conf, const struct bps_section *section, bool origin)
{
    const struct bps_conf_node *group = bps_conf_find(conf, section->name);
    printf("%s = {\n", section->name);
    for (const struct bps_option *row = section->table; row->name != NULL; row++) {
        const struct bps_conf_node *node = bps_conf_member(group, row->name);
        char text[1024];
        bps_option_format(row, bps_section_struct(conf, section), text, sizeof text);
        struct bps_conf_node canonical = *node;
        if (node->kind == BPS_CONF_SCALAR) {
            canonical.text = text;
        }
        print_value(4, row->name, &canonical, origin);
    }
    const struct bps_conf_node *graph = bps_conf_member(group, "graph");
    if (graph != NULL) {
        print_graph(graph, origin);
    }
    printf("};\n");
}

static void print_map(const struct bps_conf *conf, const struct bps_instance_map *map, bool origin)
{
    const struct bps_conf_node *node = bps_conf_find(conf, map->name);
    if (node == NULL) {
        return;
    }
    printf("%s = {\n", map->name);
    for (uint32_t i = 0; i < node->count; i++) {
        const struct bps_conf_node *instance = node->children[i];
        printf("    %s = {\n", instance->name);
        for (uint32_t j = 0; j < instance->count; j++) {
            print_value(8, instance->children[j]->name, instance->children[j], origin);
        }
        printf("    };\n");
    }
    printf("};\n");
}

static void print_note(void *arg, const char *text)
{
    (void)arg;
    printf("# note: %s\n", text);
}

static void show_text(const struct bps_conf *conf, bool origin)
{
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        print_section(conf, section, origin);
    }
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        print_map(conf, map, origin);
    }
    bps_environment_notes(print_note, NULL);
}

/* ---- as JSON ------------------------------------------------------------------------------------------ */

json_t *bps_conf_json_text(const char *text)
{
    json_t *json = json_string(text);
    if (json == NULL) {
        char *copy = bps_cmd_print("%s", text);
        for (char *c = copy; *c != '\0'; c++) {
            *c = (unsigned char)*c < 0x80 ? *c : '?';
        }
        json = json_string(copy);
        free(copy);
    }
    return json;
}

static json_t *json_seconds(uint64_t ns)
{
    return ns % 1000000000 == 0 ? json_integer((json_int_t)(ns / 1000000000)) : json_real((double)ns / 1e9);
}

/* Of values without a table: what looks like a number or a boolean is one. */
static json_t *json_node(const struct bps_conf_node *node)
{
    int64_t integer;
    if (node->kind == BPS_CONF_SCALAR) {
        if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0) {
            return json_boolean(node->text[0] == 't');
        }
        return bps_parse_int(node->text, &integer) == BPS_OK ? json_integer(integer) : bps_conf_json_text(node->text);
    }
    json_t *json = node->kind == BPS_CONF_LIST ? json_array() : json_object();
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->kind == BPS_CONF_LIST) {
            json_array_append_new(json, json_node(node->children[i]));
        } else {
            json_object_set_new(json, node->children[i]->name, json_node(node->children[i]));
        }
    }
    return json;
}

static json_t *json_list(const char *field)
{
    struct bps_list list;
    memcpy(&list, field, sizeof list);
    json_t *json = json_array();
    for (uint32_t i = 0; i < list.count; i++) {
        json_array_append_new(json, bps_conf_json_text(list.items[i]));
    }
    return json;
}

static json_t *json_field(const struct bps_option *row, const void *target)
{
    const char *field = (const char *)target + row->offset;
    uint64_t amount;
    int64_t integer;
    bool boolean;
    char text[1024];
    switch (row->type) {
    case BPS_OPT_BOOL:
        memcpy(&boolean, field, sizeof boolean);
        return json_boolean(boolean);
    case BPS_OPT_INT:
        memcpy(&integer, field, sizeof integer);
        return json_integer(integer);
    case BPS_OPT_SIZE:
    case BPS_OPT_TIME:
        memcpy(&amount, field, sizeof amount);
        return row->type == BPS_OPT_SIZE ? json_integer((json_int_t)amount) : json_seconds(amount);
    case BPS_OPT_LIST:
        return json_list(field);
    default:
        bps_option_format(row, target, text, sizeof text);
        return bps_conf_json_text(text);
    }
}

static void add_origin(json_t *origins, const char *path, const struct bps_conf_node *node)
{
    if (node->kind == BPS_CONF_GROUP) {
        for (uint32_t i = 0; i < node->count; i++) {
            char *inner = bps_cmd_print("%s.%s", path, node->children[i]->name);
            add_origin(origins, inner, node->children[i]);
            free(inner);
        }
    } else {
        json_object_set_new(origins, path, bps_conf_json_text(node->origin));
    }
}

static void add_section(json_t *values, const struct bps_conf *conf, const struct bps_section *section)
{
    json_t *json = json_object();
    for (const struct bps_option *row = section->table; row->name != NULL; row++) {
        json_object_set_new(json, row->name, json_field(row, bps_section_struct(conf, section)));
    }
    const struct bps_conf_node *graph = bps_conf_member(bps_conf_find(conf, section->name), "graph");
    if (graph != NULL) {
        json_object_set_new(json, "graph", json_node(graph));
    }
    json_object_set_new(values, section->name, json);
}

static void add_note(void *arg, const char *text)
{
    json_array_append_new(arg, bps_conf_json_text(text));
}

static int show_json(const struct bps_conf *conf)
{
    json_t *values = json_object(), *origins = json_object(), *notes = json_array();
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        add_section(values, conf, section);
        add_origin(origins, section->name, bps_conf_find(conf, section->name));
    }
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        const struct bps_conf_node *node = bps_conf_find(conf, map->name);
        if (node != NULL) {
            json_object_set_new(values, map->name, json_node(node));
            add_origin(origins, map->name, node);
        }
    }
    bps_environment_notes(add_note, notes);
    json_t *all = json_pack("{s:o, s:o, s:o}", "configuration", values, "origins", origins, "notes", notes);
    int failed = all == NULL || json_dumpf(all, stdout, JSON_INDENT(2)) != 0;
    json_decref(all);
    putchar('\n');
    return failed ? bps_cmd_failure("conf", "cannot write JSON") : 0;
}

int bps_conf_command_show(const struct bps_conf_command *command)
{
    struct bps_conf_request request = bps_conf_command_request(command);
    struct bps_conf *conf;
    if (bps_conf_load_from(&request, &conf, NULL) != BPS_OK) {
        return BPS_EXIT_FAILURE;
    }
    int status = 0;
    if (command->json) {
        status = show_json(conf);
    } else {
        show_text(conf, command->origin);
    }
    bps_conf_free(conf);
    return status;
}
