/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - a worker of a job: its core thread, its tensors and operations, its links to the shards.
 *
 * Application threads only fill in an operation, post it to the core thread and sleep until it is done;
 * everything else happens on the core thread. Members are marked with who may touch them:
 *   [core]  the core thread           [const] set before the thread starts or before the tensor is shared
 *   [app]   whoever started the operation, until it is posted          [atomic] anybody
 */
#ifndef BPS_FLOW_WORKER_H
#define BPS_FLOW_WORKER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include <byteps/byteps.h>

#include "base/container.h"
#include "base/roles.h"
#include "coding/feedback.h"
#include "graph/graph.h"
#include "node/form.h"
#include "node/guard.h"
#include "node/member.h"
#include "node/pinning.h"
#include "node/unnamed.h"
#include "server/server.h"
#include "trace/trace.h"
#include "wire/frame.h"
#include "wire/message.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct bps_worker;
struct bps_local;
struct bps_step_ops;
struct bps_round_hooks;
struct bps_device_memory;
struct bps_device_memory_ops;
struct bps_shards;
struct bps_local_device_ops;
struct bps_tensor_entry;

/* ---- one partition of a tensor ---- */

/* Who has a task. Only task.c sets it; what a step has to know besides is in its context. */
enum bps_task_state {
    BPS_TASK_IDLE,    /* nobody: its round has not begun, or is over for it */
    BPS_TASK_WORKING, /* a step of this worker alone, which comes back whatever others say */
    BPS_TASK_WAITING, /* it waits for other workers, whose words may end its round */
};

/* The steps that a partition takes, in their order. */
struct bps_way {
    uint32_t length;
    struct bps_way_step {
        const struct bps_step_ops *ops;
        const struct bps_path_step *on; /* of the path that the way was made of */
        void *context;                  /* what the step keeps of this task */
    } step[];
};

struct bps_task {
    struct bps_tensor_entry *tensor;
    uint32_t partition, bytes;
    uint64_t offset; /* in the tensor */
    enum bps_task_state state;
    uint32_t step;               /* of its way */
    const struct bps_way *way;   /* that it is on; NULL: it has none yet */
    struct bps_way *own, *other; /* along the tensor's path; along one that its group takes for some rounds */
    bool failed;                 /* the round has failed: it ends as soon as its step lets go of it */
    bool refused;                /* this worker does not contribute, and waits for the words of those who sum */
    bool for_group;              /* it has the sum of this host, which was divided by: */
    uint32_t divisor;
    uint16_t last, late;          /* with it: who came last to it, as a contribution says it */
    const char *src;              /* what is sent */
    char *dst;                    /* where the result goes */
    struct bps_feedback feedback; /* of what is coded of it on the network */
    bool codes;                   /* its next round is coded, where not each one is */
    uint32_t direct; /* bytes from its beginning that the network reads and writes on the device: from, to */
    const char *direct_src;
    char *direct_dst;
};

/* How a named tensor is cut and placed. */
struct bps_placed {
    uint64_t bytes;
    uint32_t n;
    struct bps_partition *partition; /* owned */
};

/* ---- one push_pull, broadcast or barrier ---- */

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

struct bps_range {
    const char *begin, *end;
};

