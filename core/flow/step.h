/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - what every kind of step on a path can do with a partition.
 *
 * The flow (task.c) knows steps by this table only, and a step comes back to the flow by bps_task_done() only. What
 * a step needs of a task while it has it, and how it moves on there, is its own affair. [core]
 */
#ifndef BPS_FLOW_STEP_H
#define BPS_FLOW_STEP_H

#include "flow/flow.h"

struct bps_step_ops {
    const char *name;
    const char *takes; /* what `probe` looks for, in words */
    /* It meets the partition of other workers, so that its end is that of the round, for all alike. */
    bool crosses;
    /* It ends with the result of all: its way goes on behind the node of this kind. BPS_NODE_PLUGIN: with the next. */
    enum bps_node_kind until;
    /* Bytes that it keeps of a task, zeroed when the way is made: its context. And how many more of this one. */
    size_t context;
    size_t (*more)(const struct bps_task *task);
    /*
     * Whether it takes this partition of a tensor whose form and id are known; what crosses, all workers answer alike.
     * Asked once, when the tensor's path is made. NULL: always.
     */
    bool (*probe)(const struct bps_tensor_entry *tensor, uint32_t partition);
    /* Begins. True: it is done at once. Otherwise bps_task_done() follows. */
    bool (*start)(struct bps_task *task);
    /* Gives a task back for which nothing is under way here, so that it can begin anew on any way. NULL: it cannot. */
    void (*reset)(struct bps_task *task);
    /*
     * The round has failed: lets go of the task as soon as it can, and bps_task_done() follows. NULL: it holds nothing
     * while it waits.
     */
    void (*cancel)(struct bps_task *task);
    /*
     * The job has failed: likewise. NULL: a step that waits for others holds nothing any more, as all links have been
     * dropped; one that works on the task itself does not take long.
     */
    void (*abandon)(struct bps_task *task);
    /*
     * A worker of this host has left in order, and its link has ended: a step that waits for it does not any more. Also
     * asked for a task that was refused here. NULL: it waits for none of them.
     */
    void (*left)(struct bps_task *task, uint32_t rank);
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
     * A round of a tensor begins, and its path is known. True: the group has begun it with bps_tasks_start_on(), or
     * will do so.
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
    bps_status (*check)(const struct bps_worker *worker, const struct bps_device *device, struct bps_report *report);
    /* [app] A mark behind what the device's stream has been given. */
    bps_status (*mark)(const struct bps_worker *worker, const struct bps_device *device, struct bps_mark **out,
                       struct bps_report *report);
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
    return operation->mark != NULL || bps_container(operation, const struct bps_tensor_entry, operation)->leaving > 0;
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

extern const struct bps_step_ops bps_async_alone; /* of those, tensors in mode async: async_alone.c */
extern const struct bps_step_ops bps_own_block;   /* what a worker sends to itself: alone.c */
bool bps_is_own_block(const struct bps_tensor_entry *tensor, uint32_t partition);
extern const struct bps_step_ops bps_group_alone;                 /* in a process group of one worker: alone.c */
extern const struct bps_step_ops bps_sparse_alone;                /* and rows: sparse_alone.c */
extern const struct bps_step_ops *const bps_alone_steps[];        /* push_pull in a job of one worker: alone.c */
extern const struct bps_step_ops *const bps_plugin_steps[];       /* a stage of worker.graph: stage.c */
extern const struct bps_step_ops *const bps_plugin_round_steps[]; /* and one that takes whole rounds: stage_round.c */

static inline const struct bps_step_ops *bps_task_step(const struct bps_task *task)
{
    return task->way->step[task->step].ops;
}

static inline const struct bps_path_step *bps_task_on(const struct bps_task *task)
{
    return task->way->step[task->step].on;
}

/* What the step that has the task keeps of it. */
static inline void *bps_task_context(const struct bps_task *task)
{
    return task->way->step[task->step].context;
}

/* ---- way.c ---- */

/* What takes the partition of a tensor at a node of this kind. NULL: nothing. */
const struct bps_step_ops *bps_step_for(const struct bps_tensor_entry *tensor, uint32_t partition,
                                        enum bps_node_kind kind);
/* True if something does so of all its partitions, but for blocks. */
bool bps_step_serves(const struct bps_tensor_entry *tensor, enum bps_node_kind kind);
/* True if the workers of this host sum a partition first, which may be of an earlier form of the tensor. */
static inline bool bps_is_summed_here(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    return partition < BPS_BLOCKS && bps_step_serves(tensor, BPS_NODE_LOCAL_REDUCE);
}
/* The way of a task along a path, which outlives it. NULL: no memory. */
struct bps_way *bps_way_new(const struct bps_task *task, const struct bps_path *path);
void bps_way_free(struct bps_way *way);
/* True if it has a step on a node of this kind. */
bool bps_way_has(const struct bps_way *way, enum bps_node_kind kind);
/* What another step of the task's way keeps of it; NULL: there is no such step. */
void *bps_way_context(const struct bps_way *way, const struct bps_step_ops *ops);

/* True if what this worker pushes of a tensor to a shard stands for that rank as well. */
bool bps_tensor_speaks_for(const struct bps_tensor_entry *tensor, uint32_t rank);

/* ---- task.c ---- */

/* Begins an operation whose tensor is declared. */
void bps_tasks_begin(struct bps_operation *operation);
/* Sends the tasks of an operation that has begun along their own ways; */
void bps_tasks_start(struct bps_operation *operation);
/* or along a path of the group's, which outlives the tensor. BPS_ERR_NOMEM: nothing has happened. */
bps_status bps_tasks_start_on(struct bps_operation *operation, const struct bps_path *path);
/* True if the task is on such a way. */
static inline bool bps_task_is_elsewhere(const struct bps_task *task)
{
    return task->way != NULL && task->way == task->other;
}
/*
 * This worker contributes to no partition of the operation, which others take for one of so many bytes, and waits for
 * the words of those who sum.
 */
void bps_tasks_refuse(struct bps_operation *operation, uint64_t bytes, bps_status status, const char *text);
/*
 * The step of the task is done; nothing of the task is in its hands any more. With an error (and its text) it has
 * failed; if the round has failed before, it does not matter how. That is only noted: the task goes on, or ends, and
 * with it perhaps its operation, when the caller has returned to the loop.
 */
void bps_task_done(struct bps_task *task, bps_status status, const char *text);
/* The round of a task has failed, as its operation knows: it ends as soon as its step lets go of it. */
void bps_task_cancel(struct bps_task *task);
/*
 * Tells whoever waits for a partition that this worker cannot contribute. True: with `answer`, they end its round here,
 * too.
 */
bool bps_tensor_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer);
/* The job has failed: ends the tasks that wait for others. */
void bps_tasks_abort(struct bps_operation *operation);
/* A worker of this host has left in order, and its link has ended: what waits for it cannot end otherwise. */
void bps_tasks_left(struct bps_worker *worker, uint32_t rank);

/* ---- notice.c ---- */

/* The task of a round that this worker has begun, whoever has it; NULL: there is none. */
struct bps_task *bps_task_begun(struct bps_worker *worker, const struct bps_header *header);
/* The same, if it waits for others. */
struct bps_task *bps_task_find(struct bps_worker *worker, const struct bps_header *header);
/* True if a result is for a task that has ended: its round has failed while some slices were on their way. */
bool bps_task_is_late(const struct bps_worker *worker, const struct bps_header *header);
/* FAILED or STALLED, from whoever sums. */
bps_status bps_round_notice(struct bps_worker *worker, const struct bps_header *header, const char *text);

#endif
