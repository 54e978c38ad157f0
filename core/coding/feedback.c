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
    return BPS_OK;
}

/* e is kept with its sign changed. Written so that compilers make vectors of it. */
#define DEFINE_APPLY(name, real)                                                                                       \
    static void name##_momentum(real *restrict x, real *restrict m, uint64_t n, real mu, bool moves)                   \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            real next = mu * m[i] + x[i];                                                                              \
            x[i] += mu * next;                                                                                         \
            m[i] = moves ? next : m[i];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_error(real *restrict x, real *restrict e, uint64_t n, real ratio, bool moves)                   \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            x[i] -= ratio * e[i];                                                                                      \
            e[i] = moves ? -x[i] : e[i];                                                                               \
        }                                                                                                              \
    }
DEFINE_APPLY(narrow, float)
DEFINE_APPLY(wide, double)

/* Of the learning rate of the error to that of this round. */
static double ratio_of(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    double before = feedback->rate[slice->index];
    return before > 0 && slice->rate > 0 ? before / slice->rate : 1;
}

void bps_feedback_apply(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x, bool moves)
{
    double mu = feedback->coding->mu, ratio = ratio_of(feedback, slice);
    uint64_t first = slice->first, n = slice->count;
    bool wide = feedback->type == BPS_FLOAT64;
    if (feedback->momentum != NULL && wide) {
        wide_momentum(x, (double *)feedback->momentum + first, n, mu, moves);
    } else if (feedback->momentum != NULL) {
        narrow_momentum(x, (float *)feedback->momentum + first, n, (float)mu, moves);
    }
    if (feedback->error != NULL && wide) {
        wide_error(x, (double *)feedback->error + first, n, ratio, moves);
    } else if (feedback->error != NULL) {
        narrow_error(x, (float *)feedback->error + first, n, (float)ratio, moves);
    }
    if (moves) {
        feedback->rate[slice->index] = slice->rate;
    }
}

bps_status bps_feedback_coded(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *coded,
                              size_t bytes)
{
    const struct bps_coding *coding = feedback->coding;
    char *error = feedback->error;
    if (error == NULL) {
        return BPS_OK;
    }
    return coding->ops->decode_add(coding->compressor->self, feedback->type, coded, bytes,
                                   error + slice->first * bps_dtype_size(feedback->type), slice->count);
}
