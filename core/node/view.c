/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - views, and who holds them. */
#include "node/view.h"

#include <stdlib.h>

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

struct bps_view *bps_view_get(struct bps_view *view)
{
    if (view != NULL) {
        atomic_fetch_add_explicit(&view->holders, 1, memory_order_relaxed);
    }
    return view;
}

void bps_view_put(struct bps_view *view)
{
    if (view != NULL && atomic_fetch_sub_explicit(&view->holders, 1, memory_order_acq_rel) == 1) {
        bps_book_fini(&view->book);
        free(view);
    }
}
