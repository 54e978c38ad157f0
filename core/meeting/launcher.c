/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c - the place of a launcher, which is a plugin: those whose variables are set look whether it is theirs, and
 * of those that say so the one that comes first by its order is opened.
 */
#include <string.h>

#include "base/log.h"
#include "base/report.h"
#include "meeting/meeting.h"
#include "plugin/instance.h"
#include "plugin/returned.h"

#define LOG "launcher"

static struct bps_instance *opened; /* NULL: none */

static const struct bps_launcher_ops *meeting_launcher_ops_of(const struct bps_instance *instance)
{
    return instance->ops;
}

/* ---- which one ---- */

struct search {
    char name[32]; /* of the last one */
    const struct bps_loaded *found;
};

/* Files of one name come one after the other, the one that counts first. */
static void consider(void *arg, const struct bps_plugin_row *row)
{
    struct search *search = arg;
    const struct bps_loaded *loaded;
    struct bps_report why = {""};
    if (strcmp(search->name, row->name) == 0) {
        return;
    }
    snprintf(search->name, sizeof search->name, "%s", row->name);
    if (row->away) {
        bps_debug(LOG, "launcher %s does not apply: none of its environment variables is set", row->name);
        return;
    }
    if (bps_plugin_open(BPS_KIND_LAUNCHER, row->name, NULL, &loaded, &why) != BPS_OK) {
        bps_warn(LOG, "%s", why.text);
        return;
    }
    const struct bps_launcher_ops *ops = loaded->ops, *best = search->found != NULL ? search->found->ops : NULL;
    bool here = ops->recognise();
    bps_debug(LOG, "launcher %s %s (order %u)", row->name, here ? "applies" : "does not apply", ops->order);
    if (here && (best == NULL || ops->order < best->order)) {
        search->found = loaded;
    }
}

/* ---- the place ---- */

static const char *direction(void)
{
    BPS_CALLING(opened, "direction", NULL);
    return meeting_launcher_ops_of(opened)->direction(opened->self);
}

/* Neither this nor find() is a call that the watchdog looks at: they may wait. */
static bps_status meeting_launcher_leave(const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    bps_status status = meeting_launcher_ops_of(opened)->leave(opened->self, key, note, until, report);
    return bps_returned_told(opened, "leave", status, report);
}

static bps_status meeting_launcher_find(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until,
                                        struct bps_report *report)
{
    memset(note, 0, BPS_NOTE_LIMIT);
    bps_status status = meeting_launcher_ops_of(opened)->find(opened->self, key, note, until, report);
    note[BPS_NOTE_LIMIT - 1] = '\0';
    return bps_returned_told(opened, "find", status, report);
}

static void meeting_launcher_end(void)
{
    struct bps_instance *instance = opened;
    opened = NULL; /* before it is freed, as a fork may come at any time */
    bps_instance_close(instance);
}

bps_status bps_meeting_launcher(const struct bps_meeting_place **out, struct bps_report *report)
{
    static struct bps_meeting_place place = {.direction = direction,
                                             .leave = meeting_launcher_leave,
                                             .end = meeting_launcher_end,
                                             .find = meeting_launcher_find};
    struct search search = {.found = NULL};
    *out = NULL;
    bps_status status = bps_plugin_each(BPS_KIND_LAUNCHER, consider, &search, report);
    if (status != BPS_OK || search.found == NULL) {
        return status;
    }
    const char *name = search.found->plugin->name;
    status = bps_instance_open(BPS_KIND_LAUNCHER, name, name, NULL, "launcher", NULL, &opened, report);
    if (status == BPS_OK) {
        place.name = meeting_launcher_ops_of(opened)->place;
        *out = &place;
    }
    return status;
}

void bps_meeting_in_child(void)
{
    if (opened != NULL) {
        meeting_launcher_ops_of(opened)->in_child(opened->self);
        opened = NULL;
    }
}
