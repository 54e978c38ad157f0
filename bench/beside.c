/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - two plugins in turn: how often, who begins, and the table of what was found. */
#include "bench/beside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/tree.h"
#include "tools/plan.h"

const char *const bps_bench_side_name[BPS_BENCH_SIDES] = {"measured", "reference"};

/* The options of the command line as a group of a configuration. NULL: no memory. */
static struct bps_conf_node *option_group(const struct bps_bench_beside *beside, struct bps_arena *arena)
{
    struct bps_conf_node *group = bps_tree_node(arena, BPS_CONF_GROUP, NULL, NULL, "--set");
    for (size_t i = 0; i < beside->nset && group != NULL; i++) {
        const char *equals = strchr(beside->set[i], '=');
        char *name = bps_arena_copy(arena, beside->set[i]);
        if (name == NULL) {
            return NULL;
        }
        name[equals - beside->set[i]] = '\0';
        struct bps_conf_node *node = bps_tree_node(arena, BPS_CONF_SCALAR, name, equals + 1, "--set");
        group = node != NULL && bps_tree_put(arena, group, name, node) ? group : NULL;
    }
    return group;
}

bps_status bps_bench_beside_open(const struct bps_bench_beside *beside, enum bps_bench_side side, struct bps_loop *loop,
                                 struct bps_instance **out, struct bps_report *report)
{
    struct bps_arena arena = {0};
    const char *name = bps_bench_side_name[side];
    const struct bps_conf_node *group = side == BPS_BENCH_MEASURED ? option_group(beside, &arena) : NULL;
    bps_status status = BPS_ERR_NOMEM;
    if (group != NULL || side != BPS_BENCH_MEASURED) {
        status = bps_instance_open(beside->kind, beside->name[side], name, group, name, loop, out, report);
    }
    bps_arena_free(&arena);
    return status;
}

/* ---- the table ---- */

void bps_bench_beside_head(const struct bps_bench_beside *beside)
{
    if (!beside->request->json) {
        printf("%s %s beside %s: medians of %" PRId64 " rounds, in turn\n"
               "ratio: how many times as good the plugin is; above 1, it is faster, smaller or more exact\n\n"
               "%-26s%-10s%14s%14s%10s\n",
               bps_kind_name(beside->kind), beside->name[BPS_BENCH_MEASURED], beside->name[BPS_BENCH_REFERENCE],
               beside->request->rounds, "", "size", beside->name[BPS_BENCH_MEASURED], beside->name[BPS_BENCH_REFERENCE],
               "ratio");
        fflush(stdout);
    }
}

static void print_value(enum bps_bench_unit unit, double value)
{
    if (unit == BPS_BENCH_SHARE) {
        printf("%14.3f", value);
    } else if (unit == BPS_BENCH_SECONDS) {
        printf("%14s", bps_duration_text(value));
    } else {
        printf("%12s/s", bps_bytes_text(value));
    }
}

static void print_row(const struct bps_bench_figure *figure, const double *value, double ratio)
{
    printf("%-26s%-10s", figure->name, bps_bench_size_text(figure->bytes));
    print_value(figure->unit, value[BPS_BENCH_MEASURED]);
    print_value(figure->unit, value[BPS_BENCH_REFERENCE]);
    printf(ratio > 0 ? "%10.2f\n" : "         -\n", ratio);
    fflush(stdout);
}

static json_t *row_json(const struct bps_bench_figure *figure, const double *value, double ratio)
{
    static const char *const units[] = {"bytes_per_second", "seconds", "share"};
    return json_pack("{s:s, s:I, s:s, s:f, s:f, s:o}", "figure", figure->name, "bytes", (json_int_t)figure->bytes,
                     "unit", units[figure->unit], "plugin", value[BPS_BENCH_MEASURED], "reference",
                     value[BPS_BENCH_REFERENCE], "ratio", ratio > 0 ? json_real(ratio) : json_null());
}

/* ---- in turn ---- */

/* 0: one of the two is none. */
static double ratio_of(enum bps_bench_unit unit, const double *value)
{
    double better = value[BPS_BENCH_MEASURED], than = value[BPS_BENCH_REFERENCE];
    if (unit != BPS_BENCH_RATE) {
        better = value[BPS_BENCH_REFERENCE];
        than = value[BPS_BENCH_MEASURED];
    }
    return better > 0 && than > 0 ? better / than : 0;
}

/* The two change who is first: whatever one leaves behind, such as a warm cache, helps both alike. */
static bps_status one_round(const struct bps_bench_figure *figure, size_t round, double *value,
                            struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (size_t i = 0; i < BPS_BENCH_SIDES && status == BPS_OK; i++) {
        size_t side = (round + i) % BPS_BENCH_SIDES;
        status = figure->once(figure->side[side], figure->arg, &value[side], report);
    }
    return status;
}

bps_status bps_bench_in_turn(const struct bps_bench_beside *beside, const struct bps_bench_figure *figure,
                             struct bps_report *report)
{
    size_t rounds = (size_t)beside->request->rounds;
    double *values = bps_cmd_alloc((BPS_BENCH_SIDES + 1) * rounds, sizeof *values), *ratios = values + 2 * rounds;
    double value[BPS_BENCH_SIDES];
    bps_status status = BPS_OK;
    for (size_t i = 0; i < rounds && status == BPS_OK; i++) {
        status = one_round(figure, i, value, report);
        values[i] = value[BPS_BENCH_MEASURED];
        values[rounds + i] = value[BPS_BENCH_REFERENCE];
        ratios[i] = ratio_of(figure->unit, value);
    }
    if (status == BPS_OK) {
        double ratio = bps_bench_spread(ratios, rounds).median;
        value[BPS_BENCH_MEASURED] = bps_bench_spread(values, rounds).median;
        value[BPS_BENCH_REFERENCE] = bps_bench_spread(values + rounds, rounds).median;
        json_array_append_new(beside->rows, row_json(figure, value, ratio));
        if (!beside->request->json) {
            print_row(figure, value, ratio);
        }
    }
    free(values);
    return status;
}
