/* SPDX-License-Identifier: Apache-2.0 */
/* set.c - settings "key=value" from the command line and from what `byteps run` hands to its processes. */
#include <string.h>

#include "base/report.h"
#include "conf/layer.h"
#include "conf/option.h"
#include "conf/schema.h"

#define PARTS_MAX 8 /* names in a dotted key; more than any key has, and a bound for the depth of the tree */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* "name.name.name" */
static bool is_key(const char *key)
{
    for (int parts = 1; parts <= PARTS_MAX; parts++) {
        if (!is_letter(*key)) {
            return false;
        }
        while (is_letter(*key) || (*key >= '0' && *key <= '9') || *key == '_' || *key == '-') {
            key++;
        }
        if (*key == '\0') {
            return true;
        }
        if (*key++ != '.') {
            return false;
        }
    }
    return false;
}

/* Removes blanks at both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL) {
        text[--n] = '\0';
    }
    return text;
}

/* "[::1]:9000" is an address, although a list begins like that. */
static bool is_address(const char *value)
{
    return *value == '[' && strstr(value, "]:") != NULL;
}

bps_status bps_layer_scalar(struct bps_conf *conf, const char *path, const char *text, const char *origin,
                            struct bps_report *report)
{
    char *copy = bps_arena_copy(&conf->arena, text);
    struct bps_conf_node *node = copy == NULL ? NULL : bps_tree_node(&conf->arena, BPS_CONF_SCALAR, NULL, copy, origin);
    bool put = node != NULL && bps_tree_put(&conf->arena, conf->root, path, node);
    return put ? BPS_OK : bps_out_of_memory(report);
}

bps_status bps_conf_put_cluster(struct bps_conf *conf, const char *key, const char *text, const char *origin,
                                struct bps_report *report)
{
    char path[64];
    snprintf(path, sizeof path, "cluster.%s", key);
    bps_status status = bps_option_parse(bps_option_find(bps_sections[0].table, key), text, &conf->cluster, report);
    return status == BPS_OK ? bps_layer_scalar(conf, path, text, origin, report) : status;
}

bps_status bps_layer_set(struct bps_conf *conf, const char *setting, const char *origin, struct bps_report *report)
{
    char *key = bps_arena_copy(&conf->arena, setting);
    if (key == NULL) {
        return bps_out_of_memory(report);
    }
    char *value = strchr(key, '=');
    if (value != NULL) {
        *value++ = '\0';
        value = trim(value);
    }
    key = trim(key);
    if (value == NULL || !is_key(key)) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: %s: not a setting; expected KEY=VALUE, such as \"worker.partition=8 MiB\"", origin,
                        bps_shown(setting).text);
    }
    if (*value == '\0' || strchr("([{\"", *value) == NULL || is_address(value)) {
        return bps_layer_scalar(conf, key, value, origin, report);
    }
    struct bps_conf_node *node = NULL;
    bps_status status = bps_layer_value(&conf->arena, value, origin, &node, report);
    if (status == BPS_OK && !bps_tree_put(&conf->arena, conf->root, key, node)) {
        status = bps_out_of_memory(report);
    }
    return status;
}

bps_status bps_layer_set_lines(struct bps_conf *conf, const char *lines, const char *origin, struct bps_report *report)
{
    char *rest = bps_arena_copy(&conf->arena, lines);
    if (rest == NULL) {
        return bps_out_of_memory(report);
    }
    bps_status status = BPS_OK;
    for (char *line; status == BPS_OK && (line = strsep(&rest, "\n")) != NULL;) {
        if (line[strspn(line, " \t\r")] != '\0') {
            status = bps_layer_set(conf, line, origin, report);
        }
    }
    return status;
}
