/* SPDX-License-Identifier: Apache-2.0 */
/* feedback.c - see feedback.h. */
#include "coding/feedback.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

bool bps_feedback_is_of(const struct bps_coding *coding, bool worker)
{
    return coding->feedback || (worker && coding->momentum);
}

static void free_state(struct bps_feedback_state *state)
{
    free(state->error);
    free(state->momentum);
    free(state->rate);
}

void bps_feedback_fini(struct bps_feedback *feedback)
{
    free_state(&feedback->now);
    free_state(&feedback->next);
    *feedback = (struct bps_feedback){.coding = NULL};
}

/* Zeros; false: no memory. */
static bool feedback_allocate(const struct bps_feedback *feedback, bool momentum, struct bps_feedback_state *out)
{
    size_t size = bps_dtype_size(feedback->type);
    bool error = feedback->coding->feedback;
    *out = (struct bps_feedback_state){.error = error ? calloc(feedback->count, size) : NULL,
                                       .momentum = momentum ? calloc(feedback->count, size) : NULL,
                                       .rate = calloc(feedback->slices, sizeof *out->rate)};
    return (!error || out->error != NULL) && (!momentum || out->momentum != NULL) && out->rate != NULL;
}

bps_status bps_feedback_fit(struct bps_feedback *feedback, const struct bps_coding *coding, uint32_t type,
                            uint64_t count, uint32_t slices, bool worker)
{
    bps_assert(coding != NULL && count > 0 && slices > 0);
    bps_assert(type == BPS_FLOAT32 || type == BPS_FLOAT64);
    if (feedback->coding == coding && feedback->type == type && feedback->count == count) {
        return BPS_OK;
    }
    bool momentum = worker && coding->momentum;
    bps_feedback_fini(feedback);
    feedback->coding = coding;
    feedback->type = type;
    feedback->count = count;
    feedback->slices = slices;
    if (!feedback_allocate(feedback, momentum, &feedback->now) ||
        !feedback_allocate(feedback, momentum, &feedback->next)) {
        bps_feedback_fini(feedback);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void bps_feedback_settle(struct bps_feedback *feedback, bool counts)
{
    bps_assert(!feedback->moving || feedback->coding != NULL);
    bps_assert(feedback->coding != NULL || feedback->now.error == NULL);
    struct bps_feedback_state before = feedback->now;
    feedback->summed = false;
    if (!feedback->moving) {
        return;
    }
    if (counts) {
        feedback->now = feedback->next;
        feedback->next = before;
        feedback->brings = false;
    }
    feedback->dropped = !counts;
    feedback->moving = false;
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
    static void real##_move_momentum(const real *g, const real *m, real mu, real *restrict next, uint64_t n)           \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            next[i] = mu * m[i] + g[i];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void real##_move_error(const real *g, const real *m, real mu, const real *e, real ratio,                    \
                                  real *restrict next, uint64_t n)                                                     \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n && m == NULL; i++) {                                                                \
            next[i] = ratio * e[i] - g[i];                                                                             \
        }                                                                                                              \
        for (uint64_t i = 0; i < n && m != NULL; i++) {                                                                \
            next[i] = ratio * e[i] - (g[i] + mu * m[i]);                                                               \
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

/* What always holds of a slice of what there is. */
static void feedback_check_slice(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    bps_assert(feedback->coding != NULL && slice->index < feedback->slices);
    bps_assert(slice->first <= feedback->count && slice->count <= feedback->count - slice->first);
    bps_assert(feedback->now.rate != NULL && feedback->next.rate != NULL);
    bps_assert((feedback->now.error == NULL) == (feedback->next.error == NULL));
    bps_assert((feedback->now.momentum == NULL) == (feedback->next.momentum == NULL));
    bps_assert(slice->rate >= 0);
}

/* By which the error counts: of its learning rate to that of this round. */
static double ratio_of(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    double before = feedback->now.rate[slice->index];
    return slice->forgets ? 0 : before > 0 && slice->rate > 0 ? before / slice->rate : 1;
}

static size_t feedback_bytes_of(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    return slice->count * bps_dtype_size(feedback->type);
}

/* The elements of the slice in one of the arrays; NULL: there is none. */
static void *feedback_part_of(const struct bps_feedback *feedback, void *array, const struct bps_feedback_slice *slice)
{
    return array != NULL ? (char *)array + slice->first * bps_dtype_size(feedback->type) : NULL;
}

void bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                        void *x)
{
    bps_check(feedback_check_slice(feedback, slice));
    double mu = feedback->coding->mu, ratio = ratio_of(feedback, slice);
    const void *m = feedback_part_of(feedback, feedback->now.momentum, slice);
    const void *e = feedback_part_of(feedback, feedback->now.error, slice);
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
    BPS_CALLING(coding->compressor, "decode_add", NULL);
    return bps_coding_ops(coding, slice->exact)
        ->decode_add(coding->compressor->self, feedback->type, coded, bytes, lost, slice->count);
}

bps_status bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                             const void *coded, size_t bytes)
{
    bps_check(feedback_check_slice(feedback, slice));
    double mu = feedback->coding->mu, ratio = ratio_of(feedback, slice);
    const void *m = feedback_part_of(feedback, feedback->now.momentum, slice);
    const void *e = feedback_part_of(feedback, feedback->now.error, slice);
    void *next_m = feedback_part_of(feedback, feedback->next.momentum, slice);
    void *next_e = feedback_part_of(feedback, feedback->next.error, slice);
    bool wide = feedback->type == BPS_FLOAT64;
    if (m != NULL && wide) {
        double_move_momentum(g, m, mu, next_m, slice->count);
    } else if (m != NULL) {
        float_move_momentum(g, m, (float)mu, next_m, slice->count);
    }
    if (e != NULL && wide) {
        double_move_error(g, next_m, mu, e, ratio, next_e, slice->count);
    } else if (e != NULL) {
        float_move_error(g, next_m, (float)mu, e, (float)ratio, next_e, slice->count);
    }
    feedback->next.rate[slice->index] = slice->rate;
    return e != NULL ? add_coded(feedback, slice, coded, bytes, next_e) : BPS_OK;
}

bps_status bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                  const void *coded, size_t bytes)
{
    bps_check(feedback_check_slice(feedback, slice));
    if (feedback->type == BPS_FLOAT64) {
        double_negate(x, slice->count);
    } else {
        float_negate(x, slice->count);
    }
    bps_status status = add_coded(feedback, slice, coded, bytes, x);
    if (status == BPS_OK && bps_feedback_is_finite(feedback->type, x, slice->count)) {
        memcpy(feedback_part_of(feedback, feedback->next.error, slice), x, feedback_bytes_of(feedback, slice));
        feedback->next.rate[slice->index] = slice->rate;
    } else {
        bps_feedback_keep(feedback, slice);
    }
    return status;
}

void bps_feedback_keep(struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    bps_check(feedback_check_slice(feedback, slice));
    const struct bps_feedback_state *now = &feedback->now;
    void *m = feedback_part_of(feedback, feedback->next.momentum, slice),
         *e = feedback_part_of(feedback, feedback->next.error, slice);
    size_t bytes = feedback_bytes_of(feedback, slice);
    if (m != NULL) {
        memcpy(m, feedback_part_of(feedback, now->momentum, slice), bytes);
    }
    if (e != NULL && slice->forgets) {
        memset(e, 0, bytes);
    } else if (e != NULL) {
        memcpy(e, feedback_part_of(feedback, now->error, slice), bytes);
    }
    feedback->next.rate[slice->index] = now->rate[slice->index];
}
