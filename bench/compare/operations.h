/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations.h - what the contestants of bench/collectives share: the operations, and the rounds that the driver calls.
 *
 * Pipes are those of round.h. A line is the number of an operation, its elements in all and its iterations, and is
 * answered with the moments at which these began and ended. What has a root has another one in each iteration, so that
 * no rank runs far ahead of the others; messages go from rank 0 to rank 1 and back, one in each iteration.
 */
#ifndef BENCH_OPERATIONS_H
#define BENCH_OPERATIONS_H

#include "round.h"

/* In the order of OPERATIONS in operations.py. */
enum bench_kind {
    BENCH_PUSH_PULL,
    BENCH_BROADCAST,
    BENCH_REDUCE,
    BENCH_REDUCE_SCATTER,
    BENCH_ALL_GATHER,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_ALL_TO_ALL,
    BENCH_SEND,
    BENCH_KINDS
};

/* One iteration. push_pull, broadcast and reduce are in place, in `in`; all others have blocks of `block` elements. */
struct bench_operation {
    enum bench_kind kind;
    uint64_t count; /* elements in all */
    uint64_t block; /* those for each rank */
    int root;       /* of a message: the sender */
    int rank, size;
    float *in, *out;
};

/* Serves the driver until it has ended. usage: PROGRAM DIRECTORY NAME ELEMENTS, of which there are at most so many. */
void bench_operations_serve(int argc, char **argv, int rank, int size, void (*run)(const struct bench_operation *one));

#endif
