/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - tensors in device memory: their way to the host and back, and those that stay.
 *
 * Such a tensor has a place in host memory of its size, which all workers of the host can map (staging.c). An
 * operation waits until the device has computed its input. Then each partition passes the stage copy_to_host,
 * and everything up to copy_to_device happens in host memory. A few copies in each direction are under way at
 * a time; what waits goes by priority, so that an urgent tensor overtakes a large one here as well.
 *
 * Slices that the network reads and writes on the device (direct.c) are not copied: the stages copy what is
 * left of a partition, if anything is.
 *
 * The operation ends when the last copy to the device has begun: the application's stream waits for its end,
 * the host does not.
 *
 * In a job of one worker the result is the worker's own tensor, scaled at most. If the reducer can do that on
 * the device, and no plugin is listed in worker.graph, the tensor stays there: its only stage is
 * reduce_on_device, which counts as a copy to the device.
 */
#ifndef BPS_WORKER_COPY_H
#define BPS_WORKER_COPY_H

#include "worker/worker.h"

/* ---- copy.c ---- */

/* Opens the reducer that brings devices: the first usable one of worker.use. None is no error. */
bps_status bps_copy_open(struct bps_worker *worker, struct bps_report *report);
/* Waits for the copies under way, and frees the staging memory. The transports have been closed before. */
void bps_copy_close(struct bps_worker *worker);

/* [app] Refuses devices that no reducer brings. */
bps_status bps_copy_check(const struct bps_worker *worker, const struct bps_device *device,
                          struct bps_report *report);
/* [app] A mark behind what its stream has been given. */
bps_status bps_copy_mark(const struct bps_worker *worker, const struct bps_device *device,
                         struct bps_mark **out, struct bps_report *report);
void bps_copy_release(const struct bps_worker *worker, struct bps_mark **mark);
/* [app] True if the operation, whose tensor lies on a device, needs nothing but that. */
bool bps_copy_stays(const struct bps_worker *worker, const struct bps_operation *operation);
/* True if the result of such an operation differs from what lies in its place. */
bool bps_copy_changes(const struct bps_operation *operation);
/*
 * [core] True if the operation cannot begin yet: its input is not there, or results of the tensor's last
 * operation are still on their way to a device. bps_copy_await() begins it when it can.
 */
static inline bool bps_copy_must_wait(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return operation->mark != NULL || tensor->leaving > 0;
}
void bps_copy_await(struct bps_operation *operation);
/* [core] The operation is about to end: what its result waits for. */
void bps_copy_end(struct bps_operation *operation);
/* Makes the operation's stream wait for its mark. [core] or [app], whoever ends the operation's life. */
void bps_copy_follow(struct bps_operation *operation);

/* [core] Where the contribution and the result of a task lie on its device. */
const char *bps_copy_source(const struct bps_task *task);
char *bps_copy_target(const struct bps_task *task);

/* [core] What is sent of a task from `offset` on, and where its result goes: where the network reaches it. */
static inline const void *bps_copy_payload(const struct bps_task *task, uint32_t offset)
{
    return (offset < task->direct ? bps_copy_source(task) : task->src) + offset;
}

static inline void *bps_copy_place(const struct bps_task *task, uint32_t offset)
{
    return (offset < task->direct ? bps_copy_target(task) : task->dst) + offset;
}

static inline bool bps_is_on_device(const struct bps_operation *operation)
{
    return operation->request.device.type != BPS_DEVICE_HOST;
}

/* ---- staging.c ---- */

/* [app] Room for the tensor of an operation that is being prepared; it may be that there is none. */
void bps_staging_reserve(struct bps_tensor_entry *tensor, uint64_t bytes);
void bps_staging_init(struct bps_staging *staging);
void bps_staging_fini(struct bps_staging *staging);

/* ---- direct.c ---- */

void bps_direct_init(struct bps_direct *direct);
/* Called when the transport between hosts is closed. */
void bps_direct_fini(struct bps_direct *direct);
/* [core] The job has begun: finds out what the network can reach. */
void bps_direct_joined(struct bps_worker *worker);
/* [app] True if the network reaches input and result of the operation on their device. */
bool bps_direct_reaches(struct bps_worker *worker, const struct bps_operation *operation);
/* True if of an operation that it reaches nothing is copied. */
bool bps_direct_has_all(const struct bps_worker *worker, const struct bps_operation *operation);
/* [core] How much of a task, which is about to be sent, the network itself reads and writes on the device. */
uint32_t bps_direct_bytes(const struct bps_task *task);
/* [core] Work on the device that begins later sees what the network has written. */
bps_status bps_direct_settle(const struct bps_operation *operation, struct bps_report *report);

/* True if an operation needs memory on the host that it does not have. */
static inline bool bps_copy_is_staged(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return bps_is_on_device(operation) && !operation->stays &&
           !(operation->direct && bps_direct_has_all(tensor->worker, operation));
}

#endif
