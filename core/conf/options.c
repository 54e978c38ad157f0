/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - option structs from the members of a group; for the core's sections and for plugins alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/option.h"
#include "conf/validate.h"

struct bps_subject bps_node_subject(const char *path, const char *name, const struct bps_conf_node *node)
{
    struct bps_subject subject;
    const char *dot = *path == '\0' || *name == '\0' ? "" : ".";
    if (node->kind == BPS_CONF_SCALAR) {
        snprintf(subject.text, sizeof subject.text, "%.120s%s%.120s = %s", path, dot, name, bps_shown(node->text).text);
    } else {
        snprintf(subject.text, sizeof subject.text, "%.120s%s%.120s", path, dot, name);
    }
    return subject;
}

static bps_status parse_list(const struct bps_conf_node *node, const struct bps_option *row, void *target,
                             struct bps_report *report)
{
    const char **items = malloc((node->count + 1u) * sizeof *items);
    if (items == NULL) {
        return bps_out_of_memory(report);
    }
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < node->count && status == BPS_OK; i++) {
        items[i] = node->children[i]->text;
        if (node->children[i]->kind != BPS_CONF_SCALAR) {
            BPS_REPORT(report, "item %u is not a string; expected a list of strings", i + 1);
            status = BPS_ERR_INVALID;
        }
    }
    if (status == BPS_OK) {
        status = bps_option_parse_list(row, items, node->count, target, report);
    }
    free(items);
    return status;
}

bps_status bps_node_parse(const struct bps_conf_node *node, const struct bps_option *row, void *target,
                          struct bps_report *report)
{
    if (node->kind == BPS_CONF_SCALAR) {
        return bps_option_parse(row, node->text, target, report);
    }
    if (node->kind == BPS_CONF_LIST && row->type == BPS_OPT_LIST) {
        return parse_list(node, row, target, report);
    }
    char allowed[512];
    bps_option_expected(row, allowed, sizeof allowed);
    return bps_fail(report, BPS_ERR_INVALID, "a %s is not allowed here; expected %s",
                    node->kind == BPS_CONF_LIST ? "list" : "group", allowed);
}

static bool options_is_among(const char *const *names, const char *name)
{
    for (; names != NULL && *names != NULL; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

/* "did you mean PATH.x?" or what there is. */
static bps_status refuse_unknown(const struct bps_conf_node *node, const char *path, const char *const *others,
                                 const struct bps_option *table, struct bps_report *report)
{
    const char *names[256];
    char all[600];
    struct bps_text text = bps_text_in(all, sizeof all);
    size_t n = 0;
    for (; table != NULL && table->name != NULL && n < sizeof names / sizeof *names; table++) {
        names[n++] = table->name;
        bps_text_add(&text, "%s%s", n == 1 ? "expected one of " : ", ", table->name);
    }
    for (; others != NULL && *others != NULL && n < sizeof names / sizeof *names; others++) {
        names[n++] = *others;
    }
    const char *nearest = bps_nearest(node->name, names, n);
    if (nearest != NULL) {
        BPS_REPORT(report, "%.300s: %.120s.%.120s: unknown key; did you mean %.120s.%.120s?", node->origin, path,
                   node->name, path, nearest);
    } else {
        BPS_REPORT(report, "%.160s: %.100s.%.100s: unknown key; %s", node->origin, path, node->name,
                   text.length > 0 ? all : "it has no options");
    }
    return BPS_ERR_CONF;
}

static bps_status check_option(const struct bps_conf_node *node, const char *path, const char *const *others,
                               const struct bps_option *table, void *target, struct bps_report *report)
{
    const struct bps_option *row = bps_option_find(table, node->name);
    struct bps_report why = {""};
    if (row == NULL) {
        return refuse_unknown(node, path, others, table, report);
    }
    if (bps_node_parse(node, row, target, &why) != BPS_OK) {
        return bps_fail(report, BPS_ERR_CONF, "%.200s: %s: %.400s", node->origin,
                        bps_node_subject(path, node->name, node).text, why.text);
    }
    return BPS_OK;
}

bps_status bps_conf_options_all(const struct bps_conf_node *group, const char *path, const char *const *skip,
                                const struct bps_option *table, void *target, const struct bps_conf_listener *listener,
                                struct bps_report *report)
{
    struct bps_report why = {""};
    bps_status status = bps_options_default(table, target, &why);
    if (status != BPS_OK) {
        return bps_fail(report, BPS_ERR_CONF, "%.200s: %.800s", path, why.text);
    }
    for (uint32_t i = 0; group != NULL && group->kind == BPS_CONF_GROUP && i < group->count; i++) {
        const struct bps_conf_node *node = group->children[i];
        if (options_is_among(skip, node->name) || check_option(node, path, skip, table, target, &why) == BPS_OK) {
            continue;
        }
        if (status == BPS_OK) {
            status = BPS_ERR_CONF;
            BPS_REPORT(report, "%s", why.text);
        }
        if (listener == NULL) {
            break;
        }
        listener->problem(listener->arg, why.text);
    }
    if (status != BPS_OK) {
        bps_options_release(table, target);
    }
    return status;
}

bps_status bps_conf_options(const struct bps_conf_node *group, const char *path, const char *const *skip,
                            const struct bps_option *table, void *target, struct bps_report *report)
{
    return bps_conf_options_all(group, path, skip, table, target, NULL, report);
}
