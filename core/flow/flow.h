/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.h - a worker of a job, as all that happens on its core thread knows it.
 *
 * Application threads only fill in an operation, post it to the core thread and sleep until it is done;
 * everything else happens on the core thread. Members are marked as in operation.h.
 */
#ifndef BPS_FLOW_FLOW_H
#define BPS_FLOW_FLOW_H

#include <semaphore.h>

#include "base/container.h"
#include "base/sequence.h"
#include "flow/process_group.h"
#include "flow/tensor.h"
#include "node/guard.h"
#include "node/member.h"
#include "node/pinning.h"
#include "server/server.h"
#include "sum/pool.h"
#include "wire/frame.h"

struct bps_local;
struct bps_round_hooks;
struct bps_device_memory;
struct bps_device_memory_ops;
struct bps_shards;
struct bps_coded;
struct bps_local_device_ops;
struct bps_thread_pool;
struct bps_rounds;

enum bps_worker_phase {
    BPS_WORKER_JOINING,
    BPS_WORKER_RUNNING,
    BPS_WORKER_DRAINING, /* shutdown waits for the operations in flight */
    BPS_WORKER_LEAVING,  /* tells shards and scheduler that it goes */
    BPS_WORKER_ENDED,
};

/* What the life of a worker is told by what it consists of. [core] */
struct bps_life {
    void (*failed)(struct bps_worker *worker); /* the job has, as worker->failure says */
    /* A link to a shard or a worker of this host is open now; */
    void (*link_opened)(struct bps_worker *worker);
    /* or has ended, for this reason; NULL: it is not needed any more. */
    void (*link_closed)(struct bps_worker *worker, bps_status status, const char *why);
    void (*operation_ended)(struct bps_worker *worker);
};

/* Whether the application waits for what it starts at once; see operation.c. */
struct bps_promptness {
    _Atomic uint64_t started; /* when the last operation was that may be waited for */
    _Atomic uint32_t waits;   /* how many in a row were waited for at once */
    atomic_bool expected;     /* the last one was left to a wait that has not come yet */
};

/* What a worker knows of its job and its place in it. */
struct bps_job_info {
    uint32_t epoch;
    uint32_t group; /* the lowest rank of the workers that it sums with */
    bool apart;     /* no two workers sum together before they push */
    uint32_t rank, size, local_rank, local_size;
    uint32_t cross_rank, cross_size, homogeneous; /* see byteps.h */
};

struct bps_worker {
    const struct bps_conf *conf; /* [const] */
    uint64_t partition, slice;   /* [const] bytes */
    struct bps_loop *loop;       /* [const] */
    pthread_t thread;
    bool running; /* the thread */
    bool records; /* [const] for the timeline */
    struct bps_pinning pinning;
    struct bps_pin pin;
    struct bps_names names;
    struct bps_process_groups process_groups;
    struct bps_instance *device;  /* [const] the reducer that brings devices, or NULL */
    _Atomic bool closing;         /* no new operations */
    _Atomic uint32_t in_flight;   /* operations that have not ended */
    struct bps_promptness prompt; /* [app] */

    const struct bps_life *life; /* [const] */

    /* [core] from here on, while the thread runs */
    enum bps_worker_phase phase;
    struct bps_instance *net, *reducer;
    struct bps_instance *local_transport; /* the transport to processes of this host; NULL: none */
    struct bps_graph *graph;              /* [const] once joined */
    /* [const] what can take a partition at each kind of node: the first that says so; each ends with NULL */
    const struct bps_step_ops *const *steps[BPS_NODE_KINDS];
    const struct bps_device_memory_ops *memory_ops;  /* [const] */
    struct bps_device_memory *memory;                /* [const] NULL: this worker reaches no devices */
    const struct bps_local_device_ops *device_group; /* [const] of devices that sum among themselves */
    const struct bps_round_hooks *hooks;             /* of the group; NULL: there is none */
    struct bps_thread_pool *pool;                    /* NULL: nothing has needed it */
    struct bps_rounds *rounds;                       /* [const] of stages that take whole ones; NULL: there are none */
    struct bps_pool blocks;                          /* memory of rows on their way */
    struct bps_member *member;
    struct bps_server *server;                   /* hosted here, or NULL */
    struct bps_view *view;                       /* NULL: not joined yet, or alone */
    struct bps_view *first_view;                 /* [const] once joined: of the epoch, the same of all workers */
    struct bps_job_info job;                     /* [const] once joined */
    struct bps_shards *shards;                   /* NULL: none yet */
    struct bps_coded *coded;                     /* what is kept of what goes there coded; NULL: no shards */
    struct bps_local *local;                     /* NULL: workers of this host do not sum among themselves */
    uint32_t open_links;                         /* to shards and to workers of this host */
    uint32_t opened_links;                       /* of these all that have ever been: some may have left again */
    bool dialled;                                /* all links are begun */
    struct bps_tensor_entry *ids;                /* by id: named tensors, and unnamed ones in flight */
    uint32_t last_id;                            /* the largest of the named ones so far */
    uint64_t declared;                           /* bytes of all that have been declared */
    bool moving;                                 /* no rounds begin: shards/move.c */
    uint32_t move_asked;                         /* the number of a move whose answer waits for links; 0: none does */
    uint32_t numbers[BPS_UNNAMED_KINDS];         /* of calls without a name, and barriers: the first not begun yet */
    struct bps_sequence over[BPS_UNNAMED_KINDS]; /* of those: the ones that have ended here */
    uint32_t names_looked_at;                    /* how many, before it is asked again whether they are used again */
    struct bps_tensor_list undeclared, asked;    /* to be declared; the scheduler has been asked */
    struct bps_writer forgotten;                 /* that it is not told yet: id and round of each */
    struct bps_told {
        uint32_t *round; /* owned; of each id the next one, when this worker last forgot a tensor of it */
        uint32_t n;
        size_t room;
    } told;
    struct bps_operation_list operations;
    struct bps_task_queue ready; /* tasks that go on at the end of this turn of the loop; see task.c */
    bool going_on;               /* they do */
    void *written;               /* memory that some of them write to: written.c */
    _Atomic uint32_t *wake;      /* a word on which a thread sleeps, which is about to be woken; or NULL */
    uint64_t sequence;
    uint64_t warned;
    struct bps_timer *grace; /* waits for the scheduler's word on a loss */
    struct bps_timer *drain; /* bounds what shutdown waits for */
    struct bps_timer *clock; /* for what this worker waits for itself */
    uint64_t joining;        /* ns that it has waited for its links */
    char suspicion[400];     /* what a lost link looked like from here */
    bps_status failure;      /* BPS_OK: the job is fine */
    char *failure_text;
    bps_status join_status; /* [const] once joined: the result of init */
    sem_t joined, ended;    /* for the thread that called init or shutdown */
    struct bps_post leave_post;
    bool reforms;               /* it leaves to come back, with those who are left */
    int32_t before;             /* its rank, in this generation or the last one; -1: none yet */
    _Atomic uint32_t newcomers; /* that wait for a reform */
    struct bps_guard guard;
    pthread_mutex_t late_lock; /* of this: */
    struct bps_lateness late;  /* as the scheduler knows it of all */
};

