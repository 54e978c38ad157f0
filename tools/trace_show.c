/* SPDX-License-Identifier: Apache-2.0 */
/* trace_show.c - `byteps trace show`: where the time of the steps went, as a table and for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/cmd.h"
#include "tools/trace.h"
#include "tools/trace_steps.h"

/* clang-format off */
static const struct {
    const char *name;
    int width;
} columns[BPS_CMD_TRACE_PARTS] = {
    [BPS_CMD_TRACE_COMPUTING] = {"computation", 12},
    [BPS_CMD_TRACE_STAGES] = {"stages", 8},
    [BPS_CMD_TRACE_QUEUE] = {"queue", 8},
    [BPS_CMD_TRACE_CREDITS] = {"credit", 8},
    [BPS_CMD_TRACE_WIRE] = {"wire", 8},
    [BPS_CMD_TRACE_OTHERS] = {"others", 8},
    [BPS_CMD_TRACE_SUMMING] = {"sum", 8},
    [BPS_CMD_TRACE_UNKNOWN] = {"unknown", 8},
};
/* clang-format on */

/* The mean of some rows, nanoseconds. */
struct mean {
    size_t rows;
    double part[BPS_CMD_TRACE_PARTS];
};

static void mean_add(struct mean *mean, const struct bps_cmd_trace_row *row)
{
    mean->rows++;
    for (int i = 0; i < BPS_CMD_TRACE_PARTS; i++) {
        mean->part[i] += ((double)row->part[i] - mean->part[i]) / (double)mean->rows;
    }
}

static double total(const struct mean *mean)
{
    double sum = 0;
    for (int i = 0; i < BPS_CMD_TRACE_PARTS; i++) {
        sum += mean->part[i];
    }
    return sum;
}

/* Rounds the parts to whole units so that they add up to their rounded sum, which it returns. */
static int64_t share(const struct mean *mean, double unit, int64_t out[BPS_CMD_TRACE_PARTS])
{
    int64_t sum = unit > 0 ? llround(total(mean) / unit) : 0, rest = sum;
    double remainder[BPS_CMD_TRACE_PARTS];
    for (int i = 0; i < BPS_CMD_TRACE_PARTS; i++) {
        double value = unit > 0 ? mean->part[i] / unit : 0;
        out[i] = (int64_t)floor(value);
        remainder[i] = value - floor(value);
        rest -= out[i];
    }
    sum -= rest < 0 ? rest : 0; /* of numbers too large for a double */
    for (; rest > 0; rest--) {
        int most = 0;
        for (int i = 1; i < BPS_CMD_TRACE_PARTS; i++) {
            most = remainder[i] > remainder[most] ? i : most;
        }
        out[most]++;
        remainder[most]--;
    }
    return sum;
}

/* ---- for people ---- */

/* Whether the last column, which most tables do not need, is shown. */
static bool any_unknown(const struct bps_cmd_trace_steps *steps)
{
    for (size_t i = 0; i < steps->rows; i++) {
        if (steps->row[i].part[BPS_CMD_TRACE_UNKNOWN] > 0) {
            return true;
        }
    }
    return false;
}

static void print_titles(int parts)
{
    printf("%6s%9s", "step", "time");
    for (int i = 0; i < parts; i++) {
        printf("%*s", columns[i].width, columns[i].name);
    }
    putchar('\n');
}

static void print_row(const char *head, const struct mean *mean, double unit, int parts)
{
    int64_t part[BPS_CMD_TRACE_PARTS], sum = share(mean, unit, part);
    printf("%6s %8.1f", head, (double)sum / 10);
    for (int i = 0; i < parts; i++) {
        printf(" %*.1f", columns[i].width - 1, (double)part[i] / 10);
    }
    putchar('\n');
}

static void print_means(const struct mean *all, int parts)
{
    print_row("mean", all, 1e5, parts);
    print_row("%", all, total(all) / 1000, parts);
}

