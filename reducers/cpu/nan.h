/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nan.h - whether there is a NaN among the lanes of STEPS vectors.
 *
 * There hardly ever is, and to know it costs much less than to replace every NaN: one comparison looks at two
 * vectors, since they are unordered if either is a NaN.
 */
#ifndef BPS_CPU_NAN_H
#define BPS_CPU_NAN_H

#include "vector.h"

#if VECTOR == 64

static inline bool f32_any_nan(const v_f32 v[STEPS])
{
    return !_kortestz_mask16_u8(_mm512_cmp_ps_mask((__m512)v[0], (__m512)v[1], _CMP_UNORD_Q),
                                _mm512_cmp_ps_mask((__m512)v[2], (__m512)v[3], _CMP_UNORD_Q));
}

static inline bool f64_any_nan(const v_f64 v[STEPS])
{
    return !_kortestz_mask8_u8(_mm512_cmp_pd_mask((__m512d)v[0], (__m512d)v[1], _CMP_UNORD_Q),
                               _mm512_cmp_pd_mask((__m512d)v[2], (__m512d)v[3], _CMP_UNORD_Q));
}

#elif VECTOR == 32

static inline bool f32_any_nan(const v_f32 v[STEPS])
{
    __m256 a = _mm256_cmp_ps((__m256)v[0], (__m256)v[1], _CMP_UNORD_Q);
    __m256 b = _mm256_cmp_ps((__m256)v[2], (__m256)v[3], _CMP_UNORD_Q);

    return _mm256_movemask_ps(_mm256_or_ps(a, b)) != 0;
}

static inline bool f64_any_nan(const v_f64 v[STEPS])
{
    __m256d a = _mm256_cmp_pd((__m256d)v[0], (__m256d)v[1], _CMP_UNORD_Q);
    __m256d b = _mm256_cmp_pd((__m256d)v[2], (__m256d)v[3], _CMP_UNORD_Q);

    return _mm256_movemask_pd(_mm256_or_pd(a, b)) != 0;
}

#elif defined(__SSE2__)

static inline bool f32_any_nan(const v_f32 v[STEPS])
{
    __m128 a = _mm_cmpunord_ps((__m128)v[0], (__m128)v[1]), b = _mm_cmpunord_ps((__m128)v[2], (__m128)v[3]);

    return _mm_movemask_ps(_mm_or_ps(a, b)) != 0;
}

static inline bool f64_any_nan(const v_f64 v[STEPS])
{
    __m128d a = _mm_cmpunord_pd((__m128d)v[0], (__m128d)v[1]);
    __m128d b = _mm_cmpunord_pd((__m128d)v[2], (__m128d)v[3]);

    return _mm_movemask_pd(_mm_or_pd(a, b)) != 0;
}

#else

static inline bool any_lane(v_i64 mask)
{
    int64_t any = 0;

    for (size_t lane = 0; lane < sizeof(mask) / sizeof(mask[0]); lane++) {
        any |= mask[lane];
    }
    return any != 0;
}

static inline bool f32_any_nan(const v_f32 v[STEPS])
{
    return any_lane((v_i64)((v[0] != v[0]) | (v[1] != v[1]) | (v[2] != v[2]) | (v[3] != v[3])));
}

static inline bool f64_any_nan(const v_f64 v[STEPS])
{
    return any_lane((v_i64)((v[0] != v[0]) | (v[1] != v[1]) | (v[2] != v[2]) | (v[3] != v[3])));
}

#endif

#endif
