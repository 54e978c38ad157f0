/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - the floating point environment of kernels. */
#ifndef BPS_CPU_ENVIRONMENT_H
#define BPS_CPU_ENVIRONMENT_H

#include <stdint.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

/*
 * The floating point environment belongs to the calling thread, and threads inherit it: a program that
 * flushes subnormals, or rounds another way, must not get other sums than its peers. Kernels run between
 * these two. They are barriers for memory and for *scale, so that no arithmetic moves out.
 */
#ifdef __SSE2__
#define FP_CONTROL 0xffc0u /* all but the sticky flags */
#define FP_DEFAULT 0x1f80u /* round to nearest, subnormals kept, no traps */

static inline uint32_t fp_enter(double *scale)
{
    uint32_t state = _mm_getcsr();

    if ((state & FP_CONTROL) != FP_DEFAULT) {
        _mm_setcsr(FP_DEFAULT);
    }
    __asm__ volatile("" : "+m"(*scale) : : "memory");
    return state;
}

static inline void fp_leave(uint32_t state)
{
    __asm__ volatile("" : : : "memory");
    if ((state & FP_CONTROL) != FP_DEFAULT) {
        _mm_setcsr(state);
    }
}
#else
static inline uint32_t fp_enter(double *scale)
{
    (void)scale;
    return 0;
}

static inline void fp_leave(uint32_t state)
{
    (void)state;
}
#endif

#endif
