/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_round.h - the exchange's own view of its rounds; for the files of this folder only. */
#ifndef BPS_SUM_EXCHANGE_ROUND_H
#define BPS_SUM_EXCHANGE_ROUND_H

#include "sum/exchange.h"
#include "sum/round.h"
#include "sum/rounds.h"

/* What a worker has pushed. */
struct bps_exchange_part {
    struct bps_spec spec;
    double scale;
    uint32_t bytes;
    const void *data; /* NULL: none, or not yet */
    void *block;      /* of the pool, for data that came before it could be summed */
    bool spoke;       /* its frame has come */
};

struct bps_exchange_round {
    struct bps_round_base base;
    struct bps_exchange *exchange;
    uint32_t here; /* contributions that are complete */
    struct bps_gathering gathering;
    uint32_t arriving;           /* cursors that point here */
    bool entered;                /* by us */
    bool over;                   /* it stays only for the cursors */
    bool overdue;                /* that was said */
    struct bps_contribution own; /* once entered */
    struct bps_kernels kernels;
    void *to, *task;
    struct bps_exchange_part part[]; /* by rank */
};

struct bps_exchange {
    struct bps_exchange_config config;
    struct bps_pool pool;
    struct bps_rounds rounds;
    bool left[BPS_EXCHANGE_WORKERS]; /* workers that have left */
    struct bps_wait wait;            /* of rank 0, who counts for all */
    struct bps_lateness recent;
};

/* ---- exchange_round.c ---- */
/* The round of that id, opened if need be. NULL with BPS_OK: it is over. */
bps_status bps_exchange_find(struct bps_exchange *exchange, const struct bps_round_id *id,
                             struct bps_exchange_round **out);
/* The round is over: nobody finds it any more. */
void bps_exchange_retire(struct bps_exchange_round *round);
/* Frees a round that is over, if nothing of it is arriving. */
void bps_exchange_collect(struct bps_exchange_round *round);
/* Ends a round that has failed: we are told now, or when we come to it. */
void bps_exchange_end(struct bps_exchange_round *round, bps_status status, const char *text);
/* We are in a round that has failed. */
void bps_exchange_tell(struct bps_exchange_round *round);

#endif
