/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - keys that keep a value, for asynchronous training: what a worker pushes is added to it, and the answer is
 * what it is then. Nobody waits for anybody, unless that is asked for.
 *
 * The value is set by a broadcast; the answers to the other workers of that broadcast wait for it. Rounds are each
 * worker's own: their numbers say nothing of those of others. An average divides what is added by the number of
 * workers. An answer is a snapshot of each slice; slices of a partition may know of different pushes.
 *
 * With config.staleness >= 0 (bounded staleness: Ho et al., 2013) an answer waits while a worker that is there is more
 * than so many pushes behind; with 0 all have pushed equally often, as in synchronous training.
 *
 * Where a shard may be lost, an answer has behind the bytes of the slice what is in it: its tail. So the newest answer
 * that a worker has is the value at the heir, which knows of each push that comes again whether it is in it. Workers
 * may also push rows of it, and get these rows. Nobody has all of a slice whose newest answer was such rows: it has no
 * value at the heir.
 *
 * That is a kind of keys in a shard's engine (sum.h), of tensors with a name, without groups and coding.
 */
#ifndef BPS_SUM_VALUE_H
#define BPS_SUM_VALUE_H

#include "sum/sum.h"

extern const struct bps_key_ops bps_value_ops;

/*
 * The tail of an answer, little endian: u64 number of the version, u32 number of the broadcast that it is from; and for
 * each worker u32 its first round that is not in it, u32 how many pushes of it have come.
 */
static inline uint32_t bps_value_tail(uint32_t workers)
{
    return 12 + 8 * workers;
}

/* In the number of a version that a worker has: of this one it has had rows, and of no later one the whole slice. */
#define BPS_VALUE_TORN (1ull << 63)

/* What a worker has of a partition whose shard was lost. */
struct bps_value_held {
    struct bps_round_id id;
    uint64_t bytes;         /* of the tensor */
    uint32_t size, grid;    /* of the partition, and of all slices but the last */
    uint32_t view;          /* in which it was lost */
    uint32_t broadcasts;    /* that this worker has ended */
    const uint8_t *numbers; /* u64, little endian: of the newest version of each slice that it has; 0: it has none */
    uint32_t slices;        /* so many */
    uint8_t dtype;
};

/* BPS_ERR_PROTOCOL, here and below: no worker that works says this. BPS_ERR_NOMEM. */
bps_status bps_value_hold(struct bps_sum *sum, uint32_t rank, const struct bps_value_held *held);
/* That was all that the worker has from servers that were lost in this view, or before. */
void bps_value_told(struct bps_sum *sum, uint32_t rank, uint32_t view);
/* A slice that was wanted from this worker, with its tail. */
bps_status bps_value_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset,
                           const void *data, uint32_t bytes);

#endif
