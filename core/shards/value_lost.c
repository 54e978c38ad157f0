/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_lost.c - a shard is lost that has kept values: its heirs take them from who has the newest answers
 * (sum/value_heir.c).
 *
 * Each worker tells them: HELD for each partition, with the number of the version of each slice, and at last one of no
 * tensor to each shard that is left, which says that this was all.
 */
#include "shards/shards.h"

static bps_status tell_heir(struct bps_worker *worker, struct bps_value_copy *copy)
{
    const struct bps_book *book = &worker->view->book;
    const struct bps_header header = {.type = BPS_FRAME_HELD,
                                      .flags = BPS_FLAG_KEEPS,
                                      .dtype = copy->dtype,
                                      .epoch = worker->job.epoch,
                                      .tensor = (uint32_t)(copy->id >> 32),
                                      .partition = (uint32_t)copy->id,
                                      .bytes = copy->bytes,
                                      .size = copy->size,
                                      .slice = copy->grid,
                                      .view = book->view};
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, copy->broadcasts);
    for (uint32_t i = 0; i < copy->slices; i++) {
        bps_put_u64(&w, bps_value_copy_number(copy, i));
    }
    copy->shard = bps_unnamed_shard(book, book, header.tensor, header.partition);
    bps_status status = w.failed ? BPS_ERR_NOMEM : BPS_OK;
    if (status == BPS_OK) {
        status = bps_link_send(&worker->shards->remote[copy->shard]->lane[0].link, &header, w.data, w.size);
    }
    bps_writer_fini(&w);
    return status;
}

void bps_value_copies_told(struct bps_remote *remote)
{
    const struct bps_worker *worker = remote->worker;
    const struct bps_header header = {
        .type = BPS_FRAME_HELD, .flags = BPS_FLAG_KEEPS, .epoch = worker->job.epoch, .view = worker->shards->lost_in};
    if (header.view > 0 && remote->lane[0].link.state == BPS_LINK_OPEN) {
        bps_link_send(&remote->lane[0].link, &header, NULL, 0);
    }
}

void bps_value_copies_inherit(struct bps_worker *worker)
{
    struct bps_value_copy *copy, *next;
    HASH_ITER(hh, worker->shards->copies.of, copy, next) {
        if (worker->view->book.shard[copy->shard].lost && tell_heir(worker, copy) == BPS_ERR_NOMEM) {
            bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
            return;
        }
    }
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        bps_value_copies_told(worker->shards->remote[i]);
    }
}

bps_status bps_value_copy_wanted(struct bps_remote *remote, const struct bps_header *want)
{
    const struct bps_value_copy *copy =
        bps_value_copy_find(&remote->worker->shards->copies, want->tensor, want->partition);
    uint32_t index = copy != NULL ? want->offset / copy->grid : 0;
    if (copy == NULL || copy->shard != remote->index || index >= copy->slices || copy->slice[index].data == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_header header = *want;
    header.type = BPS_FRAME_FINAL;
    return bps_link_send(&remote->lane[0].link, &header, copy->slice[index].data, bps_value_copy_bytes(copy, index));
}
