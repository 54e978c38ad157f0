/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - one plugin file: looked at without running its code, and opened. [any thread]
 *
 * Reports say what is wrong and what to do; the caller adds the file's name.
 */
#ifndef BPS_PLUGIN_FILE_H
#define BPS_PLUGIN_FILE_H

#include "plugin/elf_note.h"

/*
 * All checks that need no code of the plugin: who may have written it, ELF, note, kind, name, ABI. *note is the
 * note of the plugin; it points into *elf.
 */
bps_status bps_file_inspect(const char *path, uint32_t kind, const char *name, struct bps_elf *elf,
                            const struct bps_note_body **note, struct bps_report *report);

/*
 * Opens an inspected file for the life of the process and asks it for its module. `elf` is what the
 * inspection found; it serves the messages.
 */
bps_status bps_file_open(const char *path, const struct bps_elf *elf, const struct bps_module **out,
                         struct bps_report *report);

/* What the dynamic linker has against a file, whose name it leaves out. */
const char *bps_linker_error(const char *path);

#endif
