/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices_batch.c - a batch that the coordinator has ordered: what its steps mean here, and how the tasks go
 * on when the device has done them.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "device_group/devices.h"
#include "flow/step.h"

/* ---- partitions on their way ---- */

/*
 * The device of the leader has the sum of the group, with which it goes on to the host and the network; the others wait
 * for its result. All else is the end.
 */
static void on_step(struct bps_task *task, uint32_t kind)
{
    bps_assert(bps_devices_round_of(task)->batches > 0);
    const struct bps_tensor_entry *tensor = task->tensor;
    bool over = task->failed || tensor->worker->failure != BPS_OK;
    if (--bps_devices_round_of(task)->batches > 0) {
        return; /* its leader was faster, and another batch has the task */
    }
    if (kind == BPS_STEP_REDUCE && !over) {
        if (!bps_local_leads(tensor, task->partition)) {
            return;
        }
        task->for_group = true;
        task->divisor = bps_devices_divisor(&tensor->operation);
    }
    bps_task_done(task, BPS_OK, NULL);
}

static void on_batch(void *arg, bps_status status, const char *text)
{
    bps_assert(((struct bps_devices_batch *)arg)->tasks > 0 &&
               ((struct bps_devices_batch *)arg)->tasks <= BPS_STEPS_LIMIT);
    struct bps_devices_batch *batch = arg;
    struct bps_devices *devices = batch->devices;
    struct bps_worker *worker = devices->local->worker;
    char line[BPS_TEXT_LIMIT];
    struct bps_report report;
    status = bps_answered(devices->reducer, "done", status, &text, &report);
    TAILQ_REMOVE(&devices->under_way, batch, entry);
    if (status != BPS_OK && worker->failure == BPS_OK) {
        snprintf(line, sizeof line, "worker %u: %s", worker->job.rank, text);
        bps_worker_fail(worker, status, line);
    }
    for (uint32_t i = 0; i < batch->tasks; i++) {
        on_step(batch->task[i], batch->kind[i]);
    }
    SLIST_INSERT_HEAD(&devices->spare, batch, spare);
    if (devices->coordinator != NULL && worker->failure == BPS_OK) {
        bps_coordinator_go_on(devices->coordinator);
    }
}

static struct bps_devices_batch *get_batch(struct bps_devices *devices)
{
    struct bps_devices_batch *batch = SLIST_FIRST(&devices->spare);
    if (batch == NULL) {
        return calloc(1, sizeof *batch);
    }
    SLIST_REMOVE_HEAD(&devices->spare, spare);
    return batch;
}

static bool may_follow(const struct bps_devices *devices, const struct bps_task *task, uint32_t kind)
{
    bps_assert(bps_task_is_elsewhere(task));
    uint32_t given = bps_devices_round_of(task)->given;
    if (kind != BPS_STEP_BROADCAST) {
        bool is_final = bps_local_is_final(devices->local);
        return given == 0 && kind == (is_final ? BPS_STEP_ALL_REDUCE : BPS_STEP_REDUCE);
    }
    bool reduced = (given & 1u << BPS_STEP_REDUCE) != 0, is_last = (given & 1u << kind) == 0;
    bool leads = bps_local_leads(task->tensor, task->partition);
    return reduced && is_last && !task->failed && (!leads || bps_devices_has_result(task));
}

/* What a step of an ORDER means here. False: it cannot be. */
static bool read_step(struct bps_devices *devices, struct bps_reader *order, struct bps_group_step *step,
                      struct bps_task **out)
{
    struct bps_worker *worker = devices->local->worker;
    uint32_t kind = bps_get_u8(order);
    struct bps_header header = {.tensor = bps_get_u32(order)};
    header.partition = bps_get_u32(order);
    header.round = bps_get_u32(order);
    struct bps_task *task = order->bad ? NULL : bps_devices_task(worker, &header);
    if (task == NULL || !may_follow(devices, task, kind)) {
        return false;
    }
    const struct bps_operation *operation = &task->tensor->operation;
    const struct bps_push_pull *r = &operation->request;
    const struct bps_local_peer *leader = bps_local_leader_of(task->tensor, task->partition);
    size_t at = task->offset;
    *step = (struct bps_group_step){
        .kind = kind,
        .op = bps_devices_op(devices, operation),
        .dtype = r->dtype,
        .root = (uint32_t)(leader - devices->local->peer),
        .from = (const char *)(kind == BPS_STEP_BROADCAST ? r->out : r->in) + at,
        .to = (char *)r->out + at,
        .count = task->bytes / bps_dtype_size(r->dtype),
    };
    if (task->tensor->operation.phase == BPS_PHASE_ASKING) {
        bps_operation_become(&task->tensor->operation, BPS_PHASE_RUNNING);
    }
    bps_devices_round_of(task)->given |= 1u << kind;
    bps_devices_round_of(task)->batches++;
    *out = task;
    return true;
}

/* A step that is not given to the device has no end; it is as if its batch had failed. */
bps_status bps_devices_run(struct bps_devices *devices, struct bps_reader *order)
{
    struct bps_group_step step[BPS_STEPS_LIMIT];
    struct bps_report report = {""};
    size_t n = (size_t)(order->end - order->at) / BPS_ORDER_BYTES;
    if (devices->group == NULL || devices->state < BPS_DEVICES_TOGETHER || n == 0 || n > BPS_STEPS_LIMIT) {
        return BPS_ERR_PROTOCOL; /* with OFF, another worker's farewell has come before this */
    }
    struct bps_devices_batch *batch = get_batch(devices);
    if (batch == NULL) {
        return BPS_ERR_NOMEM;
    }
    batch->devices = devices;
    batch->begun = bps_now();
    batch->tasks = 0;
    TAILQ_INSERT_TAIL(&devices->under_way, batch, entry);
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        if (read_step(devices, order, &step[i], &batch->task[i])) {
            batch->kind[i] = (uint8_t)step[i].kind;
            batch->tasks++;
        } else {
            status = BPS_ERR_PROTOCOL;
        }
    }
    if (status == BPS_OK && !bps_reader_done(order)) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status == BPS_OK) {
        BPS_CALLING(devices->reducer, "group.run", NULL);
        status = devices->ops->run(devices->group, step, batch->tasks, on_batch, batch, &report);
        status = bps_returned_told(devices->reducer, "group.run", status, &report);
    } else {
        snprintf(report.text, sizeof report.text, "the coordinator sent an invalid order");
    }
    if (status != BPS_OK) {
        on_batch(batch, status, report.text);
    }
    return BPS_OK;
}
