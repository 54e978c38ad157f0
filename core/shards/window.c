/* SPDX-License-Identifier: Apache-2.0 */
/* window.c - the places of shards in the order of what is sent. */
#include "shards/window.h"

#include <stdlib.h>

#include "base/assert.h"

static void check_window(const struct bps_window *window)
{
    uint32_t waiting = 0, blocked = 0;
    for (uint32_t i = 0; i < window->shards; i++) {
        const struct bps_window_shard *shard = &window->shard[i];
        bps_assert(shard->share > 0 && shard->share <= 1 && shard->place >= 0);
        bps_assert(shard->blocked_by == BPS_WINDOW_NONE || (shard->blocked_by < window->shards && shard->waits));
        bps_assert(shard->blocked_by != i);
        waiting += shard->waits;
        blocked += shard->blocked_by != BPS_WINDOW_NONE;
    }
    bps_assert(window->waiting == waiting && window->blocked == blocked);
}

/* Without a weight it gets nothing, or hardly anything. */
static double share_of(uint32_t weight, uint64_t all)
{
    return weight > 0 ? weight / (double)all : 1.0;
}

bps_status bps_window_init(struct bps_window *window, const struct bps_book *book)
{
    *window = (struct bps_window){.shards = 0};
    return bps_window_grow(window, book);
}

bps_status bps_window_grow(struct bps_window *window, const struct bps_book *book)
{
    struct bps_window_shard *shard = realloc(window->shard, book->shards * sizeof *shard);
    if (shard == NULL) {
        return BPS_ERR_NOMEM;
    }
    window->shard = shard;
    for (; window->shards < book->shards; window->shards++) {
        shard[window->shards] =
            (struct bps_window_shard){.share = share_of(book->shard[window->shards].weight, bps_book_weights(book)),
                                      .blocked_by = BPS_WINDOW_NONE};
    }
    return BPS_OK;
}

void bps_window_weigh(struct bps_window *window, const uint32_t *weight)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < window->shards; i++) {
        all += weight[i];
    }
    for (uint32_t i = 0; i < window->shards; i++) {
        window->shard[i].share = share_of(weight[i], all);
    }
}

void bps_window_fini(struct bps_window *window)
{
    free(window->shard);
    *window = (struct bps_window){0};
}

/* A shard that comes does not make up for the time in which it had nothing to send. */
static void catch_up(struct bps_window *window, uint32_t i)
{
    const struct bps_window_shard *last = NULL;
    for (uint32_t j = 0; j < window->shards; j++) {
        const struct bps_window_shard *other = &window->shard[j];
        if (j != i && other->waits && (last == NULL || other->place < last->place)) {
            last = other;
        }
    }
    if (last != NULL && window->shard[i].place < last->place) {
        window->shard[i].place = last->place;
    }
}

/* Nobody waits: what was sent does not count any more. */
static void begin_order(struct bps_window *window)
{
    for (uint32_t i = 0; i < window->shards; i++) {
        window->shard[i].place = 0;
    }
}

void bps_window_wait(struct bps_window *window, uint32_t i, int32_t priority, bool free)
{
    struct bps_window_shard *shard = &window->shard[i];
    shard->priority = priority;
    shard->free = free;
    if (shard->waits) {
        return;
    }
    if (window->waiting++ == 0) {
        begin_order(window);
    }
    shard->waits = true;
    catch_up(window, i);
    bps_check(check_window(window));
}

static void block(struct bps_window *window, uint32_t i, uint32_t by)
{
    struct bps_window_shard *shard = &window->shard[i];
    window->blocked += (by != BPS_WINDOW_NONE) - (shard->blocked_by != BPS_WINDOW_NONE);
    shard->blocked_by = by;
}

void bps_window_rest(struct bps_window *window, uint32_t i)
{
    window->waiting -= window->shard[i].waits;
    window->shard[i].waits = false;
    block(window, i, BPS_WINDOW_NONE);
    bps_check(check_window(window));
}

bool bps_window_admits(struct bps_window *window, uint32_t i)
{
    const struct bps_window_shard *shard = &window->shard[i];
    uint32_t by = BPS_WINDOW_NONE;
    for (uint32_t j = 0; j < window->shards && by == BPS_WINDOW_NONE && !shard->free; j++) {
        const struct bps_window_shard *other = &window->shard[j];
        if (other->waits && !other->free && other->priority >= shard->priority &&
            other->place + BPS_WINDOW_BYTES < shard->place) {
            by = j;
        }
    }
    block(window, i, by);
    return by == BPS_WINDOW_NONE;
}

void bps_window_sent(struct bps_window *window, uint32_t i, uint64_t bytes)
{
    struct bps_window_shard *shard = &window->shard[i];
    bps_assert(i < window->shards);
    shard->place += (double)bytes / shard->share;
    bps_check(check_window(window));
}

uint32_t bps_window_freed(struct bps_window *window, uint32_t i)
{
    for (uint32_t j = 0; j < window->shards && window->blocked > 0; j++) {
        if (window->shard[j].blocked_by == i && bps_window_admits(window, j)) {
            return j;
        }
    }
    return BPS_WINDOW_NONE;
}
