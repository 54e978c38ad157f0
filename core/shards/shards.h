/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - the shards as a worker sees them: the step push_pull. [core] */
#ifndef BPS_SHARDS_SHARDS_H
#define BPS_SHARDS_SHARDS_H

#include "base/heap.h"
#include "flow/step.h"
#include "flow/thread_pool.h"
#include "node/delivered.h"
#include "node/transport.h"
#include "shards/credit.h"
#include "shards/window.h"
#include "sum/pool.h"
#include "wire/dialler.h"

struct bps_remote_lane {
    struct bps_link link;
    struct bps_dialler dialler;
    struct bps_remote *remote;
    uint32_t number;
    struct bps_delivered_mark delivered;
    struct bps_sink sink; /* a slice of a result that arrives */
    struct bps_task *task;
    uint32_t offset, length;
    struct bps_open_slice {    /* the same of those that the transport fetches while others arrive */
        struct bps_task *task; /* NULL: this entry is free */
        uint32_t offset;
    } open[BPS_PLACES_LIMIT];
};

struct bps_remote {
    struct bps_worker *worker;
    uint32_t index;
    struct bps_instance *transport; /* by which it is reached: the worker's `local_transport` or `net` */
    bool reached;                   /* it has let this worker in */
    uint32_t lanes;
    struct bps_remote_lane lane[BPS_LANES_LIMIT];
    struct bps_heap queue; /* tasks to send, the most urgent first */
    struct bps_credit credit;
    struct bps_delivered delivered;
    double part;           /* of the credit of all shards on average */
    bool retired;          /* it is gone, and this worker has left it */
    bool starved;          /* the most urgent one has no credit, */
    uint32_t starved_step; /* in which that is recorded, counted from 1; 0: it is not */
    bool making;           /* or its slice is still being made */
    uint32_t codings;      /* of the worker's, by number, that the lanes know */
    bool told;             /* no lane's transport was told BPS_AGAIN since all were kicked */
};

struct bps_shards {
    uint32_t remotes;
    struct bps_remote *remote;
    struct bps_window window;        /* over the remotes */
    struct bps_timer *patience;      /* while one of them is starved */
    struct bps_pool pool;            /* of what is coded */
    TAILQ_HEAD(, bps_save) saves;    /* under way */
    TAILQ_HEAD(, bps_handed) handed; /* states that others have handed over, and that have not counted yet */
    bps_status verdict;              /* BPS_OK, or how the job is about to fail, and why */
    char why[BPS_CODING_TEXT + 80];
};

extern const struct bps_step_ops *const bps_push_pull_steps[]; /* remote_send.c */

/* What is called when the pool of threads is done with a slice; the text is that of an error. [core] */
typedef void (*bps_computed_fn)(struct bps_task *task, uint32_t index, bps_status status, const char *text);

/* What the slices of a partition carry: its bytes as they are, or coded. */
struct bps_payload_ops {
    /* Bytes of a slice that is pushed; before it has been made, at most. */
    uint32_t (*bytes)(const struct bps_task *task, uint32_t index);
    /* It is sent soon: makes it on another thread, if that is faster. False: it is there, and `made` called, later. */
    bool (*ready)(struct bps_task *task, uint32_t index, bps_computed_fn made);
    /* Makes it, if that has not happened yet, and what its header says of it. BPS_ERR_NOMEM, _PLUGIN. */
    bps_status (*make)(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                       struct bps_report *report);
    /* A slice of the result with so many bytes has begun to come. BPS_ERR_PROTOCOL: it cannot have so many. */
    bps_status (*expect)(struct bps_task *task, uint32_t index, uint32_t bytes);
    /* Where they go. */
    char *(*place)(struct bps_task *task, uint32_t index);
    /* They are there. BPS_INPROGRESS: `settled` is called later. Optional. */
    bps_status (*settle)(struct bps_task *task, uint32_t index, bps_computed_fn settled, struct bps_report *report);
    /* The task is over, whatever has come of it. Optional. */
    void (*release)(struct bps_task *task);
};
extern const struct bps_payload_ops bps_payload_plain, bps_payload_coded; /* plain.c, coded.c */

/* What the step keeps of a task. */
struct bps_push {
    const struct bps_payload_ops *payload;
    uint32_t slice;                /* bytes of the partition in each slice but the last */
    bool spoilt;                   /* what has come makes no sense: the job is about to fail */
    bool refused;                  /* a slice cannot be made: all of them hear of it */
    bool exact;                    /* its slices are coded, but lose nothing: coding begins later */
    bool automatic;                /* it may be coded, or not: */
    bool asks, codes;              /* whether this worker wants the next round coded, and whether it is */
    struct bps_coded_slice *coded; /* of each slice, if they are */
    uint32_t sent;                 /* slices handed to the transport */
    uint32_t answered;             /* slices of the result */
    uint32_t outstanding;          /* frames that the transport still reads, or is filling */
    uint32_t computing;            /* slices that the pool of threads has */
    bool *got;                     /* of each slice: its result is there */
    struct bps_sent_slice {
        struct bps_task *task;
        uint8_t header[BPS_HEADER_BYTES];
    } slices[]; /* each, while it is sent */
};

static inline struct bps_push *bps_push_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

/* Slices of a task. */
static inline uint32_t bps_push_slices(const struct bps_task *task)
{
    return bps_partitions(task->bytes, bps_push_of(task)->slice);
}

/* [core] The shard that a partition belongs to. */
static inline struct bps_remote *bps_remote_of(struct bps_tensor_entry *tensor, uint32_t partition)
{
    struct bps_worker *worker = tensor->worker;
    uint16_t shard = tensor->unnamed ? bps_unnamed_shard(&tensor->operation.view->book, tensor->id, partition)
                                     : tensor->placed.partition[partition].shard;
    return &worker->shards->remote[shard];
}

