/* SPDX-License-Identifier: Apache-2.0 */
/* round.h - the engine's own view of keys and rounds; for the files of this folder only. */
#ifndef BPS_SUM_ROUND_H
#define BPS_SUM_ROUND_H

#include <byteps/reducer.h>

#include "base/assert.h"
#include "base/heap.h"
#include "sum/key.h"
#include "sum/verdict.h"

/* What a worker has pushed. */
struct bps_pushed {
    uint32_t rank;
    struct bps_spec spec;
};

/* A contribution to a slice that is kept apart: bytes in a block, or a loan, or nothing yet. */
struct bps_part {
    struct bps_block block;
    struct bps_loan *loan;
    double scale;  /* of the cursor */
    bool borrowed; /* the block is the transport's: it is only read, and only within bps_sum_take() */
};

/*
 * How the contributions to a slice become its sum: they are added as they come, or kept apart and summed in one pass.
 * Chosen when a round is opened. A policy calls nothing of rounds: what goes wrong it returns.
 */
struct bps_sum_policy {
    bool apart; /* contributions have a struct bps_part each; their pass may be put off */
    /* Where the block is noted that bytes from this offset may go to as they are, and its size; NULL: they may not. */
    struct bps_block *(*entry)(const struct bps_sum_cursor *cursor, uint32_t offset, size_t *room);
    /* Bytes of a contribution have come, to such a block or elsewhere. BPS_ERR_NOMEM. */
    bps_status (*take)(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes);
    /*
     * All have contributed: makes slice->payload. BPS_ERR_NOMEM; _PLUGIN, of which the report has the words; or _LOST,
     * _PROTOCOL, which round->lost is.
     */
    bps_status (*finish)(struct bps_sum_slice *slice, struct bps_report *report);
    /* A slice is over: returns the blocks of what is apart. NULL: nothing is. */
    void (*free_parts)(struct bps_sum_slice *slice);
};

extern const struct bps_sum_policy bps_accumulate, bps_coded, bps_one_pass, bps_sparse;

struct bps_round {
    struct bps_round_base base;
    struct bps_sum *sum;
    struct bps_spec spec;
    const struct bps_ranks *ranks; /* that take part; the slot of a group's part is that of its lowest rank */
    struct bps_ranks two;          /* they, of a partition that one worker sends to one other: */
    uint32_t pair[2];
    int32_t priority;
    struct bps_kernels kernels;
    const struct bps_instance *reducer; /* whose they are */
    const struct bps_sum_policy *policy;
    uint32_t element, width;     /* bytes of an element as it is sent, and in the slices' blocks; 1 of what is coded */
    uint32_t grid;               /* bytes of the tensor in each slice but the last */
    double share;                /* see average.h; not of what is coded */
    struct bps_last_factor last; /* with it, if all contribute */
    uint32_t quorum;             /* contributions with which a slice ends */
    double rate;                 /* the largest learning rate that was told */
    uint32_t slices, unfinished; /* slices not yet delivered to all */
    uint32_t complete;           /* slices that all have contributed to */
    uint32_t bytes;              /* of the partition */
    uint32_t joined;             /* workers that are part of it, or have left */
    struct bps_gathering gathering;
    uint32_t last_rank, last_late; /* who came last, and how late, a bucket + 1; 0, 0: not all are there */
    uint32_t deliveries;           /* of slices, that are under way */
    size_t memory;                 /* of this struct and what follows it */
    bool pending;                  /* partial: failed, and the words for it are awaited; counts as a hold */
    bool summed;                   /* partial: it has failed behind the network, which had its sum */
    bool handed_on;                /* partial: the network has the sum, or knows of the failure */
    uint32_t opener;               /* rank whose frame has opened it; UINT32_MAX: it is about to speak */
    uint32_t lost;                 /* rank whose loan could not be reached, or whose bytes not decoded */
    uint64_t max_bytes;            /* the largest tensor among the contributions */
    uint32_t odds;
    uint32_t mark;         /* without a name: as of its slices */
    bool has_held;         /* the block is filled in: */
    struct bps_block held; /* sets of ranks, by slice: those who have its result already */
    struct bps_block odd;  /* a struct bps_pushed for each contribution that differs from the first one; room for all */
    /* Sets of ranks. */
    uint64_t *joined_bits;    /* those that frames stood for, and those that have left */
    uint64_t *spoke_bits;     /* those that sent the frames: they get the answers */
    uint64_t *for_group_bits; /* those of them that spoke for their group */
    uint64_t *begun_bits;     /* by slice: those whose frame has come */
    uint64_t *arrived_bits;   /* by slice: those whose contribution is complete */
    uint64_t *counted_bits;   /* by slice, if it may end early: those whose contribution is in the result */
    struct bps_part *part;    /* if they are kept apart: by slice, then by slot */
    struct bps_sum_slice slice[];
};

