/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_note.h - what a shared object says about itself, read from the file without running any of its code.
 *
 * The file is foreign: every offset in it is checked against the size of the file. [any thread]
 */
#ifndef BPS_PLUGIN_ELF_NOTE_H
#define BPS_PLUGIN_ELF_NOTE_H

#include <byteps/framework.h>
#include <byteps/launcher.h>

/* More plugins than this in one module are not plausible. */
#define BPS_ELF_NOTES_MAX 16u

struct bps_elf {
    uint32_t notes;
    struct bps_note_body note[BPS_ELF_NOTES_MAX]; /* strings terminated and printable */
    uint32_t frameworks;
    struct bps_framework_note_body framework[BPS_ELF_NOTES_MAX]; /* that a binding serves, by name */
    uint32_t launchers;
    struct bps_launcher_note_body launcher[BPS_ELF_NOTES_MAX]; /* by the variables that its launchers need */
    bool links_core;                                           /* libbyteps is among the needed libraries */
    char needed[512]; /* the needed libraries: "libm.so.6, libc.so.6"; cut if too long */
};

/*
 * Reads the BytePS notes and the needed libraries of a file. The report says what is wrong with the file and
 * what to do, without naming it. BPS_ERR_PLUGIN: not a BytePS plugin for this machine. BPS_ERR_IO: cannot be
 * read.
 */
bps_status bps_elf_read(int fd, struct bps_elf *out, struct bps_report *report);

#endif
