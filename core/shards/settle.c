/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle.c - another server has come into a job, and shards have heirs that had none: from when on they may be lost.
 *
 * Nobody has kept the results of the only server, and an heir may need them: for a worker that lacks the result of a
 * round that others have ended. From the view with the new server on workers keep all results. Then the scheduler asks
 * which rounds have begun (move.c), and tells of each tensor the first one that nobody had: results of this round and
 * later ones are kept by all. A worker that has ended all earlier ones lacks nothing that others have not kept. One
 * that has not ends the job, if a server is lost that was alone, as that would have done before.
 */
#include "base/log.h"
#include "shards/shards.h"

#define LOG "worker"

bool bps_remotes_is_behind(const struct bps_worker *worker)
{
    const struct bps_operation *operation;
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        if (bps_number_is_before(worker->numbers[kind], worker->view->book.from[kind])) {
            return true;
        }
    }
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        if (operation->view != NULL && operation->view != worker->view) {
            return true;
        }
    }
    return false;
}

static bool any_bare(const struct bps_worker *worker)
{
    uint32_t i = 0;
    while (worker->shards != NULL && i < worker->shards->remotes && !worker->shards->remote[i]->bare) {
        i++;
    }
    return worker->shards != NULL && i < worker->shards->remotes;
}

void bps_remotes_disarm(struct bps_worker *worker)
{
    struct bps_tensor_entry *tensor;
    worker->shards->armed = false;
    for (tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        tensor->kept_from = UINT32_MAX;
    }
}

/* What a shard keeps the value of has rounds of this worker's own: after a whole one, it has all of the value. */
static void arm_values(struct bps_worker *worker)
{
    struct bps_tensor_entry *tensor;
    for (tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        bool keeps = !tensor->named.unnamed && tensor->job.keeps;
        tensor->kept_from = keeps ? tensor->round + bps_has_begun(&tensor->operation) + 1 : tensor->kept_from;
    }
}

bps_status bps_remotes_arm(struct bps_worker *worker, struct bps_reader *answer, bool all)
{
    for (uint32_t n = bps_get_u32(answer); n > 0 && !answer->bad; n--) {
        struct bps_tensor_entry *tensor = bps_tensor_of(worker, bps_get_u32(answer));
        uint32_t from = bps_get_u32(answer);
        if (tensor != NULL && !tensor->named.unnamed) { /* else it was forgotten meanwhile */
            tensor->kept_from = from;
        }
    }
    bool view = worker->shards != NULL && worker->view->book.view > worker->shards->asked_in;
    if (all && view && any_bare(worker)) { /* with the view it is known of what has no name, too */
        arm_values(worker);
        worker->shards->armed = true;
    }
    return answer->bad ? BPS_ERR_PROTOCOL : BPS_OK;
}

static bool is_before(const struct bps_tensor_entry *tensor)
{
    bool moves = tensor->next.partition != NULL && tensor->round < tensor->next_round;
    return !tensor->named.unnamed && (moves || tensor->round < tensor->kept_from);
}

void bps_remotes_settle(struct bps_worker *worker)
{
    const struct bps_tensor_entry *tensor;
    if (worker->shards == NULL || !worker->shards->armed || worker->phase != BPS_WORKER_RUNNING ||
        worker->failure != BPS_OK || bps_remotes_is_behind(worker)) {
        return;
    }
    for (tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        if (is_before(tensor)) {
            return;
        }
    }
    worker->shards->armed = false;
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        worker->shards->remote[i]->bare = false;
    }
    bps_info(LOG, "all results of each server are kept elsewhere, too: the job survives the loss of any of them");
}
