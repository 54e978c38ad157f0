/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - vectors as wide as the instruction set for which this is compiled.
 *
 * They are the compiler's own vector types: every lane is computed by the same IEEE operations, in the same order,
 * whatever the width. Contraction (-ffp-contract=off) and -ffast-math would break that.
 */
#ifndef BPS_COMPRESSOR_VECTOR_H
#define BPS_COMPRESSOR_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifdef __FAST_MATH__
#error "kernels must be compiled without -ffast-math"
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif

#define VECTOR_TYPE(type, bytes) __attribute__((vector_size(bytes))) type

typedef VECTOR_TYPE(float, VECTOR) v_f32;
typedef VECTOR_TYPE(double, VECTOR) v_f64;
typedef VECTOR_TYPE(int32_t, VECTOR) v_i32;
typedef VECTOR_TYPE(int64_t, VECTOR) v_i64;
typedef VECTOR_TYPE(uint16_t, VECTOR) v_u16;
typedef VECTOR_TYPE(uint32_t, VECTOR) v_u32;
typedef VECTOR_TYPE(uint64_t, VECTOR) v_u64;
typedef VECTOR_TYPE(float, VECTOR / 2) half_f32;     /* as many float32 as a v_f64 has lanes */
typedef VECTOR_TYPE(uint16_t, VECTOR / 2) half_u16;  /* as many 16-bit elements as a v_f32 has lanes */
typedef VECTOR_TYPE(uint8_t, VECTOR / 4) quarter_u8; /* as many 8-bit elements as a v_f32 has lanes */

#define LANES16 (VECTOR / 2u)
#define LANES32 (VECTOR / 4u)
#define LANES64 (VECTOR / 8u)

/* Lanes of yes where mask is -1, of no where it is 0. */
#define SELECT(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))

/* The highest bits of lanes of 32 bits, and of 64, the first one in the lowest bit: signs, or what is compared. */
#if VECTOR == 64
#define SIGNS32(x) ((uint32_t)_mm512_movepi32_mask((__m512i)(x)))
#define SIGNS64(x) ((uint32_t)_mm512_movepi64_mask((__m512i)(x)))
#elif VECTOR == 32
#define SIGNS32(x) ((uint32_t)_mm256_movemask_ps((__m256)(x)))
#define SIGNS64(x) ((uint32_t)_mm256_movemask_pd((__m256d)(x)))
#elif defined(__SSE2__)
#define SIGNS32(x) ((uint32_t)_mm_movemask_ps((__m128)(x)))
#define SIGNS64(x) ((uint32_t)_mm_movemask_pd((__m128d)(x)))
#else
#define SIGNS32(x) (x[0] >> 31 | x[1] >> 31 << 1 | x[2] >> 31 << 2 | x[3] >> 31 << 3)
#define SIGNS64(x) ((uint32_t)(x[0] >> 63 | x[1] >> 63 << 1))
#endif

/* Any alignment. */
#define LOAD(vector, address)  memcpy(&(vector), (address), sizeof(vector))
#define STORE(address, vector) memcpy((address), &(vector), sizeof(vector))

/* For all i below n, which is at most 16, without a loop: so that arrays of vectors are registers. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* with sanitizers it does not unroll, and need not */
#endif
#define EACH(i, n) _Pragma("GCC unroll 16") for (unsigned i = 0; i < (n); i++)

#define INLINE static inline __attribute__((always_inline))

#endif
