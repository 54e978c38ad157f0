/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices_step.c - the steps device_reduce and device_broadcast: what a task waits for while devices have it.
 *
 * The coordinator orders what the devices do (devices_batch.c). All-reduce is one order. Otherwise the leader of a
 * partition goes on with the sum to its host and the network, says that its device has the result, and all wait for
 * the order that brings it to them.
 */
#include "base/assert.h"
#include "device_group/devices.h"
#include "flow/step.h"

void bps_devices_forget(const struct bps_task *task)
{
    const struct bps_devices *devices = task->tensor->worker->local->devices;
    if (devices->coordinator != NULL) {
        bps_coordinator_forget(devices->coordinator, task);
    }
}

/* Whoever was given to a device is over when its batch is. */
static void device_step_end(struct bps_task *task)
{
    bps_devices_forget(task);
    if (bps_devices_round_of(task)->batches == 0) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

/* The group does not take its round: no device was given anything. */
static void device_step_reset(struct bps_task *task)
{
    bps_assert(bps_devices_round_of(task)->batches == 0);
}

static void device_step_left(struct bps_task *task, uint32_t rank)
{
    if (bps_local_leader_of(task->tensor, task->partition)->rank == rank && bps_devices_round_of(task)->batches == 0) {
        bps_devices_forget(task);
        bps_local_leader_left(task);
    }
}

/* ---- device_reduce ---- */

static bool is_final(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return bps_local_is_final(tensor->worker->local);
}

/* The coordinator has to hear from all before it orders anything. */
static bool reduce(struct bps_task *task)
{
    *bps_devices_round_of(task) = (struct bps_devices_round){.batches = 0};
    return false;
}

/* It ends with the sum of all. */
static const struct bps_step_ops all_reduce = {
    .name = "all-reduce",
    .takes = "all, where this host is the job",
    .crosses = true,
    .until = BPS_NODE_DEVICE_BROADCAST,
    .context = sizeof(struct bps_devices_round),
    .probe = is_final,
    .start = reduce,
    .reset = device_step_reset,
    .cancel = device_step_end,
    .abandon = device_step_end,
    .left = device_step_left,
};

/* The device of this worker has the sum of the group. */
static const struct bps_step_ops lead = {
    .name = "reduce, to this device",
    .takes = "the share of the partitions that this worker leads",
    .crosses = true,
    .context = sizeof(struct bps_devices_round),
    .probe = bps_local_leads,
    .start = reduce,
    .reset = device_step_reset,
    .cancel = device_step_end,
    .abandon = device_step_end,
    .left = device_step_left,
};

/* That of another worker has it, and brings the result. */
static const struct bps_step_ops contribute = {
    .name = "reduce, to another device",
    .takes = "partitions that others lead",
    .crosses = true,
    .until = BPS_NODE_DEVICE_BROADCAST,
    .context = sizeof(struct bps_devices_round),
    .start = reduce,
    .reset = device_step_reset,
    .cancel = device_step_end,
    .abandon = device_step_end,
    .left = device_step_left,
};

const struct bps_step_ops *const bps_device_reduce_steps[] = {&all_reduce, &lead, &contribute, NULL};

/* ---- device_broadcast ---- */

static bool share(struct bps_task *task)
{
    bps_assert(bps_task_is_elsewhere(task));
    struct bps_devices *devices = task->tensor->worker->local->devices;
    struct bps_header header = bps_devices_header(&task->tensor->operation, BPS_FRAME_FETCHED);
    header.partition = task->partition;
    if (devices->coordinator == NULL) {
        bps_devices_send(devices, &header, NULL, 0);
    } else if (bps_coordinator_fetched(devices->coordinator, devices->local->place, &header) != BPS_OK) {
        bps_worker_fail(devices->local->worker, BPS_ERR_NOMEM, "out of memory");
    }
    return false;
}

/* The other devices wait for this one. */
static bool device_step_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                               const char *text, bool answer)
{
    (void)partition;
    (void)bytes;
    (void)answer;
    bps_worker_fail(tensor->worker, status, text);
    return true;
}

static const struct bps_step_ops broadcast = {
    .name = "broadcast",
    .takes = "what came back from the network",
    .crosses = true,
    .start = share,
    .cancel = device_step_end,
    .abandon = device_step_end,
    .refuse = device_step_refuse,
};

const struct bps_step_ops *const bps_device_broadcast_steps[] = {&broadcast, NULL};

bool bps_devices_has_result(const struct bps_task *task)
{
    return task->state == BPS_TASK_WAITING && bps_task_step(task) == &broadcast;
}
