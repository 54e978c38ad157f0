/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - tensors move to other shards between two of their rounds, in the same round on all workers.
 *
 * The scheduler asks which rounds have begun, and then says from which on tensors are placed otherwise, perhaps after
 * the next view. In between no rounds begin, so that what was said stays true. What is under way goes on as it began.
 */
#include <stdlib.h>

#include "shards/shards.h"

static void tell_begun(struct bps_worker *worker, uint32_t number)
{
    struct bps_writer w, entries;
    uint32_t n = 0;
    worker->moving = true;
    if (worker->shards != NULL) {
        worker->shards->asked_in = worker->view->book.view;
    }
    bps_writer_init(&w);
    bps_writer_init(&entries);
    for (const struct bps_tensor_entry *tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        if (!tensor->named.unnamed) {
            bps_put_u32(&entries, tensor->id);
            bps_put_u32(&entries, tensor->round + bps_has_begun(&tensor->operation));
            n++;
        }
    }
    bps_put_u32(&w, number);
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        bps_put_u32(&w, worker->numbers[kind]);
    }
    bps_put_u32(&w, n);
    bps_put_bytes(&w, entries.data, entries.size);
    bps_status status = entries.failed ? BPS_ERR_NOMEM : bps_member_send(worker->member, BPS_FRAME_BEGUN, &w);
    bps_writer_fini(&entries);
    bps_writer_fini(&w);
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not say which rounds have begun");
    }
}

/* Whatever moves may do so to a server that is just coming: the answer waits until that is reached. */
bps_status bps_move_begin(void *owner, struct bps_reader *request)
{
    struct bps_worker *worker = owner;
    uint32_t number = bps_get_u32(request);
    if (!bps_reader_done(request) || number == 0 || worker->moving || worker->move_asked != 0) {
        return BPS_ERR_PROTOCOL;
    }
    worker->move_asked = number;
    bps_move_resume(worker);
    return BPS_OK;
}

void bps_move_resume(struct bps_worker *worker)
{
    uint32_t number = worker->move_asked;
    if (number != 0 && bps_remotes_reached(worker)) {
        worker->move_asked = 0;
        tell_begun(worker, number);
    }
}

static bps_status read_weights(struct bps_worker *worker, struct bps_reader *answer, uint32_t shards)
{
    uint64_t all = 0;
    uint32_t *weight = shards == worker->view->book.shards ? calloc(shards, sizeof *weight) : NULL;
    if (weight == NULL) {
        return shards == worker->view->book.shards ? BPS_ERR_NOMEM : BPS_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; i < shards; i++) {
        all += weight[i] = bps_get_u32(answer);
    }
    bool valid = !answer->bad && all > 0;
    if (valid && worker->shards != NULL) { /* else all sum among themselves */
        bps_remotes_weigh(worker, weight);
    }
    free(weight);
    return valid ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* One that this worker has forgotten meanwhile is read, too. */
static bps_status read_tensor(struct bps_worker *worker, struct bps_reader *answer)
{
    struct bps_placed placed;
    struct bps_tensor_entry *tensor = bps_tensor_of(worker, bps_get_u32(answer));
    uint32_t from = bps_get_u32(answer);
    bps_status status = bps_placed_read(worker, answer, &placed);
    if (status != BPS_OK) {
        return status;
    }
    bool known = tensor != NULL && !tensor->named.unnamed;
    if (known) {
        tensor->kept_from = from;
    }
    if (known && placed.bytes == tensor->job.bytes) {
        bps_tensor_place_from(tensor, &placed, from);
        return BPS_OK;
    }
    free(placed.partition);
    return known ? BPS_ERR_PROTOCOL : BPS_OK;
}

/* Only waits for this: else something else begins it. */
static bool is_held(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    return operation->phase == BPS_PHASE_PENDING && tensor->id != 0;
}

/* What begins may end at once, and with it, if that fails the job, all others. */
static void go_on(struct bps_worker *worker)
{
    struct bps_operation *next, *operation = TAILQ_FIRST(&worker->operations);
    worker->moving = false;
    for (; operation != NULL; operation = next) {
        next = TAILQ_NEXT(operation, entry);
        if (is_held(operation)) {
            bps_tasks_begin(operation);
            next = next == NULL || next->phase != BPS_PHASE_OFF ? next : TAILQ_FIRST(&worker->operations);
        }
    }
}

bps_status bps_move_end(void *owner, struct bps_reader *answer)
{
    struct bps_worker *worker = owner;
    uint32_t shards = bps_get_u32(answer);
    if (!worker->moving && worker->move_asked == 0) {
        return BPS_ERR_PROTOCOL;
    }
    if (!worker->moving) { /* it was given up before this worker has answered */
        worker->move_asked = 0;
        return shards == 0 && bps_get_u32(answer) == 0 && bps_get_u32(answer) == 0 && bps_reader_done(answer)
                   ? BPS_OK
                   : BPS_ERR_PROTOCOL;
    }
    bps_status status = shards == 0 ? BPS_OK : read_weights(worker, answer, shards);
    for (uint32_t n = bps_get_u32(answer); n > 0 && !answer->bad && status == BPS_OK; n--) {
        status = read_tensor(worker, answer);
    }
    if (status == BPS_OK) {
        status = bps_remotes_arm(worker, answer, shards > 0);
    }
    if (status != BPS_OK || !bps_reader_done(answer)) {
        return status != BPS_OK ? status : BPS_ERR_PROTOCOL;
    }
    go_on(worker);
    bps_remotes_retire(worker);
    bps_remotes_settle(worker);
    return BPS_OK;
}