struct bps_operation {
    struct bps_post post;
    _Atomic uint32_t state;       /* [atomic] BPS_OP_*; a futex */
    uint32_t use;                 /* [app], then [core]: the number of the use, in its place in the word */
    struct bps_push_pull request; /* [app], then [core] */
    uint32_t op, root;            /* op: BPS_WIRE_* */
    struct bps_roles roles;       /* of its partitions */
    struct bps_view *view;        /* [core] that it has begun under; NULL: it has not */
    uint64_t bytes;
    uint32_t left;                 /* [core] tasks that are not done */
    _Atomic bps_status status;     /* [core], then [atomic] once done */
    char *text;                    /* of an error; owned */
    uint32_t blamed;               /* [core] partition that the error is of; UINT32_MAX: of none in particular */
    bool active, begun;            /* [core] on the list of running operations; its tasks exist */
    bool changed;                  /* [core] it has another form than the job knows */
    bool reported;                 /* [core], also between uses: the scheduler is going to say the new form */
    bool asking;                   /* [core] whether devices sum it: bps_devices_ask() */
    bool waiting;                  /* [core] for a device: bps_copy_must_wait() */
    bool stays;                    /* [app], then [core] on its device: bps_copy_stays() */
    bool direct;                   /* [app], then [core] the network reaches it: bps_direct_reaches() */
    struct bps_range written;      /* [core] where no other one in flight may write; begin NULL: nowhere */
    struct bps_trace_record trace; /* [core] its beginning; without a step it is not recorded */
    uint64_t started;              /* [app], then [core] ns, if anything is recorded */
    uint32_t steps;                /* likewise, how many had ended then, as far as we are told */
    uint64_t waited, held;         /* [core] ns since it began, since the job failed, for bps_overdue_look() */
    bool told;                     /* [core] the log has been told that it waits */
    struct bps_mark *mark;         /* of a device: behind the input; in the end behind the result; or NULL */
    TAILQ_ENTRY(bps_operation) entry;
};

/* ---- a tensor ---- */

struct bps_tensor_entry {
    struct bps_worker *worker;
    bps_tensor slot; /* [const] index in the table */
    char *name;      /* [const]; unnamed ones have one for messages */
    bool unnamed;
    struct bps_form form; /* as this worker has declared it, or has pushed it last; dtype BPS_DTYPES: unknown */
    _Atomic bool formed;  /* it is known, and changed only by the operation in flight, under the table's lock */
    struct bps_coding *coding, *choice; /* of its form, NULL: none; what its declaration has asked for */
    char *words;                        /* in these words; owned; NULL: the configuration says */
    void *saved;                        /* what coding has left of it in an earlier job: see shards/state.c; owned */
    size_t saved_bytes;
    struct bps_post declare_post;
    _Atomic bool declare_posted;

    uint32_t id;           /* [core] on the wire; 0: not declared at the scheduler yet */
    bool declaring;        /* [core] the scheduler has been asked, or will be */
    bool asked;            /* [core] it has been */
    bool forgotten;        /* [core] it goes with the answer */
    _Atomic bool unwanted; /* [atomic] to be forgotten as soon as nothing of it is in flight */
    bool renamed;          /* [app], then [core] the path was made for another name */
    struct bps_form job;   /* [core] as declared in the job; may differ from ours */
    uint32_t round;
    uint32_t first_round; /* of this name and form under its id; earlier ones were others' */
    uint32_t partitions;  /* of the job's declaration */
    struct bps_partition *partition;
    struct bps_placed next; /* from this round on; partition NULL: nothing else is known */
    uint32_t next_round;
    uint32_t slice; /* of its partitions, bytes; 0: as configured */
    bool recut;     /* since its tasks were made */
    uint32_t tasks;
    struct bps_task *task;
    uint32_t path_op; /* what the path was made for; BPS_WIRE_OPS: none yet */
    uint32_t path_dtype;
    uint64_t path_bytes;
    bool path_on_device, path_stays; /* made for device memory; and for an operation that stays there */
    struct bps_path path;
    char *staging; /* [app] host memory of a tensor on a device */
    uint64_t staging_bytes;
    uint32_t leaving; /* [core] copies from there to the device, or reductions there, that are under way */

    struct bps_operation operation;
    TAILQ_ENTRY(bps_tensor_entry) entry; /* [core] list of those to declare; [lock] list of unused */
    UT_hash_handle by_name, by_id;
};

TAILQ_HEAD(bps_tensor_list, bps_tensor_entry);
TAILQ_HEAD(bps_operation_list, bps_operation);

/* ---- the table of tensors ---- */

#define BPS_CHUNK_SLOTS  1024u
#define BPS_CHUNKS_LIMIT 1024u

