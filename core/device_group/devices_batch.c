/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices_batch.c - a batch that the coordinator has ordered: what its steps mean here, and how the tasks go
 * on when the device has done them, or the network has failed their round.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "device_group/devices.h"
#include "flow/step.h"

/* ---- partitions on their way ---- */

/* The device of the leader has the sum of the group: it goes to the host, the network and back. */
static void lead_on(struct bps_task *task)
{
    task->for_group = true;
    task->divisor = bps_local_divisor(&task->tensor->operation);
    bps_task_start(task);
}

/* The device has the result: its way is that of a task behind the last step. */
static void finish(struct bps_task *task)
{
    task->step = task->tensor->path.length - 1;
    bps_task_done(task, BPS_OK, NULL);
}

static bool leads(const struct bps_task *task)
{
    const struct bps_local *local = task->tensor->worker->local;
    return bps_local_leader_of(task->tensor, task->partition) == &local->peer[local->place];
}

static void on_step(struct bps_task *task, uint32_t kind)
{
    bool reduced = kind == BPS_STEP_REDUCE;
    if (--task->held > 0) {
        return; /* its leader was faster, and another batch has the task */
    }
    if (task->tensor->worker->failure != BPS_OK || task->failed || !reduced) {
        finish(task);
    } else if (leads(task)) {
        lead_on(task);
    } else {
        task->state = BPS_TASK_AWAITED; /* for its leader */
    }
}

static void on_batch(void *arg, bps_status status, const char *text)
{
    struct bps_devices_batch *batch = arg;
    struct bps_devices *devices = batch->devices;
    struct bps_worker *worker = devices->local->worker;
    char line[BPS_TEXT_LIMIT];
    TAILQ_REMOVE(&devices->under_way, batch, entry);
    if (status != BPS_OK && worker->failure == BPS_OK) {
        snprintf(line, sizeof line, "worker %u: %s", worker->rank, text);
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

static struct bps_devices_batch *batch_take(struct bps_devices *devices)
{
    struct bps_devices_batch *batch = SLIST_FIRST(&devices->spare);
    if (batch == NULL) {
        return calloc(1, sizeof *batch);
    }
    SLIST_REMOVE_HEAD(&devices->spare, spare);
    return batch;
}

/* True if the leader's device has the result: it is behind the stage that copies it there. */
static bool has_result(const struct bps_task *task)
{
    return task->state == BPS_TASK_AWAITED && task->step + 1 == task->tensor->path.length;
}

static bool may_follow(const struct bps_devices *devices, const struct bps_task *task, uint32_t kind)
{
    bool is_final = bps_local_is_final(devices->local), is_first = task->given == 0;
    if (kind != BPS_STEP_BROADCAST) {
        return is_first && kind == (is_final ? BPS_STEP_ALL_REDUCE : BPS_STEP_REDUCE);
    }
    bool reduced = (task->given & 1u << BPS_STEP_REDUCE) != 0, is_last = (task->given & 1u << kind) == 0;
    return reduced && is_last && !task->failed && (!leads(task) || has_result(task));
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
    struct bps_task *task = order->bad ? NULL : bps_task_grouped(worker, &header);
    if (task == NULL || !may_follow(devices, task, kind)) {
        return false;
    }
    const struct bps_operation *operation = &task->tensor->operation;
    const struct bps_push_pull *r = &operation->request;
    const struct bps_local_peer *leader = bps_local_leader_of(task->tensor, task->partition);
    size_t at = (size_t)task->partition * worker->partition;
    *step = (struct bps_group_step){
        .kind = kind,
        .op = bps_devices_op(devices, operation),
        .dtype = r->dtype,
        .root = (uint32_t)(leader - devices->local->peer),
        .from = (const char *)(kind == BPS_STEP_BROADCAST ? r->out : r->in) + at,
        .to = (char *)r->out + at,
        .count = task->bytes / bps_dtype_size(r->dtype),
    };
    task->tensor->operation.asking = false;
    task->given |= 1u << kind;
    task->held++;
    task->state = BPS_TASK_COPYING;
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
    struct bps_devices_batch *batch = batch_take(devices);
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
        status = devices->ops->run(devices->group, step, batch->tasks, on_batch, batch, &report);
    } else {
        snprintf(report.text, sizeof report.text, "the coordinator ordered what cannot be");
    }
    if (status != BPS_OK) {
        on_batch(batch, status, report.text);
    }
    return BPS_OK;
}

/* ---- failures in the network ---- */

/* True if this worker pushes the partition for the group, and waits for the result. */
static bool crosses(const struct bps_task *task)
{
    bool waits = task->state == BPS_TASK_QUEUED || task->state == BPS_TASK_AWAITED;
    return waits && leads(task) && task->given == 1u << BPS_STEP_REDUCE && !has_result(task);
}

/* Its next step, if it is to be ordered, is not any more. */
static void forget(const struct bps_devices *devices, const struct bps_task *task)
{
    if (devices->coordinator != NULL) {
        bps_coordinator_forget(devices->coordinator, task);
    }
}

bool bps_devices_network_failed(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    struct bps_local *local = worker->local;
    const struct bps_task *task = bps_task_grouped(worker, header);
    if (task == NULL) {
        return false;
    }
    forget(local->devices, task);
    for (uint32_t place = 0; place < local->size && crosses(task); place++) {
        struct bps_link *link = local->peer[place].link;
        if (place != local->place && link != NULL) {
            bps_link_send(link, header, text, strnlen(text, BPS_TEXT_LIMIT));
        }
    }
    return true;
}

bool bps_devices_failed(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    struct bps_task *task = bps_task_grouped(worker, header);
    if (task != NULL) {
        forget(worker->local->devices, task);
    }
    if (task == NULL || task->state != BPS_TASK_COPYING) {
        return false;
    }
    bps_operation_blame(&task->tensor->operation, header->partition, bps_wire_status(header->root), text);
    task->failed = true; /* and over when its batch is */
    return true;
}
