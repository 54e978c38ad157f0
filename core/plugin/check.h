/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what a plugin must be before the core uses it. Reports name field, both values and the remedy;
 * the caller adds the file. [any thread]
 */
#ifndef BPS_PLUGIN_CHECK_H
#define BPS_PLUGIN_CHECK_H

#include "plugin/elf_note.h"
#include "plugin/kinds.h"

/*
 * The rules for what a file says of itself: right kind and name, an ABI that fits, no link to libbyteps. *out
 * is the note of the plugin; it points into `elf`.
 */
bps_status bps_note_check(const struct bps_elf *elf, uint32_t kind, const char *name, const struct bps_note_body **out,
                          struct bps_report *report);

/* A module's frame: magic, size, ABI, texts, descriptors. */
bps_status bps_module_check(const struct bps_module *module, struct bps_report *report);

/* The descriptor of a plugin in a checked module, or an error that says which one it has instead. */
bps_status bps_module_find(const struct bps_module *module, uint32_t kind, const char *name,
                           const struct bps_plugin **out, struct bps_report *report);

/* A plugin as this version has it, whatever minor it was built for. */
struct bps_descriptor {
    struct bps_plugin plugin;
    struct bps_option *options; /* rows of another size than here, copied; NULL: the plugin's own ones will do */
    struct bps_tables tables;   /* its operations, completed with stubs */
};

/*
 * Fills *out, which stays where it is, and checks descriptor, options and operations. `module` is the one of the
 * plugin. bps_descriptor_free() frees what it has, also after an error.
 */
bps_status bps_descriptor_make(const struct bps_module *module, const struct bps_plugin *plugin,
                               struct bps_descriptor *out, struct bps_report *report);
void bps_descriptor_free(struct bps_descriptor *descriptor);

/* The rows of an option table: names, types, places in the struct, ranges, and defaults that parse. */
bps_status bps_options_check(const struct bps_option *table, size_t size, struct bps_report *report);
#define BPS_OPTION_ROWS 256u /* at most */

#endif
