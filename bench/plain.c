/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c - the loops. They are compiled for wide vectors, too, or they would not be the limit in the caches; which is
 * chosen here and not by the linker, as sanitizers are not there yet when that chooses.
 */
#include "bench/plain.h"

#include <stdint.h>
#include <string.h>

struct loops {
    void (*fold)(uint64_t *restrict a, const uint64_t *restrict b, size_t n);
    void (*fold_2)(uint32_t *restrict a, const uint16_t *restrict b, size_t n);
    void (*fold_4)(uint32_t *restrict a, const uint8_t *restrict b, size_t n);
    void (*narrow_2)(uint16_t *restrict c, const uint32_t *restrict a, size_t n);
    void (*narrow_4)(uint8_t *restrict c, const uint32_t *restrict a, size_t n);
    void (*reduce)(uint64_t *restrict c, const uint64_t *restrict a, const uint64_t *restrict b, size_t n);
    void (*reduce_many)(uint64_t *restrict a, const uint64_t *restrict b, const uint64_t *restrict c,
                        const uint64_t *restrict d, size_t n);
};

#define LOOP(target, name, parameters, statement)                                                                      \
    target static void name parameters                                                                                 \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            statement;                                                                                                 \
        }                                                                                                              \
    }

#define LOOPS(isa, target)                                                                                             \
    LOOP(target, fold_##isa, (uint64_t *restrict a, const uint64_t *restrict b, size_t n), a[i] += b[i])               \
    LOOP(target, fold_2_##isa, (uint32_t *restrict a, const uint16_t *restrict b, size_t n), a[i] += b[i])             \
    LOOP(target, fold_4_##isa, (uint32_t *restrict a, const uint8_t *restrict b, size_t n), a[i] += b[i])              \
    LOOP(target, narrow_2_##isa, (uint16_t *restrict c, const uint32_t *restrict a, size_t n), c[i] = (uint16_t)a[i])  \
    LOOP(target, narrow_4_##isa, (uint8_t *restrict c, const uint32_t *restrict a, size_t n), c[i] = (uint8_t)a[i])    \
    LOOP(target, reduce_##isa,                                                                                         \
         (uint64_t *restrict c, const uint64_t *restrict a, const uint64_t *restrict b, size_t n), c[i] = a[i] + b[i]) \
    LOOP(target, reduce_many_##isa,                                                                                    \
         (uint64_t *restrict a, const uint64_t *restrict b, const uint64_t *restrict c, const uint64_t *restrict d,    \
          size_t n),                                                                                                   \
         a[i] += b[i] + c[i] + d[i])                                                                                   \
    static const struct loops loops_##isa = {fold_##isa,     fold_2_##isa, fold_4_##isa,     narrow_2_##isa,           \
                                             narrow_4_##isa, reduce_##isa, reduce_many_##isa};

#ifdef __clang__
#define VECTORIZED
#else
#define VECTORIZED __attribute__((optimize("O3")))
#endif

LOOPS(baseline, VECTORIZED)
#ifdef __x86_64__
LOOPS(avx2, VECTORIZED __attribute__((target("avx2"))))
LOOPS(avx512, VECTORIZED __attribute__((target("avx512f,avx512bw,avx512vl"))))
#endif

static const struct loops *loops(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return &loops_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return &loops_avx2;
    }
#endif
    return &loops_baseline;
}

void bps_plain_fold(void *accumulator, const void *source, size_t bytes, size_t widening)
{
    switch (widening) {
    case 2:
        loops()->fold_2(accumulator, source, bytes / 2);
        break;
    case 4:
        loops()->fold_4(accumulator, source, bytes);
        break;
    default:
        loops()->fold(accumulator, source, bytes / 8);
    }
}

void bps_plain_finish(void *to, const void *accumulator, size_t bytes, size_t widening)
{
    switch (widening) {
    case 2:
        loops()->narrow_2(to, accumulator, bytes / 2);
        break;
    case 4:
        loops()->narrow_4(to, accumulator, bytes);
        break;
    default:
        memcpy(to, accumulator, bytes);
    }
}

void bps_plain_reduce(void *to, const void *a, const void *b, size_t bytes)
{
    loops()->reduce(to, a, b, bytes / 8);
}

void bps_plain_reduce_many(void *to, const void *a, const void *b, const void *c, size_t bytes)
{
    loops()->reduce_many(to, a, b, c, bytes / 8);
}
