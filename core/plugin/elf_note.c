/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_note.c - reads the BytePS notes and the needed libraries of a shared object.
 *
 * It reads with pread() and not through a mapping: a file that shrinks meanwhile
 * gives an error, not a signal.
 */
#include "plugin/elf_note.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/report.h"

/* Bounds for what a hostile file can make us do. Real files stay far below them. */
#define PHDRS_MAX   256u
#define NOTES_BYTES (256u * 1024u)
#define DYNAMIC_MAX 4096u

/* The linker's name for the header of the object this code is in: what a plugin must match. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

struct reader {
    int fd;
    uint64_t size; /* of the file */
    uint32_t phdrs;
    ElfW(Phdr) phdr[PHDRS_MAX];
    struct bps_report *report;
};

static bps_status truncated(const struct reader *reader, uint64_t offset, uint64_t bytes)
{
    return bps_refuse(reader->report,
                      "the file is truncated: it has %llu bytes, its headers refer to %llu bytes at offset "
                      "%llu; install or build it again",
                      (unsigned long long)reader->size, (unsigned long long)bytes, (unsigned long long)offset);
}

static bool within(const struct reader *reader, uint64_t offset, uint64_t bytes)
{
    return offset <= reader->size && bytes <= reader->size - offset;
}

static bps_status read_at(const struct reader *reader, uint64_t offset, void *buf, size_t bytes)
{
    if (!within(reader, offset, bytes)) {
        return truncated(reader, offset, bytes);
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(reader->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return truncated(reader, offset, bytes);
        } else if (errno != EINTR) {
            return bps_fail(reader->report, BPS_ERR_IO, "cannot be read: %s", strerror(errno));
        }
    }
    return BPS_OK;
}

/* ---- the header --------------------------------------------------------------------------------------- */

static const char *machine_name(unsigned machine)
{
    static const char *const names[] = {
        [EM_386] = "i386",        [EM_X86_64] = "x86-64", [EM_ARM] = "ARM",      [EM_AARCH64] = "AArch64",
        [EM_PPC64] = "PowerPC64", [EM_S390] = "S/390",    [EM_RISCV] = "RISC-V",
    };
    return machine < sizeof names / sizeof *names && names[machine] ? names[machine] : "an unknown machine";
}

static bps_status check_magic(const struct reader *reader, const unsigned char *ident)
{
    if (reader->size < SELFMAG) {
        return bps_refuse(reader->report, "not an ELF file: it has only %llu bytes; install or build it again",
                          (unsigned long long)reader->size);
    }
    if (memcmp(ident, ELFMAG, SELFMAG) != 0) {
        return bps_refuse(
            reader->report,
            "not an ELF file: it begins with the bytes %02x %02x %02x %02x, expected 7f 45 4c 46; install or "
            "build it again",
            ident[0], ident[1], ident[2], ident[3]);
    }
    return reader->size < sizeof(ElfW(Ehdr)) ? truncated(reader, 0, sizeof(ElfW(Ehdr))) : BPS_OK;
}

/* Class and byte order first: the layout of everything that follows depends on them. */
static bps_status check_header(const struct reader *reader, const ElfW(Ehdr) * header)
{
    const unsigned char *ident = header->e_ident, *own = __ehdr_start.e_ident;

    if (ident[EI_CLASS] != own[EI_CLASS]) {
        return bps_refuse(reader->report, "its ELF class is %u, expected %u (%u bits); build it for this machine",
                          ident[EI_CLASS], own[EI_CLASS], (unsigned)__ELF_NATIVE_CLASS);
    }
    if (ident[EI_DATA] != own[EI_DATA]) {
        return bps_refuse(reader->report, "its ELF byte order is %u, expected %u; build it for this machine",
                          ident[EI_DATA], own[EI_DATA]);
    }
    if (header->e_machine != __ehdr_start.e_machine) {
        return bps_refuse(reader->report,
                          "it is built for %s (ELF machine %u), expected %s (%u); build it for this machine",
                          machine_name(header->e_machine), header->e_machine, machine_name(__ehdr_start.e_machine),
                          __ehdr_start.e_machine);
    }
    if (header->e_type != ET_DYN) {
        return bps_refuse(reader->report, "its ELF type is %u, expected %u (shared object); link it with -shared",
                          header->e_type, ET_DYN);
    }
    if (header->e_phentsize != sizeof(ElfW(Phdr)) || header->e_phnum == 0 || header->e_phnum > PHDRS_MAX) {
        return bps_refuse(
            reader->report,
            "its ELF header is damaged: %u program headers of %u bytes, expected 1 to %u of %zu; install or "
            "build it again",
            header->e_phnum, header->e_phentsize, PHDRS_MAX, sizeof(ElfW(Phdr)));
    }
    return BPS_OK;
}

