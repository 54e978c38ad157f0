/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - all plugins that could be opened, and those that could not with the reason. No code of a file
 * runs.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/report.h"
#include "conf/option.h"
#include "plugin/builtin.h"
#include "plugin/check.h"
#include "plugin/file.h"
#include "plugin/registry.h"
#include "plugin/search.h"

struct list {
    uint32_t kind; /* 0: any */
    struct bps_plugin_row *rows;
    uint32_t count;
    size_t room;
};

/* A zeroed row at the end; NULL: no memory. */
static struct bps_plugin_row *new_row(struct list *list)
{
    if (!bps_array_reserve(list->rows, list->room, list->count + 1)) {
        return NULL;
    }
    list->rows[list->count] = (struct bps_plugin_row){.found = list->count};
    return &list->rows[list->count++];
}

static bool wants(const struct list *list, uint32_t kind)
{
    return list->kind == 0 || list->kind == kind;
}

static bool add_builtins(struct list *list)
{
    const struct bps_module *module;

    for (size_t i = 0; (module = bps_builtin_module(i)) != NULL; i++) {
        for (uint32_t j = 0; j < module->nplugins; j++) {
            if (!wants(list, module->plugins[j]->kind)) {
                continue;
            }
            struct bps_plugin_row *row = new_row(list);
            if (!row) {
                return false;
            }
            row->kind = module->plugins[j]->kind;
            snprintf(row->name, sizeof row->name, "%s", module->plugins[j]->name);
            snprintf(row->version, sizeof row->version, "%s", module->version);
            snprintf(row->path, sizeof row->path, "builtin");
        }
    }
    return true;
}

/* Splits KIND_NAME.so. False: the file does not look like a plugin. */
static bool split_name(const char *file, uint32_t *kind, const char **name, size_t *n)
{
    const char *underscore = strchr(file, '_');
    size_t length = strlen(file);
    char word[16];

    if (!underscore || length < 4 || strcmp(file + length - 3, ".so") != 0 ||
        (size_t)(underscore - file) >= sizeof word) {
        return false;
    }
    snprintf(word, sizeof word, "%.*s", (int)(underscore - file), file);
    *kind = bps_kind_from_name(word);
    *name = underscore + 1;
    *n = length - 3 - (size_t)(*name - file);
    return *kind != 0;
}

static const struct bps_plugin_row *find_row(const struct list *list, uint32_t count, uint32_t kind, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list->rows[i].kind == kind && strcmp(list->rows[i].name, name) == 0) {
            return &list->rows[i];
        }
    }
    return NULL;
}

static bool is_away(const struct bps_elf *elf)
{
    uint32_t unset = 0;
    while (unset < elf->launchers && getenv(elf->launcher[unset].variable) == NULL) {
        unset++;
    }
    return unset > 0 && unset == elf->launchers;
}

/* Fills in what the file says of itself, or why it would be refused. */
static void inspect(const struct list *list, struct bps_plugin_row *row, size_t name_length)
{
    const struct bps_plugin_row *first = find_row(list, list->count - 1, row->kind, row->name);
    struct bps_report why = {""};
    const struct bps_note_body *note;
    struct bps_elf elf;

    if (name_length > BPS_PLUGIN_NAME_MAX || !bps_plugin_name_valid(row->name)) {
        snprintf(row->refusal, sizeof row->refusal, "its name is not allowed; " BPS_PLUGIN_NAME_RULE);
    } else if (bps_file_inspect(row->path, row->kind, row->name, &elf, &note, &why) != BPS_OK) {
        snprintf(row->refusal, sizeof row->refusal, "%.*s", (int)sizeof row->refusal - 1, why.text);
    } else {
        snprintf(row->version, sizeof row->version, "%s", note->version);
        row->frameworks = elf.frameworks;
        row->away = is_away(&elf);
        memcpy(row->framework, elf.framework, sizeof row->framework);
        if (first) {
            snprintf(row->refusal, sizeof row->refusal, "hidden by %.*s", (int)sizeof row->refusal - 16, first->path);
        }
    }
}

static bool add_file(struct list *list, const char *dir, const char *file)
{
    struct bps_plugin_row *row;
    const char *name;
    uint32_t kind;
    size_t n;

    if (!split_name(file, &kind, &name, &n) || !wants(list, kind)) {
        return true;
    }
    row = new_row(list);
    if (!row) {
        return false;
    }
    row->kind = kind;
    snprintf(row->name, sizeof row->name, "%.*s", (int)n, name);
    snprintf(row->path, sizeof row->path, "%s/%s", dir, file);
    inspect(list, row, n);
    return true;
}

static bool add_directory(struct list *list, const char *path)
{
    struct dirent **names;
    bool ok = true;
    int n = scandir(path, &names, NULL, alphasort);

    if (n < 0) {
        int error = errno;
        if (error != ENOENT) {
            bps_warn("plugin", "cannot read the directory %s: %s", path, strerror(error));
        }
        return error != ENOMEM;
    }
    for (int i = 0; i < n; i++) {
        ok = ok && add_file(list, path, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return ok;
}

/* By kind and name; of equal ones the first found stays first. */
static int compare_rows(const void *a, const void *b)
{
    const struct bps_plugin_row *x = a, *y = b;
    int order = strcmp(bps_kind_name(x->kind), bps_kind_name(y->kind));

    order = order ? order : strcmp(x->name, y->name);
    return order ? order : (x->found > y->found) - (x->found < y->found);
}

bps_status bps_plugin_each(uint32_t kind, void (*fn)(void *arg, const struct bps_plugin_row *row), void *arg,
                           struct bps_report *report)
{
    struct list list = {.kind = kind};
    struct bps_dirs dirs;
    bps_status status = bps_dirs_get(&dirs, report);
    bool ok;

    if (status != BPS_OK) {
        return status;
    }
    ok = add_builtins(&list);
    for (size_t i = 0; ok && i < dirs.count; i++) {
        ok = add_directory(&list, dirs.items[i]);
    }
    if (ok && list.count > 0) {
        qsort(list.rows, list.count, sizeof *list.rows, compare_rows);
    } else if (!ok) {
        status = bps_fail(report, BPS_ERR_NOMEM, "out of memory while listing plugins");
    }
    for (uint32_t i = 0; ok && i < list.count; i++) {
        fn(arg, &list.rows[i]);
    }
    free(list.rows);
    bps_dirs_release(&dirs);
    return status;
}
