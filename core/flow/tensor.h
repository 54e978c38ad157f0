/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - a tensor of this process: its name and form, how it is cut and placed, and its partitions on their way.
 *
 * Members are marked as in operation.h.
 */
#ifndef BPS_FLOW_TENSOR_H
#define BPS_FLOW_TENSOR_H

#include "coding/feedback.h"
#include "flow/operation.h"
#include "graph/graph.h"
#include "names/names.h"
#include "node/unnamed.h"
#include "wire/link.h"
#include "wire/message.h"

struct bps_step_ops;
struct bps_tensor_entry;

/* ---- one partition of a tensor ---- */

/* Who has a task. Only task.c sets it; what a step has to know besides is in its context. */
enum bps_task_state {
    BPS_TASK_IDLE,    /* nobody: its round has not begun, or is over for it */
    BPS_TASK_WORKING, /* a step of this worker alone, which comes back whatever others say */
    BPS_TASK_WAITING, /* it waits for other workers, whose words may end its round */
    BPS_TASK_READY,   /* its step is done; it goes on, or ends, when the flow comes to it */
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
    uint64_t offset;  /* in the tensor, or in its block */
    uint64_t whole;   /* bytes of that */
    uint64_t in, out; /* where it lies in the operation's input and output; both are `offset`, if it has no blocks */
    uint64_t staged;  /* and in the staging memory of a tensor on a device: likewise */
    struct bps_roles roles; /* of its round, if it has blocks; else the operation's */
    enum bps_task_state state;
    uint32_t step;     /* of its way */
    bps_status status; /* of one that is ready: how its step has ended; */
    char *text;        /* of an error; owned */
    STAILQ_ENTRY(bps_task) ready;
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
    size_t place;                 /* in the queue of its shard or its leader */
    uint32_t direct; /* bytes from its beginning that the network reads and writes on the device: from, to */
    const char *direct_src;
    char *direct_dst;
};

/* How a named tensor is cut and placed. */
struct bps_placed {
    uint64_t bytes;
    uint32_t n;
    uint32_t view;                   /* the number of the one by which: all workers know the same */
    uint32_t move;                   /* and of the move, as the scheduler counts them */
    struct bps_partition *partition; /* owned */
};

/* ---- a tensor ---- */

struct bps_tensor_entry {
    struct bps_named named; /* the first member */
    struct bps_worker *worker;
    void *saved; /* what coding has left of it in an earlier job: see coded/coded.h; owned */
    size_t saved_bytes;
    struct bps_post declare_post;
    _Atomic bool declare_posted;

    uint32_t id;           /* [core] on the wire; 0: not declared at the scheduler yet */
    bool declaring;        /* [core] the scheduler has been asked, or will be */
    bool asked;            /* [core] it has been */
    bool forgotten;        /* [core] it goes with the answer */
    _Atomic bool unwanted; /* [atomic] to be forgotten as soon as nothing of it is in flight */
    bool renamed;          /* [app], then [core] the path was made for another name, or process group */
    struct bps_form job;   /* [core] as declared in the job; may differ from ours */
    uint32_t round;
    uint32_t first_round;           /* of this name and form under its id; earlier ones were others' */
    struct bps_placed placed, next; /* next: from this round on; its partition NULL: nothing else is known */
    uint32_t next_round;            /* as long as nothing else is known: from which on it is placed as it is */
    uint32_t kept_from;             /* the first round whose results all workers keep, see shards/settle.c */
    uint32_t slice;                 /* of its partitions, bytes; 0: as configured */
    bool recut;                     /* since its tasks were made */
    uint32_t tasks;
    struct bps_task *task;
    uint32_t path_op; /* what the path was made for; BPS_WIRE_OPS: none yet */
    uint32_t path_kind, path_dtype, path_row;
    bool blocks; /* its tasks are those of blocks */
    uint64_t path_bytes;
    bool path_on_device, path_stays; /* made for device memory; and for an operation that stays there */
    struct bps_path path;
    char *staging; /* [app] host memory of a tensor on a device */
    uint64_t staging_bytes;
    char *value;      /* [core] of one in mode async, in a job of one worker; owned; NULL: none yet */
    uint32_t leaving; /* [core] copies from there to the device, or reductions there, that are under way */

