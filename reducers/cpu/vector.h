/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - vectors as wide as the instruction set for which this is compiled.
 *
 * They are the compiler's own vector types: the same source is SSE2, AVX2, AVX-512 or what another machine
 * has, and every lane is computed by the same IEEE operations, in the same order, whatever the width.
 */
#ifndef BPS_CPU_VECTOR_H
#define BPS_CPU_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
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
typedef VECTOR_TYPE(int8_t, VECTOR) v_i8;
typedef VECTOR_TYPE(int16_t, VECTOR) v_i16;
typedef VECTOR_TYPE(int32_t, VECTOR) v_i32;
typedef VECTOR_TYPE(int64_t, VECTOR) v_i64;
typedef VECTOR_TYPE(uint8_t, VECTOR) v_u8;
typedef VECTOR_TYPE(uint16_t, VECTOR) v_u16;
typedef VECTOR_TYPE(uint32_t, VECTOR) v_u32;
typedef VECTOR_TYPE(uint64_t, VECTOR) v_u64;
typedef VECTOR_TYPE(uint16_t, VECTOR / 2) v_half; /* as many 16-bit elements as a v_f32 has lanes */

/* Lanes of yes where mask is -1, of no where it is 0. Three operations, or one blend where there is one. */
#define SELECT(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))

/* Vectors of accumulators that are in work at once: enough to hide the latency of an operation. */
#define STEPS 4
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* with sanitizers it does not unroll, and need not */
#endif
#define EACH_STEP(at) _Pragma("GCC unroll 4") for (size_t at = 0; at < STEPS; at++)
#define EACH_PAIR(at) _Pragma("GCC unroll 2") for (size_t at = 0; at < STEPS; at += 2)

/* Any alignment. */
#define LOAD(vector, address)  memcpy(&(vector), (address), sizeof(vector))
#define STORE(address, vector) memcpy((address), &(vector), sizeof(vector))

#endif
