/* SPDX-License-Identifier: Apache-2.0 */
/* plan_table.c - numbers of servers side by side, for people and for programs. */
#include <math.h>
#include <stdio.h>

#include "tools/plan_compare.h"

/* ---- for people ---- */

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

/* How numbers of a column are written: in this unit, so that the largest has four digits. */
struct column {
    const char *unit;
    double scale;
    int decimals;
};

static int decimals(double largest)
{
    return largest > 0 ? (int)fmin(9, fmax(0, 3 - floor(log10(largest) + 1e-12))) : 0;
}

static struct column times_column(const struct bps_compare *compare)
{
    double most = 0;
    for (uint32_t i = 0; i < compare->n; i++) {
        most = fmax(most, compare->row[i].placed);
    }
    struct column column = {"us", 1e6, 0};
    if (most >= 1) {
        column = (struct column){"s", 1, 0};
    } else if (most >= 1e-3) {
        column = (struct column){"ms", 1e3, 0};
    }
    column.decimals = decimals(most * column.scale);
    return column;
}

static struct column costs_column(const struct bps_compare *compare)
{
    double most = 0;
    for (uint32_t i = 0; i < compare->n; i++) {
        most = fmax(most, compare->row[i].cost_per_1000);
    }
    return (struct column){"", 1, decimals(most)};
}

static void cell(int width, int places, double value)
{
    if (isnan(value)) {
        printf("%*s", width, "-");
    } else {
        printf("%*.*f", width, places, value);
    }
}

static void print_heads(const struct bps_compare *compare, const struct bps_model *model, const struct bps_step *step)
{
    printf("%s: %u tensor%s, %lu elements, %s\n", model->name, model->tensors, plural(model->tensors), model->elements,
           bps_bytes_text((double)model->bytes));
    printf("%u host%s with workers, and further hosts with servers only; %s each way\n", compare->workers,
           plural(compare->workers), compare->links);
    printf("ring all-reduce: %s\n", bps_duration_text(compare->row[0].ring));
    if (step->compute >= 0) {
        printf("a step: %s of computation, and push_pull %s\n", bps_duration_text(step->compute),
               step->overlap ? "at the same time" : "after it");
    } else if (step->price >= 0) {
        printf("a step: push_pull alone; --compute adds computation\n");
    }
    if (step->price >= 0) {
        printf("prices of an hour: %.10g for a host with workers, %.10g for a further one\n", step->worker_price,
               step->price);
    }
}

static void print_titles(const struct column *time, const struct bps_step *step)
{
    bool steps = step->compute >= 0, costs = step->price >= 0;
    char unit[24];
    snprintf(unit, sizeof unit, "push_pull, %s", time->unit);
    printf("\n%7s%18s%7s%17s%10s%17s%s%s\n", "", unit, "to the", "times as fast as", "one more", "links in use, %",
           steps ? "    steps" : "", costs ? "    cost of" : "");
    printf("%7s%9s%9s%7s%10s%7s%10s%9s%8s%s%s\n", "servers", "placed", "ideal", "best", "a ring", "k = 0", "saves",
           "workers", "servers", steps ? "  an hour" : "", costs ? " 1000 steps" : "");
}

static bool is_marked(const struct bps_compare_row *row)
{
    return row->cheapest || row->near || row->enough;
}

static void print_row(const struct bps_compare_row *row, const struct column *time, const struct column *cost,
                      const struct bps_step *step)
{
    printf("%7u", row->servers);
    cell(9, time->decimals, row->placed * time->scale);
    cell(9, time->decimals, row->ideal * time->scale);
    cell(7, 2, row->times_best);
    cell(10, 2, row->times_ring);
    cell(7, 2, row->times_none);
    cell(10, time->decimals, row->saved * time->scale);
    cell(9, 1, 100 * (1 - row->idle_workers));
    cell(8, 1, 100 * (1 - row->idle_servers));
    if (step->compute >= 0) {
        cell(9, 0, row->steps_per_hour);
    }
    if (step->price >= 0) {
        cell(11, cost->decimals, row->cost_per_1000);
    }
    printf("%s%s%s%s\n", is_marked(row) ? " " : "", row->cheapest ? "*" : "", row->near ? "~" : "",
           row->enough ? "+" : "");
}

static void print_marks(const struct bps_compare *compare, const struct column *cost, const struct bps_step *step)
{
    bool first = true;
    for (uint32_t i = 0; i < compare->n; i++) {
        const struct bps_compare_row *row = &compare->row[i];
        if (first && is_marked(row)) {
            putchar('\n');
            first = false;
        }
        if (row->cheapest) {
            printf("* least cost: %u further server%s, %.*f for 1000 steps\n", row->servers, plural(row->servers),
                   cost->decimals, row->cost_per_1000);
        }
        if (row->near) {
            printf("~ the fewest within %.0f %% of the best time%s: %u further server%s, %s\n",
                   100 * (BPS_COMPARE_NEAR - 1), step->compute >= 0 ? " of a step" : "", row->servers,
                   plural(row->servers), bps_duration_text(row->step));
        }
        if (row->enough) {
            printf("+ more than %u do not help: the links of workers carry their own gradients only\n", row->servers);
        }
    }
}

void bps_compare_print(const struct bps_compare *compare, const struct bps_model *model, const struct bps_step *step)
{
    struct column time = times_column(compare), cost = costs_column(compare);
    print_heads(compare, model, step);
    print_titles(&time, step);
    for (uint32_t i = 0; i < compare->n; i++) {
        print_row(&compare->row[i], &time, &cost, step);
    }
    print_marks(compare, &cost, step);
}

/* ---- for programs ---- */

static json_t *number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *row_json(const struct bps_compare *compare, const struct bps_compare_row *row)
{
    return json_pack(
        "{s:I, s:I, s:{s:o, s:o, s:o, s:o}, s:o, s:{s:o, s:o}, s:{s:o, s:o}, s:{s:o, s:o}, s:{s:o, s:o, s:o}, "
        "s:b, s:b, s:b}",
        "workers", (json_int_t)compare->workers, "servers", (json_int_t)row->servers, "seconds", "servers_only",
        number(row->servers_only), "ring", number(row->ring), "ideal", number(row->ideal), "placed",
        number(row->placed), "times_best", number(row->times_best), "times_as_fast", "as_ring", number(row->times_ring),
        "as_no_server", number(row->times_none), "each_saves", "seconds", number(row->saved), "share",
        number(row->saved_part), "idle", "workers", number(row->idle_workers), "servers", number(row->idle_servers),
        "step", "seconds", number(row->step), "per_hour", number(row->steps_per_hour), "cost_per_1000",
        number(row->cost_per_1000), "least_cost", row->cheapest, "near_best", row->near, "enough", row->enough);
}

json_t *bps_compare_json(const struct bps_compare *compare)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < compare->n; i++) {
        json_array_append_new(rows, row_json(compare, &compare->row[i]));
    }
    return rows;
}
