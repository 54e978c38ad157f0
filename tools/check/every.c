/* SPDX-License-Identifier: Apache-2.0 */
/* every.c - what is expected of plugins of all kinds: their file, their options, and to leave nothing behind. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "conf/option.h"
#include "plugin/elf_note.h"
#include "plugin/kinds.h"
#include "tools/check/check.h"

/* ---- the file ---- */

static void check_file(struct bps_check *check)
{
    static struct bps_elf elf;
    struct bps_report report = {""};
    const struct bps_loaded *loaded = bps_check_load(check);
    int fd = open(loaded->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        bps_check_skip(check, "it is built into this program");
    }
    BPS_CHECK(check, bps_elf_read(fd, &elf, &report) == BPS_OK, "%s", report.text);
    const struct bps_note_body *note = NULL;
    for (uint32_t i = 0; i < elf.notes; i++) {
        bool same = elf.note[i].kind == check->plugin->kind && strcmp(elf.note[i].name, check->plugin->name) == 0;
        BPS_CHECK(check, !same || note == NULL, "it has two notes for the same %s %s", bps_kind_name(elf.note[i].kind),
                  elf.note[i].name);
        note = same ? &elf.note[i] : note;
    }
    BPS_CHECK(check, note != NULL, "it has no note for this plugin");
    BPS_CHECK(check, strcmp(note->version, loaded->module->version) == 0, "its note has version '%s', its module '%s'",
              note->version, loaded->module->version);
    BPS_CHECK(check, loaded->plugin->summary != NULL && loaded->plugin->summary[0] != '\0', "it has no summary");
}

/* ---- describe ---- */

typedef void (*describe_fn)(void *instance, char *text, size_t n);

static describe_fn describe_of(const struct bps_instance *instance)
{
    const union bps_ops *ops = instance->ops;
    switch (instance->loaded->plugin->kind) {
    case BPS_KIND_TRANSPORT:
        return ops->transport.describe;
    case BPS_KIND_REDUCER:
        return ops->reducer.describe;
    case BPS_KIND_COMPRESSOR:
        return ops->compressor.describe;
    case BPS_KIND_STAGE:
        return ops->stage.describe;
    default:
        return NULL;
    }
}

static void check_describe(struct bps_check *check)
{
    static const size_t rooms[] = {1, 8, 92, 400};
    struct bps_instance *instance = bps_check_open(check);
    describe_fn describe = describe_of(instance);
    if (describe == NULL) {
        bps_check_skip(check, "plugins of this kind have no describe");
    }
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        char text[402];
        memset(text, '#', sizeof text);
        bps_check_at(check, "describe, with room for %zu bytes", rooms[i]);
        describe(instance->self, text, rooms[i]);
        BPS_CHECK(check, memchr(text, '\0', rooms[i]) != NULL, "the text is not terminated");
        BPS_CHECK(check, text[rooms[i]] == '#', "it has written beyond them");
        BPS_CHECK(check, strpbrk(text, "\n\r\t\x1b") == NULL, "the text is not one line: \"%s\"", text);
    }
    bps_check_close(check, instance);
}

/* ---- options ---- */

static void try_value(struct bps_check *check, const char *name, const char *value)
{
    struct bps_instance *instance;
    struct bps_report report;
    bps_check_at(check, "open with %s = %s", name, value);
    bps_check_try(check, name, value, &instance, &report);
    if (instance != NULL) {
        bps_check_close(check, instance);
    }
}

/* The ends of "1..64", the words of "a|b": each is a value that a user may write. */
static void try_range(struct bps_check *check, const struct bps_option *option)
{
    char *range = option->range != NULL ? strdup(option->range) : NULL;
    char *dots = range != NULL && option->type != BPS_OPT_CHOICE ? strstr(range, "..") : NULL;
    if (dots != NULL) {
        *dots = '\0';
        if (range[0] != '\0') {
            try_value(check, option->name, range);
        }
        if (dots[2] != '\0') {
            try_value(check, option->name, dots + 2);
        }
    } else if (range != NULL && option->type == BPS_OPT_CHOICE) {
        char *rest = range;
        for (char *word; (word = strsep(&rest, "|")) != NULL;) {
            try_value(check, option->name, word);
        }
    }
    free(range);
}

