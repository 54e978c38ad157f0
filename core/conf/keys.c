/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - checks the keys of the core's sections one by one and fills their structs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conf/option.h"
#include "conf/validate.h"

void bps_check_problem(struct bps_check *check, const char *origin, const char *format, ...)
{
    struct bps_report line;
    struct bps_text text = bps_text_in(line.text, sizeof line.text);
    va_list args;
    bps_text_add(&text, "%.400s: ", origin);
    va_start(args, format);
    bps_text_vadd(&text, format, args);
    va_end(args);
    if (check->problems++ == 0) {
        check->status = BPS_ERR_CONF;
        BPS_REPORT(check->report, "%s", line.text);
    }
    if (check->request->problem != NULL) {
        check->request->problem(check->request->arg, line.text);
    }
}

bool bps_check_is_over(const struct bps_check *check)
{
    return check->status == BPS_ERR_NOMEM || (check->problems != 0 && check->request->problem == NULL);
}

/* ---- unknown names ---- */

#define NAMES_MAX 64

struct names {
    const char *name[NAMES_MAX];
    size_t count;
};

static void add_name(struct names *names, const char *name)
{
    if (names->count < NAMES_MAX) {
        names->name[names->count++] = name;
    }
}

/* The graph has no row, because it is a list of groups. */
static bool is_graph(const struct bps_section *section, const char *name)
{
    return strcmp(section->name, "worker") == 0 && strcmp(name, "graph") == 0;
}

static bool has_key(const struct bps_section *section, const char *name)
{
    return is_graph(section, name) || bps_option_find(section->table, name) != NULL;
}

/* The nearest of the names, or all of them. `section` and `dot` stand before each: "" for sections. */
static void refuse_name(struct bps_check *check, const struct bps_conf_node *node, const char *section, const char *dot,
                        const char *what, const struct names *names)
{
    const char *nearest = bps_nearest(node->name, names->name, names->count);
    char all[500];
    struct bps_text text = bps_text_in(all, sizeof all);
    if (nearest != NULL) {
        bps_check_problem(check, node->origin, "%s%s%.200s: unknown %s; did you mean %s%s%s?", section, dot, node->name,
                          what, section, dot, nearest);
        return;
    }
    for (size_t i = 0; i < names->count; i++) {
        bps_text_add(&text, "%s%s", i == 0 ? "" : ", ", names->name[i]);
    }
    bps_check_problem(check, node->origin, "%s%s%.200s: unknown %s; expected one of %s", section, dot, node->name, what,
                      all);
}

/* A key that another section has, or one of this section. */
static void refuse_key(struct bps_check *check, const struct bps_section *section, const struct bps_conf_node *node)
{
    struct names names = {.count = 0};
    for (const struct bps_section *other = bps_sections; other->name != NULL; other++) {
        if (has_key(other, node->name)) {
            bps_check_problem(check, node->origin, "%s.%s: unknown key; did you mean %s.%s?", section->name, node->name,
                              other->name, node->name);
            return;
        }
    }
    for (const struct bps_option *row = section->table; row->name != NULL; row++) {
        add_name(&names, row->name);
    }
    if (is_graph(section, "graph")) {
        add_name(&names, "graph");
    }
    refuse_name(check, node, section->name, ".", "key", &names);
}

/* A key that lacks its section, or a section. */
static void refuse_section(struct bps_check *check, const struct bps_conf_node *node)
{
    struct names names = {.count = 0};
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        if (has_key(section, node->name)) {
            bps_check_problem(check, node->origin, "%s: unknown section; did you mean %s.%s?", node->name,
                              section->name, node->name);
            return;
        }
        add_name(&names, section->name);
    }
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        add_name(&names, map->name);
    }
    refuse_name(check, node, "", "", "section", &names);
}

/* ---- sections ---- */

static void check_key(struct bps_check *check, const struct bps_section *section, const struct bps_conf_node *node)
{
    const struct bps_option *row = bps_option_find(section->table, node->name);
    struct bps_report why;
    if (is_graph(section, node->name)) {
        return;
    }
    if (row == NULL) {
        refuse_key(check, section, node);
        return;
    }
    bps_status status = bps_node_parse(node, row, bps_section_struct(check->conf, section), &why);
    if (status == BPS_ERR_NOMEM) {
        check->status = status;
        BPS_REPORT(check->report, "out of memory");
    } else if (status != BPS_OK) {
        bps_check_problem(check, node->origin, "%s: %.500s", bps_node_subject(section->name, node->name, node).text,
                          why.text);
    }
}

static const struct bps_section *find_section(const char *name)
{
    const struct bps_section *section = bps_sections;
    while (section->name != NULL && strcmp(section->name, name) != 0) {
        section++;
    }
    return section->name == NULL ? NULL : section;
}

static bool is_map(const char *name)
{
    const struct bps_instance_map *map = bps_instance_maps;
    while (map->name != NULL && strcmp(map->name, name) != 0) {
        map++;
    }
    return map->name != NULL;
}

static void check_section(struct bps_check *check, const struct bps_conf_node *node)
{
    const struct bps_section *section = find_section(node->name);
    if (section == NULL && !is_map(node->name)) {
        refuse_section(check, node);
    } else if (node->kind != BPS_CONF_GROUP) {
        bps_check_problem(check, node->origin, "%s: not a group; expected %s = { ... };",
                          bps_node_subject("", node->name, node).text, node->name);
    }
    for (uint32_t i = 0; section != NULL && node->kind == BPS_CONF_GROUP && i < node->count; i++) {
        if (bps_check_is_over(check)) {
            return;
        }
        check_key(check, section, node->children[i]);
    }
}

void bps_check_keys(struct bps_check *check)
{
    const struct bps_conf_node *root = check->conf->root;
    for (uint32_t i = 0; i < root->count && !bps_check_is_over(check); i++) {
        check_section(check, root->children[i]);
    }
}