/* Kernels for an operation and a type. */
struct bps_found {
    uint32_t op, dtype;
    const struct bps_instance *reducer; /* whose they are; NULL: none are found yet */
    struct bps_kernels kernels;
};

struct bps_sum {
    struct bps_sum_config config;
    struct bps_pool *pool, own_pool; /* the pool: its own, or another engine's */
    struct bps_key *keys[BPS_KEY_KINDS];
    uint32_t words;                  /* of a set of ranks */
    uint32_t walking;                /* functions that walk over all rounds: none may vanish */
    bool uncollected;                /* a round was to be collected meanwhile */
    struct bps_found found;          /* the kernels that the reducer was asked for last: see round.c */
    uint64_t *held;                  /* by rank: bytes of the rounds that it has opened */
    uint64_t *left_bits, *gone_bits; /* workers that have left, and those whose link was lost */
    uint32_t *told;                  /* by rank: the view up to which it has told what it has of values: value_heir.c */
    char here[32];                   /* whose process this is, for messages */

    /* See late.c. */
    struct bps_wait wait;
    struct bps_lateness recent, late; /* since bps_sum_lateness(), and before */

    /* See group.c. */
    struct bps_ranks all; /* that contribute here */
    uint32_t *mate;       /* of each rank: the next one of its group, in a ring */

    uint64_t backlog; /* bytes of results that are kept for those who are late: quorum.c */

    /* See deliver.c. */
    struct bps_heap due; /* slices whose pass is to be made; each holds its round */
    uint64_t sequence;

    /* See one_pass.c: one entry for each part of a slice, and the place for copies of chunks. */
    const void **source;
    double *weight;
    uint32_t *origin;
    char *scratch;
    size_t scratch_bytes;
};

static inline bool bps_bit(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static inline void bps_set_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= 1ull << (i % 64);
}

static inline uint64_t *bps_begun(const struct bps_round *round, uint32_t slice)
{
    return round->begun_bits + (size_t)slice * round->sum->words;
}

static inline uint64_t *bps_arrived(const struct bps_round *round, uint32_t slice)
{
    return round->arrived_bits + (size_t)slice * round->sum->words;
}

static inline uint64_t *bps_counted(const struct bps_round *round, uint32_t slice)
{
    return round->counted_bits + (size_t)slice * round->sum->words;
}

static inline struct bps_part *bps_parts(const struct bps_sum_slice *slice)
{
    return slice->round->part + (size_t)slice->index * slice->round->ranks->n;
}

static inline struct bps_round *bps_cursor_round(const struct bps_sum_cursor *cursor)
{
    return (struct bps_round *)cursor->round;
}

static inline struct bps_sum_slice *bps_cursor_slice(const struct bps_sum_cursor *cursor)
{
    return &bps_cursor_round(cursor)->slice[cursor->slice];
}

/* The part of a contribution that a cursor writes. */
static inline struct bps_part *bps_part_of(const struct bps_sum_cursor *cursor)
{
    return &bps_parts(bps_cursor_slice(cursor))[cursor->slot];
}

/* Whether this part is not complete yet, if it will ever come: a cursor may be writing it. */
static inline bool bps_part_is_open(const struct bps_sum_slice *slice, uint32_t slot)
{
    const struct bps_round *round = slice->round;
    return round->base.failure == NULL && !bps_bit(bps_arrived(round, slice->index), round->ranks->rank[slot]);
}

/* Bytes of a block that stand for `bytes` on the wire. */
static inline size_t bps_widened(const struct bps_round *round, size_t bytes)
{
    return bytes / round->element * round->width;
}

/* The block that is noted there, of so many bytes if it is to be had first; NULL: no memory. */
static inline char *bps_block_get(struct bps_sum *sum, struct bps_block *block, size_t bytes)
{
    if (block->data == NULL) {
        *block = (struct bps_block){bps_pool_get(sum->pool, bytes), bytes};
    }
    return block->data;
}

static inline void bps_block_put(struct bps_sum *sum, struct bps_block *block)
{
    if (block->data != NULL) {
        bps_pool_put(sum->pool, block->data, block->bytes);
        block->data = NULL;
    }
}

/* Whether this rank has the result of the slice already, from a shard that is lost. */
static inline bool bps_slice_is_held(const struct bps_sum_slice *slice, uint32_t rank)
{
    const struct bps_round *round = slice->round;
    const uint64_t *bits = round->held.data;
    return round->has_held && bps_bit(bits + (size_t)slice->index * round->sum->words, rank);
}

