/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_options.c - the rules for a plugin's option table. A table that passes can be parsed, shown and
 * documented without another look, and never writes outside the option struct.
 */
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/option.h"
#include "plugin/check.h"
#include "plugin/search.h"

#define STRUCT_MAX (1024u * 1024u)

/* Keys that stand beside the options in the configuration and belong to the core. */
static const char *const reserved[] = {"plugin", "stage", "use", "when"};

static bps_status option_check_check_name(const struct bps_option *table, const struct bps_option *row,
                                          struct bps_report *report)
{
    if (!bps_plugin_name_valid(row->name)) {
        return bps_refuse(report, "option '%.64s': its name is not allowed; " BPS_PLUGIN_NAME_RULE, row->name);
    }
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        if (strcmp(row->name, reserved[i]) == 0) {
            return bps_refuse(report, "option '%s': this name belongs to the core; rename the option", row->name);
        }
    }
    for (const struct bps_option *other = table; other != row; other++) {
        if (strcmp(other->name, row->name) == 0) {
            return bps_refuse(report, "option '%s': rows %td and %td of the table have this name; rename one",
                              row->name, other - table, row - table);
        }
    }
    return BPS_OK;
}

static bps_status option_check_check_place(const struct bps_option *table, const struct bps_option *row, size_t size,
                                           struct bps_report *report)
{
    const struct bps_option_type *field = bps_option_type(row->type);

    if (row->offset > size || field->size > size - row->offset) {
        return bps_refuse(report,
                          "option '%s': its field ends at byte %zu of the option struct, which has %zu; correct "
                          "offset or options_size",
                          row->name, row->offset + field->size, size);
    }
    if (row->offset % field->align != 0) {
        return bps_refuse(report, "option '%s': its offset is %zu, expected a multiple of %zu for a %s; use offsetof",
                          row->name, row->offset, field->align, field->name);
    }
    for (const struct bps_option *other = table; other != row; other++) {
        if (row->offset < other->offset + bps_option_type(other->type)->size &&
            other->offset < row->offset + field->size) {
            return bps_refuse(report,
                              "option '%s': its field overlaps that of '%s' in the option struct; correct offset",
                              row->name, other->name);
        }
    }
    return BPS_OK;
}

/* An end of a range that does not parse would allow everything. */
static bool end_parses(const struct bps_option *row, const char *end, size_t n, void *scratch)
{
    const struct bps_option unlimited = {.name = row->name, .type = row->type, .offset = row->offset};
    char text[64];

    if (n == 0) {
        return true;
    }
    snprintf(text, sizeof text, "%.*s", (int)n, end);
    return n < sizeof text && bps_option_parse(&unlimited, text, scratch, NULL) == BPS_OK;
}

static bps_status check_range(const struct bps_option *row, void *scratch, struct bps_report *report)
{
    const char *range = row->range ? row->range : "";
    const char *dots = strstr(range, "..");

    if (row->type == BPS_OPT_CHOICE && !*range) {
        return bps_refuse(report, "option '%s': it has no words to choose from; list them in range, as in a|b",
                          row->name);
    }
    if (!*range || row->type == BPS_OPT_CHOICE || row->type == BPS_OPT_BOOL || row->type == BPS_OPT_STRING ||
        row->type == BPS_OPT_LIST) {
        return BPS_OK;
    }
    if (!dots || !end_parses(row, range, (size_t)(dots - range), scratch) ||
        !end_parses(row, dots + 2, strlen(dots + 2), scratch)) {
        return bps_refuse(report,
                          "option '%s': its range is '%.64s', expected FROM..TO with values of type %s; correct range",
                          row->name, range, bps_option_type(row->type)->name);
    }
    return BPS_OK;
}

static bps_status check_default(const struct bps_option *row, void *scratch, struct bps_report *report)
{
    const struct bps_option one[] = {*row, {0}};
    struct bps_report why = {""};

    if (bps_option_parse(row, row->fallback, scratch, &why) != BPS_OK) {
        return bps_refuse(report, "option '%s': its default is '%.64s': %.800s; correct fallback or range", row->name,
                          row->fallback, why.text);
    }
    bps_options_release(one, scratch);
    return BPS_OK;
}

static bps_status check_row(const struct bps_option *table, const struct bps_option *row, size_t size, void *scratch,
                            struct bps_report *report)
{
    bps_status status = option_check_check_name(table, row, report);

    if (status != BPS_OK) {
        return status;
    }
    if (bps_option_type(row->type)->size == 0) {
        return bps_refuse(report, "option '%s': its type is %u, expected 1 to %u; use BPS_OPT_*", row->name, row->type,
                          BPS_OPT_LIST);
    }
    if (!row->fallback || !row->help || !*row->help) {
        return bps_refuse(report, "option '%s': it has no %s; every row states one", row->name,
                          row->fallback ? "help" : "default");
    }
    status = option_check_check_place(table, row, size, report);
    if (status == BPS_OK) {
        status = check_range(row, scratch, report);
    }
    return status == BPS_OK ? check_default(row, scratch, report) : status;
}

bps_status bps_options_check(const struct bps_option *table, size_t size, struct bps_report *report)
{
    const struct bps_option *row = table;
    bps_status status = BPS_OK;
    void *scratch;

    if (size > STRUCT_MAX) {
        return bps_refuse(report, "options_size is %zu, expected at most %u; set it to the size of the option struct",
                          size, STRUCT_MAX);
    }
    scratch = calloc(1, size + 1);
    if (!scratch) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory for an option struct of %zu bytes", size);
    }
    for (; row->name && status == BPS_OK; row++) {
        if (row - table == BPS_OPTION_ROWS) {
            status = bps_refuse(report, "option table has more than %u rows; end it with a row whose name is NULL",
                                BPS_OPTION_ROWS);
        } else {
            status = check_row(table, row, size, scratch, report);
        }
    }
    free(scratch);
    return status;
}
