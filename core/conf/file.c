/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - configuration files: from the text by way of libconfig to nodes that know their file and line. */
#include <dirent.h>
#include <errno.h>
#include <libconfig.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/layer.h"
#include "conf/source.h"
#include "conf/value.h"

struct reader {
    struct bps_arena *arena;
    const struct bps_source *source;
    const char *origin; /* of all nodes; NULL: file and line */
};

/* ---- from libconfig's settings to nodes ---- */

static const char *setting_origin(const struct reader *reader, const config_setting_t *setting)
{
    if (reader->origin != NULL) {
        return reader->origin;
    }
    struct bps_source_line line = bps_source_origin(reader->source, setting->line);
    return bps_arena_format(reader->arena, "%s:%u", line.file, line.line);
}

static const char *setting_text(struct bps_arena *arena, const config_setting_t *setting)
{
    char number[64];
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return bps_arena_format(arena, "%lld", config_setting_get_int64(setting));
    case CONFIG_TYPE_FLOAT:
        bps_format_double(config_setting_get_float(setting), number, sizeof number);
        return bps_arena_copy(arena, number);
    case CONFIG_TYPE_BOOL:
        return config_setting_get_bool(setting) ? "true" : "false";
    default:
        return bps_arena_copy(arena, setting->value.sval == NULL ? "" : config_setting_get_string(setting));
    }
}

/* Its depth is bounded by how many brackets a source may have within each other. NULL: no memory. */
static struct bps_conf_node *to_node(const struct reader *reader, const config_setting_t *setting)
{
    int type = config_setting_type(setting);
    bool scalar = config_setting_is_scalar(setting);
    const char *name = setting->name == NULL ? NULL : bps_arena_copy(reader->arena, setting->name);
    const char *text = scalar ? setting_text(reader->arena, setting) : NULL;
    const char *origin = setting_origin(reader, setting);
    if ((setting->name != NULL && name == NULL) || (scalar && text == NULL) || origin == NULL) {
        return NULL;
    }
    uint32_t kind = scalar ? BPS_CONF_SCALAR : type == CONFIG_TYPE_GROUP ? BPS_CONF_GROUP : BPS_CONF_LIST;
    struct bps_conf_node *node = bps_tree_node(reader->arena, kind, name, text, origin);
    int n = scalar ? 0 : config_setting_length(setting);
    for (int i = 0; node != NULL && i < n; i++) {
        struct bps_conf_node *child = to_node(reader, config_setting_get_elem(setting, (unsigned)i));
        if (child == NULL || !bps_tree_append(reader->arena, node, child)) {
            return NULL;
        }
    }
    return node;
}

/* ---- errors of libconfig ---- */

/* The last line that is not blank among the first n. libconfig notices many errors only at what follows. */
static unsigned last_line(const char *text, unsigned n, char *copy, size_t room)
{
    unsigned found = 1;
    copy[0] = '\0';
    for (unsigned line = 1; line <= n; line++) {
        const char *start = text + strspn(text, " \t\r");
        size_t length = strcspn(text, "\n");
        if (start < text + length) {
            snprintf(copy, room, "%.*s", (int)(text + length - start), start);
            found = line;
        }
        if (text[length] == '\0') {
            break;
        }
        text += length + 1;
    }
    return found;
}

static bps_status refuse_syntax(const struct reader *reader, const config_t *config, struct bps_report *report)
{
    char text[2 * BPS_SHOWN_MAX];
    unsigned line = last_line(reader->source->text.data, (unsigned)config_error_line(config), text, sizeof text);
    const char *why = config_error_text(config);
    struct bps_source_line origin = bps_source_origin(reader->source, line);
    struct bps_shown shown = bps_shown(text);
    bool syntax = why == NULL || strcmp(why, "syntax error") == 0;
    const char *what = syntax ? "syntax error at or before" : why, *joint = syntax ? " " : ": ";
    if (reader->origin != NULL) {
        BPS_REPORT(report, "%s: %s%s%s", reader->origin, what, joint, shown.text);
    } else {
        BPS_REPORT(report, "%.700s:%u: %s%s%s", origin.file, origin.line, what, joint, shown.text);
    }
    return BPS_ERR_CONF;
}

