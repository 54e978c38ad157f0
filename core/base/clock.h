/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - monotonic time in nanoseconds, and a pause that is much shorter. */
#ifndef BPS_BASE_CLOCK_H
#define BPS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define BPS_US 1000ull
#define BPS_MS 1000000ull
#define BPS_S  1000000000ull

static inline uint64_t bps_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * BPS_S + (uint64_t)t.tv_nsec;
}

/* The same, up to 10 ms behind, in a quarter of the time: for what counts in seconds. */
static inline uint64_t bps_now_roughly(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * BPS_S + (uint64_t)t.tv_nsec;
}

/* Tells the processor that this thread polls. */
static inline void bps_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
