/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_which.c - the plugin that a command line means by a name, or by a file that need not be installed. */
#include "tools/plugin_which.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/elf_note.h"
#include "plugin/registry.h"
#include "tools/cmd.h"

struct found {
    const char *name;
    uint32_t kind; /* 0: any */
    size_t count;
    struct bps_plugin_row row;
};

static void look_at(void *arg, const struct bps_plugin_row *row)
{
    struct found *found = arg;
    bool first = found->row.name[0] == '\0';
    if (strcmp(row->name, found->name) == 0 && (found->kind == 0 || row->kind == found->kind)) {
        found->count += first || found->row.kind != row->kind;
        found->row = first ? *row : found->row;
    }
}

static int find_by_name(const char *plugin, uint32_t kind, struct bps_plugin_which *out)
{
    struct found found = {.name = plugin, .kind = kind};
    struct bps_report report = {""};
    if (bps_plugin_each(kind, look_at, &found, &report) != BPS_OK) {
        return bps_cmd_failure("plugin", "%s", report.text);
    }
    if (found.count == 0) {
        return bps_cmd_failure("plugin",
                               "there is no plugin '%s' here; 'byteps plugin list' shows all plugins, and a file is "
                               "named by its path, such as ./stage_half.so",
                               plugin);
    }
    if (found.count > 1) {
        return bps_cmd_failure("plugin", "'%s' is the name of plugins of several kinds; add --kind", plugin);
    }
    out->kind = found.row.kind;
    out->path = bps_cmd_print("%s", found.row.path);
    memcpy(out->name, found.row.name, sizeof out->name);
    return 0;
}

/* The folder of the file becomes the first that is searched, so that this file is the plugin of its name. */
static int find_by_path(const char *plugin, struct bps_plugin_which *out)
{
    char *path = realpath(plugin, NULL);
    static struct bps_elf elf;
    struct bps_report report = {""};
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        free(path);
        return bps_cmd_failure("plugin", "%s: cannot be read: %m", plugin);
    }
    bps_status status = bps_elf_read(fd, &elf, &report);
    close(fd);
    if (status != BPS_OK) {
        free(path);
        return bps_cmd_failure("plugin", "%s: %s", plugin, report.text);
    }
    for (uint32_t i = 0; i < elf.notes && out->name[0] == '\0'; i++) {
        char file[80];
        snprintf(file, sizeof file, "/%s_%s.so", bps_kind_name(elf.note[i].kind), elf.note[i].name);
        size_t length = strlen(path), end = strlen(file);
        if (length > end && strcmp(path + length - end, file) == 0) {
            out->kind = elf.note[i].kind;
            memcpy(out->name, elf.note[i].name, sizeof out->name);
        }
    }
    out->path = path;
    if (out->name[0] == '\0') {
        return bps_cmd_failure("plugin", "%s: no note in it has the kind and name of the file, KIND_NAME.so", plugin);
    }
    const char *others = getenv("BYTEPS_PLUGIN_PATH");
    char *folders = bps_cmd_print("%.*s%s%s", (int)(strrchr(path, '/') - path), path, others != NULL ? ":" : "",
                                  others != NULL ? others : "");
    setenv("BYTEPS_PLUGIN_PATH", folders, 1);
    free(folders);
    return 0;
}

int bps_plugin_find(const char *plugin, uint32_t kind, struct bps_plugin_which *out)
{
    *out = (struct bps_plugin_which){.kind = 0};
    return strchr(plugin, '/') != NULL ? find_by_path(plugin, out) : find_by_name(plugin, kind, out);
}

int bps_plugin_check_set(const char *const *set, size_t nset)
{
    for (size_t i = 0; i < nset; i++) {
        if (strchr(set[i], '=') == NULL) {
            return bps_cmd_usage("plugin", "--set takes OPTION=VALUE, found '%s'", set[i]);
        }
    }
    return 0;
}
