/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - opens each plugin once: built in, or the first file of its name. A file that is refused is an
 * error; no later directory is tried in its place.
 */
#include "plugin/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/log.h"
#include "base/report.h"
#include "conf/option.h"
#include "plugin/builtin.h"
#include "plugin/check.h"
#include "plugin/file.h"
#include "plugin/search.h"

struct entry {
    SLIST_ENTRY(entry) next;
    struct bps_descriptor descriptor;
    struct bps_loaded loaded;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `entries`; held while a plugin is opened */
static SLIST_HEAD(, entry) entries = SLIST_HEAD_INITIALIZER(entries);

static struct entry *find_entry(uint32_t kind, const char *name)
{
    struct entry *entry;

    SLIST_FOREACH(entry, &entries, next) {
        if (entry->loaded.plugin->kind == kind && strcmp(entry->loaded.plugin->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

static void tell_version(const struct bps_module *module, uint32_t kind, const char *name)
{
    if (module->abi_major != BPS_ABI_MAJOR || module->abi_minor > BPS_ABI_MINOR) {
        bps_info("plugins",
                 "%s %s was built for ABI %u.%u, this BytePS has %u.%u: only features of both versions are used",
                 bps_kind_name(kind), name, module->abi_major, module->abi_minor, BPS_ABI_MAJOR, BPS_ABI_MINOR);
    }
}

/* Checks the plugin of a module and remembers it. `report` does not name the file yet. */
static bps_status add_entry(const struct bps_module *module, uint32_t kind, const char *name, const char *path,
                            struct entry **out, struct bps_report *report)
{
    struct entry *entry = calloc(1, sizeof *entry);
    bps_status status;

    if (!entry) {
        return bps_out_of_memory(report);
    }
    const struct bps_plugin *plugin;
    status = bps_module_find(module, kind, name, &plugin, report);
    if (status == BPS_OK) {
        status = bps_descriptor_make(module, plugin, &entry->descriptor, report);
    }
    if (status != BPS_OK) {
        bps_descriptor_free(&entry->descriptor);
        free(entry);
        return status;
    }
    tell_version(module, kind, name);
    entry->loaded.module = module;
    entry->loaded.plugin = &entry->descriptor.plugin;
    entry->loaded.ops = &entry->descriptor.tables.ops;
    snprintf(entry->loaded.path, sizeof entry->loaded.path, "%s", path);
    SLIST_INSERT_HEAD(&entries, entry, next);
    *out = entry;
    return BPS_OK;
}

/* BPS_AGAIN: it is not built in. */
static bps_status load_builtin(uint32_t kind, const char *name, struct entry **out, struct bps_report *report)
{
    const struct bps_module *module;
    const struct bps_plugin *plugin;

    for (size_t i = 0; (module = bps_builtin_module(i)) != NULL; i++) {
        bps_status status = bps_module_check(module, report);
        if (status != BPS_OK) {
            return status;
        }
        if (bps_module_find(module, kind, name, &plugin, NULL) == BPS_OK) {
            return add_entry(module, kind, name, "builtin", out, report);
        }
    }
    return BPS_AGAIN;
}

static bps_status load_file(const char *path, uint32_t kind, const char *name, struct entry **out,
                            struct bps_report *report)
{
    const struct bps_note_body *note;
    struct bps_elf elf;
    const struct bps_module *module;
    bps_status status = bps_file_inspect(path, kind, name, &elf, &note, report);

    if (status == BPS_OK) {
        status = bps_file_open(path, &elf, &module, report);
    }
    return status == BPS_OK ? add_entry(module, kind, name, path, out, report) : status;
}

/* Words that never reach the file system: kinds without code for the core, and names that are no file names.
 */
static bps_status registry_check_request(uint32_t kind, const char *name, struct bps_report *report)
{
    if (kind == BPS_KIND_FRAMEWORK) {
        return bps_refuse(
            report,
            "framework '%.64s' is not opened by the core: its framework loads it, as 'import byteps' does; "
            "do not name it as a plugin",
            name);
    }
    if (!bps_kind_opens(kind)) {
        return bps_refuse(report,
                          "kind %u (%s) of plugin '%.64s' is not supported, expected transport, reducer, "
                          "compressor, stage or launcher",
                          kind, bps_kind_name(kind), name);
    }
    if (!bps_plugin_name_valid(name)) {
        return bps_refuse(report, "%s '%.64s': this name is not allowed, " BPS_PLUGIN_NAME_RULE, bps_kind_name(kind),
                          name);
    }
    return BPS_OK;
}

static bps_status registry_load(uint32_t kind, const char *name, struct entry **out, struct bps_report *report)
{
    struct bps_report why = {""};
    struct bps_dirs dirs;
    char file[64], path[sizeof((struct bps_loaded *)0)->path] = "builtin";
    bps_status status = load_builtin(kind, name, out, &why);

    if (status == BPS_AGAIN) {
        status = bps_dirs_get(&dirs, report);
        if (status != BPS_OK) {
            return status;
        }
        snprintf(file, sizeof file, "%s_%s.so", bps_kind_name(kind), name);
        if (!bps_dirs_find(&dirs, file, path, sizeof path)) {
            bps_report_missing(kind, name, &dirs, report);
            bps_dirs_release(&dirs);
            return BPS_ERR_PLUGIN;
        }
        bps_dirs_release(&dirs);
        status = load_file(path, kind, name, out, &why);
    }
    if (status != BPS_OK) {
        bps_report_at(report, path, why.text);
    }
    return status;
}

bps_status bps_plugin_open(uint32_t kind, const char *name, const char *used_by, const struct bps_loaded **out,
                           struct bps_report *report)
{
    struct bps_report why = {""};
    struct entry *entry = NULL;
    bps_status status = registry_check_request(kind, name, &why);

    if (status == BPS_OK) {
        pthread_mutex_lock(&lock);
        entry = find_entry(kind, name);
        if (!entry) {
            status = registry_load(kind, name, &entry, &why);
        }
        pthread_mutex_unlock(&lock);
    }
    if (status == BPS_OK) {
        *out = &entry->loaded;
    } else if (used_by) {
        bps_report_at(report, used_by, why.text);
    } else if (report) {
        *report = why;
    }
    return status;
}

void bps_plugin_each_loaded(void (*fn)(void *arg, const struct bps_loaded *loaded), void *arg)
{
    const struct entry *entry;

    pthread_mutex_lock(&lock);
    SLIST_FOREACH(entry, &entries, next) {
        fn(arg, &entry->loaded);
    }
    pthread_mutex_unlock(&lock);
}
