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
    size_t at = (size_t)snprintf(line.text, sizeof line.text, "%.400s: ", origin);
    va_list args;
    va_start(args, format);
    vsnprintf(line.text + at, sizeof line.text - at, format, args);
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

static void add_keys(struct names *names, const struct bps_section *section)
{
    for (const struct bps_option *row = section->table; row->name != NULL; row++) {
        add_name(names, row->name);
    }
    if (strcmp(section->name, "worker") == 0) {
        add_name(names, "graph");
    }
}

static bool has_key(const struct bps_section *section, const char *name)
{
    struct names names = {.count = 0};
    add_keys(&names, section);
    for (size_t i = 0; i < names.count; i++) {
        if (strcmp(names.name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void list_names(const struct names *names, char *text, size_t n)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < names->count && at < n; i++) {
        at += (size_t)snprintf(text + at, n - at, "%s%s", i == 0 ? "" : ", ", names->name[i]);
    }
}

/* A key that another section has, or the nearest one of this section, or all of them. */
static void refuse_key(struct bps_check *check, const struct bps_section *section,
                       const struct bps_conf_node *node)
{
    for (const struct bps_section *other = bps_sections; other->name != NULL; other++) {
        if (has_key(other, node->name)) {
            bps_check_problem(check, node->origin, "%s.%s: unknown key; did you mean %s.%s?", section->name,
                              node->name, other->name, node->name);
            return;
        }
    }
    struct names names = {.count = 0};
    add_keys(&names, section);
    const char *nearest = bps_nearest(node->name, names.name, names.count);
    if (nearest != NULL) {
        bps_check_problem(check, node->origin, "%s.%.200s: unknown key; did you mean %s.%s?", section->name,
                          node->name, section->name, nearest);
        return;
    }
    char all[500];
    list_names(&names, all, sizeof all);
    bps_check_problem(check, node->origin, "%s.%.200s: unknown key; expected one of %s", section->name,
                      node->name, all);
}

/* A key that lacks its section, or the nearest section, or all of them. */
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
    const char *nearest = bps_nearest(node->name, names.name, names.count);
    char all[500];
    list_names(&names, all, sizeof all);
    if (nearest != NULL) {
        bps_check_problem(check, node->origin, "%.200s: unknown section; did you mean %s?", node->name,
                          nearest);
    } else {
        bps_check_problem(check, node->origin, "%.200s: unknown section; expected one of %s", node->name,
                          all);
    }
}

/* ---- sections ---- */

static void check_key(struct bps_check *check, const struct bps_section *section,
                      const struct bps_conf_node *node)
{
    const struct bps_option *row = bps_option_find(section->table, node->name);
    struct bps_report why;
    if (row == NULL && has_key(section, node->name)) {
        return; /* the graph */
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
        bps_check_problem(check, node->origin, "%s: %.500s",
                          bps_node_subject(section->name, node->name, node).text, why.text);
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
    struct bps_server_section *server = &check->conf->server;
    server->values.use = server->use.count != 0 ? server->use.items[0] : "";
}
