/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.h - the summation engine: contributions in, results and failures out. It knows no network.
 *
 * A key is a partition of a tensor, a round one push_pull of it. Contributions that disagree fail the round:
 * every worker gets the same text, which names the odd one out. One thread drives an engine. There are two
 * kinds:
 *
 * A shard's engine takes contributions slice by slice, in any order over the workers. Of a slice, the bytes
 * that come first land in a block as they are, those of the others are added as they come; when the last
 * contribution is complete, so is the result. One for a group stands for all ranks of its
 * sender's group, whose sum it carries; results and failures go to those who spoke. Memory per round in
 * flight: a block for each slice, and one for each contribution that a transport is fetching. With order =
 * "rank", of 8 and 16 bits floating point with at most 16 workers, of averages of integers, and of what is coded: one
 * for each contribution, which are summed in one pass when all are there, in the order of ranks.
 *
 * An aggregator's engine (config.only) sums the contributions of one group of ranks. It keeps them apart,
 * mostly as loans of their owners' memory, until the last is there; then it reads all of them in one pass and
 * writes the sum to where their owners want it. Partitions are not cut into slices there. If there are other
 * groups, the sum is `partial`: it goes to the leader of the group, who pushes it to a shard and distributes
 * the result.
 *
 * That is how rounds are summed. A partition may also be of another kind (config.ops; key.h, exchange.h).
 */
#ifndef BPS_SUM_SUM_H
#define BPS_SUM_SUM_H

#include <byteps/transport.h>

#include "base/lateness.h"
#include "plugin/instance.h"
#include "sum/average.h"
#include "sum/contribution.h"
#include "sum/pool.h"
#include "trace/trace.h"

struct bps_key;
struct bps_key_ops;
struct bps_round;
struct bps_round_base;

/* Memory of the pool. */
struct bps_block {
    void *data; /* NULL: none */
    size_t bytes;
};

/*
 * What a partial sum is divided by, so that its type holds it: of an average of floating point a power of two, which
 * rounds nothing, and is at least the number of its members.
 */
static inline uint32_t bps_group_divisor(uint32_t op, uint32_t dtype, uint32_t members)
{
    bool narrow = bps_sum_may_overflow(dtype) || dtype == BPS_FLOAT16;
    return op == BPS_AVERAGE && narrow ? bps_power_of_two(members) : 1;
}

/* A finished slice, to be delivered to those who contributed. Valid until it was delivered to all. */
struct bps_sum_slice {
    struct bps_key *key;
    struct bps_round *round;
    uint8_t header[BPS_HEADER_BYTES]; /* the owner's, written by `finished`: of the frame with the result */
    /* Of one without payload: bps_sum_wants_data(), bps_sum_loan(); or to who came late, if that can be. */
    uint8_t other_header[BPS_HEADER_BYTES];
    struct bps_round_id id;
    const struct bps_spec *spec;
    int32_t priority;
    uint32_t offset;     /* in the partition */
    const void *payload; /* the result; NULL: it is empty, or nobody needs it from here */
    uint32_t payload_bytes;
    struct bps_block block; /* the engine's: the accumulator, then the result */
    uint32_t index, bytes;  /* of the tensor */
    uint32_t size;          /* of the partition */
    uint32_t landed;        /* bytes from the front that someone's contribution has reached, */
    uint32_t settled;       /* and those of them whose scale is not owed any more; see accumulate.c */
    double owed;
    uint32_t step;    /* that it is recorded in, counted from 1; 0: it is not */
    uint32_t arrived; /* ranks whose contributions are complete */
    bool brought;     /* the error that coding has left here is in one of them */
    bool codes;       /* the next round is to be coded, as one of them says */
    uint32_t undelivered;
    uint32_t mark;      /* without a name: the first call of its kind that has not ended for all who contribute */
    uint32_t holder;    /* 1 + the first rank that has its result already; 0: nobody has */
    bool wanted;        /* from that one */
    bool ended;         /* its result is there */
    bool may_end_early; /* before all have come: quorum.c */
};

/* From these calls the engine may be called again, except from loan_read and loan_write, but not be freed. */
struct bps_sum_events {
    /* Optional. A slice is finished; comes once, before it is delivered. */
    void (*finished)(void *owner, struct bps_sum_slice *slice);
    /* Deliver a finished slice to this worker and then call bps_sum_delivered(). */
    void (*result)(void *owner, uint32_t rank, struct bps_sum_slice *slice);
    /* This worker has the result of the slice, and others have not: bps_sum_final() is to follow. */
    void (*want)(void *owner, uint32_t rank, struct bps_sum_slice *slice);
    /* For this worker: a round has failed, or waits; of an exchange see exchange.h. */
    void (*notice)(void *owner, uint32_t rank, const struct bps_notice *notice);

