/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - finds, checks and opens plugins.
 *
 * A plugin is named by kind and name, and is the file KIND_NAME.so in the first directory that has it: those
 * of $BYTEPS_PLUGIN_PATH (separated by ':'), then that of this installation; before both come the plugins built into
 * libbyteps. An opened plugin stays for the life of the process. Thread-safe.
 */
#ifndef BPS_PLUGIN_REGISTRY_H
#define BPS_PLUGIN_REGISTRY_H

#include <byteps/plugin.h>

#include "conf/conf.h"
#include "plugin/elf_note.h"

/* A plugin that was opened and passed all checks. Lives as long as the process. */
struct bps_loaded {
    const struct bps_module *module;
    const struct bps_plugin *plugin;
    const void *ops; /* the plugin's operations, copied, with stubs for the optional ones */
    char path[4096]; /* of the file; "builtin" */
};

/*
 * Opens a plugin once. Refusals name the file, the field, both values and the remedy. `used_by` says which
 * line of the configuration wants it ("byteps.conf:7: transports.net"); NULL if none.
 */
bps_status bps_plugin_open(uint32_t kind, const char *name, const char *used_by, const struct bps_loaded **out,
                           struct bps_report *report);

/* Calls fn for every plugin that this process has opened. */
void bps_plugin_each_loaded(void (*fn)(void *arg, const struct bps_loaded *loaded), void *arg);

/* One row of `byteps plugin list`, from the ELF note alone: no code of the plugin runs. */
struct bps_plugin_row {
    uint32_t kind;
    uint32_t found; /* the first found is 0 */
    char name[32];
    char version[32];
    char path[4096];
    char refusal[512]; /* why it could not be used; "" if it looks right */
    uint32_t frameworks;
    struct bps_framework_note_body framework[BPS_ELF_NOTES_MAX]; /* that a binding serves */
    bool away; /* a launcher whose notes name variables, none of which is set */
};
/*
 * Calls fn for every *.so of the plugin directories that is named like a plugin of the kind (0: of any), and for
 * builtins; sorted.
 */
bps_status bps_plugin_each(uint32_t kind, void (*fn)(void *arg, const struct bps_plugin_row *row), void *arg,
                           struct bps_report *report);

/* "transport" and so on; "?" if unknown. And back: 0 if unknown. */
const char *bps_kind_name(uint32_t kind);
uint32_t bps_kind_from_name(const char *name);

const char *bps_plugin_dir(void); /* of this installation */

#endif
