/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feedback.h - what coding a partition has lost so far, and the momentum of its gradients.
 *
 * A round codes x = g + r * e, where g is what is to be sent, e the error of the round before and r the ratio of the
 * learning rate then to that of now; the new error is x less what the coded form says. With momentum m (Nesterov)
 * m = mu * m + g and x = g + mu * m + r * e. After Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019, and
 * Zheng et al., "Communication-Efficient Distributed Blockwise Momentum SGD with Error-Feedback", NeurIPS 2019.
 *
 * An operation that fails is as if it had never been. It may do so when rounds of some of its partitions, or some
 * slices of one, have gone well: so each round leaves what there is as it is and makes what will be there next to it,
 * slice by slice; bps_feedback_settle() takes the one or the other. Workers do that when the operation ends. They tell
 * servers with their next round, and until then a server has both.
 *
 * A worker makes x to be coded, bps_feedback_apply(), and computes it once more when the result is there,
 * bps_feedback_move(). Where the result of a slice is not finite nothing changes, bps_feedback_keep(): all workers see
 * that, and mixed precision drops such a step; the error would never be a number again.
 */
#ifndef BPS_CODING_FEEDBACK_H
#define BPS_CODING_FEEDBACK_H

#include "coding/coding.h"

struct bps_feedback_state {
    void *error; /* with the sign changed, so that a compressor can add to it what it has coded; NULL: none is kept */
    void *momentum; /* NULL: the coding has none, or a server does without */
    double *rate;   /* of each slice: the learning rate of the error; 0: not known */
};

struct bps_feedback {
    const struct bps_coding *coding; /* that it is of; NULL: there is nothing yet */
    uint32_t type;                   /* BPS_FLOAT32 or BPS_FLOAT64: of the arrays */
    uint64_t count;                  /* elements of each */
    uint32_t slices;
    struct bps_feedback_state now, next;
    bool moving;    /* a round is not settled: it makes `next` */
    bool summed;    /* a worker: all of its result has come, here or to who leads the partition */
    bool dropped;   /* a worker: the last round did not count, which the server is told with the next one */
    bool brings;    /* a worker, until a round counts: the server's error is in this one */
    uint32_t round; /* a server: that is not settled */
};

/* Part of a partition that is coded by itself. */
struct bps_feedback_slice {
    uint32_t index;
    uint64_t first, count; /* elements */
    double rate;           /* the learning rate of this round; 0: not known, the error is taken as it is */
    bool exact;            /* the round loses nothing */
    bool forgets;          /* the error so far is in what is coded, or of a tensor that is no more */
};

/* Whether a coding needs any of this, on a worker or at a server. */
bool bps_feedback_is_of(const struct bps_coding *coding, bool worker);
/* Makes it ready for a coding of a partition of so many elements; what was of another one is dropped. */
bps_status bps_feedback_fit(struct bps_feedback *feedback, const struct bps_coding *coding, uint32_t type,
                            uint64_t count, uint32_t slices, bool worker);
void bps_feedback_fini(struct bps_feedback *feedback);
/* The round is over: what it has left counts from now on, if it does; else what was there before. */
void bps_feedback_settle(struct bps_feedback *feedback, bool counts);
/* No element is infinite or no number. */
bool bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
/* x, which may be g, becomes what is to be coded. */
void bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                        void *x);
/* What momentum and error will be after the round. BPS_ERR_PROTOCOL: this is no coded form. */
bps_status bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, const void *g,
                             const void *coded, size_t bytes);
/*
 * The same by x instead of g, where there is no momentum. What is lost may not be finite, as coding may make an element
 * infinite: then nothing changes. x is overwritten.
 */
bps_status bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                  const void *coded, size_t bytes);
/* They will be what they are. */
void bps_feedback_keep(struct bps_feedback *feedback, const struct bps_feedback_slice *slice);

#endif
