/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - the contestants' side of the benchmark driver. */
#include "round.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PIPE_PATH 400
#define MANY      100000u
#define SECOND    1000000000u

void bench_fail(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(1);
}

void bench_tensors_read(const char *file, struct bench_tensors *out)
{
    char line[200];
    FILE *in = fopen(file, "r");

    if (in == NULL) {
        bench_fail("%s: %m", file);
    }
    *out = (struct bench_tensors){0};
    out->count = calloc(MANY, sizeof *out->count);
    out->share = calloc(MANY, sizeof *out->share);
    if (out->count == NULL || out->share == NULL) {
        bench_fail("out of memory");
    }
    while (out->n < MANY && fgets(line, sizeof line, in) != NULL) {
        if (line[0] != '#') {
            char *rest;

            out->count[out->n] = strtoull(line, &rest, 10);
            out->share[out->n] = strtoull(rest, NULL, 10);
            out->elements += out->count[out->n];
            out->shares += out->share[out->n++];
        }
    }
    fclose(in);
    if (out->n == 0) {
        bench_fail("%s names no tensors", file);
    }
}

float *bench_memory(uint64_t elements, float value)
{
    size_t bytes = elements * sizeof(float);
    float *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        bench_fail("%zu bytes: %m", bytes);
    }
    for (uint64_t i = 0; i < elements; i++) {
        memory[i] = value;
    }
    return memory;
}

static FILE *open_pipe(const char *directory, const char *name, int rank, const char *end, const char *mode)
{
    char path[PIPE_PATH];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.%d.%s", directory, name, rank, end);
    file = fopen(path, mode);
    if (file == NULL) {
        bench_fail("%s: %m", path);
    }
    return file;
}

void bench_driver_open(const char *directory, const char *name, int rank, struct bench_driver *out)
{
    out->done = open_pipe(directory, name, rank, "done", "w");
    fprintf(out->done, "%ld\n", (long)getpid());
    fflush(out->done);
    out->go = open_pipe(directory, name, rank, "go", "r");
}

uint64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

void bench_sleep_until(uint64_t moment)
{
    const struct timespec t = {.tv_sec = (time_t)(moment / SECOND), .tv_nsec = (long)(moment % SECOND)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

void bench_driver_serve(struct bench_driver *driver, void (*iteration)(void *arg), void *arg)
{
    char line[32];

    while (fgets(line, sizeof line, driver->go) != NULL) {
        unsigned long n = strtoul(line, NULL, 10);
        uint64_t start;

        iteration(arg);
        start = bench_now();
        for (unsigned long i = 0; i < n; i++) {
            iteration(arg);
        }
        fprintf(driver->done, "%lu %lu\n", start, bench_now());
        fflush(driver->done);
    }
}
