/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feedback.h - what coding a partition has lost so far, and the momentum of its gradients.
 *
 * A round codes x = g + r * e, where g is what is to be sent, e the error of the round before and r the ratio of the
 * learning rate then to that of now; the new error is x less what the coded form says. With momentum m (Nesterov)
 * m = mu * m + g and x = g + mu * m + r * e. After Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019, and
 * Zheng et al., "Communication-Efficient Distributed Blockwise Momentum SGD with Error-Feedback", NeurIPS 2019.
 *
 * Nothing changes before the round is known to go well: a round that fails is as if it had never been. So a worker
 * makes x to be coded, bps_feedback_apply(), and computes it once more when the result is there, bps_feedback_move().
 * Nor does anything change where the result of a slice is not finite: all workers see that, and mixed precision drops
 * such a step; the error would never be a number again.
 */
#ifndef BPS_CODING_FEEDBACK_H
#define BPS_CODING_FEEDBACK_H

#include "coding/coding.h"

struct bps_feedback {
    const struct bps_coding *coding; /* that it is of; NULL: there is nothing yet */
    uint32_t type;                   /* BPS_FLOAT32 or BPS_FLOAT64: of the arrays */
    uint64_t count;                  /* elements of each */
    void *error;                     /* with the sign changed, so that a compressor can add to it what it has coded */
    void *momentum;                  /* NULL: the coding has none, or a server does without */
    uint32_t slices;
    bool *brings; /* of each slice, until its next round: the server's error is in this one; or NULL */
    double *rate; /* of each slice: the learning rate of the error; 0: not known */
};

/* Part of a partition that is coded by itself. */
struct bps_feedback_slice {
    uint32_t index;
    uint64_t first, count; /* elements */
    double rate;           /* the learning rate of this round; 0: not known, the error is taken as it is */
    bool exact;            /* the round loses nothing */
};

/* Whether a coding needs any of this, on a worker or at a server. */
bool bps_feedback_is_of(const struct bps_coding *coding, bool worker);
/* Makes it ready for a coding of a partition of so many elements; what was of another one is dropped. */
bps_status bps_feedback_fit(struct bps_feedback *feedback, const struct bps_coding *coding, uint32_t type,
                            uint64_t count, uint32_t slices, bool worker);
void bps_feedback_fini(struct bps_feedback *feedback);
/* The error of the slice is 0 from now on. */
void bps_feedback_forget(struct bps_feedback *feedback, const struct bps_feedback_slice *slice);
/* No element is infinite or no number. */
bool bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
/* x, which may be g, becomes what is to be coded. */
void bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                        void *x);
/* The round goes well: momentum and error become what they are after it. BPS_ERR_PROTOCOL: this is no coded form. */
bps_status bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                             const void *coded, size_t bytes);
/*
 * The same by x instead of g, where there is no momentum, and if what is lost is finite: coding may make an element
 * infinite. x is overwritten.
 */
bps_status bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                  const void *coded, size_t bytes);

#endif
