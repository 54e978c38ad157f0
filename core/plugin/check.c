/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - the rules for notes, modules and descriptors.
 */
#include "plugin/check.h"

#include <string.h>

#include "base/layout.h"
#include "base/report.h"
#include "conf/option.h"
#include "plugin/abi_0.h"
#include "plugin/registry.h"
#include "plugin/search.h"

#define PLUGINS_MAX 64u

/* ---- rules that note and module share ------------------------------------------------------------------ */

/* All minors of a major work with each other, and the last one of the major before with these. */
static bps_status check_abi(const char *where, uint32_t major, uint32_t minor, struct bps_report *report)
{
    if (major == BPS_ABI_MAJOR || (major == 0 && minor == BPS_ABI_0_MINOR)) {
        return BPS_OK;
    }
    if (major > BPS_ABI_MAJOR) {
        return bps_refuse(report,
                          "ABI in its %s is %u.%u, this BytePS has %u.%u; install a BytePS with ABI %u, or "
                          "rebuild the plugin against this one",
                          where, major, minor, BPS_ABI_MAJOR, BPS_ABI_MINOR, major);
    }
    return bps_refuse(report, "ABI in its %s is %u.%u, this BytePS has %u.%u; rebuild the plugin against this BytePS",
                      where, major, minor, BPS_ABI_MAJOR, BPS_ABI_MINOR);
}

/* ---- notes -------------------------------------------------------------------------------------------- */

static bps_status wrong_note(const struct bps_note_body *note, uint32_t kind, const char *name,
                             struct bps_report *report)
{
    const char *found = bps_kind_name(note->kind);
    const char *wanted = bps_kind_name(kind);

    if (strcmp(found, "?") == 0) {
        return bps_refuse(report, "kind in its note is %u, expected %u (%s); rebuild the plugin against this BytePS",
                          note->kind, kind, wanted);
    }
    if (note->kind != kind) {
        return bps_refuse(report, "kind in its note is %s, its file name says %s; rename it to %s_%s.so", found, wanted,
                          found, note->name);
    }
    return bps_refuse(report, "name in its note is '%s', its file name says '%s'; rename it to %s_%s.so", note->name,
                      name, wanted, note->name);
}

bps_status bps_note_check(const struct bps_elf *elf, uint32_t kind, const char *name, const struct bps_note_body **out,
                          struct bps_report *report)
{
    const struct bps_note_body *note = NULL;
    bps_status status;

    for (uint32_t i = 0; i < elf->notes && !note; i++) {
        if (elf->note[i].kind == kind && strcmp(elf->note[i].name, name) == 0) {
            note = &elf->note[i];
        }
    }
    /* The ABI first: with another one, the rest of the note may mean something else. */
    const struct bps_note_body *any = note ? note : &elf->note[0];
    status = check_abi("note", any->abi_major, any->abi_minor, report);
    if (status != BPS_OK) {
        return status;
    }
    if (!note) {
        return wrong_note(any, kind, name, report);
    }
    if (kind != BPS_KIND_FRAMEWORK && elf->links_core) {
        return bps_refuse(report,
                          "it links to libbyteps (it needs %s), and would fail wherever that is opened "
                          "privately, as by Python; link it without -lbyteps and use struct bps_host",
                          elf->needed);
    }
    *out = note;
    return BPS_OK;
}

/* ---- modules ------------------------------------------------------------------------------------------ */

static bps_status check_text(const char *field, const char *text, struct bps_report *report)
{
    if (!text || !*text) {
        return bps_refuse(report, "%s is %s, expected a text; set it", field, text ? "empty" : "NULL");
    }
    return BPS_OK;
}

/* It stands in lists of plugins and in texts of codings. */
static bps_status check_version(const char *version, struct bps_report *report)
{
    for (const char *c = version; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~' || *c == ';') {
            return bps_refuse(report,
                              "version of its module has the byte 0x%02x, expected printable characters but "
                              "';'; correct it",
                              (unsigned char)*c);
        }
    }
    return BPS_OK;
}

static bps_status check_texts(const struct bps_module *module, struct bps_report *report)
{
    const char *const texts[][2] = {{"name of its module", module->name},
                                    {"version of its module", module->version},
                                    {"license of its module", module->license}};
    bps_status status = BPS_OK;

    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == BPS_OK; i++) {
        status = check_text(texts[i][0], texts[i][1], report);
    }
    return status == BPS_OK ? check_version(module->version, report) : status;
}

/* Enough of each descriptor to look for names: size, kind and name. */
static bps_status check_list(const struct bps_module *module, struct bps_report *report)
{
    if (module->nplugins == 0 || module->nplugins > PLUGINS_MAX || !module->plugins) {
        return bps_refuse(report, "nplugins of its module is %u%s, expected 1 to %u descriptors; list them in plugins",
                          module->nplugins, module->plugins ? "" : " and plugins is NULL", PLUGINS_MAX);
    }
    for (uint32_t i = 0; i < module->nplugins; i++) {
        const struct bps_plugin *plugin = module->plugins[i];
        if (!plugin) {
            return bps_refuse(report, "plugins[%u] of its module is NULL, expected a descriptor; correct nplugins", i);
        }
        if (plugin->size < BPS_LEAST(bps_plugin)) {
            return bps_refuse(report,
                              "size of its descriptor is %zu, expected %zu or more; set it to "
                              "sizeof(struct bps_plugin)",
                              plugin->size, BPS_LEAST(bps_plugin));
        }
        if (!plugin->name || !bps_plugin_name_valid(plugin->name)) {
            return bps_refuse(report, "name in its descriptor is '%.64s', " BPS_PLUGIN_NAME_RULE "; rename the plugin",
                              plugin->name ? plugin->name : "");
        }
    }
    return BPS_OK;
}

bps_status bps_module_check(const struct bps_module *module, struct bps_report *report)
{
    bps_status status;

    if (!module) {
        return bps_refuse(report,
                          "bps_plugin_module() returned NULL, expected a struct bps_module; return a static one");
    }
    if (module->magic != BPS_PLUGIN_MAGIC) {
        return bps_refuse(report, "magic of its module is 0x%08x, expected 0x%08x; set it to BPS_PLUGIN_MAGIC",
                          module->magic, BPS_PLUGIN_MAGIC);
    }
    if (module->size < BPS_LEAST(bps_module)) {
        return bps_refuse(report, "size of its module is %u, expected %zu or more; set it to sizeof(struct bps_module)",
                          module->size, BPS_LEAST(bps_module));
    }
    status = check_abi("module", module->abi_major, module->abi_minor, report);
    if (status == BPS_OK) {
        status = check_texts(module, report);
    }
    return status == BPS_OK ? check_list(module, report) : status;
}

bps_status bps_module_find(const struct bps_module *module, uint32_t kind, const char *name,
                           const struct bps_plugin **out, struct bps_report *report)
{
    const struct bps_plugin *first = module->plugins[0];

    for (uint32_t i = 0; i < module->nplugins; i++) {
        if (module->plugins[i]->kind == kind && strcmp(module->plugins[i]->name, name) == 0) {
            *out = module->plugins[i];
            return BPS_OK;
        }
    }
    if (first->kind != kind) {
        return bps_refuse(report,
                          "kind in its descriptor is %s (%u), expected %s (%u); correct struct bps_plugin or "
                          "the note",
                          bps_kind_name(first->kind), first->kind, bps_kind_name(kind), kind);
    }
    return bps_refuse(report, "name in its descriptor is '%s', expected '%s'; correct struct bps_plugin or the note",
                      first->name, name);
}
