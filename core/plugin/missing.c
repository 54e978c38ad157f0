/* SPDX-License-Identifier: Apache-2.0 */
/*
 * missing.c - what to say when there is no such plugin: what there is instead, and where it was looked for.
 * The long list of folders comes last, since a message that crosses the network may be cut.
 */
#include "plugin/missing.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "conf/option.h"
#include "plugin/registry.h"

#define NAMES_MAX 64u

/* The usable plugins of the wanted kind, and another kind that has the wanted name. */
struct found {
    uint32_t kind;
    const char *name;
    uint32_t other_kind;
    size_t count;
    char names[NAMES_MAX][BPS_PLUGIN_NAME_MAX + 1];
};

static void collect(void *arg, const struct bps_plugin_row *row)
{
    struct found *found = arg;

    if (row->refusal[0]) {
        return;
    }
    if (row->kind == found->kind && found->count < NAMES_MAX) {
        snprintf(found->names[found->count++], sizeof found->names[0], "%s", row->name);
    } else if (row->kind != found->kind && strcmp(row->name, found->name) == 0) {
        found->other_kind = row->kind;
    }
}

__attribute__((format(printf, 2, 3))) static void append(struct bps_report *report, const char *format, ...)
{
    size_t used = strlen(report->text);
    va_list args;

    va_start(args, format);
    vsnprintf(report->text + used, sizeof report->text - used, format, args);
    va_end(args);
}

static void append_dirs(const struct bps_dirs *dirs, struct bps_report *report)
{
    struct stat st;

    for (size_t i = 0; i < dirs->count; i++) {
        append(report, "%s%s%s", i ? ", " : "", dirs->items[i],
               stat(dirs->items[i], &st) != 0 ? " (which does not exist)" : "");
    }
}

static void append_remedy(const struct found *found, struct bps_report *report)
{
    const char *names[NAMES_MAX];
    const char *near;

    for (size_t i = 0; i < found->count; i++) {
        names[i] = found->names[i];
    }
    near = bps_nearest(found->name, names, found->count);
    if (near) {
        append(report, "did you mean '%s'?", near);
    } else if (found->other_kind) {
        append(report, "'%s' is a %s;", found->name, bps_kind_name(found->other_kind));
    } else if (found->count == 0) {
        append(report, "install it or name its directory in BYTEPS_PLUGIN_PATH;");
    } else {
        append(report, "there is ");
        for (size_t i = 0; i < found->count; i++) {
            append(report, "%s'%s'", i ? ", " : "", names[i]);
        }
        append(report, ";");
    }
}

void bps_report_missing(uint32_t kind, const char *name, const struct bps_dirs *dirs,
                        struct bps_report *report)
{
    struct found found = {.kind = kind, .name = name};
    struct bps_report text = {""};

    /* Without the list the message still names the directories. */
    (void)bps_plugin_each(collect, &found, NULL);
    append(&text, "there is no %s '%s'; ", bps_kind_name(kind), name);
    append_remedy(&found, &text);
    append(&text, " no file %s_%s.so in ", bps_kind_name(kind), name);
    append_dirs(dirs, &text);
    BPS_REPORT(report, "%s", text.text);
}