struct bps_tensor_table {
    pthread_mutex_t lock; /* guards everything here; reading a published slot needs none */
    struct bps_tensor_entry **chunk[BPS_CHUNKS_LIMIT];
    _Atomic uint32_t count; /* slots published; 0 is not used */
    struct bps_tensor_entry *names;
    struct bps_tensor_list unused;         /* unnamed, and forgotten */
    uint32_t unnamed_count, barrier_count; /* calls so far; their order is their identity */
};

struct bps_thread_pool;

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
    /* A link to a shard or a worker of this host is open now, or has ended. */
    void (*link_opened)(struct bps_worker *worker);
    void (*link_closed)(struct bps_worker *worker);
    void (*operation_ended)(struct bps_worker *worker);
};

/* Whether the application waits for what it starts at once; see operation.c. */
struct bps_promptness {
    _Atomic uint64_t started; /* when the last operation was that may be waited for */
    _Atomic uint32_t waits;   /* how many in a row were waited for at once */
    atomic_bool expected;     /* the last one was left to a wait that has not come yet */
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
    struct bps_tensor_table table;
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
    struct bps_member *member;
    struct bps_server *server; /* hosted here, or NULL */
    struct bps_view *view;     /* NULL: not joined yet, or alone */
    uint32_t epoch;            /* [const] once joined */
    uint32_t group;            /* [const] once joined: the lowest rank of the workers that it sums with */
    uint32_t rank, size, local_rank, local_size;  /* [const] once joined */
    uint32_t cross_rank, cross_size, homogeneous; /* [const] once joined; see byteps.h */
    struct bps_shards *shards;                    /* NULL: none yet */
    struct bps_local *local;                      /* NULL: workers of this host do not sum among themselves */
    uint32_t open_links;                          /* to shards and to workers of this host */
    uint32_t opened_links;                        /* of these all that have ever been: some may have left again */
    bool dialled;                                 /* all links are begun */
    struct bps_tensor_entry *ids;                 /* by id: named tensors, and unnamed ones in flight */
    uint32_t last_id;                             /* the largest of the named ones so far */
    uint64_t declared;                            /* bytes of all that have been declared */
    bool moving;                                  /* no rounds begin: shards/move.c */
    uint32_t numbers[BPS_UNNAMED_KINDS];          /* of calls without a name, and barriers: the first not begun yet */
    uint32_t names_looked_at;                     /* how many, before it is asked again whether they are used again */
    struct bps_tensor_list undeclared, asked;     /* to be declared; the scheduler has been asked */
    struct bps_writer forgotten;                  /* that it is not told yet: id and round of each */
    struct bps_operation_list operations;
    void *written;          /* memory that some of them write to: written.c */
    _Atomic uint32_t *wake; /* a word on which a thread sleeps, which is about to be woken; or NULL */
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
    struct bps_guard guard;
    pthread_mutex_t late_lock; /* of this: */
    struct bps_lateness late;  /* as the scheduler knows it of all */
};

/* A job of this process alone has no scheduler, no server and no network. */
static inline bool bps_worker_alone(const struct bps_worker *worker)
{
    return worker->member == NULL;
}

/* ---- worker.c ---- */
bps_status bps_worker_new(const struct bps_conf *conf, struct bps_worker **out, struct bps_report *report);
/* Ends all operations and leaves the job. Returns the job's failure, if it had one. */
bps_status bps_worker_leave(struct bps_worker *worker, struct bps_report *report);
/* What can take a partition at a node of this kind, in a job of one worker or of several. */
const struct bps_step_ops *const *bps_worker_steps(enum bps_node_kind kind, bool alone);
/* Frees a worker that has left. */
void bps_worker_free(struct bps_worker *worker);

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
/* ---- tensor.c ---- */
bps_status bps_table_init(struct bps_tensor_table *table);
void bps_table_fini(struct bps_tensor_table *table);
/*
 * The tensor of this name, made if there is none. NULL: no memory. The table's lock is held; when it no longer is,
 * another thread may forget a tensor whose operation was not taken meanwhile. [app]
 */
