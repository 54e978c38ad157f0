/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_elf.c - any bytes as a plugin file: it is refused with a reason, or read within its bounds. The code
 * of the file is never run.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check_notes(const struct bps_elf *elf)
{
    check(elf->notes >= 1 && elf->notes <= BPS_ELF_NOTES_MAX);
    check(memchr(elf->needed, '\0', sizeof elf->needed) != NULL);
    check(elf->frameworks <= BPS_ELF_NOTES_MAX);
    for (uint32_t i = 0; i < elf->frameworks; i++) {
        check(memchr(elf->framework[i].module, '\0', sizeof elf->framework[i].module) != NULL);
        check(memchr(elf->framework[i].oldest, '\0', sizeof elf->framework[i].oldest) != NULL);
    }
    for (uint32_t i = 0; i < elf->notes; i++) {
        check(memchr(elf->note[i].name, '\0', sizeof elf->note[i].name) != NULL);
        check(memchr(elf->note[i].version, '\0', sizeof elf->note[i].version) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct bps_note_body *note = NULL;
    struct bps_report report = {""};
    struct bps_elf elf;
    int fd = memfd_create("plugin", MFD_CLOEXEC);

    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size)) {
        check(fd >= 0 && close(fd) == 0);
        return 0;
    }
    if (bps_elf_read(fd, &elf, &report) == BPS_OK) {
        check_notes(&elf);
        if (bps_note_check(&elf, BPS_KIND_STAGE, "clip", &note, &report) == BPS_OK) {
            check(note != NULL && strcmp(note->name, "clip") == 0);
        } else {
            check(report.text[0] != '\0');
        }
    } else {
        check(report.text[0] != '\0');
    }
    close(fd);
    return 0;
}
