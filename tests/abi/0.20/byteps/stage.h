/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - the interface for stages: steps that a partition passes on its way, which change it or look at it.
 */
#ifndef BYTEPS_STAGE_H
#define BYTEPS_STAGE_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_MEMORY_HOST   1u
#define BPS_MEMORY_DEVICE 2u

#define BPS_DTYPE_BIT(dtype) (1u << (dtype))
#define BPS_OP_BIT(op)       (1u << (op))

/* Which thread runs a stage. */
#define BPS_EXECUTOR_IO  0u /* the worker's core thread: for what takes microseconds */
#define BPS_EXECUTOR_CPU 1u /* a pool of threads */

/* What a stage takes and gives. The core checks it against its neighbours when the graph is built. */
struct bps_stage_attr {
    uint32_t ops;      /* BPS_OP_BIT mask: operations whose tensors pass this stage; others go around it */
    uint32_t dtypes;   /* BPS_DTYPE_BIT mask of types it can take; a tensor of another one fails. Around: see bind */
    uint32_t memory;   /* BPS_MEMORY_* mask it can take: host memory at least */
    uint32_t executor; /* BPS_EXECUTOR_* */
    uint32_t writes;   /* 1: it changes the data, 0: it only looks */
    const char *takes; /* coding of the data it takes: "plain" */
    const char *gives; /* coding of the data it gives */
};

/* A tensor as a stage sees it, valid during bind; its name until unbind has returned. */
struct bps_tensor_info {
    const char *name;
    uint32_t dtype;
    uint32_t op;
    uint64_t count; /* elements of the whole tensor */
    uint32_t partitions;
    uint32_t memory; /* BPS_MEMORY_*: where the application has it; stages see a copy in host memory */
};

/* One partition in one round. It and its memory, of any alignment, are the stage's until the stage has answered. */
struct bps_stage_task {
    uint32_t partition; /* from 0 on */
    uint32_t round;     /* of a named tensor: from 0 on, the same on all workers; numbers may be left out */
    uint64_t first;     /* index of its first element in the tensor */
    uint64_t count;     /* elements */
    const void *src;    /* the data */
    void *dst;          /* NULL if it does not write, else where it puts all count elements; may be equal to src */
    /*
     * The answer to a task for which run has returned BPS_INPROGRESS: exactly once, from run or from any callback of
     * the stage's loop. With BPS_OK, or an error and its text, it is as if run had returned them; the text is copied.
     */
    void (*done)(const struct bps_stage_task *task, bps_status status, const char *text);
};

struct bps_stage_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance);
    void (*query)(void *instance, struct bps_stage_attr *out);
    /*
     * Optional. Called on the loop once per tensor, before its first task, and again when its type, size or operation
     * is another one. *state_out (initially NULL) is passed to run. BPS_AGAIN: nothing to do for this tensor, leave the
     * stage out of its path. An error fails the push_pull. Broadcasts and all else that is no push_pull of a whole
     * tensor go around all stages.
     */
    bps_status (*bind)(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                       struct bps_report *report);
    /* Optional. None of the tensor's tasks is at the stage. Follows each bind that has returned BPS_OK. */
    void (*unbind)(void *instance, void *state);
    /*
     * Processes one task. An error fails this round of the tensor on every worker, with the report's text.
     * With BPS_EXECUTOR_CPU it is called on several threads at once, for different tasks. With BPS_EXECUTOR_IO it may
     * return BPS_INPROGRESS and answer later, by task->done: nothing else waits for that.
     */
    bps_status (*run)(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report);
    /* Optional: one line. */
    void (*describe)(void *instance, char *text, size_t n);
    /*
     * Optional: the job has failed, or the worker leaves it, before the stage has answered. It answers now, or soon,
     * with whatever status: nobody waits for the result, but the memory cannot be given back before.
     */
    void (*cancel)(void *instance, void *state, const struct bps_stage_task *task);
    /*
     * Instead of run: all tasks of a round at once, of every tensor that passes the stage, in any order. A round is
     * what the application has started when it begins to wait for an operation, as in bps_wait(): this is called when
     * all that passes the stage has come to it. So the stage must not stand between local_reduce and local_broadcast,
     * and refuses operations with a callback, for which nobody waits. The status is that of each task; the other rules
     * are those of run, but for BPS_INPROGRESS, which is not allowed. state[i] belongs to task[i].
     */
    bps_status (*run_all)(void *instance, const struct bps_stage_task *const *task, void *const *state, size_t count,
                          struct bps_report *report);
};

#ifdef __cplusplus
}
#endif
#endif
