/* SPDX-License-Identifier: Apache-2.0 */
/* feedback.c - see feedback.h. */
#include "coding/feedback.h"

#include <stdlib.h>
#include <string.h>

bool bps_feedback_is_of(const struct bps_coding *coding, bool worker)
{
    return coding->feedback || (worker && coding->momentum);
}

void bps_feedback_fini(struct bps_feedback *feedback)
{
    free(feedback->error);
    free(feedback->momentum);
    free(feedback->rate);
    free(feedback->brings);
    *feedback = (struct bps_feedback){.coding = NULL};
}

bps_status bps_feedback_fit(struct bps_feedback *feedback, const struct bps_coding *coding, uint32_t type,
                            uint64_t count, uint32_t slices, bool worker)
{
    if (feedback->coding == coding && feedback->type == type && feedback->count == count) {
        return BPS_OK;
    }
    size_t size = bps_dtype_size(type);
    bool momentum = worker && coding->momentum;
    bps_feedback_fini(feedback);
    feedback->error = coding->feedback ? calloc(count, size) : NULL;
    feedback->momentum = momentum ? calloc(count, size) : NULL;
    feedback->rate = calloc(slices, sizeof *feedback->rate);
    if ((coding->feedback && feedback->error == NULL) || (momentum && feedback->momentum == NULL) ||
        feedback->rate == NULL) {
        bps_feedback_fini(feedback);
        return BPS_ERR_NOMEM;
    }
    feedback->coding = coding;
    feedback->type = type;
    feedback->count = count;
    feedback->slices = slices;
    return BPS_OK;
}

/* Loops over elements: at -O2 GCC makes no vectors of those whose length it does not know. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("O3")
#endif

/* The error is kept with its sign changed. */
#define DEFINE_LOOPS(real)                                                                                             \
    static void real##_add_momentum(const real *g, const real *restrict m, real mu, real *x, uint64_t n)               \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            x[i] = g[i] + mu * (mu * m[i] + g[i]);                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void real##_add_error(const real *g, const real *restrict e, real ratio, real *x, uint64_t n)               \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            x[i] = g[i] - ratio * e[i];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void real##_move_momentum(const real *restrict g, real *restrict m, real mu, uint64_t n)                    \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            m[i] = mu * m[i] + g[i];                                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void real##_move_error(const real *restrict g, const real *m, real mu, real *restrict e, real ratio,        \
                                  uint64_t n)                                                                          \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n && m == NULL; i++) {                                                                \
            e[i] = ratio * e[i] - g[i];                                                                                \
        }                                                                                                              \
        for (uint64_t i = 0; i < n && m != NULL; i++) {                                                                \
            e[i] = ratio * e[i] - (g[i] + mu * m[i]);                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void real##_negate(real *x, uint64_t n)                                                                     \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            x[i] = -x[i];                                                                                              \
        }                                                                                                              \
    }
DEFINE_LOOPS(float)
DEFINE_LOOPS(double)

/* All bits of the exponent are set in what is not finite. */
#define DEFINE_IS_FINITE(real, word, exponent)                                                                         \
    static bool real##_is_finite(const real *x, uint64_t n)                                                            \
    {                                                                                                                  \
        word odd = 0;                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            word bits;                                                                                                 \
            memcpy(&bits, &x[i], sizeof bits);                                                                         \
            odd |= (bits & (exponent)) == (exponent);                                                                  \
        }                                                                                                              \
        return odd == 0;                                                                                               \
    }
DEFINE_IS_FINITE(float, uint32_t, 0x7f800000u)
DEFINE_IS_FINITE(double, uint64_t, 0x7ff0000000000000u)

bool bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count)
{
    return type == BPS_FLOAT64 ? double_is_finite(x, count) : float_is_finite(x, count);
}

/* Of the learning rate of the error to that of this round. */
static double ratio_of(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    double before = feedback->rate[slice->index];
    return before > 0 && slice->rate > 0 ? before / slice->rate : 1;
}

/* The elements of the slice in one of the arrays; NULL: there is none. */
static void *part_of(const struct bps_feedback *feedback, void *array, const struct bps_feedback_slice *slice)
{
    return array != NULL ? (char *)array + slice->first * bps_dtype_size(feedback->type) : NULL;
}

void bps_feedback_forget(struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    void *e = part_of(feedback, feedback->error, slice);
    if (e != NULL) {
        memset(e, 0, slice->count * bps_dtype_size(feedback->type));
    }
}

void bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                        void *x)
{
    double mu = feedback->coding->mu, ratio = ratio_of(feedback, slice);
    const void *m = part_of(feedback, feedback->momentum, slice), *e = part_of(feedback, feedback->error, slice);
    bool wide = feedback->type == BPS_FLOAT64;
    if (m != NULL && wide) {
        double_add_momentum(g, m, mu, x, slice->count);
    } else if (m != NULL) {
        float_add_momentum(g, m, (float)mu, x, slice->count);
    }
    g = m != NULL ? x : g;
    if (e != NULL && wide) {
        double_add_error(g, e, ratio, x, slice->count);
    } else if (e != NULL) {
        float_add_error(g, e, (float)ratio, x, slice->count);
    }
}

/* What is lost lacks what the coded form says. */
static bps_status add_coded(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                            const void *coded, size_t bytes, void *lost)
{
    const struct bps_coding *coding = feedback->coding;
    return bps_coding_ops(coding, slice->exact)
        ->decode_add(coding->compressor->self, feedback->type, coded, bytes, lost, slice->count);
}

bps_status bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                             const void *coded, size_t bytes)
{
    double mu = feedback->coding->mu, ratio = ratio_of(feedback, slice);
    void *m = part_of(feedback, feedback->momentum, slice), *e = part_of(feedback, feedback->error, slice);
    bool wide = feedback->type == BPS_FLOAT64;
    if (m != NULL && wide) {
        double_move_momentum(g, m, mu, slice->count);
    } else if (m != NULL) {
        float_move_momentum(g, m, (float)mu, slice->count);
    }
    if (e != NULL && wide) {
        double_move_error(g, m, mu, e, ratio, slice->count);
    } else if (e != NULL) {
        float_move_error(g, m, (float)mu, e, (float)ratio, slice->count);
    }
    feedback->rate[slice->index] = slice->rate;
    return e != NULL ? add_coded(feedback, slice, coded, bytes, e) : BPS_OK;
}

bps_status bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                  const void *coded, size_t bytes)
{
    void *e = part_of(feedback, feedback->error, slice);
    if (feedback->type == BPS_FLOAT64) {
        double_negate(x, slice->count);
    } else {
        float_negate(x, slice->count);
    }
    bps_status status = add_coded(feedback, slice, coded, bytes, x);
    if (status == BPS_OK && bps_feedback_is_finite(feedback->type, x, slice->count)) {
        memcpy(e, x, slice->count * bps_dtype_size(feedback->type));
        feedback->rate[slice->index] = slice->rate;
    }
    return status;
}
