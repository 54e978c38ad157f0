/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - the membership as it is from some moment on, until there is another one.
 *
 * A view never changes, and lives as long as somebody holds it: what has begun under one view goes on under it, while
 * others begin under the next. Within an epoch workers keep their ranks, and shards their numbers; a shard that is gone
 * has no weight, and those of a server that has come are behind the others. [any thread]
 */
#ifndef BPS_NODE_VIEW_H
#define BPS_NODE_VIEW_H

#include <stdatomic.h>

#include "node/book.h"

struct bps_view {
    atomic_uint holders;
    struct bps_view *before; /* that this one follows, held; NULL: none, or nothing is under way under it any more */
    struct bps_book book;
};

/* Reads a BOOK message. The caller holds the view, of the member with this identity. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_view_read(struct bps_reader *r, const struct bps_identity *self, struct bps_view **out);
/*
 * The view follows the other one, which it holds from now on. False: it cannot, as the epoch, a member or a shard is
 * another one.
 */
bool bps_view_follow(struct bps_view *view, struct bps_view *before);
/* Nothing is under way under those before. Those who use them are of one thread. */
void bps_view_forget_before(struct bps_view *view);
/* The one of this view and those before that a tensor without a name, of this id, is spread by. */
struct bps_view *bps_view_at(struct bps_view *view, uint32_t id);
/* One more holder, of a view that is held; NULL stays NULL. */
static inline struct bps_view *bps_view_get(struct bps_view *view)
{
    if (view != NULL) {
        atomic_fetch_add_explicit(&view->holders, 1, memory_order_relaxed);
    }
    return view;
}
/* One less; NULL is ignored. */
void bps_view_free(struct bps_view *view);
static inline void bps_view_put(struct bps_view *view)
{
    if (view != NULL && atomic_fetch_sub_explicit(&view->holders, 1, memory_order_acq_rel) == 1) {
        bps_view_free(view);
    }
}

#endif