/* ---- remote.c ---- */
bps_status bps_remotes_connect(struct bps_worker *worker, struct bps_report *report);
/* Writes what the channels to shards have delivered, as a RATES message has it. Returns how many entries. */
uint32_t bps_remotes_delivered(const struct bps_worker *worker, struct bps_writer *w);
/* Each gets this weight of the bytes from now on. */
void bps_remotes_weigh(struct bps_worker *worker, const uint32_t *weight);
/* How many links to shards there will be; with all of them open the worker has joined. */
uint32_t bps_remotes_links(const struct bps_worker *worker);
/* Says in the log by which transport each server is reached. */
void bps_remotes_log(const struct bps_worker *worker);
/* Ends all links at once. */
void bps_remotes_drop(struct bps_worker *worker);
void bps_remotes_free(struct bps_worker *worker);
void bps_remotes_leave(struct bps_worker *worker);
/* The same of one. */
void bps_remote_leave(struct bps_remote *remote);
/*
 * [core] Sends a POISON as it is to the shard of its tensor's partition.
 * False: this worker has not declared the tensor.
 */
bool bps_remote_forward_poison(struct bps_worker *worker, const struct bps_header *header, const char *text);
/* [core] The same of one of this worker's, or of the group for which it speaks. */
bool bps_remote_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer);
/* [core] A POISON of this worker's. */
struct bps_header bps_poison_header(const struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes,
                                    bps_status status, uint8_t flags);

/* ---- remote_send.c ---- */
/* [core] What a lane sends next, and what it has sent: of its link's handler. */
bps_status bps_remote_next(void *owner, struct bps_link *link, struct bps_frame *out);
void bps_remote_sent(void *owner, struct bps_link *link, void *cookie);
/* [core] A slice of the result has come; */
void bps_remote_answered(struct bps_task *task, uint32_t index);
/* with bytes, which the transport has let go of. */
void bps_remote_placed(struct bps_task *task, uint32_t index);
/* [core] The header of a PUSH of these bytes of a task's partition. */
void bps_push_header(const struct bps_task *task, uint32_t offset, uint32_t bytes, uint8_t flags,
                     struct bps_header *out);

/* The task that waits for such a frame of a shard; NULL: there is none. */
struct bps_task *bps_push_find(struct bps_worker *worker, const struct bps_header *header);

/* ---- coded.c ---- */
struct bps_coded_slice {
    struct bps_job job; /* for the pool of threads */
    struct bps_task *task;
    bps_computed_fn done;
    enum { BPS_SLICE_RAW, BPS_SLICE_ENCODING, BPS_SLICE_ENCODED } state;
    void *sent, *result, *scratch; /* in blocks of memory; or NULL */
    size_t sent_bytes;             /* as encode has said */
    uint32_t result_bytes;
    bool own;          /* it was decoded, but what was sent of it was not */
    bps_status status; /* of decoding it */
};
/* Before its slices are made. An error is one of this worker: its job fails. */
bps_status bps_coded_prepare(struct bps_task *task, struct bps_report *report);

/* ---- state.c ---- */
/* Writes what coding has left of a tensor of which nothing is in flight, nor will be before this returns. [app] */
bps_status bps_state_save(struct bps_tensor_entry *tensor, struct bps_writer *out, struct bps_report *report);
/* [core] A shard's answer. */
bps_status bps_state_answer(struct bps_worker *worker, const struct bps_header *header,
                            const struct bps_reader *payload);
/* [core] No answers will come any more. */
void bps_state_abandon(struct bps_worker *worker, bps_status status, const char *text);

/* ---- restore.c ---- */
struct bps_state_part;
/* Whether bytes are a state. */
bps_status bps_state_check(const void *state, size_t bytes, struct bps_report *report);
/* [core] The feedback of a task is new: takes what tensor->saved has of it; what the server has counts no more. */
void bps_state_begin(struct bps_task *task);
/* [core] Takes what others have handed over for a task, whose feedback is ready. Nothing of it is in flight. */
void bps_state_take_over(struct bps_task *task);
/* Another worker gets a part, to which the head belongs. BPS_AGAIN: it stays here. */
typedef bps_status (*bps_state_give_fn)(struct bps_tensor_entry *tensor, const void *head, size_t head_bytes,
                                        const struct bps_state_part *part);
/* [core] Gives what tensor->saved has away. */
bps_status bps_state_hand_over(struct bps_tensor_entry *tensor, bps_state_give_fn give);
/*
 * [core] Another worker hands over what it has saved of the header's partition, in the place of what it has handed over
 * before and has not counted yet. Takes the bytes over.
 */
bps_status bps_state_handed(struct bps_worker *worker, uint32_t rank, const struct bps_header *header,
                            struct bps_writer *state);
void bps_state_forget_handed(struct bps_shards *shards);

/* ---- move.c ---- */
/* [core] Messages of the scheduler: see its declared_move.c. */
bps_status bps_move_begin(void *worker, struct bps_reader *request);
bps_status bps_move_end(void *worker, struct bps_reader *answer);

/* ---- retire.c ---- */
/* [core] Something has ended: takes leave of shards that are gone in this view, if nothing needs them any more. */
void bps_remotes_retire(struct bps_worker *worker);

/* ---- receive.c ---- */
bps_status bps_receive_slice(void *lane, struct bps_link *link, const struct bps_header *header,
                             struct bps_sink **sink);
/* A slice is whole in its place. */
void bps_receive_placed(void *lane, struct bps_link *link, void *slice);
bps_status bps_receive_message(void *lane, struct bps_link *link, const struct bps_header *header,
                               struct bps_reader *payload);

#endif