static bps_status conf_file_parse(const struct reader *reader, struct bps_conf_node **out, struct bps_report *report)
{
    config_t config;
    config_init(&config);
    /* All @include lines have been followed; none may be left for libconfig to follow. */
    config_set_include_dir(&config, "/dev/null");
    bps_status status = BPS_OK;
    if (!config_read_string(&config, reader->source->code.data == NULL ? "" : reader->source->code.data)) {
        status = refuse_syntax(reader, &config, report);
    } else {
        *out = to_node(reader, config_root_setting(&config));
        status = *out == NULL ? bps_out_of_memory(report) : BPS_OK;
    }
    config_destroy(&config);
    return status;
}

/* Parses a source that has been read with `status`, merges it into the tree and frees it. */
static bps_status merge_source(struct bps_source *source, bps_status status, struct bps_conf *conf,
                               struct bps_report *report)
{
    struct reader reader = {.arena = source->arena, .source = source};
    struct bps_conf_node *node = NULL;
    if (status == BPS_OK) {
        status = conf_file_parse(&reader, &node, report);
    }
    if (status == BPS_OK && !bps_tree_merge(source->arena, conf->root, node)) {
        status = bps_out_of_memory(report);
    }
    bps_source_free(source);
    return status;
}

/* ---- layers ---- */

bps_status bps_layer_file(struct bps_conf *conf, const char *path, bool optional, struct bps_report *report)
{
    struct bps_source source = {.arena = &conf->arena, .sources = conf->sources};
    bps_status status = bps_source_file(&source, path, optional, report);
    if (status == BPS_ERR_IO) {
        return BPS_OK;
    }
    return merge_source(&source, status, conf, report);
}

bps_status bps_layer_text(struct bps_conf *conf, const char *name, const char *text, size_t n,
                          struct bps_report *report)
{
    struct bps_source source = {.arena = &conf->arena, .sources = conf->sources};
    bps_status status = bps_source_text(&source, name, text, n, report);
    return merge_source(&source, status, conf, report);
}

bps_status bps_layer_value(struct bps_arena *arena, const char *text, const char *origin, struct bps_conf_node **out,
                           struct bps_report *report)
{
    struct bps_source source = {.arena = arena};
    struct reader reader = {.arena = arena, .source = &source, .origin = origin};
    struct bps_conf_node *root = NULL;
    char *setting = bps_arena_format(arena, "value = %s\n;", text);
    bps_status status = BPS_ERR_NOMEM;
    if (setting != NULL) {
        status = bps_source_text(&source, origin, setting, strlen(setting), report);
    }
    if (status == BPS_OK) {
        status = conf_file_parse(&reader, &root, report);
    }
    bps_source_free(&source);
    if (status == BPS_OK && root->count != 1) {
        return bps_fail(report, BPS_ERR_CONF, "%s: more than one value in %s", origin, bps_shown(text).text);
    }
    if (status == BPS_OK) {
        *out = root->children[0];
        (*out)->name = NULL;
    }
    return status;
}

/* ---- the system-wide configuration ---- */

static int is_conf_file(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot != NULL && strcmp(dot, ".conf") == 0;
}

/* By bytes, whatever the locale is. */
static int conf_file_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bps_status layer_directory(struct bps_conf *conf, const char *path, struct bps_report *report)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, is_conf_file, conf_file_by_name);
    if (n < 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return BPS_OK;
        }
        return bps_fail(report, BPS_ERR_CONF, "%.800s: cannot be read: %s", path, strerror(errno));
    }
    bps_status status = BPS_OK;
    for (int i = 0; i < n; i++) {
        if (status == BPS_OK) {
            char *file = bps_arena_format(&conf->arena, "%s/%s", path, entries[i]->d_name);
            status = file == NULL ? bps_out_of_memory(report) : bps_layer_file(conf, file, true, report);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

bps_status bps_layer_system(struct bps_conf *conf, const char *confdir, struct bps_report *report)
{
    char *file = bps_arena_format(&conf->arena, "%s/byteps.conf", confdir);
    char *directory = bps_arena_format(&conf->arena, "%s/conf.d", confdir);
    if (file == NULL || directory == NULL) {
        return bps_out_of_memory(report);
    }
    bps_status status = bps_layer_file(conf, file, true, report);
    return status != BPS_OK ? status : layer_directory(conf, directory, report);
}
