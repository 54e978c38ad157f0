/* SPDX-License-Identifier: Apache-2.0 */
/* show.c - what `byteps plugin check` tells: TAP, a test at a time, or JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "tools/check/check.h"
#include "tools/cmd.h"

struct bps_check_show {
    json_t *json; /* NULL: TAP */
    json_t *rows;
    size_t count[BPS_CHECK_FAILED + 1]; /* by result */
    size_t told;
};

static const char *result_name(enum bps_check_result result)
{
    return result == BPS_CHECK_PASSED ? "passed" : result == BPS_CHECK_SKIPPED ? "skipped" : "failed";
}

struct bps_check_show *bps_check_show_begin(const struct bps_check_plugin *plugin, size_t tests, bool json)
{
    struct bps_check_show *show = bps_cmd_alloc(1, sizeof *show);
    if (json) {
        show->json = json_object();
        show->rows = json_array();
        json_object_set_new(show->json, "kind", json_string(bps_kind_name(plugin->kind)));
        json_object_set_new(show->json, "name", json_string(plugin->name));
        json_object_set_new(show->json, "file", json_string(plugin->path));
    } else {
        printf("TAP version 14\n# %s %s: %s\n1..%zu\n", bps_kind_name(plugin->kind), plugin->name, plugin->path, tests);
        fflush(stdout);
    }
    return show;
}

/* The lines of a text, each as a comment. */
static void print_comment(const char *text)
{
    char *copy = bps_cmd_print("%s", text);
    char *rest = copy;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        bps_make_printable(line);
        if (line[0] != '\0') {
            printf("#   %s\n", line);
        }
    }
    free(copy);
}

static void print_outcome(const struct bps_check_show *show, const struct bps_check_outcome *outcome)
{
    bool failed = outcome->result == BPS_CHECK_FAILED, skipped = outcome->result == BPS_CHECK_SKIPPED;
    printf("%sok %zu - %s%s%s\n", failed ? "not " : "", show->told, outcome->name, skipped ? " # SKIP " : "",
           skipped ? outcome->text : "");
    if (!skipped && outcome->text[0] != '\0') {
        print_comment(outcome->text);
    }
    if (failed && outcome->output != NULL) {
        print_comment(outcome->output);
    }
    fflush(stdout);
}

static void add_outcome(const struct bps_check_show *show, const struct bps_check_outcome *outcome)
{
    json_t *row = json_object();
    char *output = bps_cmd_print("%s", outcome->output != NULL ? outcome->output : "");
    for (char *c = output; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    json_object_set_new(row, "test", json_string(outcome->name));
    json_object_set_new(row, "result", json_string(result_name(outcome->result)));
    json_object_set_new(row, "text", json_string(outcome->text));
    json_object_set_new(row, "output", json_string(output));
    json_object_set_new(row, "seconds", json_real(outcome->seconds));
    json_array_append_new(show->rows, row);
    free(output);
}

void bps_check_show_outcome(struct bps_check_show *show, const struct bps_check_outcome *outcome)
{
    show->count[outcome->result]++;
    show->told++;
    if (show->json != NULL) {
        add_outcome(show, outcome);
    } else {
        print_outcome(show, outcome);
    }
}

bool bps_check_show_end(struct bps_check_show *show)
{
    size_t failed = show->count[BPS_CHECK_FAILED], skipped = show->count[BPS_CHECK_SKIPPED];
    if (show->json != NULL) {
        json_object_set_new(show->json, "tests", show->rows);
        json_object_set_new(show->json, "failed", json_integer((json_int_t)failed));
        json_dumpf(show->json, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(show->json);
    } else {
        printf("# %zu passed, %zu failed, %zu skipped\n", show->count[BPS_CHECK_PASSED], failed, skipped);
    }
    free(show);
    return failed == 0;
}