/* Those who hear of nothing any more. */
static inline bool bps_is_absent(const struct bps_sum *sum, uint32_t rank)
{
    return bps_bit(sum->left_bits, rank) || bps_bit(sum->gone_bits, rank);
}

static inline bool bps_aggregates(const struct bps_sum *sum)
{
    return sum->config.only != BPS_SUM_ALL;
}

static inline bool bps_is_partial(const struct bps_sum *sum)
{
    return bps_aggregates(sum) && sum->config.partial;
}

/* Whether the pass over such a slice is made at once: small ones are not worth the way through the queue. */
static inline bool bps_slice_is_quick(const struct bps_sum_slice *slice)
{
    return slice->round->sum->config.events->due == NULL || slice->bytes < 64u << 10;
}

/* ---- round.c ---- */
/* Bytes of a tensor that make a slice of this contribution. */
uint32_t bps_round_grid(const struct bps_sum *sum, const struct bps_contribution *c);
/* Not for a broadcast, which only moves bytes. BPS_ERR_UNSUPPORTED: the reducer has none. */
bps_status bps_find_kernels(const struct bps_instance *reducer, const struct bps_spec *spec, struct bps_kernels *out,
                            const struct bps_instance **by, struct bps_report *report);
struct bps_round_base *bps_round_open(struct bps_key *key, const struct bps_contribution *c);
/* Frees the round if everybody has joined and nobody needs it any more; before that, memory it no longer needs. */
void bps_round_collect(struct bps_round *round);
/* A round that is held stays, whatever others do. */
static inline void bps_round_hold(struct bps_round *round)
{
    round->base.holds++;
}
static inline void bps_round_release(struct bps_round *round)
{
    round->base.holds--;
    bps_round_collect(round);
}

/* ---- check.c ---- */
/* For bps_check(). */
void bps_round_check(const struct bps_round *round);

/* ---- group.c ---- */
bps_status bps_groups_init(struct bps_sum *sum);
void bps_groups_fini(struct bps_sum *sum);
/* Whether a worker that says so stands for more than itself. */
bool bps_is_for_group(const struct bps_sum *sum, uint32_t rank, bool for_group);
/* Whether it stands for `who`, or for one who brings something. */
bool bps_stands_for(const struct bps_sum *sum, uint32_t rank, bool for_group, uint32_t who);
bool bps_slice_wants(const struct bps_sum_slice *slice, uint32_t rank);
bool bps_stands_for_source(const struct bps_sum *sum, uint32_t rank, bool for_group, const struct bps_roles *roles);
/*
 * The first frame of a worker in a round: those that it stands for join. BPS_ERR_PROTOCOL: one of them is
 * there already.
 */
bps_status bps_round_speak(struct bps_round *round, uint32_t rank, bool for_group);

/* ---- late.c ---- */
/* After the first frame of a worker has joined: it is there. */
void bps_round_came(struct bps_round *round, uint32_t rank, const struct bps_contribution *c);
/* "; worker 3 is usually the last: ..." if that is one of those who are missing, else "". */
void bps_late_words(const struct bps_sum *sum, const uint64_t *missing, char *text, size_t n);

/* ---- slice.c ---- */
/* The contribution to the slice that this worker spoke for is complete. */
void bps_slice_arrived(struct bps_sum_slice *slice, uint32_t rank, bool for_group);

/* ---- held.c ---- */
/*
 * Workers that have some of its results take part, as the key has noted it; which ones does not matter of one that
 * `ends` now. BPS_ERR_PROTOCOL, _NOMEM.
 */
bps_status bps_round_apply_held(struct bps_round *round, bool ends);

/* ---- deliver.c ---- */
/* The result is there. */
void bps_slice_deliver(struct bps_sum_slice *slice);
void bps_slice_delivered(struct bps_sum_slice *slice);
/* This contribution has come after the end: it is dropped, and answered. */
void bps_slice_came_late(struct bps_sum_slice *slice, uint32_t rank);
/* All have contributed. */
void bps_slice_complete(struct bps_sum_slice *slice);

/* ---- apart.c: of policies whose contributions stay as they have come ---- */
struct bps_block *bps_apart_entry(const struct bps_sum_cursor *cursor, uint32_t offset, size_t *room);
bps_status bps_apart_take(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes);
/* Returns the blocks of contributions that have come. */
void bps_apart_free(struct bps_sum_slice *slice);

