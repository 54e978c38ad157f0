/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.c - an operation whose tensor has another type, size or shape than the job knows.
 *
 * This worker fails the round for all, and all tell the scheduler what they have pushed. If all have changed alike,
 * the tensor gets another place there, and the operation begins anew; otherwise it ends, with the same words for all.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "flow/step.h"
#include "wire/link.h"

#define LOG "worker"

/*
 * All partitions that the others have are waited for, so that nothing of this round is under way when all have
 * reported.
 */
void bps_change_begin(struct bps_operation *operation)
{
    bps_assert(operation->phase == BPS_PHASE_RUNNING);
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_round_hooks *hooks = tensor->worker->hooks;
    char form[200], text[240];
    bps_form_text(&tensor->named.form, form, sizeof form);
    snprintf(text, sizeof text, "worker %u pushed %s", tensor->worker->job.rank, form);
    bps_operation_become(operation, BPS_PHASE_CHANGING);
    if (hooks != NULL) {
        hooks->decline(operation);
    }
    if (bps_tensor_tasks(tensor, tensor->job.bytes) != BPS_OK) {
        bps_operation_become(operation, BPS_PHASE_PENDING);
        bps_worker_fail(tensor->worker, BPS_ERR_NOMEM, "out of memory for a tensor that changes its size");
        return;
    }
    bps_tasks_refuse(operation, tensor->job.bytes, BPS_WIRE_CHANGED, text);
}

/* The words of the shards have done their part. */
static void clear_error(struct bps_operation *operation)
{
    operation->status = BPS_OK;
    operation->blamed = UINT32_MAX;
    free(operation->text);
    operation->text = NULL;
}

static void change_end_with(struct bps_operation *operation, bps_status status, const char *text)
{
    clear_error(operation);
    bps_operation_error(operation, status, text);
    bps_operation_end(operation);
}

void bps_change_report(struct bps_operation *operation)
{
    bps_assert(operation->left == 0);
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    if (worker->failure != BPS_OK) {
        change_end_with(operation, worker->failure, worker->failure_text);
        return;
    }
    clear_error(operation);
    bps_operation_become(operation, BPS_PHASE_REPORTED);
    tensor->round++; /* the shards have seen it */
    bps_change_tell(operation);
}

void bps_change_tell(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, tensor->id);
    bps_put_u32(&w, tensor->round - 1);
    bps_put_u8(&w, !bps_form_agrees(&tensor->named.form, &tensor->job));
    bps_put_form(&w, &tensor->named.form);
    if (bps_member_send(worker->member, BPS_FRAME_CHANGE, &w) != BPS_OK) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "could not report a tensor that has changed");
    }
    bps_writer_fini(&w);
}

/* The operation that waits for an answer; NULL: none does. */
static struct bps_operation *change_find(struct bps_worker *worker, uint32_t id)
{
    struct bps_tensor_entry *tensor = bps_tensor_of(worker, id);
    return tensor != NULL && tensor->operation.phase == BPS_PHASE_REPORTED ? &tensor->operation : NULL;
}

/* The same tensor in another place. */
static bps_status change_reform(struct bps_operation *operation, struct bps_reader *answer)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    bps_operation_become(operation, BPS_PHASE_PENDING);
    HASH_DELETE(by_id, tensor->worker->ids, tensor);
    tensor->id = 0;
    bps_status status = bps_declare_read(tensor, answer);
    if (status != BPS_OK || !bps_reader_done(answer) || !bps_form_agrees(&tensor->named.form, &tensor->job)) {
        return status != BPS_OK ? status : BPS_ERR_PROTOCOL;
    }
    bps_tasks_begin(operation);
    return BPS_OK;
}

bps_status bps_change_answer(void *owner, struct bps_reader *answer)
{
    struct bps_worker *worker = owner;
    char text[BPS_TEXT_LIMIT + 1];
    struct bps_operation *operation = change_find(worker, bps_get_u32(answer));
    uint8_t kind = bps_get_u8(answer);
    if (answer->bad || operation == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    if (kind == 0) {
        return change_reform(operation, answer);
    }
    bps_get_string(answer, text, sizeof text);
    if (!bps_reader_done(answer)) {
        return BPS_ERR_PROTOCOL;
    }
    if (kind == BPS_WIRE_WAITING) {
        bps_warn(LOG, "tensor '%s' %s", bps_container(operation, struct bps_tensor_entry, operation)->named.name, text);
    } else {
        change_end_with(operation, bps_wire_status(kind), text);
        if (worker->hooks != NULL) {
            worker->hooks->declared(worker);
        }
    }
    return BPS_OK;
}