/* A copy that was cut off has its first pages, with the notes, but lacks what its headers promise. */
static bps_status check_complete(const struct reader *reader, const ElfW(Ehdr) * header)
{
    uint64_t sections = (uint64_t)header->e_shnum * header->e_shentsize;

    for (uint32_t i = 0; i < reader->phdrs; i++) {
        const ElfW(Phdr) *phdr = &reader->phdr[i];
        if (phdr->p_type == PT_LOAD && !within(reader, phdr->p_offset, phdr->p_filesz)) {
            return truncated(reader, phdr->p_offset, phdr->p_filesz);
        }
    }
    if (!within(reader, header->e_shoff, sections)) {
        return truncated(reader, header->e_shoff, sections);
    }
    return BPS_OK;
}

static bps_status read_headers(struct reader *reader)
{
    ElfW(Ehdr) header = {0};
    bps_status status = read_at(reader, 0, &header, reader->size < sizeof header ? reader->size : sizeof header);

    if (status == BPS_OK) {
        status = check_magic(reader, header.e_ident);
    }
    if (status == BPS_OK) {
        status = check_header(reader, &header);
    }
    if (status == BPS_OK) {
        reader->phdrs = header.e_phnum;
        status = read_at(reader, header.e_phoff, reader->phdr, reader->phdrs * sizeof reader->phdr[0]);
    }
    return status == BPS_OK ? check_complete(reader, &header) : status;
}

/* ---- notes -------------------------------------------------------------------------------------------- */

/* Terminated within its field, and printable, because it is shown before the file is trusted. */
static bool clean_text(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0') {
            return i > 0;
        }
        if (text[i] < 0x20 || text[i] > 0x7e) {
            return false;
        }
    }
    return false;
}

static bps_status add_note(const struct reader *reader, const void *desc, size_t descsz, struct bps_elf *out)
{
    struct bps_note_body body;

    if (descsz < sizeof body) {
        return bps_refuse(reader->report,
                          "its BytePS note has %zu bytes, expected %zu; rebuild the plugin against this "
                          "BytePS",
                          descsz, sizeof body);
    }
    if (out->notes == BPS_ELF_NOTES_MAX) {
        return bps_refuse(reader->report, "it has more than %u BytePS notes; state each plugin of the module once",
                          BPS_ELF_NOTES_MAX);
    }
    memcpy(&body, desc, sizeof body);
    if (body.magic != BPS_PLUGIN_MAGIC) {
        return bps_refuse(reader->report, "magic in its note is 0x%08x, expected 0x%08x; state it with BPS_PLUGIN_NOTE",
                          body.magic, BPS_PLUGIN_MAGIC);
    }
    if (!clean_text(body.name, sizeof body.name) || !clean_text(body.version, sizeof body.version)) {
        return bps_refuse(reader->report,
                          "name or version in its note is not a printable text of 1 to %zu characters; "
                          "state it with BPS_PLUGIN_NOTE",
                          sizeof body.name - 1);
    }
    out->note[out->notes++] = body;
    return BPS_OK;
}