static void check_options(struct bps_check *check)
{
    const struct bps_option *option = bps_check_load(check)->plugin->options;
    if (option == NULL || option->name == NULL) {
        bps_check_skip(check, "it has no options");
    }
    for (; option->name != NULL; option++) {
        try_value(check, option->name, option->fallback);
        try_range(check, option);
        if (option->type == BPS_OPT_BOOL) {
            try_value(check, option->name, "true");
            try_value(check, option->name, "false");
        } else if (option->type == BPS_OPT_STRING) {
            try_value(check, option->name, "");
            try_value(check, option->name, "/no/such/thing %s%n");
        }
    }
}

/* ---- open and close ---- */

enum { WARM = 20, ROUNDS = 1000 };

static void open_close(struct bps_check *check)
{
    struct bps_instance *instance = bps_check_open(check);
    bps_check_close(check, instance);
}

static void check_open_close(struct bps_check *check)
{
    uint64_t begun = bps_now();
    unsigned rounds = 0;
    for (unsigned i = 0; i < WARM; i++) {
        open_close(check);
    }
    struct bps_check_usage before = bps_check_usage_now();
    for (; rounds < ROUNDS && (rounds < WARM || bps_now() - begun < 6 * BPS_S); rounds++) {
        bps_check_at(check, "open and close, for the %uth time", rounds + 1);
        open_close(check);
    }
    bps_check_at(check, "open and close");
    bps_check_usage_same(check, &before, rounds);
    bps_check_note(check, "%u times", rounds);
}

/* Two at once: instances share nothing. */
static void check_instances(struct bps_check *check)
{
    struct bps_instance *one = bps_check_open(check), *two = bps_check_open(check);
    bps_check_at(check, "close of the first of two instances");
    bps_check_close(check, one);
    bps_check_at(check, "close of the second of two instances");
    bps_check_close(check, two);
}

/* ---- memory that fails ---- */

static void open_failing(struct bps_check *check, unsigned nth)
{
    struct bps_instance *instance;
    struct bps_report report;
    bps_check_at(check, "open whose allocation %u fails", nth);
    bps_check_allocations_fail(nth);
    bps_check_try(check, NULL, NULL, &instance, &report);
    bps_check_allocations_fail(0);
    if (instance != NULL) {
        bps_check_at(check, "close after an open whose allocation %u has failed", nth);
        bps_check_close(check, instance);
    }
}

static void check_memory(struct bps_check *check)
{
    enum { MOST = 25 };
    open_close(check);
    bps_check_allocations_fail(0);
    open_close(check);
    unsigned made = bps_check_allocations_fail(0);
    if (made == 0) {
        bps_check_skip(check, "open allocates nothing that could fail");
    }
    unsigned most = made < MOST ? made : MOST;
    struct bps_check_usage before = bps_check_usage_now();
    unsigned rounds = 5000 / most;
    for (unsigned round = 0; round < WARM + rounds; round++) {
        before = round == WARM ? bps_check_usage_now() : before;
        for (unsigned nth = 1; nth <= most; nth++) {
            open_failing(check, nth);
        }
    }
    bps_check_at(check, "open whose allocations fail");
    bps_check_usage_same(check, &before, rounds);
    open_close(check);
    bps_check_note(check, "each of %u allocations", most);
}

const struct bps_check_test bps_check_every[] = {
    {"file: note, version and summary", check_file, 0},
    {"options: defaults, limits and words", check_options, 2},
    {"open and close, many times", check_open_close, 2},
    {"open and close of two instances", check_instances, 0},
    {"open without memory", check_memory, 2},
    {"describe", check_describe, 0},
    {NULL, NULL, 0},
};
