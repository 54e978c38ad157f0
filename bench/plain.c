/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - the loops. They are compiled for wide vectors, too, or they would not be the limit in the caches. */
#include "bench/plain.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__clang__)
#define PLAIN __attribute__((target_clones("default", "avx2", "avx512f")))
#elif defined(__x86_64__)
#define PLAIN __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#else
#define PLAIN __attribute__((noinline))
#endif

PLAIN static void fold(uint64_t *restrict a, const uint64_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

PLAIN static void fold_twice_as_wide(uint32_t *restrict a, const uint16_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

PLAIN static void fold_four_times_as_wide(uint32_t *restrict a, const uint8_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

void bps_plain_fold(void *accumulator, const void *source, size_t bytes, size_t widening)
{
    switch (widening) {
    case 2:
        fold_twice_as_wide(accumulator, source, bytes / 2);
        break;
    case 4:
        fold_four_times_as_wide(accumulator, source, bytes);
        break;
    default:
        fold(accumulator, source, bytes / 8);
    }
}

PLAIN static void narrow_to_half(uint16_t *restrict c, const uint32_t *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = (uint16_t)a[i];
    }
}

PLAIN static void narrow_to_quarter(uint8_t *restrict c, const uint32_t *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = (uint8_t)a[i];
    }
}

void bps_plain_finish(void *to, const void *accumulator, size_t bytes, size_t widening)
{
    switch (widening) {
    case 2:
        narrow_to_half(to, accumulator, bytes / 2);
        break;
    case 4:
        narrow_to_quarter(to, accumulator, bytes);
        break;
    default:
        memcpy(to, accumulator, bytes);
    }
}

PLAIN static void reduce(uint64_t *restrict c, const uint64_t *restrict a, const uint64_t *restrict b,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = a[i] + b[i];
    }
}

void bps_plain_reduce(void *to, const void *a, const void *b, size_t bytes)
{
    reduce(to, a, b, bytes / 8);
}

PLAIN static void reduce_many(uint64_t *restrict a, const uint64_t *restrict b, const uint64_t *restrict c,
                              const uint64_t *restrict d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i] + c[i] + d[i];
    }
}

void bps_plain_reduce_many(void *to, const void *a, const void *b, const void *c, size_t bytes)
{
    reduce_many(to, a, b, c, bytes / 8);
}