static bps_status add_framework(const struct reader *reader, const void *desc, size_t descsz, struct bps_elf *out)
{
    struct bps_framework_note_body body;

    if (descsz < sizeof body) {
        return bps_refuse(reader->report,
                          "its BytePS note on a framework has %zu bytes, expected %zu; rebuild the plugin against "
                          "this BytePS",
                          descsz, sizeof body);
    }
    if (out->frameworks == BPS_ELF_NOTES_MAX) {
        return bps_refuse(reader->report, "it has more than %u BytePS notes on frameworks; state each framework once",
                          BPS_ELF_NOTES_MAX);
    }
    memcpy(&body, desc, sizeof body);
    if (!clean_text(body.module, sizeof body.module) || !clean_text(body.oldest, sizeof body.oldest)) {
        return bps_refuse(reader->report,
                          "module or version in its note on a framework is not a printable text of 1 to %zu "
                          "characters; state it with BPS_FRAMEWORK_NOTE",
                          sizeof body.module - 1);
    }
    out->framework[out->frameworks++] = body;
    return BPS_OK;
}

static bps_status add_launcher(const struct reader *reader, const void *desc, size_t descsz, struct bps_elf *out)
{
    struct bps_launcher_note_body body;

    if (descsz < sizeof body || out->launchers == BPS_ELF_NOTES_MAX) {
        return bps_refuse(reader->report,
                          "it has more than %u BytePS notes on launchers, or one of %zu bytes, expected %zu; state "
                          "each variable once with BPS_LAUNCHER_NOTE, and rebuild the plugin against this BytePS",
                          BPS_ELF_NOTES_MAX, descsz, sizeof body);
    }
    memcpy(&body, desc, sizeof body);
    if (!clean_text(body.variable, sizeof body.variable)) {
        return bps_refuse(reader->report,
                          "variable in its note on a launcher is not a printable text of 1 to %zu characters; state "
                          "it with BPS_LAUNCHER_NOTE",
                          sizeof body.variable - 1);
    }
    out->launcher[out->launchers++] = body;
    return BPS_OK;
}

static int compare_frameworks(const void *a, const void *b)
{
    const struct bps_framework_note_body *x = a, *y = b;

    return strcmp(x->module, y->module);
}

static bps_status add_any(const struct reader *reader, const ElfW(Nhdr) * head, const char *name, const char *desc,
                          struct bps_elf *out)
{
    if (head->n_namesz != sizeof "BytePS" || memcmp(name, "BytePS", sizeof "BytePS") != 0) {
        return BPS_OK;
    }
    switch (head->n_type) {
    case BPS_NOTE_TYPE:
        return add_note(reader, desc, head->n_descsz, out);
    case BPS_NOTE_FRAMEWORK:
        return add_framework(reader, desc, head->n_descsz, out);
    case BPS_NOTE_LAUNCHER:
        return add_launcher(reader, desc, head->n_descsz, out);
    default:
        return BPS_OK;
    }
}

/* Notes of other owners (build id, ABI tag) share the segment. A note that does not fit ends it. */
static bps_status scan_notes(const struct reader *reader, const char *data, size_t bytes, uint64_t align,
                             struct bps_elf *out)
{
    ElfW(Nhdr) head;
    size_t at = 0;

    while (bytes - at >= sizeof head) {
        memcpy(&head, data + at, sizeof head);
        at += sizeof head;
        uint64_t name = ((uint64_t)head.n_namesz + 3) & ~3ull;
        uint64_t desc = ((uint64_t)head.n_descsz + align - 1) & ~(align - 1);
        if (name > bytes - at || head.n_descsz > bytes - at - name) {
            return BPS_OK;
        }
        bps_status status = add_any(reader, &head, data + at, data + at + name, out);
        if (status != BPS_OK) {
            return status;
        }
        at += name;
        at += desc < bytes - at ? desc : bytes - at;
    }
    return BPS_OK;
}

static bps_status read_notes(const struct reader *reader, const ElfW(Phdr) * phdr, struct bps_elf *out)
{
    size_t bytes = phdr->p_filesz < NOTES_BYTES ? (size_t)phdr->p_filesz : NOTES_BYTES;
    char *data = malloc(bytes + 1);
    bps_status status;

    if (!data) {
        return bps_fail(reader->report, BPS_ERR_NOMEM, "cannot be read: out of memory");
    }
    status = read_at(reader, phdr->p_offset, data, bytes);
    if (status == BPS_OK) {
        status = scan_notes(reader, data, bytes, phdr->p_align == 8 ? 8 : 4, out);
    }
    free(data);
    return status;
}

