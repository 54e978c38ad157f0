/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_elf_note.c - reads the notes of files that are made here byte by byte: right ones, and every kind of
 * damage.
 */
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checks.h"
#include "plugin/elf_note.h"

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* The smallest file that a reader of notes can take for a plugin. */
struct image {
    ElfW(Ehdr) header;
    ElfW(Phdr) load, notes, dynamic;
    ElfW(Dyn) table[4];
    struct bps_note note[2];
    char strings[64];
};

static const char string_table[] = "\0libc.so.6\0libbyteps.so.0\0";
#define LIBC 1
#define CORE 11

static ElfW(Phdr) segment(uint32_t type, size_t offset, size_t bytes)
{
    ElfW(Phdr) phdr;

    memset(&phdr, 0, sizeof phdr);
    phdr.p_type = type;
    phdr.p_offset = phdr.p_vaddr = offset;
    phdr.p_filesz = phdr.p_memsz = bytes;
    phdr.p_align = 4;
    return phdr;
}

static struct bps_note note_of(uint32_t kind, const char *name)
{
    struct bps_note note = {7,
                            sizeof note.body,
                            BPS_NOTE_TYPE,
                            "BytePS",
                            {BPS_PLUGIN_MAGIC, BPS_ABI_MAJOR, BPS_ABI_MINOR, kind, "", "1.0"}};

    snprintf(note.body.name, sizeof note.body.name, "%s", name);
    return note;
}

static struct image right_image(void)
{
    struct image image;

    memset(&image, 0, sizeof image);
    memcpy(image.header.e_ident, __ehdr_start.e_ident, EI_NIDENT);
    image.header.e_type = ET_DYN;
    image.header.e_machine = __ehdr_start.e_machine;
    image.header.e_phoff = offsetof(struct image, load);
    image.header.e_phentsize = sizeof(ElfW(Phdr));
    image.header.e_phnum = 3;
    image.load = segment(PT_LOAD, 0, sizeof image);
    image.notes = segment(PT_NOTE, offsetof(struct image, note), sizeof image.note);
    image.dynamic = segment(PT_DYNAMIC, offsetof(struct image, table), sizeof image.table);
    image.table[0].d_tag = DT_NEEDED;
    image.table[0].d_un.d_val = LIBC;
    image.table[1].d_tag = DT_STRTAB;
    image.table[1].d_un.d_ptr = offsetof(struct image, strings);
    image.note[0] = note_of(BPS_KIND_STAGE, "clip");
    image.note[1] = note_of(BPS_KIND_REDUCER, "cpu");
    memcpy(image.strings, string_table, sizeof string_table);
    return image;
}

/* The report is never empty after an error. */
static bps_status read_bytes(const void *data, size_t bytes, struct bps_elf *out, struct bps_report *report)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    bps_status status;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, bytes), (ssize_t)bytes);
    report->text[0] = '\0';
    status = bps_elf_read(fd, out, report);
    close(fd);
    ck_assert(status == BPS_OK || (status == BPS_ERR_PLUGIN && report->text[0] != '\0'));
    return status;
}

static bps_status read_image(const struct image *image, struct bps_elf *out, struct bps_report *report)
{
    return read_bytes(image, sizeof *image, out, report);
}

#define ck_refused(image, want)                                                                                        \
    do {                                                                                                               \
        struct bps_elf refused_;                                                                                       \
        struct bps_report report_;                                                                                     \
        ck_assert_int_eq(read_image(image, &refused_, &report_), BPS_ERR_PLUGIN);                                      \
        ck_assert_str_eq(report_.text, want);                                                                          \
    } while (0)

START_TEST(reads_notes_and_needed_libraries)
{
    struct image image = right_image();
    struct bps_elf elf;
    struct bps_report report;

    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    ck_assert_uint_eq(elf.notes, 2);
    ck_assert_uint_eq(elf.note[0].kind, BPS_KIND_STAGE);
    ck_assert_str_eq(elf.note[0].name, "clip");
    ck_assert_str_eq(elf.note[1].name, "cpu");
    ck_assert_str_eq(elf.note[1].version, "1.0");
    ck_assert_str_eq(elf.needed, "libc.so.6");
    ck_assert(!elf.links_core);
}
END_TEST

START_TEST(sees_a_link_to_the_core)
{
    struct image image = right_image();
    struct bps_elf elf;
    struct bps_report report;

    image.table[2].d_tag = DT_NEEDED;
    image.table[2].d_un.d_val = CORE;
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    ck_assert_str_eq(elf.needed, "libc.so.6, libbyteps.so.0");
    ck_assert(elf.links_core);
}
END_TEST

START_TEST(passes_over_foreign_notes)
{
    struct image image = right_image();
    struct bps_elf elf;
    struct bps_report report;

    memcpy(image.note[0].owner, "Others", 7);
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    ck_assert_uint_eq(elf.notes, 1);
    ck_assert_str_eq(elf.note[0].name, "cpu");

    image.note[1].type = 99; /* of a later version */
    ck_refused(&image, "not a BytePS plugin: it has no BytePS note; a plugin states "
                       "BPS_PLUGIN_NOTE(kind, name, version)");
}
END_TEST