static int by_step(const void *a, const void *b)
{
    const struct bps_cmd_trace_row *x = a, *y = b;
    int result = (x->step > y->step) - (x->step < y->step);
    return result != 0 ? result : (x->rank > y->rank) - (x->rank < y->rank);
}

/* A line of each step, of the rows one after the other that are of it; and their mean. */
static void print_table(const struct bps_cmd_trace_row *row, size_t rows, int parts)
{
    struct mean all = {0}, step = {0};
    char head[32];
    print_titles(parts);
    for (size_t i = 0; i < rows; i++) {
        mean_add(&all, &row[i]);
        mean_add(&step, &row[i]);
        if (i + 1 == rows || row[i + 1].step != row[i].step) {
            snprintf(head, sizeof head, "%" PRIu64, row[i].step);
            print_row(head, &step, 1e5, parts);
            step = (struct mean){0};
        }
    }
    print_means(&all, parts);
}

/* How many rows from the first one on are of its worker. */
static size_t of_worker(const struct bps_cmd_trace_row *row, size_t rows)
{
    size_t n = 0;
    while (n < rows && row[n].rank == row[0].rank) {
        n++;
    }
    return n;
}

static uint32_t count_workers(const struct bps_cmd_trace_steps *steps)
{
    uint32_t n = 0;
    for (size_t i = 0; i < steps->rows; i += of_worker(&steps->row[i], steps->rows - i)) {
        n++;
    }
    return n;
}

static uint64_t count_lost(const struct bps_cmd_trace *trace)
{
    uint64_t lost = 0;
    for (uint32_t i = 0; i < trace->members; i++) {
        lost = trace->member[i].lost > UINT64_MAX - lost ? UINT64_MAX : lost + trace->member[i].lost;
    }
    return lost;
}

static double clock_error(const struct bps_cmd_trace *trace)
{
    double most = 0;
    for (uint32_t i = 0; i < trace->members; i++) {
        most = fmax(most, trace->member[i].clock_error);
    }
    return most;
}

/* What a reader must know of the numbers. */
static void print_notes(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_steps *steps, int parts)
{
    uint64_t lost = count_lost(trace);
    double error = clock_error(trace);
    if (steps->unserved > 0) {
        printf("\nThe files of servers are missing, for %zu of the %zu slices that ended what was\n"
               "waited for: there 'wire' and 'credit' contain waiting for other workers, and\nsums.\n",
               steps->unserved, steps->slices);
    }
    if (parts == BPS_CMD_TRACE_PARTS) {
        printf("\n'unknown': of what was waited for there are no events.\n");
    }
    if (lost > 0) {
        printf("\n%" PRIu64 " events were lost where they were recorded.\n", lost);
    }
    if (error >= 100) {
        printf("\nThe clocks of the members agree within %.1f ms only; the boundary between\n'wire' and 'others' is no "
               "more exact than that.\n",
               error / 1000);
    }
}

static void print_steps(const struct bps_cmd_trace *trace, struct bps_cmd_trace_steps *steps, bool workers)
{
    int parts = any_unknown(steps) ? BPS_CMD_TRACE_PARTS : BPS_CMD_TRACE_UNKNOWN;
    uint32_t n = count_workers(steps);
    printf("Milliseconds of each step");
    if (workers) {
        putchar('\n');
        for (size_t i = 0, rows; i < steps->rows; i += rows) {
            rows = of_worker(&steps->row[i], steps->rows - i);
            printf("\nworker %u\n", steps->row[i].rank);
            print_table(&steps->row[i], rows, parts);
        }
    } else {
        printf(n == 1 ? ", of 1 worker\n\n" : ", the mean of %u workers\n\n", n);
        qsort(steps->row, steps->rows, sizeof *steps->row, by_step);
        print_table(steps->row, steps->rows, parts);
    }
    print_notes(trace, steps, parts);
}

/* ---- for programs ---- */

