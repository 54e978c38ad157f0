/* SPDX-License-Identifier: Apache-2.0 */
/*
 * round.h - what the contestants of a benchmark share: the list of tensors, and the rounds that the driver
 * calls.
 *
 * Each process has two named pipes in the driver's directory, NAME.RANK.go and NAME.RANK.done. It tells its
 * process id when it is ready. Then each line that it reads is the number of iterations of a round; it
 * makes one iteration to warm up and then so many, and answers with the moments at which those began and
 * ended. The clock is the same for all processes of a machine, so that the driver sees the whole round:
 * from the first beginning to the last end. Between two rounds a process sleeps, so that the contestants do
 * not disturb each other.
 */
#ifndef BENCH_ROUND_H
#define BENCH_ROUND_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct bench_tensors {
    size_t n;
    uint64_t *count;   /* elements of each */
    uint64_t elements; /* of all */
    uint64_t *share;   /* of the compute time, of each */
    uint64_t shares;   /* the sum of these */
};

struct bench_driver {
    FILE *go, *done;
};

/* Prints what is wrong and ends the process. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A line: elements, and the share if there is one. Lines that begin with # are skipped. */
void bench_tensors_read(const char *file, struct bench_tensors *out);

/* Memory for so many float32, all of it touched. */
float *bench_memory(uint64_t elements, float value);

/* The moment by CLOCK_MONOTONIC, ns. */
uint64_t bench_now(void);

/* Sleeps until that moment; returns at once if it is over. */
void bench_sleep_until(uint64_t moment);

/* Opens the pipes and tells that the process is ready. */
void bench_driver_open(const char *directory, const char *name, int rank, struct bench_driver *out);

/* Calls iteration(arg) as often as the driver wants, until the driver has ended. */
void bench_driver_serve(struct bench_driver *driver, void (*iteration)(void *arg), void *arg);

#endif