/* A note that claims more than its segment has ends the segment, whatever it claims. */
START_TEST(hostile_note_sizes)
{
    static const uint32_t sizes[] = {0xffffffffu, 0xfffffffeu, 0xfffffffcu, 0x80000000u, 0x7fffffffu, 1000u};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct image image = right_image();
        image.note[0].namesz = sizes[i];
        ck_refused(&image, "not a BytePS plugin: it has no BytePS note; a plugin states "
                           "BPS_PLUGIN_NOTE(kind, name, version)");
        image = right_image();
        image.note[0].descsz = sizes[i];
        ck_refused(&image, "not a BytePS plugin: it has no BytePS note; a plugin states "
                           "BPS_PLUGIN_NOTE(kind, name, version)");
    }
}
END_TEST

START_TEST(texts_without_an_end)
{
    static const char reason[] = "name or version in its note is not a printable text of 1 to 31 characters; "
                                 "state it with BPS_PLUGIN_NOTE";
    struct image image = right_image();

    memset(image.note[0].body.name, 'a', sizeof image.note[0].body.name);
    ck_refused(&image, reason);
    image = right_image();
    memset(image.note[1].body.version, 'a', sizeof image.note[1].body.version);
    ck_refused(&image, reason);
    image = right_image();
    image.note[0].body.name[0] = '\n';
    ck_refused(&image, reason);
}
END_TEST

START_TEST(too_many_notes)
{
    struct {
        struct image image;
        struct bps_note notes[BPS_ELF_NOTES_MAX + 1];
    } file = {right_image(), {{0}}};
    struct bps_elf elf;
    struct bps_report report;

    for (size_t i = 0; i < BPS_ELF_NOTES_MAX + 1; i++) {
        file.notes[i] = note_of(BPS_KIND_STAGE, "clip");
    }
    file.image.notes = segment(PT_NOTE, sizeof file.image, BPS_ELF_NOTES_MAX * sizeof file.notes[0]);
    ck_assert_int_eq(read_bytes(&file, sizeof file, &elf, &report), BPS_OK);
    ck_assert_uint_eq(elf.notes, BPS_ELF_NOTES_MAX);
    file.image.notes.p_filesz += sizeof file.notes[0];
    ck_assert_int_eq(read_bytes(&file, sizeof file, &elf, &report), BPS_ERR_PLUGIN);
    ck_assert_str_eq(report.text, "it has more than 16 BytePS notes; state each plugin of the module once");
}
END_TEST

/* A binding: a plugin's note, then those on frameworks. */
struct binding {
    struct image image;
    struct bps_note note;
    struct bps_framework_note frameworks[BPS_ELF_NOTES_MAX + 1];
};

static struct binding binding_of(size_t frameworks)
{
    static const struct bps_framework_note note = {
        7, sizeof note.body, BPS_NOTE_FRAMEWORK, "BytePS", {"tensorflow", "2.13"}};
    struct binding binding;

    memset(&binding, 0, sizeof binding);
    binding.image = right_image();
    binding.note = note_of(BPS_KIND_FRAMEWORK, "tensorflow");
    for (size_t i = 0; i < BPS_ELF_NOTES_MAX + 1; i++) {
        binding.frameworks[i] = note;
    }
    binding.image.notes = segment(PT_NOTE, offsetof(struct binding, note),
                                  sizeof binding.note + frameworks * sizeof binding.frameworks[0]);
    return binding;
}

START_TEST(frameworks_that_a_binding_serves)
{
    struct binding binding = binding_of(2);
    struct bps_elf elf;
    struct bps_report report;

    strcpy(binding.frameworks[1].body.module, "keras");
    strcpy(binding.frameworks[1].body.oldest, "0");
    ck_assert_int_eq(read_bytes(&binding, sizeof binding, &elf, &report), BPS_OK);
    ck_assert_uint_eq(elf.notes, 1);
    ck_assert_uint_eq(elf.frameworks, 2);
    ck_assert_str_eq(elf.framework[0].module, "keras");
    ck_assert_str_eq(elf.framework[1].module, "tensorflow");
    ck_assert_str_eq(elf.framework[1].oldest, "2.13");
    binding = binding_of(BPS_ELF_NOTES_MAX);
    ck_assert_int_eq(read_bytes(&binding, sizeof binding, &elf, &report), BPS_OK);
    ck_assert_uint_eq(elf.frameworks, BPS_ELF_NOTES_MAX);
}
END_TEST

static void check_refused_binding(const struct binding *binding, const char *want)
{
    struct bps_elf elf;
    struct bps_report report;

    ck_assert_int_eq(read_bytes(binding, sizeof *binding, &elf, &report), BPS_ERR_PLUGIN);
    ck_assert_str_eq(report.text, want);
}

