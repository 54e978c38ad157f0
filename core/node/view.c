/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - views, and who holds them. */
#include "node/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

bps_status bps_view_read(struct bps_reader *r, const struct bps_identity *self, struct bps_view **out)
{
    struct bps_view *view = calloc(1, sizeof *view);
    if (view == NULL) {
        return BPS_ERR_NOMEM;
    }
    atomic_init(&view->holders, 1);
    bps_status status = bps_book_read(r, &view->book);
    if (status != BPS_OK) {
        bps_view_put(view);
        return status;
    }
    view->book.self = *self;
    *out = view;
    return BPS_OK;
}

static bool is_same_shard(const struct bps_book_shard *a, const struct bps_book_shard *b)
{
    return a->member == b->member && a->gone <= b->gone && a->lost <= b->lost && strcmp(a->address, b->address) == 0;
}

static bool follows(const struct bps_book *before, const struct bps_book *after)
{
    bool good = after->epoch == before->epoch && after->view == before->view + 1 && after->workers == before->workers &&
                after->members >= before->members && after->shards >= before->shards;
    for (uint32_t i = 0; good && i < before->members; i++) {
        good = before->member[i].lost <= after->member[i].lost &&
               memcmp(after->member[i].public_key, before->member[i].public_key, BPS_KEY_BYTES) == 0;
    }
    for (uint32_t i = 0; good && i < after->shards; i++) {
        good = i < before->shards ? is_same_shard(&before->shard[i], &after->shard[i])
                                  : after->shard[i].member >= before->members; /* of a server that has come */
    }
    return good;
}

bool bps_view_follow(struct bps_view *view, struct bps_view *before)
{
    if (!follows(&before->book, &view->book)) {
        return false;
    }
    view->before = bps_view_get(before);
    bps_assert(view->before->book.epoch == view->book.epoch);
    return true;
}

void bps_view_forget_before(struct bps_view *view)
{
    bps_view_put(view->before);
    view->before = NULL;
}

struct bps_view *bps_view_at(struct bps_view *view, uint32_t id)
{
    bps_assert(atomic_load(&view->holders) > 0);
    uint32_t kind = bps_unnamed_kind(id);
    while (view->before != NULL && bps_number_is_before(id & BPS_ID_NUMBER, view->book.from[kind])) {
        view = view->before;
    }
    return view;
}

void bps_view_free(struct bps_view *view)
{
    bps_assert(atomic_load(&view->holders) == 0);
    bps_assert(view->before == NULL || view->before->book.view < view->book.view);
    bps_view_put(view->before);
    bps_book_fini(&view->book);
    free(view);
}