struct bps_tensor_entry *bps_tensor_named(struct bps_worker *worker, const char *name, struct bps_report *report);
/* Refuses names that are too long, or empty. */
bps_status bps_tensor_check_name(const char *name, struct bps_report *report);
/* A tensor for one unnamed call or barrier, with its id. [app] */
struct bps_tensor_entry *bps_tensor_unnamed(struct bps_worker *worker, bool barrier);
/* Adds a tensor to those that a further call or name may take. */
void bps_tensor_put(struct bps_tensor_entry *tensor);
/* NULL: there is no such tensor. [app] */
struct bps_tensor_entry *bps_tensor_at(struct bps_worker *worker, bps_tensor slot);
/* Refuses types that do not exist, sizes that cannot be, and shapes of another size. */
bps_status bps_tensor_check(const struct bps_worker *worker, uint32_t dtype, uint64_t count, uint32_t ndim,
                            const int64_t *shape, struct bps_report *report);
/*
 * Takes what a declaration says about its coding: a text, or "" for none. BPS_ERR_MISMATCH: it is known to be another.
 * The table's lock is held. [app]
 */
bps_status bps_tensor_choose(struct bps_tensor_entry *tensor, const char *coding, struct bps_report *report);
/* Fixes the form, or compares it with the one that is known. The table's lock is held. [app] */
bps_status bps_tensor_fix(struct bps_tensor_entry *tensor, struct bps_form *form, struct bps_report *report);
/* Gives the tensor, whose operation the caller has taken, the form of a request. [app] */
bps_status bps_tensor_reform(struct bps_tensor_entry *tensor, const struct bps_push_pull *request);
/* [core] It is cut and placed like this from now on, or from this round on; takes the array over. */
void bps_tensor_place(struct bps_tensor_entry *tensor, const struct bps_placed *placed);
void bps_tensor_place_from(struct bps_tensor_entry *tensor, const struct bps_placed *placed, uint32_t round);
/* [core] Nothing of it is under way, and its next round is about to begin: it is placed as that wants it. */
void bps_tensor_turn(struct bps_tensor_entry *tensor);
/* [core] The shard of a partition in a round; of one that it does not have, any. */
uint32_t bps_tensor_shard(const struct bps_tensor_entry *tensor, uint32_t round, uint32_t partition);
/*
 * [core] Its partitions, and the size of one, if it has so many bytes: a named tensor those of the job's form, which
 * the scheduler has placed.
 */
uint32_t bps_tensor_partitions(const struct bps_tensor_entry *tensor, uint64_t bytes);
uint32_t bps_tensor_size(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t partition);
/* Bytes of the slices in which its partitions are sent, if they are not coded. */
static inline uint32_t bps_tensor_slice(const struct bps_tensor_entry *tensor)
{
    return tensor->slice > 0 ? tensor->slice : (uint32_t)tensor->worker->slice;
}
/* [core] Tasks for a tensor of so many bytes. */
bps_status bps_tensor_tasks(struct bps_tensor_entry *tensor, uint64_t bytes);
/* [core] Their ways along its path, if they have none. */
bps_status bps_tensor_ways(struct bps_tensor_entry *tensor);
/* [core] Frees the path, and the ways of its tasks. */
void bps_tensor_forget_path(struct bps_tensor_entry *tensor);
/* [core] Frees what belongs to the wire: placement, tasks, path. */
void bps_tensor_strip(struct bps_tensor_entry *tensor);

/* [core] What coding keeps of its tasks goes, and that takes its place: owned; NULL: nothing. */
void bps_tensor_replace_state(struct bps_tensor_entry *tensor, void *saved, size_t bytes);

