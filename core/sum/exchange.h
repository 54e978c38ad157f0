/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - small tensors within a host: each worker sends its contribution to all others, and sums for
 * itself.
 *
 * That is one way instead of two, and all do the same at the same time; for few bytes it is worth the copies.
 * Contributions are summed in the order of ranks, so the result is the same bit by bit on all workers. A round
 * ends with the sum of all contributions or with a failure. What everybody sees for himself (contributions
 * that disagree, a worker that has left) everybody finds in the same words; all else one worker says for all,
 * whom the others tell what they know.
 *
 * It knows no network, and only tensors of one partition that have a name; the group is the whole job. A
 * worker is at most one round of a tensor ahead of another one, except by rounds that have failed. One thread
 * drives it.
 */
#ifndef BPS_SUM_EXCHANGE_H
#define BPS_SUM_EXCHANGE_H

#include <byteps/transport.h>

#include "base/lateness.h"
#include "plugin/instance.h"
#include "sum/contribution.h"

#define BPS_EXCHANGE_BYTES   (16u << 10) /* at most, of a contribution */
#define BPS_EXCHANGE_WORKERS 32u         /* at most */

struct bps_exchange;
struct bps_exchange_round;

/* From these calls the exchange may be called again, but not be freed. */
struct bps_exchange_events {
    /* The sum is where this task of ours wants it. The round is gone. */
    void (*done)(void *owner, void *task);
    /* A round that we have entered has failed, and is gone; or waits; or is overdue: to be poisoned. */
    void (*notice)(void *owner, const struct bps_notice *notice);
    /* Somebody has poisoned a round: tell all others that it has failed. */
    void (*poisoned)(void *owner, const struct bps_notice *failed);
};

struct bps_exchange_config {
    uint32_t workers, rank; /* rank: of this process */
    struct bps_instance *reducer;
    const struct bps_exchange_events *events;
    void *owner;
};

/* NULL: no memory. */
struct bps_exchange *bps_exchange_new(const struct bps_exchange_config *config);
void bps_exchange_free(struct bps_exchange *exchange);

/* ---- our part ---- */

/*
 * We come to the round of this contribution of ours, and leave all earlier ones of the tensor behind.
 * NULL with BPS_OK: it has failed, which `failed` was told.
 */
bps_status bps_exchange_enter(struct bps_exchange *exchange, const struct bps_contribution *own,
                              struct bps_exchange_round **out);
/*
 * Our contribution to it. It counts with bps_exchange_ready(): until then `from` is still sent, and may not
 * be overwritten, as it is if it is `to`. An error: the reducer cannot do that, and there is none.
 */
bps_status bps_exchange_contribute(struct bps_exchange_round *round, const void *from, void *to, void *task,
                                   struct bps_report *report);
void bps_exchange_ready(struct bps_exchange_round *round);

/* ---- that of others ---- */

/* Where a contribution goes; lives with its sender's link. */
struct bps_exchange_cursor {
    struct bps_sink sink;             /* the first member: it takes the bytes */
    struct bps_exchange_round *round; /* NULL: the bytes are discarded */
    uint32_t rank, bytes;
};

/*
 * A contribution has begun to arrive. The cursor's sink takes c->length bytes, by these functions.
 * BPS_ERR_PROTOCOL: no worker that works sends this.
 */
bps_status bps_exchange_push(struct bps_exchange *exchange, uint32_t rank, const struct bps_contribution *c,
                             struct bps_exchange_cursor *cursor);
void *bps_exchange_place(struct bps_sink *cursor, uint32_t offset, uint32_t *bytes);
uint32_t bps_exchange_take(struct bps_sink *cursor, uint32_t offset, const void *data, uint32_t bytes);
/* The sender's link has ended within a contribution. */
void bps_exchange_abandon(struct bps_exchange_cursor *cursor);

/* ---- what ends a round otherwise ---- */

/* The round of this notice fails, unless it is over. We may not have come to it yet. */
bps_status bps_exchange_fail(struct bps_exchange *exchange, const struct bps_notice *failed);
/* A worker cannot go on with the round, and we are the one who says so to all. */
bps_status bps_exchange_poison(struct bps_exchange *exchange, const struct bps_notice *poison);
/* A worker has left: rounds that still need it fail. */
void bps_exchange_leave(struct bps_exchange *exchange, uint32_t rank);
/* As bps_sum_check_stalls() and bps_sum_excuse(), for the rounds that we are in. */
void bps_exchange_check_stalls(struct bps_exchange *exchange, uint64_t now, uint64_t warn, uint64_t fail);
void bps_exchange_excuse(struct bps_exchange *exchange, uint64_t ns);
/* Adds who was late since the last time; one of the workers counts for all. */
void bps_exchange_lateness(struct bps_exchange *exchange, struct bps_lateness *into);

#endif
