/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c - the rounds of bench/collectives in a contestant. */
#include "operations.h"

#include <stdlib.h>

static void run_all(struct bench_operation *one, unsigned long iterations,
                    void (*run)(const struct bench_operation *one))
{
    unsigned long roots = one->kind == BENCH_SEND ? 2 : (unsigned long)one->size;

    if (one->kind == BENCH_SEND && one->rank > 1) {
        return;
    }
    for (unsigned long i = 0; i < iterations; i++) {
        one->root = (int)(i % roots);
        run(one);
    }
}

void bench_operations_serve(int argc, char **argv, int rank, int size, void (*run)(const struct bench_operation *one))
{
    struct bench_operation one = {.rank = rank, .size = size};
    struct bench_driver driver;
    char line[80];
    uint64_t most;

    if (argc != 4) {
        bench_fail("usage: %s DIRECTORY NAME ELEMENTS", argv[0]);
    }
    most = strtoull(argv[3], NULL, 10);
    one.in = bench_memory(most, 0);
    one.out = bench_memory(most, 0);
    bench_driver_open(argv[1], argv[2], rank, &driver);
    while (fgets(line, sizeof line, driver.go) != NULL) {
        unsigned long kind, iterations;
        uint64_t start;

        if (sscanf(line, "%lu %lu %lu", &kind, &one.count, &iterations) != 3 || kind >= BENCH_KINDS ||
            one.count > most) {
            bench_fail("'%s' is no operation of at most %lu elements", line, most);
        }
        one.kind = (enum bench_kind)kind;
        one.block = one.count / (uint64_t)size;
        start = bench_now();
        run_all(&one, iterations, run);
        fprintf(driver.done, "%lu %lu\n", start, bench_now());
        fflush(driver.done);
    }
}