    struct bps_operation operation;
    TAILQ_ENTRY(bps_tensor_entry) entry; /* [core] list of those to declare */
    UT_hash_handle by_id;
};

STAILQ_HEAD(bps_task_queue, bps_task);
TAILQ_HEAD(bps_tensor_list, bps_tensor_entry);

/* ---- tensor.c ---- */
extern const struct bps_named_ops bps_tensor_ops;
/* A tensor for one unnamed call or barrier, with its id. NULL: no memory. [app] */
struct bps_tensor_entry *bps_tensor_unnamed(struct bps_worker *worker, bool barrier);
/* [core] The tensor of that id; NULL: this worker has none. */
struct bps_tensor_entry *bps_tensor_of(const struct bps_worker *worker, uint32_t id);
/* [core] It is cut and placed like this from now on, or from this round on; takes the array over. */
void bps_tensor_place(struct bps_tensor_entry *tensor, const struct bps_placed *placed);
void bps_tensor_place_from(struct bps_tensor_entry *tensor, const struct bps_placed *placed, uint32_t round);
/* [core] Nothing of it is under way, and its next round is about to begin: it is placed as that wants it. */
void bps_tensor_turn(struct bps_tensor_entry *tensor);
/* [core] How it is in a round. */
const struct bps_placed *bps_tensor_placed(const struct bps_tensor_entry *tensor, uint32_t round);
/* [core] The number of the view that its round under way is placed by: the same on all workers. 0: of none. */
static inline uint32_t bps_tensor_view(const struct bps_tensor_entry *tensor)
{
    const struct bps_view *view = tensor->operation.view;
    return !tensor->named.unnamed ? tensor->placed.view : view != NULL ? view->book.view : 0;
}
/* [core] The number of the process group of its operation under way, as frames have it; 0: all workers. */
static inline uint32_t bps_tensor_group(const struct bps_tensor_entry *tensor)
{
    return tensor->operation.group != NULL ? tensor->operation.group->id : 0;
}
/*
 * [core] Its partitions, and the size of one, if it has so many bytes: a named tensor those of the job's form, which
 * the scheduler has placed.
 */
uint32_t bps_tensor_partitions(const struct bps_tensor_entry *tensor, uint64_t bytes);
uint32_t bps_tensor_size(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t partition);
/* [core] Its task of that partition; NULL: it has none. Those of blocks may not be one after the other. */
struct bps_task *bps_tensor_task(const struct bps_tensor_entry *tensor, uint32_t partition);
/* [core] Tasks for a tensor of so many bytes. */
bps_status bps_tensor_tasks(struct bps_tensor_entry *tensor, uint64_t bytes);
/* [core] Their ways along its path, if they have none. */
bps_status bps_tensor_ways(struct bps_tensor_entry *tensor);
/* Bytes of staging memory that an operation on a device needs. */
static inline uint64_t bps_operation_staged(const struct bps_operation *operation)
{
    return operation->blocks.ranks > 0 ? operation->blocks.bytes : operation->bytes;
}
/* [core] Frees the path, and the ways of its tasks. */
void bps_tensor_forget_path(struct bps_tensor_entry *tensor);
/* [core] Frees what belongs to the wire: placement, tasks, path. */
void bps_tensor_strip(struct bps_tensor_entry *tensor);

/* [core] What coding keeps of its tasks goes, and that takes its place: owned; NULL: nothing. */
void bps_tensor_replace_state(struct bps_tensor_entry *tensor, void *saved, size_t bytes);

/* ---- declare.c ---- */
bps_status bps_worker_declare(struct bps_worker *worker, const struct bps_declaration *declarations, size_t n,
                              bps_tensor *out, struct bps_report *report);
/* [core] */
void bps_declare_later(struct bps_tensor_entry *tensor);
bps_status bps_declare_reply(void *worker, struct bps_reader *reply);
/* [core] Asks the scheduler about those that it has not been asked about, and tells it what was forgotten before. */
void bps_declare_ask(void *worker);
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
/* [core] Tells the scheduler, unless it is away. What is declared again later must be forgotten before. */
void bps_forget_flush(void *worker);

/* ---- known.c ---- */
/* [core] What another scheduler has to know, */
void bps_known_tell(void *worker, struct bps_link *link);
/* [core] and what it is asked when it has taken the place of the lost one. */
void bps_known_returned(void *worker);
#endif
