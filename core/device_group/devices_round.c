/* SPDX-License-Identifier: Apache-2.0 */
/* devices_round.c - rounds that devices sum: their tasks, and what is said of them. */
#include "device_group/devices.h"
#include "flow/step.h"

struct bps_task *bps_devices_task(struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_task *task = bps_task_begun(worker, header);
    return task != NULL && bps_task_is_elsewhere(task) && task->state != BPS_TASK_IDLE ? task : NULL;
}

struct bps_header bps_devices_header(const struct bps_operation *operation, uint8_t type)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return (struct bps_header){
        .type = type,
        .dtype = (uint8_t)operation->request.dtype,
        .op = (uint8_t)operation->op,
        .epoch = tensor->worker->job.epoch,
        .tensor = tensor->id,
        .bytes = operation->bytes,
        .round = tensor->named.unnamed ? 0 : tensor->round,
        .priority = operation->request.priority,
    };
}

void bps_devices_send(struct bps_devices *devices, struct bps_header *header, const void *payload, size_t bytes)
{
    struct bps_link *link = devices->local->peer[0].link;
    header->epoch = devices->local->worker->job.epoch;
    if (link != NULL) {
        bps_link_send(link, header, payload, bytes);
    }
}

uint32_t bps_devices_divisor(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    uint32_t divisor = bps_local_divisor(operation);
    bool needed = operation->request.dtype == BPS_FLOAT16;
    return needed || divisor == tensor->worker->local->size ? divisor : 1;
}

uint32_t bps_devices_op(const struct bps_devices *devices, const struct bps_operation *operation)
{
    bool divides = bps_local_is_final(devices->local) || bps_devices_divisor(operation) > 1;
    return operation->op == BPS_AVERAGE && !divides ? BPS_SUM : operation->op;
}
