/* SPDX-License-Identifier: Apache-2.0 */
/* notice.c - which task a frame is about, and the end of rounds that have failed. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "flow/step.h"

#define LOG        "worker"
#define WARN_EVERY (10 * BPS_S)

struct bps_task *bps_task_begun(struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_tensor_entry *tensor = header->group == 0
                                          ? bps_tensor_of(worker, header->tensor)
                                          : bps_process_group_find(worker, header->group, header->tensor);
    bool found = tensor != NULL && bps_has_begun(&tensor->operation) &&
                 (tensor->named.unnamed || header->round == tensor->round);
    return found ? bps_tensor_task(tensor, header->partition) : NULL;
}

struct bps_task *bps_task_find(struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_task *task = bps_task_begun(worker, header);
    return task != NULL && task->state == BPS_TASK_WAITING && !task->failed ? task : NULL;
}

bool bps_task_is_late(const struct bps_worker *worker, const struct bps_header *header)
{
    if (header->tensor >= BPS_ID_UNNAMED) {
        return true;
    }
    const struct bps_tensor_entry *tensor = bps_tensor_of(worker, header->tensor);
    return tensor != NULL ? header->round <= tensor->round : header->tensor <= worker->last_id;
}

/* Another worker pushed a larger tensor here: its further partitions must fail, too. */
static void refuse_rest(struct bps_tensor_entry *tensor, const struct bps_header *header, const char *text)
{
    if (header->partition == 0 && tensor->named.unnamed) {
        uint32_t n = bps_tensor_partitions(tensor, header->bytes);
        for (uint32_t i = tensor->tasks; i < n; i++) {
            bps_tensor_refuse(tensor, i, header->bytes, bps_wire_status(header->root), text, false);
        }
    }
}

/*
 * The workers do not agree about an operation of blocks: all of it ends. Nobody else could end it: another worker may
 * have more partitions of a block than the one that it waits for.
 */
static void give_up_blocks(struct bps_operation *operation, const struct bps_header *header, const char *text)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    bps_status status = bps_wire_status(header->root);
    uint64_t bytes = header->partition == 0 ? header->bytes : 0; /* of the largest tensor without blocks that came */
    uint32_t n = bps_partitions(bytes, bps_tensor_cut(tensor, bytes));
    for (uint32_t i = 1; i < tensor->tasks; i++) {
        struct bps_task *task = &tensor->task[i];
        if (task->state == BPS_TASK_WAITING && !task->failed) {
            bps_tensor_refuse(tensor, task->partition, task->whole, status, text, false);
            bps_task_cancel(task);
        }
    }
    for (uint32_t i = 1; i < n; i++) { /* for which that one would wait */
        bps_tensor_refuse(tensor, i, bytes, status, text, false);
    }
}

static bps_status notice_on_failed(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    bps_assert(STAILQ_EMPTY(&worker->ready) || worker->going_on);
    struct bps_task *task = bps_task_find(worker, header);
    if (task == NULL) {
        return bps_task_is_late(worker, header) ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    refuse_rest(task->tensor, header, text);
    task->feedback.summed = (header->flags & BPS_FLAG_SUMMED) != 0;
    bps_operation_blame(&task->tensor->operation, header->partition, bps_wire_status(header->root), text);
    struct bps_operation *operation = &task->tensor->operation;
    bps_task_cancel(task);
    if (operation->blocks.ranks > 0) {
        give_up_blocks(operation, header, text);
    }
    return BPS_OK;
}

static bps_status on_stalled(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    const struct bps_task *task = bps_task_find(worker, header);
    uint64_t now = bps_now();
    if (task != NULL) {
        task->tensor->operation.told = true;
    }
    if (task != NULL && now - worker->warned > WARN_EVERY) {
        worker->warned = now;
        bps_warn(LOG, "tensor '%s' %s", task->tensor->named.name, text);
    }
    return BPS_OK;
}

bps_status bps_round_notice(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    if (header->epoch != worker->job.epoch) {
        return BPS_ERR_PROTOCOL;
    }
    bps_flow_settle(worker);
    return header->type == BPS_FRAME_FAILED ? notice_on_failed(worker, header, text) : on_stalled(worker, header, text);
}
