/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - `byteps plugin check`: which plugin is meant, and which tests there are for its kind. */
#include "tools/check/command.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf/option.h"
#include "plugin/elf_note.h"
#include "plugin/registry.h"
#include "plugin/search.h"
#include "tools/check/check.h"
#include "tools/cmd.h"

/* ---- which plugin ---- */

struct found {
    const char *name;
    uint32_t kind; /* 0: any */
    size_t count;
    struct bps_plugin_row row;
};

static void look_at(void *arg, const struct bps_plugin_row *row)
{
    struct found *found = arg;
    if (strcmp(row->name, found->name) == 0 && (found->kind == 0 || row->kind == found->kind) &&
        row->kind != BPS_KIND_FRAMEWORK) {
        found->count += found->count == 0 || found->row.kind != row->kind;
        found->row = found->row.name[0] == '\0' ? *row : found->row;
    }
}

static int find_by_name(const struct bps_check_request *request, struct bps_check_plugin *out)
{
    struct found found = {.name = request->plugin, .kind = request->kind};
    struct bps_report report = {""};
    if (bps_plugin_each(request->kind, look_at, &found, &report) != BPS_OK) {
        return bps_cmd_failure("plugin", "%s", report.text);
    }
    if (found.count == 0) {
        return bps_cmd_failure("plugin",
                               "there is no plugin '%s' that can be checked; 'byteps plugin list' shows what there is, "
                               "and a file is named by its path, such as ./stage_half.so",
                               request->plugin);
    }
    if (found.count > 1) {
        return bps_cmd_failure("plugin", "'%s' is the name of plugins of several kinds; add --kind", request->plugin);
    }
    out->kind = found.row.kind;
    out->path = bps_cmd_print("%s", found.row.path);
    memcpy(out->name, found.row.name, sizeof out->name);
    return 0;
}

/* The folder of the file becomes the first that is searched, so that this file is the plugin of its name. */
static int find_by_path(const struct bps_check_request *request, struct bps_check_plugin *out)
{
    char *path = realpath(request->plugin, NULL);
    static struct bps_elf elf;
    struct bps_report report = {""};
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        free(path);
        return bps_cmd_failure("plugin", "%s: cannot be read: %m", request->plugin);
    }
    bps_status status = bps_elf_read(fd, &elf, &report);
    close(fd);
    if (status != BPS_OK) {
        free(path);
        return bps_cmd_failure("plugin", "%s: %s", request->plugin, report.text);
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
        return bps_cmd_failure("plugin", "%s: no note in it has the kind and name of the file, KIND_NAME.so",
                               request->plugin);
    }
    const char *others = getenv("BYTEPS_PLUGIN_PATH");
    char *folders = bps_cmd_print("%.*s%s%s", (int)(strrchr(path, '/') - path), path, others != NULL ? ":" : "",
                                  others != NULL ? others : "");
    setenv("BYTEPS_PLUGIN_PATH", folders, 1);
    free(folders);
    return 0;
}

/* ---- its tests ---- */

static const struct bps_check_test *tests_of(uint32_t kind)
{
    static const struct bps_check_test none[] = {{NULL, NULL, 0}};
    switch (kind) {
    case BPS_KIND_STAGE:
        return bps_check_stage;
    case BPS_KIND_COMPRESSOR:
        return bps_check_compressor;
    case BPS_KIND_REDUCER:
        return bps_check_reducer;
    case BPS_KIND_TRANSPORT:
        return bps_check_transport;
    default:
        return none;
    }
}

static bool is_wanted(const struct bps_check_request *request, const struct bps_check_test *test)
{
    return request->only == NULL || strstr(test->name, request->only) != NULL;
}

static size_t count_tests(const struct bps_check_request *request, const struct bps_check_test *tests)
{
    size_t count = 0;
    for (; tests->name != NULL; tests++) {
        count += is_wanted(request, tests);
    }
    return count;
}

static void run_tests(const struct bps_check_request *request, const struct bps_check_plugin *plugin,
                      const struct bps_check_test *tests, struct bps_check_show *show)
{
    for (; tests->name != NULL; tests++) {
        if (is_wanted(request, tests)) {
            struct bps_check_outcome outcome;
            bps_check_run(plugin, tests, request->limit, &outcome);
            bps_check_show_outcome(show, &outcome);
            free(outcome.output);
        }
    }
}

static int run_suite(const struct bps_check_request *request, const struct bps_check_plugin *plugin)
{
    const struct bps_check_test *own = tests_of(plugin->kind);
    size_t count = count_tests(request, bps_check_every) + count_tests(request, own);
    if (count == 0) {
        return bps_cmd_failure("plugin", "no test of a %s has '%s' in its name", bps_kind_name(plugin->kind),
                               request->only);
    }
    struct bps_check_show *show = bps_check_show_begin(plugin, count, request->json);
    run_tests(request, plugin, bps_check_every, show);
    run_tests(request, plugin, own, show);
    return bps_cmd_finish("plugin", bps_check_show_end(show) ? 0 : BPS_EXIT_FAILURE);
}

static int check_set(const struct bps_check_request *request)
{
    for (size_t i = 0; i < request->nset; i++) {
        if (strchr(request->set[i], '=') == NULL) {
            return bps_cmd_usage("plugin", "--set takes OPTION=VALUE, found '%s'", request->set[i]);
        }
    }
    return 0;
}

int bps_plugin_check(const struct bps_check_request *request)
{
    struct bps_check_plugin plugin = {.set = request->set, .nset = request->nset};
    int result = check_set(request);
    if (result == 0) {
        result = strchr(request->plugin, '/') != NULL ? find_by_path(request, &plugin) : find_by_name(request, &plugin);
    }
    if (result == 0) {
        result = run_suite(request, &plugin);
    }
    free((char *)plugin.path);
    return result;
}