/* ---- operation.c ---- */
/* Gives back what was claimed. */
void bps_operation_unclaim(struct bps_operation *operation);
/* Takes the operation of a tensor, so that nobody can start it. False: it is in flight. */
bool bps_operation_claim(struct bps_operation *operation);
bps_status bps_operation_start(struct bps_worker *worker, const struct bps_push_pull *request, uint32_t op,
                               uint32_t root, bool barrier, bps_handle *out, struct bps_report *report);
/*
 * Start and wait in one. If nothing else is in flight, the caller drives the worker's loop meanwhile. *out is
 * written only with BPS_INPROGRESS.
 */
bps_status bps_operation_run(struct bps_worker *worker, const struct bps_push_pull *request, uint32_t op, uint32_t root,
                             bool barrier, uint64_t timeout_ns, bps_handle *out, struct bps_report *report);
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
/* [core] It is over: wakes whoever waits. */
void bps_operation_end(struct bps_operation *operation);

/* ---- written.c ---- */
/*
 * [core] The operation alone writes to its output until it gives that back. BPS_ERR_BUSY: another one does, or writes
 * to its input.
 */
bps_status bps_written_take(struct bps_operation *operation, struct bps_report *report);
void bps_written_give(struct bps_operation *operation);

/* ---- declare.c ---- */
bps_status bps_worker_declare(struct bps_worker *worker, const struct bps_declaration *declarations, size_t n,
                              bps_tensor *out, struct bps_report *report);
/* [core] */
void bps_declare_later(struct bps_tensor_entry *tensor);
bps_status bps_declare_reply(void *worker, struct bps_reader *reply);
/* [core] Reads how some tensor is cut and placed. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_placed_read(const struct bps_worker *worker, struct bps_reader *r, struct bps_placed *out);
/* [core] Reads id, form and placement of a tensor; it had none, or loses those that it had. */
bps_status bps_declare_read(struct bps_tensor_entry *tensor, struct bps_reader *reply);

/* ---- forget.c ---- */
/* Forgets the tensor of this name, if there is one, now or when it is no longer in flight. [app] */
void bps_worker_forget(struct bps_worker *worker, const char *name);
/* The same for a tensor that was in flight. [app] */
void bps_forget_unwanted(struct bps_tensor_entry *tensor);
/* [core] The answer to its declaration is there. */
void bps_forget_declared(struct bps_tensor_entry *tensor);
/* [core] Tells the scheduler. What is declared again later must be forgotten before. */
void bps_forget_flush(void *worker);

/* ---- change.c ---- */
/* [core] The operation's tensor has another form than the job knows: fails the round for all. */
void bps_change_begin(struct bps_operation *operation);
/* [core] A round has ended because a worker, perhaps this one, has another form: tells the scheduler ours. */
void bps_change_report(struct bps_operation *operation);
bps_status bps_change_answer(void *worker, struct bps_reader *answer);

/* ---- thread_pool.c ---- */

/* What some thread of the pool computes. The owner keeps the memory until `done` is called. */
struct bps_job {
    void (*run)(struct bps_job *job); /* on that thread */
    struct bps_post done;             /* and back. [core] */
    TAILQ_ENTRY(bps_job) entry;
};
/* Its threads as configured; else as many as cores, or as these allow each of so many workers of a host. */
uint32_t bps_thread_pool_count(const struct bps_conf *conf, const struct bps_pinning *pinning, uint32_t workers);
/* The worker has a pool when this returns BPS_OK. */
bps_status bps_thread_pool_need(struct bps_worker *worker, struct bps_report *report);
/* Whether a job of the core's own that computes with so many bytes is faster done there. */
bool bps_thread_pool_pays(const struct bps_worker *worker, uint64_t bytes);
/* Waits for the jobs that run; those that have not begun never will. */
void bps_thread_pool_free(struct bps_worker *worker);
/* Binds its threads, if there is one, to the cores of the worker, which are known now. */
void bps_thread_pool_bind(const struct bps_worker *worker);
void bps_thread_pool_run(struct bps_thread_pool *pool, struct bps_job *job);

#endif
