/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - what every kind of step on a path can do with a partition.
 *
 * The flow (task.c) knows steps by this table only, and a step comes back to the flow by bps_task_done() only. What
 * a step needs of a task while it has it, and how it moves on there, is its own affair. [core]
 */
#ifndef BPS_FLOW_STEP_H
#define BPS_FLOW_STEP_H

#include "flow/worker.h"

struct bps_step_ops {
    /* It meets the partition of other workers, so that its end is that of the round, for all alike. */
    bool crosses;
    /*
     * Whether it is on the path of this tensor, whose form and id are known; what crosses, all workers answer alike.
     * NULL: always.
     */
    bool (*probe)(const struct bps_tensor_entry *tensor);
    /* Begins. True: it is done at once. Otherwise bps_task_done() follows, perhaps before this returns. */
    bool (*start)(struct bps_task *task);
    /*
     * The round has failed: lets go of the task as soon as it can, and bps_task_done() follows, perhaps before this
     * returns. NULL: it holds nothing while it waits.
     */
    void (*cancel)(struct bps_task *task);
    /* The job has failed while the step works on the task itself: it need not go on. NULL: it does not take long. */
    void (*abandon)(struct bps_task *task);
    /*
     * This worker cannot contribute to a partition of so many bytes of the tensor, of which there need be no task:
     * tells those who wait. True: with `answer`, they end the round for all, this worker too. NULL: nobody waits.
     */
    bool (*refuse)(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                   const char *text, bool answer);
};

/* What a group of workers has to do with rounds beside its steps. */
struct bps_round_hooks {
    /*
     * A round of a tensor begins, and its path is known. True: the group has to agree first which way it goes, and
     * bps_tasks_start() follows, or a way of the group's.
     */
    bool (*ask)(struct bps_operation *operation);
    /* It ends instead: this worker cannot contribute. */
    void (*decline)(struct bps_operation *operation);
    /* A tensor has its id and placement. */
    void (*declared)(struct bps_worker *worker);
    /* A shard says that a round has failed, of this worker's or of those that it leads. */
    bps_status (*failed)(struct bps_worker *worker, const struct bps_header *header, const char *text);
};

/* Tensors in the memory of devices. */
struct bps_device_memory_ops {
    /* [app] Refuses devices that this worker does not reach. */
    bps_status (*check)(const struct bps_worker *worker, const struct bps_device *device,
                        struct bps_report *report);
    /* [app] A mark behind what the device's stream has been given. */
    bps_status (*mark)(const struct bps_worker *worker, const struct bps_device *device,
                       struct bps_mark **out, struct bps_report *report);
    /* Gives it back, if there is one. */
    void (*release)(const struct bps_worker *worker, struct bps_mark **mark);
    /* [app] The operation is filled in: decides where it happens, and finds it a place on the host if it needs one. */
    void (*prepare)(struct bps_operation *operation);
    /* [core] It cannot begin yet, as bps_must_wait() says: bps_tasks_begin() follows. */
    void (*await)(struct bps_operation *operation);
    /* [core] It begins: refuses what has no place on the host. */
    bps_status (*begin)(struct bps_operation *operation, struct bps_report *report);
    /* [core] The operation is about to end: what its result waits for. */
    void (*end)(struct bps_operation *operation);
    /* Makes the operation's stream wait for its mark. [core] or [app], whoever ends the operation's life. */
    void (*follow)(struct bps_operation *operation);
};

static inline bool bps_is_on_device(const struct bps_operation *operation)
{
    return operation->request.device.type != BPS_DEVICE_HOST;
}

/*
 * [core] True if the operation cannot begin yet: its input is not there, or results of the tensor's last operation are
 * still on their way to a device.
 */
static inline bool bps_must_wait(const struct bps_operation *operation)
{
    return operation->mark != NULL ||
           bps_container(operation, const struct bps_tensor_entry, operation)->leaving > 0;
}

/* What is sent of a task from `offset` on, and where its result goes: on a device where the network reaches it. */
static inline const void *bps_task_payload(const struct bps_task *task, uint32_t offset)
{
    return (offset < task->direct ? task->direct_src : task->src) + offset;
}

static inline void *bps_task_place(const struct bps_task *task, uint32_t offset)
{
    return (offset < task->direct ? task->direct_dst : task->dst) + offset;
}

extern const struct bps_step_ops bps_step_alone;  /* push_pull in a job of one worker: alone.c */
extern const struct bps_step_ops bps_step_plugin; /* a stage of worker.graph: stage.c */

/* True if a step of this kind is on the path of the tensor. */
bool bps_step_serves(const struct bps_tensor_entry *tensor, enum bps_node_kind kind);

/* True if what this worker pushes of a tensor to a shard stands for that rank as well. */
bool bps_tensor_speaks_for(const struct bps_tensor_entry *tensor, uint32_t rank);

/* ---- task.c ---- */

/* Begins an operation whose tensor is declared. */
void bps_tasks_begin(struct bps_operation *operation);
/* Forgets the task's last round. */
void bps_task_reset(struct bps_task *task);
/* Begins the tasks of an operation that has begun. */
void bps_tasks_start(struct bps_operation *operation);
/* Sends a task along its path, from the beginning. */
void bps_task_start(struct bps_task *task);
/*
 * The step of the task is done; nothing of the task is in its hands any more. With an error (and its text) it has
 * failed; if the round has failed before, it does not matter how. The task goes on, or ends, and with it perhaps its
 * operation, whose tensor may be used again when this returns.
 */
void bps_task_done(struct bps_task *task, bps_status status, const char *text);
/* The round of a task has failed, as its operation knows: it ends as soon as its step lets go of it. */
void bps_task_cancel(struct bps_task *task);
/* Tells whoever waits for a partition that this worker cannot contribute; with `answer`, its round ends here, too. */
void bps_tensor_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer);
/* The job has failed: ends the tasks that wait for others. */
void bps_tasks_abort(struct bps_operation *operation);

/* ---- notice.c ---- */

/* The task in flight that a header is about; NULL: there is none. */
struct bps_task *bps_task_find(struct bps_worker *worker, const struct bps_header *header);
/* The same of a task that devices of the group sum, which may be in a batch. */
struct bps_task *bps_task_grouped(struct bps_worker *worker, const struct bps_header *header);
/* True if a result is for a task that has ended: its round has failed while some slices were on their way. */
bool bps_task_is_late(const struct bps_worker *worker, const struct bps_header *header);
/* FAILED or STALLED, from whoever sums. */
bps_status bps_round_notice(struct bps_worker *worker, const struct bps_header *header, const char *text);

/* ---- stage.c ---- */

/* Runs the stage of task->step, on any thread. */
bps_status bps_stage_run(struct bps_task *task, struct bps_report *report);

#endif
