/* SPDX-License-Identifier: Apache-2.0 */
/*
 * missing.c - what to say when there is no such plugin: what there is instead, and where it was looked for.
 * The long list of folders comes last, since a message that crosses the network may be cut.
 */
#include <string.h>
#include <sys/stat.h>

#include "conf/option.h"
#include "conf/tree.h"
#include "plugin/registry.h"
#include "plugin/search.h"

#define NAMES_MAX 64u

/* The usable plugins of the wanted kind, and another kind that has the wanted name. */
struct found {
    uint32_t kind;
    const char *name;
    uint32_t other_kind;
    size_t count;
    char names[NAMES_MAX][BPS_PLUGIN_NAME_MAX + 1];
};

static void missing_plugin_collect(void *arg, const struct bps_plugin_row *row)
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

void bps_dirs_text(const struct bps_dirs *dirs, struct bps_text *text)
{
    struct stat st;

    for (size_t i = 0; i < dirs->count; i++) {
        bps_text_add(text, "%s%s%s", i ? ", " : "", dirs->items[i],
                     stat(dirs->items[i], &st) != 0 ? " (which does not exist)" : "");
    }
}

static void append_remedy(const struct found *found, struct bps_text *text)
{
    const char *names[NAMES_MAX];
    const char *near;

    for (size_t i = 0; i < found->count; i++) {
        names[i] = found->names[i];
    }
    near = bps_nearest(found->name, names, found->count);
    if (near) {
        bps_text_add(text, "did you mean '%s'?", near);
    } else if (found->other_kind) {
        bps_text_add(text, "'%s' is a %s;", found->name, bps_kind_name(found->other_kind));
    } else if (found->count == 0) {
        bps_text_add(text, "install it or name its directory in BYTEPS_PLUGIN_PATH;");
    } else {
        bps_text_add(text, "there is ");
        for (size_t i = 0; i < found->count; i++) {
            bps_text_add(text, "%s'%s'", i ? ", " : "", names[i]);
        }
        bps_text_add(text, ";");
    }
}

void bps_report_missing(uint32_t kind, const char *name, const struct bps_dirs *dirs, struct bps_report *report)
{
    struct found found = {.kind = kind, .name = name};
    struct bps_text text = {0};

    /* Without the list the message still names the directories. */
    (void)bps_plugin_each(0, missing_plugin_collect, &found, NULL);
    bps_text_add(&text, "there is no %s '%s'; ", bps_kind_name(kind), name);
    append_remedy(&found, &text);
    bps_text_add(&text, " no file %s_%s.so in ", bps_kind_name(kind), name);
    bps_dirs_text(dirs, &text);
    BPS_REPORT(report, "%s", text.failed ? "out of memory" : text.data);
    bps_text_free(&text);
}
