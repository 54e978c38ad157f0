/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.h - one order of what a worker sends to all shards, and how far a shard may run ahead in it: numbers
 * only, no network, no clock.
 *
 * The order: the most urgent first, and of what is equally urgent each shard its share of the bytes. A
 * shard's place in it is what it was sent, divided by its share. A slice is blocked while another shard, with
 * something as urgent to send, is further behind than the window. Otherwise the shards that are reached fast
 * would run ahead, and in the end the links of the others would be busy alone.
 *
 * What one worker alone contributes is free of it: nobody waits for all parts of that together, and a connection that
 * TCP has made slow would hold up those to all other shards.
 *
 * That cannot lock up. Of the shards with the most urgent slices, the one whose place is last is blocked for
 * nobody. It only needs its transport to take a slice, and for that its server only has to read; servers read
 * whatever comes, in any order, whether they can answer it yet or not. Neither an answer nor another worker
 * has a part in it.
 */
#ifndef BPS_SHARDS_WINDOW_H
#define BPS_SHARDS_WINDOW_H

#include "node/book.h"

#define BPS_WINDOW_BYTES (512u << 10)
#define BPS_WINDOW_NONE  UINT32_MAX

struct bps_window_shard {
    double share;        /* of all bytes */
    double place;        /* in the order, bytes */
    bool waits;          /* it has something to send, */
    bool free;           /* which has no part in the order */
    int32_t priority;    /* of that */
    uint32_t blocked_by; /* the shard that it is blocked for, as was found last; BPS_WINDOW_NONE: none */
};

struct bps_window {
    uint32_t shards, waiting, blocked;
    struct bps_window_shard *shard;
};

/* For the shards of a job, with the shares that placement gives them. */
bps_status bps_window_init(struct bps_window *window, const struct bps_book *book);
/* The same of shards that have come behind those that there are. BPS_ERR_NOMEM: it is as it was. */
bps_status bps_window_grow(struct bps_window *window, const struct bps_book *book);
void bps_window_fini(struct bps_window *window);
/* Other shares from now on, by the weights of the shards. */
void bps_window_weigh(struct bps_window *window, const uint32_t *weight);

/*
 * The shard has something to send, and how urgent that is; said again when that changes. `free`: it may run ahead of
 * all others, and they of it.
 */
void bps_window_wait(struct bps_window *window, uint32_t i, int32_t priority, bool free);
/* It has nothing to send any more. */
void bps_window_rest(struct bps_window *window, uint32_t i);
/* Whether a shard that waits may send now. If not, bps_window_freed() tells when it may. */
bool bps_window_admits(struct bps_window *window, uint32_t i);
void bps_window_sent(struct bps_window *window, uint32_t i, uint64_t bytes);
/*
 * Another shard that was blocked by shard i and may send now. To be asked after each change of i, until it says
 * BPS_WINDOW_NONE.
 */
uint32_t bps_window_freed(struct bps_window *window, uint32_t i);

#endif
