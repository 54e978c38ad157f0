/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.c - the time in nanoseconds that a cache line takes from one core to another, one way.
 * Virtual machines may move between neighbouring and distant cores at any time, which changes all figures.
 * It is that of the fastest of many short series, since other work takes the cores away now and then.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define SERIES 100u
#define TURNS  2000u /* of both together, in one series */

static _Alignas(128) _Atomic uint32_t turn;

static void stay_on(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Takes every other turn. Returns the nanoseconds of a turn in the fastest series. */
static double play(uint32_t odd)
{
    double fastest = 1e18, start = now();

    for (uint32_t i = odd; i < SERIES * TURNS; i += 2) {
        while (atomic_load_explicit(&turn, memory_order_acquire) != i) {
        }
        atomic_store_explicit(&turn, i + 1, memory_order_release);
        if (i % TURNS < 2) {
            double end = now();

            fastest = i >= TURNS && end - start < fastest ? end - start : fastest;
            start = end;
        }
    }
    return fastest / TURNS;
}

static void *partner(void *arg)
{
    (void)arg;
    stay_on(1);
    play(1);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    double fastest;

    stay_on(0);
    if (pthread_create(&thread, NULL, partner, NULL) != 0) {
        return 1;
    }
    fastest = play(0);
    pthread_join(thread, NULL);
    printf("%.0f\n", fastest);
    return 0;
}
