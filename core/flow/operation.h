/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h - one push_pull, broadcast or barrier: what was asked for, what it is at, and its result.
 *
 * Members of what threads share are marked with who may touch them:
 *   [core]  the core thread           [const] set before the thread starts or before the tensor is shared
 *   [app]   whoever started the operation, until it is posted          [atomic] anybody
 */
#ifndef BPS_FLOW_OPERATION_H
#define BPS_FLOW_OPERATION_H

#include <stdatomic.h>
#include <sys/queue.h>

#include <byteps/byteps.h>

#include "base/loop.h"
#include "flow/blocks.h"
#include "node/view.h"
#include "trace/trace.h"

struct bps_worker;

/*
 * An operation's state word: a phase, a flag, and the number of the use, so that whoever holds the handle of
 * an earlier use can neither wait for nor take the result of a later one. The number is the upper half of the
 * handle.
 */
#define BPS_OP_FREE    0u
#define BPS_OP_RUNNING 1u
#define BPS_OP_DONE    2u
#define BPS_OP_TAKEN   3u /* somebody is reading the result */
#define BPS_OP_PHASE   3u
#define BPS_OP_WAITED  4u /* somebody sleeps on the word */
#define BPS_OP_USE     8u /* from this bit on */

/* What an operation is at. From BPS_PHASE_ASKING on it has begun: its tasks exist. */
enum bps_phase {
    BPS_PHASE_OFF,      /* nothing is asked for; the caller may be about to */
    BPS_PHASE_PENDING,  /* its tensor has no id or place yet, or moves */
    BPS_PHASE_DEVICE,   /* it waits for a device */
    BPS_PHASE_REPORTED, /* all have told the scheduler what they pushed, which is going to say the tensor's new form */
    BPS_PHASE_ASKING,   /* whether devices sum it: bps_devices_ask() */
    BPS_PHASE_RUNNING,
    BPS_PHASE_CHANGING, /* its tensor has another form than the job knows: its tasks are refused */
};

/* What it takes from the application's memory to the network and back. */
enum bps_via {
    BPS_VIA_HOST,   /* that memory, or of a tensor on a device a copy on the host */
    BPS_VIA_DEVICE, /* nothing: it stays there, and devices sum it */
    BPS_VIA_DIRECT, /* nothing: the network reaches the device */
};

struct bps_range {
    const char *begin, *end;
};

struct bps_operation {
    struct bps_post post;
    _Atomic uint32_t state;       /* [atomic] BPS_OP_*; a futex */
    uint32_t use;                 /* [app], then [core]: the number of the use, in its place in the word */
    struct bps_push_pull request; /* [app], then [core] */
    uint32_t op, kind, root;      /* op: BPS_WIRE_* */
    struct bps_roles roles;       /* of its partitions, unless it has blocks: of that by which all agree about them */
    struct bps_blocks blocks;     /* blocks.h */
    struct bps_process_group *group; /* used until it ends; NULL: all workers */
    struct bps_view *view;           /* [core] that it has begun under; NULL: it has not */
    uint64_t bytes;
    uint32_t left;                 /* [core] tasks that are not done */
    _Atomic bps_status status;     /* [core], then [atomic] once done */
    char *text;                    /* of an error; owned */
    uint32_t blamed;               /* [core] partition that the error is of; UINT32_MAX: of none in particular */
    enum bps_phase phase;          /* [core] only bps_operation_become() sets it */
    enum bps_via via;              /* [app], then [core] */
    struct bps_range written;      /* [core] where no other one in flight may write; begin NULL: nowhere */
    struct bps_trace_record trace; /* [core] its beginning; without a step it is not recorded */
    uint64_t started;              /* [app], then [core] ns, if anything is recorded */
    uint32_t steps;                /* likewise, how many had ended then, as far as we are told */
    uint64_t waited, held;         /* [core] ns since it began, since the job failed, for bps_overdue_look() */
    bool told;                     /* [core] the log has been told that it waits */
    struct bps_mark *mark;         /* of a device: behind the input; in the end behind the result; or NULL */
    TAILQ_ENTRY(bps_operation) entry;
};

TAILQ_HEAD(bps_operation_list, bps_operation);

/* ---- operation.c ---- */
/* [core] It is at this now. */
void bps_operation_become(struct bps_operation *operation, enum bps_phase phase);
static inline bool bps_has_begun(const struct bps_operation *operation)
{
    return operation->phase >= BPS_PHASE_ASKING;
}
/* Gives back what was claimed. */
void bps_operation_unclaim(struct bps_operation *operation);
/* Takes the operation of a tensor, so that nobody can start it. False: it is in flight. */
bool bps_operation_claim(struct bps_operation *operation);
bps_status bps_operation_start(struct bps_worker *worker, const struct bps_push_pull *request,
                               const struct bps_call *call, bps_handle *out, struct bps_report *report);
/*
 * Start and wait in one. If nothing else is in flight, the caller drives the worker's loop meanwhile. *out is
 * written only with BPS_INPROGRESS.
 */
bps_status bps_operation_run(struct bps_worker *worker, const struct bps_push_pull *request,
                             const struct bps_call *call, uint64_t timeout_ns, bps_handle *out,
                             struct bps_report *report);
bps_status bps_operation_poll(struct bps_worker *worker, bps_handle handle);
/* Bytes of all push_pulls that were started in this process: who sees a result sees it counted. [any thread] */
uint64_t bps_operation_pushed(void);
bps_status bps_operation_wait(struct bps_worker *worker, bps_handle handle, uint64_t timeout_ns,
                              struct bps_report *report);
/*
 * Reads the result of a slot's last operation, if nobody has; the text is the caller's then. The worker has left
 * its job, and no other thread is in these functions.
 */
bool bps_operation_last(struct bps_worker *worker, bps_tensor slot, bps_handle *handle, bps_status *status,
                        char **text);
/* [core] The shard's word on a partition. The lowest partition counts, so that all workers say the same. */
void bps_operation_blame(struct bps_operation *operation, uint32_t partition, bps_status status, const char *text);
/* [core] Notes an error; the first one counts. */
void bps_operation_error(struct bps_operation *operation, bps_status status, const char *text);
/* [core] It is over: wakes whoever waits, when the flow has gone on. */
void bps_operation_end(struct bps_operation *operation);
void bps_operation_wake(struct bps_worker *worker);

/* ---- async.c ---- */
/* Why an operation without that cannot be made in mode async. */
#define BPS_ASYNC_UNSET "the tensor is in mode async, and has no value yet: broadcast it first"
/* [core] Refuses what mode async does not have. `other`: the job knows another form of the tensor. */
bps_status bps_async_check(struct bps_operation *operation, bool other, struct bps_report *report);

/* ---- written.c ---- */
/*
 * [core] The operation alone writes to its output until it gives that back. BPS_ERR_BUSY: another one does, or writes
 * to its input.
 */
bps_status bps_written_take(struct bps_operation *operation, struct bps_report *report);
void bps_written_give(struct bps_operation *operation);

/* ---- change.c ---- */
/* [core] The operation's tensor has another form than the job knows: fails the round for all. */
void bps_change_begin(struct bps_operation *operation);
/* [core] A round has ended because a worker, perhaps this one, has another form: tells the scheduler ours. */
void bps_change_report(struct bps_operation *operation);
/* [core] Tells it, or tells it again. */
void bps_change_tell(const struct bps_operation *operation);
bps_status bps_change_answer(void *worker, struct bps_reader *answer);

#endif
