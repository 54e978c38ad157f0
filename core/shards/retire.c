/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retire.c - shards that are gone in the newest view: a worker leaves them when all that it has begun there, or is
 * going to begin, is over.
 */
#include "shards/shards.h"

/* Whether the next round of a tensor is still summed by a shard that is gone. */
static bool is_placed_there(const struct bps_tensor_entry *tensor)
{
    const struct bps_book *book = &tensor->worker->view->book;
    bool turns = tensor->next.partition != NULL && tensor->round >= tensor->next_round;
    for (uint32_t i = 0; i < tensor->placed.n && !turns; i++) {
        if (book->shard[tensor->placed.partition[i].shard].gone) {
            return true;
        }
    }
    return false;
}

void bps_remotes_retire(struct bps_worker *worker)
{
    const struct bps_tensor_entry *tensor;
    if (worker->view == NULL || worker->view->before == NULL || worker->phase != BPS_WORKER_RUNNING || worker->moving ||
        bps_remotes_is_behind(worker) || bps_process_groups_any(&worker->process_groups)) {
        return;
    }
    for (tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        if (!tensor->named.unnamed && is_placed_there(tensor)) {
            return;
        }
    }
    bps_view_forget_before(worker->view);
    for (uint32_t i = 0; worker->shards != NULL && i < worker->shards->remotes; i++) {
        struct bps_remote *remote = worker->shards->remote[i];
        if (worker->view->book.shard[i].gone && !remote->retired) {
            remote->retired = true;
            bps_remote_leave(remote);
        }
    }
}