    /*
     * The others are for aggregators. Copy from or to a loan that is not mapped; an error means that its owner is lost.
     */
    bps_status (*loan_read)(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, void *to,
                            uint32_t bytes);
    bps_status (*loan_write)(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, const void *from,
                             uint32_t bytes);
    /*
     * Optional. The pass over a partition is due, and would take a while: call bps_sum_work() soon. NULL:
     * every pass is made at once, within the call that brings the last contribution.
     */
    void (*due)(void *owner);
    /* A round has failed: the engine is done with this loan of it, return it. Follows the notice. */
    void (*released)(void *owner, uint32_t rank, struct bps_loan *loan);
    /*
     * A partial sum is in the leader's answer, which slice->payload points to (NULL: there is none, because
     * it is empty or the root of the broadcast is in another group). Push it for the group; then comes
     * bps_sum_distribute, or bps_sum_fail, after which the slice is gone.
     */
    void (*summed)(void *owner, struct bps_sum_slice *slice);
    /*
     * Partial: a round has failed in this group, and not by bps_sum_fail: tell the network this, once.
     * True: bps_sum_fail will follow, whose words everybody gets, as several groups may fail at the same time;
     * until then nobody is told, and loans are kept. False: the notices with these words follow.
     */
    bool (*failed)(void *owner, const struct bps_notice *notice);
    /* An exchange: the sum is where this task of ours wants it, and the round is gone. */
    void (*exchanged)(void *owner, void *task);
};

#define BPS_SUM_ALL UINT32_MAX

#define BPS_SUM_HELD (1ull << 30) /* 160 GB of partitions of the default size */

struct bps_sum_config {
    uint32_t workers;
    uint64_t partition, slice; /* bytes; an aggregator does not cut partitions */
    const uint32_t *group;     /* of each worker: the lowest rank of its group; NULL: all alone; copied */
    uint32_t only;             /* aggregator: the one group that contributes; else BPS_SUM_ALL */
    uint32_t leader;           /* with `only`: rank of this process */
    const uint32_t *members;   /* the ranks that contribute, if not all do; read in bps_sum_new() only */
    uint32_t members_count;
    struct bps_sum *parent; /* of the same thread, which outlives it: has memory, and knows who has left; NULL: none */
    bool partial;           /* with `only`: neither average nor postscale; the sum goes to the leader */
    uint64_t held;          /* bytes of rounds that one rank has opened and that are not over; 0: BPS_SUM_HELD */
    uint32_t number;        /* of a shard in its process, for records */
    /* Optional. Those who take part in a round, a part of the workers, as long as the engine lives; NULL: all. */
    const struct bps_ranks *(*ranks)(void *owner, const struct bps_round_id *id);
    /*
     * Workers may be lost while the others go on. Rounds that lack one fail with BPS_ERR_MEMBERSHIP, once all others
     * have come: one of these may have the result from a shard that is lost. Without groups.
     */
    bool elastic;
    uint32_t backups;  /* workers without which a reduction of a tensor with a name ends, but for one; quorum.c */
    int64_t staleness; /* of values: how many pushes a worker may be behind another one; negative: any number */
    bool rank_order;   /* sum in the order of ranks, not of arrival; an aggregator always does */
    /* Kinds of keys that there are here beside rounds; NULL: not that one. */
    const struct bps_key_ops *ops[BPS_KEY_KINDS];
    struct bps_instance *reducer;
    const struct bps_sum_events *events;
    void *owner;
    bps_pool_fn attach, detach; /* hear of the memory in which slices lie; NULL: nobody does */
    void *transport;            /* with this */
};

struct bps_sum;

/* BPS_ERR_NOMEM, or BPS_ERR_INVALID for groups that are none. */
bps_status bps_sum_new(const struct bps_sum_config *config, struct bps_sum **out);
/* Loans that are still held are forgotten. */
void bps_sum_free(struct bps_sum *sum);

/* Where a slice of a contribution goes; lives with its sender's link. */
struct bps_sum_cursor {
    struct bps_sink sink; /* the first member: it takes the bytes */
    struct bps_sum *sum;
    struct bps_round_base *round; /* NULL: the bytes are discarded */
    uint32_t slice, rank, slot, bytes;
    void *block;    /* see bps_sum_open(); NULL: none */
    bool for_group; /* it stands for all of the rank's group */
    bool hollow;    /* a receiver's contribution to a broadcast: the bytes mean nothing */
    double scale;   /* prescale, and the share of an average */
};

/*
 * A contribution has begun to arrive. Empty ones are complete at once; for others the cursor's sink takes c->length
 * bytes, by these functions. BPS_ERR_PROTOCOL: no worker that works sends this.
 *
 * In an aggregator a receiver of a broadcast may bring a loan for the answer, too: it
 * has a length of 0 or of the whole partition, and is complete only with bps_sum_lend or the last byte; where
 * the length is 0 and there is no loan, say bps_sum_take(cursor, 0, NULL, 0).
 */
bps_status bps_sum_push(struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c,
                        struct bps_sum_cursor *cursor);
void *bps_sum_place(struct bps_sink *cursor, uint32_t offset, uint32_t *bytes);
uint32_t bps_sum_take(struct bps_sink *cursor, uint32_t offset, const void *data, uint32_t bytes);
/*
 * Instead of place and take: a block for the whole contribution. *opened stands for it from now on, until
 * bps_sum_placed or bps_sum_abandon; the cursor is free for the next frame. The first block that is complete
 * becomes the sum, others are added to it. NULL: there is none, and the cursor still stands for it.
 */