/* ---- quorum.c ---- */
/* Contributions with which the slices of such a round end. */
uint32_t bps_quorum(const struct bps_sum *sum, const struct bps_ranks *ranks, const struct bps_contribution *c);
/* All slices have ended, before all have come. */
static inline bool bps_round_ended_early(const struct bps_round *round)
{
    return round->complete == round->slices && round->quorum < round->ranks->n;
}
/* A slice has ended, and if that is early, what is in it; it is over. */
void bps_quorum_note(struct bps_sum_slice *slice);
void bps_quorum_forget(const struct bps_sum_slice *slice);
/* What makes the result of what is in it. */
struct bps_last_factor bps_quorum_factor(const struct bps_sum_slice *slice);
/* Whether nobody needs its result any more, which is gone then; asked when somebody needs it no more. */
bool bps_slice_is_over(struct bps_sum_slice *slice);
/* The round has ended early, and this worker, which is part of it, wants nothing of it. It is not collected. */
void bps_round_skip(struct bps_round *round, uint32_t rank);

/* ---- loan.c ---- */
/* Bytes of a loan: in place, or copied to `scratch`. NULL: its owner, round->lost, is lost. */
const char *bps_loan_data(struct bps_sum_slice *slice, uint32_t rank, uint32_t offset, uint32_t bytes, char *scratch);
/* Writes bytes of the result to this worker's answer, unless they are there. An error: round->lost is lost. */
bps_status bps_loan_write(struct bps_sum_slice *slice, uint32_t rank, uint32_t offset, uint32_t bytes,
                          const char *data);
/* The same for all who need them, except one (BPS_SUM_ALL: none). */
bps_status bps_loans_write(struct bps_sum_slice *slice, uint32_t except, uint32_t offset, uint32_t bytes,
                           const char *data);
/* Gives the loans of a round that has failed back. */
void bps_loans_release(struct bps_round *round);
/* Their owner is lost. */
void bps_loans_forget(struct bps_round *round, uint32_t rank);

/* ---- rounds.c ---- */
extern const struct bps_key_ops bps_rounds_ops;

/* ---- failure.c ---- */
/* Fails the round and tells all who spoke, except `quiet`, which knows already (BPS_SUM_ALL: none). */
void bps_round_fail(struct bps_round *round, bps_status status, const char *text, uint32_t quiet);
/* The same for want of memory, or of a loan of round->lost. */
void bps_round_fail_here(struct bps_round *round, bps_status status, const char *fault);
/* The network's words for a round that has failed here already. */
void bps_round_end_pending(struct bps_round *round, bps_status status, const char *text);
void bps_round_tell(struct bps_round *round, uint32_t rank, enum bps_notice_kind kind, const char *text);
/* Tells all who have spoken and are still there, except `quiet`. */
void bps_round_tell_all(struct bps_round *round, enum bps_notice_kind kind, const char *text, uint32_t quiet);
/* Workers that have left count as joined; a round that needs one has failed from the start. */
void bps_round_join_left(struct bps_round *round);
/* The round has ended early: what is wrong with it is told this worker alone (NULL: nothing). It is not collected. */
void bps_round_refuse_late(struct bps_round *round, uint32_t rank, bps_status status, const char *text);
/* One that takes no part in the round has contributed: it alone is told, whose operation is another one. */
void bps_round_tell_stranger(struct bps_round *round, uint32_t rank);
/* It cannot be made without this worker, which is not there any more. */
void bps_round_fail_without(struct bps_round *round, uint32_t rank);

/* ---- survivors.c ---- */
/* Something has come, or somebody is lost. When all who are there have come, what needs others fails or is fetched. */
void bps_round_go_on(struct bps_round *round);

/* ---- coded.c ---- */
/* Who contributes to this round says that the one before, whichever that was, counts. */
void bps_round_settle_before(const struct bps_round *round);

/* ---- verdict.c ---- */
bool bps_spec_equal(const struct bps_spec *a, const struct bps_spec *b);
/* "worker 2 pushed 50 float32 (sum), workers 0 and 1 pushed 100 float32 (sum)" */
void bps_verdict_odd(const struct bps_round *round, char *text, size_t n);
/* The same, of what n of a job's workers have pushed. */
void bps_verdict_mismatch(const struct bps_pushed *pushed, uint32_t n, uint32_t workers, char *text, size_t room);
/* "root 7 is not a worker of this job (0..2)" */
void bps_verdict_root(uint32_t root, uint32_t workers, char *text, size_t n);
/* The workers whose contribution is not complete, as such a text; `late`: what bps_late_words() says of them. */
void bps_verdict_missing(const struct bps_round *round, char *text, size_t n, char *late, size_t room);

#endif
