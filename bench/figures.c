/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c - what all benchmarks do with their figures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

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

struct bps_bench_processors bps_bench_processors(void)
{
    enum { IDLE = 3, WAITING = 4, FIELDS = 8 }; /* user, nice, system, idle, iowait, irq, softirq, steal */
    struct bps_bench_processors now = {0, 0};
    double field;
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL) {
        return now;
    }
    for (int i = 0; i < FIELDS && fscanf(file, i == 0 ? "cpu %lf" : "%lf", &field) == 1; i++) {
        now.all += field;
        now.idle += i == IDLE || i == WAITING ? field : 0;
    }
    fclose(file);
    return now;
}

const char *bps_bench_size_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static char buffers[4][32];
    static unsigned next;
    char *text = buffers[next++ % 4];
    size_t unit = 0;
    while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, sizeof buffers[0], "%" PRIu64 "%s", bytes, units[unit]);
    return text;
}