static json_t *parts_json(const struct mean *mean, double unit, double each, bool whole)
{
    int64_t part[BPS_CMD_TRACE_PARTS], sum = share(mean, unit, part);
    json_t *out = json_object();
    json_object_set_new(out, "time", whole ? json_integer(sum) : json_real((double)sum / each));
    for (int i = 0; i < BPS_CMD_TRACE_PARTS; i++) {
        json_object_set_new(out, columns[i].name, whole ? json_integer(part[i]) : json_real((double)part[i] / each));
    }
    return out;
}

/* The same lines as print_table(). */
static json_t *table_json(const struct bps_cmd_trace_row *row, size_t rows)
{
    struct mean all = {0}, step = {0};
    json_t *lines = json_array();
    for (size_t i = 0; i < rows; i++) {
        mean_add(&all, &row[i]);
        mean_add(&step, &row[i]);
        if (i + 1 == rows || row[i + 1].step != row[i].step) {
            json_array_append_new(lines, json_pack("{s:I, s:I, s:o}", "step", (json_int_t)row[i].step, "workers",
                                                   (json_int_t)step.rows, "ns", parts_json(&step, 1, 1, true)));
            step = (struct mean){0};
        }
    }
    return json_pack("{s:o, s:{s:o, s:o}}", "steps", lines, "mean", "ns", parts_json(&all, 1, 1, true), "percent",
                     parts_json(&all, total(&all) / 1000, 10, false));
}

static int print_json(const struct bps_cmd_trace *trace, struct bps_cmd_trace_steps *steps)
{
    json_t *workers = json_array();
    for (size_t i = 0, rows; i < steps->rows; i += rows) {
        rows = of_worker(&steps->row[i], steps->rows - i);
        json_t *table = table_json(&steps->row[i], rows);
        json_object_set_new(table, "rank", json_integer(steps->row[i].rank));
        json_array_append_new(workers, table);
    }
    qsort(steps->row, steps->rows, sizeof *steps->row, by_step);
    json_t *root = table_json(steps->row, steps->rows);
    json_object_set_new(root, "workers", workers);
    json_object_set_new(root, "slices", json_integer((json_int_t)steps->slices));
    json_object_set_new(root, "slices_without_server", json_integer((json_int_t)steps->unserved));
    json_object_set_new(root, "lost", json_integer((json_int_t)(count_lost(trace) & INT64_MAX)));
    json_object_set_new(root, "clock_error_us", json_real(clock_error(trace)));
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed != 0 ? BPS_EXIT_FAILURE : 0;
}

/* ---- which ---- */

/* Leaves only those that are asked for. False: there are none. */
static bool choose(struct bps_cmd_trace_steps *steps, const struct bps_cmd_trace_command *command)
{
    size_t n = 0;
    for (size_t i = 0; i < steps->rows; i++) {
        if (!command->some || (steps->row[i].step >= command->from && steps->row[i].step <= command->to)) {
            steps->row[n++] = steps->row[i];
        }
    }
    steps->rows = n;
    return n > 0;
}

int bps_cmd_trace_show(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_command *command)
{
    struct bps_cmd_trace_steps steps;
    int result = 0;
    bps_cmd_trace_steps_make(trace, &steps);
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < steps.rows; i++) {
        least = steps.row[i].step < least ? steps.row[i].step : least;
        most = steps.row[i].step > most ? steps.row[i].step : most;
    }
    if (steps.rows == 0) {
        result = bps_cmd_failure("trace", "no step is in %s: expected operations of a worker",
                                 trace->files == 1 ? "the file" : "the files");
    } else if (!choose(&steps, command)) {
        result = bps_cmd_failure(
            "trace", "none of the steps %" PRIu64 "..%" PRIu64 " is there; the steps are %" PRIu64 "..%" PRIu64,
            command->from, command->to, least, most);
    } else if (command->json) {
        result = print_json(trace, &steps);
    } else {
        print_steps(trace, &steps, command->workers);
    }
    bps_cmd_trace_steps_fini(&steps);
    return result;
}
