/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - `byteps plugin check`: which tests there are for its kind. */
#include "tools/check/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/check.h"
#include "tools/cmd.h"
#include "tools/plugin_which.h"

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

int bps_plugin_check(const struct bps_check_request *request)
{
    struct bps_plugin_which which = {.path = NULL};
    int result = bps_plugin_check_set(request->set, request->nset);
    result = result == 0 ? bps_plugin_find(request->plugin, request->kind, &which) : result;
    if (result == 0 && which.kind == BPS_KIND_FRAMEWORK) {
        result = bps_cmd_failure(
            "plugin",
            "'%s' is a framework binding, which has no conformance suite: run its own tests with its framework",
            which.name);
    } else if (result == 0) {
        struct bps_check_plugin plugin = {which.kind, "", which.path, request->set, request->nset};
        memcpy(plugin.name, which.name, sizeof plugin.name);
        result = run_suite(request, &plugin);
    }
    free(which.path);
    return result;
}
