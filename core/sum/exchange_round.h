/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_round.h - a round of an exchange; for exchange.c, and who checks what it holds. */
#ifndef BPS_SUM_EXCHANGE_ROUND_H
#define BPS_SUM_EXCHANGE_ROUND_H

#include "sum/exchange.h"
#include "sum/round.h"

/* What a worker has pushed. */
struct bps_exchange_part {
    struct bps_spec spec;
    double scale;
    const void *data;       /* NULL: none, or not yet */
    struct bps_block block; /* for data that came before it could be summed */
    bool spoke;             /* its frame has come */
};

struct bps_exchange_round {
    struct bps_round_base base;
    uint32_t here; /* contributions that are complete */
    struct bps_gathering gathering;
    bool entered;                /* by us */
    bool over;                   /* it stays only for the cursors */
    struct bps_contribution own; /* once entered */
    struct bps_kernels kernels;
    void *to, *task;
    struct bps_exchange_part part[]; /* by rank */
};

#endif