void *bps_sum_open(struct bps_sum_cursor *cursor, struct bps_sum_cursor *opened);
void bps_sum_placed(struct bps_sum_cursor *opened);
/*
 * Instead of place and take: the contribution is complete with this. BPS_AGAIN: the engine wants the bytes
 * (it may be that it only discards them). BPS_ERR_PROTOCOL: the loan is not of the partition's size.
 */
bps_status bps_sum_lend(struct bps_sink *cursor, struct bps_loan *loan);
/* The sender's link has ended within a slice. */
void bps_sum_abandon(struct bps_sum_cursor *cursor);

/*
 * Makes the most urgent of the passes that are due, so that whoever drives the engine can see to its links in
 * between. False: none is left.
 */
bool bps_sum_work(struct bps_sum *sum);

/* ---- results of a shard that is lost: held.c ---- */

/* This worker has some, and will not contribute to their slices. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_sum_hold(struct bps_sum *sum, uint32_t rank, const struct bps_held *held);
/* One of them, which was wanted from this worker. Not wanted any more: nothing happens. */
bps_status bps_sum_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset, bool codes,
                         const void *data, uint32_t bytes);

/* ---- results ---- */

/* Whether this worker needs the payload: not if it spoke for the root of a broadcast. */
bool bps_sum_wants_data(const struct bps_sum_slice *slice, uint32_t rank);
/*
 * The loan whose answer has this worker's result already: return it with slice->other_header. NULL: it has
 * lent nothing. slice->payload may lie in the leader's: that one stays until all others have got the slice.
 */
struct bps_loan *bps_sum_loan(const struct bps_sum_slice *slice, uint32_t rank);
/* Whether the result was there before this worker's contribution, which is not in it. */
bool bps_sum_is_late(const struct bps_sum_slice *slice, uint32_t rank);
/* The owner of its engine. */
void *bps_sum_owner(const struct bps_sum_slice *slice);
/* A slice was delivered to one worker. */
void bps_sum_delivered(struct bps_sum_slice *slice);
/*
 * After `summed`: `data` is the result (NULL only if it is empty). It is written to the loans of all but the
 * leader, and result() is called for them. It stays valid until it was delivered to all of them.
 */
void bps_sum_distribute(struct bps_sum_slice *slice, const void *data);

/*
 * Something of a slice begins or ends that is recorded, if the slice is, at this time (BPS_TRACE_NOW, _ALSO); `rank`:
 * the worker that it is of, or 0.
 */
void bps_sum_record(const struct bps_sum_slice *slice, enum bps_trace_kind kind, uint32_t rank, bool end, uint64_t at);
static inline void bps_sum_trace(const struct bps_sum_slice *slice, enum bps_trace_kind kind, uint32_t rank, bool end,
                                 uint64_t at)
{
    if (slice->step != 0) {
        bps_sum_record(slice, kind, rank, end, at);
    }
}

/* ---- what ends a round otherwise ---- */

/*
 * A worker cannot contribute (POISON): the round fails for everybody with its text, or has failed with an earlier one.
 * BPS_ERR_PROTOCOL as above.
 */
bps_status bps_sum_poison(struct bps_sum *sum, uint32_t rank, const struct bps_notice *poison);
/* Whether no round is open. */
bool bps_sum_is_idle(const struct bps_sum *sum);
/* Whether somebody has come to this round, and it is not over. */
bool bps_sum_is_open(const struct bps_sum *sum, const struct bps_round_id *id);
/*
 * A partial sum has failed in the network (FAILED): everybody in the round is told, now or when it comes to it.
 * BPS_ERR_PROTOCOL: there can be no such round.
 */
bps_status bps_sum_fail(struct bps_sum *sum, const struct bps_notice *failed);
/*
 * What coding the sums of a partition has lost here, with its sign changed, as bytes; *bytes 0: nothing. With `dropped`
 * the last round of it did not count.
 */
const void *bps_sum_error(const struct bps_sum *sum, uint32_t tensor, uint32_t partition, bool dropped,
                          uint64_t *bytes);
/* A worker has left: rounds that need it fail. */
void bps_sum_leave(struct bps_sum *sum, uint32_t rank);
/*
 * A worker's link is lost: its loans are touched no more, rounds that are not complete fail, and it hears of nothing.
 */
void bps_sum_gone(struct bps_sum *sum, uint32_t rank);
/* Reminds of rounds older than `warn` ns (0: never) every so often; fails those older than `fail` ns (0: never). */
void bps_sum_check_stalls(struct bps_sum *sum, uint64_t now, uint64_t warn, uint64_t fail);
/* Who came last to the round of a partial sum, as a contribution tells it. */
void bps_sum_last(const struct bps_sum_slice *slice, uint16_t *last, uint16_t *late);
/* Adds who was late since the last time, as far as all workers meet in this engine. */
void bps_sum_lateness(struct bps_sum *sum, struct bps_lateness *into);
/* All rounds are `ns` younger: the time in which this process was stopped counts against nobody. */
void bps_sum_excuse(struct bps_sum *sum, uint64_t ns);

#endif
