/* SPDX-License-Identifier: Apache-2.0 */
/* bench_figures.c - what all benchmarks do with their figures. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/bench.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bps_bench_spread bps_bench_spread(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return (struct bps_bench_spread){.median = values[n / 2], .least = values[0], .most = values[n - 1]};
}

int bps_bench_print_json(json_t *root)
{
    bool printed = root != NULL && json_dumpf(root, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
    json_decref(root);
    return printed ? 0 : bps_cmd_failure(BPS_BENCH_NAME, "cannot print JSON");
}