/* A job of this process alone has no scheduler, no server and no network. */
static inline bool bps_worker_alone(const struct bps_worker *worker)
{
    return worker->member == NULL;
}

/* Bytes of the partitions of a tensor, or a block, of so many that nobody else cuts: equal, but for the last one. */
static inline uint64_t bps_tensor_cut(const struct bps_tensor_entry *tensor, uint64_t bytes)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_view *view = tensor->operation.view;
    return view == NULL ? worker->partition : bps_unnamed_size(&view->book, bytes, worker->partition);
}

/* Bytes of the slices in which its partitions are sent, if they are not coded. */
static inline uint32_t bps_tensor_slice(const struct bps_tensor_entry *tensor)
{
    return tensor->slice > 0 ? tensor->slice : (uint32_t)tensor->worker->slice;
}

/* ---- task.c ---- */
/* Tasks that are ready will go on at the end of each turn of the worker's loop; */
void bps_flow_init(struct bps_worker *worker);
/* [core] or now, unless they do already: before a frame is looked at, so that all that came before it has happened. */
void bps_flow_now(struct bps_worker *worker);
static inline void bps_flow_settle(struct bps_worker *worker)
{
    if (!STAILQ_EMPTY(&worker->ready)) {
        bps_flow_now(worker);
    }
}
/* NULL: there is no such tensor. [app] */
static inline struct bps_tensor_entry *bps_tensor_at(const struct bps_worker *worker, bps_tensor slot)
{
    return (struct bps_tensor_entry *)bps_names_at(&worker->names, slot);
}
/* As bps_names_find() and bps_names_get(). [app] */
static inline struct bps_tensor_entry *bps_tensor_known(const struct bps_worker *worker, const char *name)
{
    return (struct bps_tensor_entry *)bps_names_find(&worker->names, name);
}
static inline struct bps_tensor_entry *bps_tensor_named(struct bps_worker *worker, const char *name,
                                                        struct bps_report *report)
{
    return (struct bps_tensor_entry *)bps_names_get(&worker->names, name, report);
}

/* ---- stage_round.c: for stages that take whole rounds; of no effect where there are none ---- */
bps_status bps_rounds_open(struct bps_worker *worker);
void bps_rounds_close(struct bps_worker *worker);
/* [any thread] This thread waits for an operation from here on, and no longer. */
void bps_rounds_wait(struct bps_worker *worker);
void bps_rounds_go_on(struct bps_worker *worker);
/* [core] An operation has ended, or the worker is about to leave. */
void bps_rounds_look(struct bps_worker *worker);
/* ---- check.c: for bps_check() ---- */
void bps_operation_check(const struct bps_operation *operation);
void bps_worker_check(const struct bps_worker *worker);
/* ---- failure.c ---- */
/* [core] The job has failed: ends every operation with this text. */
void bps_worker_fail(struct bps_worker *worker, bps_status status, const char *text);
/*
 * [core] A link has ended that should not have. The job fails with what the scheduler knows about it, or soon
 * with this text.
 */
void bps_worker_suspect(struct bps_worker *worker, bps_status status, const char *text);
/* ---- overdue.c ---- */
/* [core] Time has passed: tells of operations that have waited too long, or fails the job for one. */
void bps_overdue_look(struct bps_worker *worker, uint64_t passed);
#endif