/* ---- needed libraries --------------------------------------------------------------------------------- */

/* The place in the file of an address in memory; 0 if the file does not hold it. */
static uint64_t file_offset(const struct reader *reader, uint64_t address)
{
    for (uint32_t i = 0; i < reader->phdrs; i++) {
        const ElfW(Phdr) *phdr = &reader->phdr[i];
        if (phdr->p_type == PT_LOAD && address >= phdr->p_vaddr && address - phdr->p_vaddr < phdr->p_filesz) {
            return address - phdr->p_vaddr + phdr->p_offset;
        }
    }
    return 0;
}

static void add_needed(const struct reader *reader, uint64_t offset, struct bps_elf *out)
{
    static const char core[] = "libbyteps.so";
    char name[128] = "";
    size_t used = strlen(out->needed);

    if (offset < reader->size && pread(reader->fd, name, sizeof name - 1, (off_t)offset) > 0 &&
        clean_text(name, sizeof name)) {
        out->links_core |= strncmp(name, core, sizeof core - 1) == 0;
        snprintf(out->needed + used, sizeof out->needed - used, "%s%s", used ? ", " : "", name);
    }
}

/* Only for messages and for the rule against libbyteps: what it cannot read it leaves out. */
static bps_status read_dynamic(const struct reader *reader, const ElfW(Phdr) * phdr, struct bps_elf *out)
{
    uint64_t count = phdr->p_filesz / sizeof(ElfW(Dyn));
    uint64_t strings = 0;
    bps_status status;

    if (count > DYNAMIC_MAX) {
        count = DYNAMIC_MAX;
    }
    ElfW(Dyn) *table = calloc(count + 1, sizeof *table);
    if (!table) {
        return bps_fail(reader->report, BPS_ERR_NOMEM, "cannot be read: out of memory");
    }
    status = read_at(reader, phdr->p_offset, table, count * sizeof *table);
    for (uint64_t i = 0; status == BPS_OK && i < count && table[i].d_tag != DT_NULL; i++) {
        if (table[i].d_tag == DT_STRTAB) {
            strings = file_offset(reader, table[i].d_un.d_ptr);
        }
    }
    for (uint64_t i = 0; status == BPS_OK && strings && i < count && table[i].d_tag != DT_NULL; i++) {
        if (table[i].d_tag == DT_NEEDED && table[i].d_un.d_val < reader->size) {
            add_needed(reader, strings + table[i].d_un.d_val, out);
        }
    }
    free(table);
    return status;
}

/* ---- the file ----------------------------------------------------------------------------------------- */

bps_status bps_elf_read(int fd, struct bps_elf *out, struct bps_report *report)
{
    struct reader reader = {.fd = fd, .report = report};
    struct bps_elf elf = {0};
    struct stat st;
    bps_status status;

    if (fstat(fd, &st) != 0) {
        return bps_fail(report, BPS_ERR_IO, "cannot be read: %s", strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return bps_refuse(report, "not a regular file; remove it or install the plugin again");
    }
    reader.size = (uint64_t)st.st_size;
    status = read_headers(&reader);
    for (uint32_t i = 0; status == BPS_OK && i < reader.phdrs; i++) {
        if (reader.phdr[i].p_type == PT_NOTE) {
            status = read_notes(&reader, &reader.phdr[i], &elf);
        } else if (reader.phdr[i].p_type == PT_DYNAMIC) {
            status = read_dynamic(&reader, &reader.phdr[i], &elf);
        }
    }
    if (status != BPS_OK) {
        return status;
    }
    if (elf.notes == 0) {
        return bps_refuse(report, "not a BytePS plugin: it has no BytePS note; a plugin states "
                                  "BPS_PLUGIN_NOTE(kind, name, version)");
    }
    /* Compilers put notes in an order of their own. */
    qsort(elf.framework, elf.frameworks, sizeof elf.framework[0], compare_frameworks);
    *out = elf;
    return BPS_OK;
}
