/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - a worker for test_memory.py:  memory GENERATIONS
 *
 * Begins and ends a job again and again while other threads get, register and give back shared memory. Each
 * job sums memory that an earlier one knew, and memory from before, and compares. Prints "memory: ok", or what
 * was wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define THREADS 3
#define PAGE    4096u
#define COUNT   (64u * PAGE / sizeof(float))

static atomic_bool stop;
static _Atomic unsigned rounds;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "memory: line %d: %s: ", __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* ---- the other threads ---- */

static void take_and_free(void)
{
    char *memory[3];
    for (int i = 0; i < 3; i++) {
        memory[i] = bps_alloc((size_t)(i + 1) * PAGE);
        CHECK(memory[i] != NULL, "no memory");
        memory[i][0] = 1;
    }
    for (int i = 0; i < 3; i++) {
        bps_free(memory[i]);
    }
}

static void register_own(void)
{
    struct bps_report report = {""};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "no memfd");
    void *address = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(address != MAP_FAILED, "no mapping");
    const struct bps_memory memory = {.size = sizeof memory, .address = address, .bytes = 2 * PAGE, .fd = fd};
    CHECK(bps_register(&memory, &report) == BPS_OK, "%s", report.text);
    CHECK(bps_unregister(address, &report) == BPS_OK, "%s", report.text);
    munmap(address, 2 * PAGE);
    close(fd);
}

static void *come_and_go(void *arg)
{
    while (!atomic_load(&stop)) {
        take_and_free();
        register_own();
        atomic_fetch_add(&rounds, 1);
    }
    return arg;
}

/* ---- the job ---- */

static void sum(float *memory, int generation)
{
    struct bps_report report = {""};
    for (uint32_t i = 0; i < COUNT; i++) {
        memory[i] = (float)(generation + bps_rank());
    }
    const struct bps_push_pull request = {
        .size = sizeof request,
        .name = "x",
        .in = memory,
        .out = memory,
        .count = COUNT,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
    CHECK(bps_push_pull(&request, BPS_FOREVER, NULL, &report) == BPS_OK, "%s", report.text);
    float want = (float)(generation * bps_size() + bps_size() * (bps_size() - 1) / 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK(memory[i] == want, "element %u is %g, expected %g", i, memory[i], want);
    }
}

static void live(int generations)
{
    struct bps_report report = {""};
    float *old = bps_alloc(COUNT * sizeof *old);
    for (int generation = 0; generation < generations; generation++) {
        CHECK(bps_init(NULL, &report) == BPS_OK, "%s", report.text);
        float *new = bps_alloc(COUNT * sizeof *new);
        CHECK(old != NULL && new != NULL, "no memory");
        sum(old, generation);
        sum(new, generation + 1);
        CHECK(bps_shutdown(&report) == BPS_OK, "%s", report.text);
        bps_free(old);
        old = new;
    }
    bps_free(old);
}

int main(int argc, char **argv)
{
    int generations = argc == 2 ? atoi(argv[1]) : 1;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0, "no thread");
    }
    live(generations);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(atomic_load(&rounds) > 0, "no memory came and went");
    printf("memory: ok\n");
    return 0;
}
