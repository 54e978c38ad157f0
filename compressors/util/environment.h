/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - the floating point environment in which compressors compute. */
#ifndef BPS_COMPRESSOR_ENVIRONMENT_H
#define BPS_COMPRESSOR_ENVIRONMENT_H

#include <stdint.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

/*
 * It belongs to the calling thread, and threads inherit it: a program that flushes subnormals, or rounds another
 * way, must not make other elements of the same bytes than its peers. Kernels are called between these two, through
 * pointers, so that the compiler moves none of their arithmetic out.
 */
#ifdef __SSE2__
#define FP_CONTROL 0xffc0u /* all but the sticky flags */
#define FP_DEFAULT 0x1f80u /* round to nearest, subnormals kept, no traps */

static inline uint32_t fp_enter(void)
{
    uint32_t state = _mm_getcsr();
    if ((state & FP_CONTROL) != FP_DEFAULT) {
        _mm_setcsr(FP_DEFAULT);
    }
    return state;
}

static inline void fp_leave(uint32_t state)
{
    if ((state & FP_CONTROL) != FP_DEFAULT) {
        _mm_setcsr(state);
    }
}
#else
static inline uint32_t fp_enter(void)
{
    return 0;
}

static inline void fp_leave(uint32_t state)
{
    (void)state;
}
#endif

#endif