START_TEST(damaged_notes_on_frameworks)
{
    static const char texts[] = "module or version in its note on a framework is not a printable text of 1 to 31 "
                                "characters; state it with BPS_FRAMEWORK_NOTE";
    struct binding binding = binding_of(1);

    memset(binding.frameworks[0].body.module, 'a', sizeof binding.frameworks[0].body.module);
    check_refused_binding(&binding, texts);
    binding = binding_of(1);
    binding.frameworks[0].body.oldest[0] = '\0';
    check_refused_binding(&binding, texts);
    binding = binding_of(1);
    binding.frameworks[0].body.module[2] = '\x1b';
    check_refused_binding(&binding, texts);
    binding = binding_of(1);
    binding.frameworks[0].descsz = 60;
    check_refused_binding(&binding, "its BytePS note on a framework has 60 bytes, expected 64; rebuild the plugin "
                                    "against this BytePS");
    binding = binding_of(BPS_ELF_NOTES_MAX + 1);
    check_refused_binding(&binding, "it has more than 16 BytePS notes on frameworks; state each framework once");
}
END_TEST

/* Offsets and sizes at the edges of 64 bits, in every field that has one. */
START_TEST(hostile_segments)
{
    static const uint64_t values[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, (uint64_t)1 << 32};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        for (size_t field = 0; field < 6; field++) {
            struct image image = right_image();
            struct bps_elf elf;
            struct bps_report report;
            ElfW(Off) * fields[] = {&image.header.e_phoff, &image.header.e_shoff,   &image.load.p_offset,
                                    &image.notes.p_offset, &image.dynamic.p_offset, &image.load.p_filesz};
            *fields[field] = (ElfW(Off))values[i];
            ck_assert_int_eq(read_image(&image, &elf, &report), BPS_ERR_PLUGIN);
            ck_assert_msg(strstr(report.text, "the file is truncated: ") == report.text, "%s", report.text);
        }
    }
}
END_TEST

/* What serves only the messages may be damaged; the file is still read, without the names of libraries. */
START_TEST(damaged_dynamic_table)
{
    struct image image = right_image();
    struct bps_elf elf;
    struct bps_report report;

    image.table[0].d_un.d_val = UINT32_MAX;
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    ck_assert_str_eq(elf.needed, "");
    image = right_image();
    image.table[1].d_un.d_ptr = (ElfW(Addr))UINT64_MAX;
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    ck_assert_str_eq(elf.needed, "");
    image = right_image();
    memset(image.strings, 'x', sizeof image.strings);
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
    image = right_image();
    for (size_t i = 0; i < 4; i++) {
        image.table[i].d_tag = DT_NEEDED;
    }
    ck_assert_int_eq(read_image(&image, &elf, &report), BPS_OK);
}
END_TEST

START_TEST(truncated_at_every_byte)
{
    struct image image = right_image();
    struct bps_elf elf;
    struct bps_report report;

    for (size_t bytes = 0; bytes < sizeof image; bytes++) {
        ck_assert_int_eq(read_bytes(&image, bytes, &elf, &report), BPS_ERR_PLUGIN);
        const char *expected = bytes < SELFMAG ? "not an ELF file: it has only " : "the file is truncated: ";
        ck_assert_msg(strstr(report.text, expected) == report.text, "%zu: %s", bytes, report.text);
    }
}
END_TEST

/* Every byte of the file with every bit turned: refused with a reason, or read within its bounds. */
START_TEST(every_bit_turned)
{
    struct image right = right_image();

    for (size_t bit = 0; bit < 8 * sizeof right; bit++) {
        struct image image = right;
        struct bps_elf elf;
        struct bps_report report;
        ((unsigned char *)&image)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (read_image(&image, &elf, &report) == BPS_OK) {
            ck_assert_uint_ge(elf.notes, 1);
            ck_assert_uint_le(elf.notes, 2);
            ck_assert_uint_lt(strnlen(elf.note[0].name, 32), 32);
        }
    }
}
END_TEST

START_TEST(not_a_file)
{
    struct bps_elf elf;
    struct bps_report report;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(bps_elf_read(ends[0], &elf, &report), BPS_ERR_PLUGIN);
    ck_assert_str_eq(report.text, "not a regular file; remove it or install the plugin again");
    ck_assert_int_eq(bps_elf_read(-1, &elf, &report), BPS_ERR_IO);
    ck_assert_str_eq(report.text, "cannot be read: Bad file descriptor");
    ck_assert_int_eq(bps_elf_read(-1, &elf, NULL), BPS_ERR_IO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("elf_note");
    TCase *tcase = tcase_create("elf_note");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, reads_notes_and_needed_libraries);
    tcase_add_test(tcase, sees_a_link_to_the_core);
    tcase_add_test(tcase, passes_over_foreign_notes);
    tcase_add_test(tcase, hostile_note_sizes);
    tcase_add_test(tcase, texts_without_an_end);
    tcase_add_test(tcase, too_many_notes);
    tcase_add_test(tcase, frameworks_that_a_binding_serves);
    tcase_add_test(tcase, damaged_notes_on_frameworks);
    tcase_add_test(tcase, hostile_segments);
    tcase_add_test(tcase, damaged_dynamic_table);
    tcase_add_test(tcase, truncated_at_every_byte);
    tcase_add_test(tcase, every_bit_turned);
    tcase_add_test(tcase, not_a_file);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
