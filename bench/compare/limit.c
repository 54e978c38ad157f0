/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - the least that a push_pull on one host could cost: processes that share their tensors,
 * and add nothing to the traffic of the memory that a sum needs.
 *
 * limit DIRECTORY NAME TENSORS RANKS   starts that many processes
 *
 * Each sums its part of the tensors in one pass that reads all sources and writes all results. What is
 * small is posted by each to all instead, and everybody sums all of it. They wait for each other spinning,
 * but if there are more processes than cores, they give up the core at once.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "round.h"

#define MAX_RANKS 8
#define SPINS     2000
#define SMALL     4096u /* elements */
#define LANES     16u

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* Compiled for wide vectors too, or it would not be the limit in the caches. */
#ifdef __x86_64__
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE __attribute__((noinline))
#endif

/* How often a process has been at a meeting. In memory that all processes share. */
struct count {
    _Alignas(64) atomic_uint meetings;
};

struct rank {
    struct count *counts;
    float *memory[MAX_RANKS], *own; /* shared; private */
    uint64_t elements, from, to;    /* all and its part */
    unsigned number, ranks, spins, meetings;
};

/* Returns when all have called it. */
static void meet(struct rank *r)
{
    r->meetings++;
    atomic_store_explicit(&r->counts[r->number].meetings, r->meetings, memory_order_release);
    for (unsigned k = 0, spins = 0; k < r->ranks; k++) {
        while ((int)(atomic_load_explicit(&r->counts[k].meetings, memory_order_acquire) - r->meetings) < 0) {
            if (spins++ >= r->spins) {
                sched_yield();
            }
        }
    }
}

static inline __attribute__((always_inline)) void sum_part(const struct rank *r, unsigned ranks)
{
    for (uint64_t i = r->from; i < r->to; i += LANES) {
        lanes sum = *(const lanes *)(r->memory[0] + i);

        for (unsigned k = 1; k < ranks; k++) {
            sum += *(const lanes *)(r->memory[k] + i);
        }
        for (unsigned k = 0; k < ranks; k++) {
            *(lanes *)(r->memory[k] + i) = sum;
        }
    }
}

WIDE static void sum_all(const struct rank *r)
{
    if (r->ranks == 2) {
        sum_part(r, 2);
    } else if (r->ranks == 4) {
        sum_part(r, 4);
    } else {
        sum_part(r, r->ranks);
    }
}

static void pass(void *arg)
{
    struct rank *r = arg;

    meet(r);
    sum_all(r);
    meet(r);
}

/* Two places by turns: whoever writes to one again has met all who have read it. */
WIDE static void pass_small(void *arg)
{
    struct rank *r = arg;
    uint64_t turn = r->meetings % 2 * SMALL;

    memcpy(r->memory[r->number] + turn, r->own, r->elements * sizeof *r->own);
    meet(r);
    for (uint64_t i = 0; i < r->elements; i += LANES) {
        lanes sum = *(const lanes *)(r->memory[0] + turn + i);

        for (unsigned k = 1; k < r->ranks; k++) {
            sum += *(const lanes *)(r->memory[k] + turn + i);
        }
        *(lanes *)(r->own + i) = sum;
    }
}

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        bench_fail("%zu bytes of shared memory: %m", bytes);
    }
    return memory;
}

static void run_rank(char **argv, struct rank *r)
{
    struct bench_driver driver;
    uint64_t groups = r->elements / LANES;

    r->from = groups * r->number / r->ranks * LANES;
    r->to = groups * (r->number + 1) / r->ranks * LANES;
    r->own = bench_memory(SMALL + LANES, 0);
    for (unsigned k = 0; k < r->ranks; k++) {
        for (uint64_t i = r->from; i < r->to; i++) {
            r->memory[k][i] = 0;
        }
    }
    bench_driver_open(argv[1], argv[2], (int)r->number, &driver);
    bench_driver_serve(&driver, r->elements <= SMALL ? pass_small : pass, r);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct rank r = {.ranks = argc == 5 ? (unsigned)atoi(argv[4]) : 0};
    struct bench_tensors tensors;
    int status, failed = 0;

    if (r.ranks < 1 || r.ranks > MAX_RANKS) {
        bench_fail("usage: limit DIRECTORY NAME TENSORS RANKS (1 to %d)", MAX_RANKS);
    }
    bench_tensors_read(argv[3], &tensors);
    r.elements = tensors.elements;
    r.spins = r.ranks <= (unsigned)sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
    r.counts = shared(r.ranks * sizeof *r.counts);
    for (unsigned k = 0; k < r.ranks; k++) {
        r.memory[k] = shared((r.elements + 2 * SMALL + LANES) * sizeof(float));
    }
    for (r.number = 0; r.number < r.ranks; r.number++) {
        if (fork() == 0) {
            run_rank(argv, &r);
        }
    }
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}
