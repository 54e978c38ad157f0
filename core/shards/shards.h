/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - the shards as a worker sees them: the step push_pull. [core] */
#ifndef BPS_SHARDS_SHARDS_H
#define BPS_SHARDS_SHARDS_H

#include "base/heap.h"
#include "flow/step.h"
#include "flow/thread_pool.h"
#include "node/delivered.h"
#include "node/transport.h"
#include "shards/copies.h"
#include "shards/credit.h"
#include "shards/kept.h"
#include "shards/window.h"
#include "wire/dialler.h"

struct bps_remote_lane {
    struct bps_link link;
    struct bps_dialler dialler;
    struct bps_remote *remote;
    uint32_t number;
    struct bps_delivered_mark delivered;
    struct bps_sink sink; /* a slice of a result that arrives */
    struct bps_task *task;
    uint32_t index, length;
    struct bps_open_slice {    /* the same of those that the transport fetches while others arrive */
        struct bps_task *task; /* NULL: this entry is free */
        uint32_t index;
    } open[BPS_PLACES_LIMIT];
};

struct bps_remote {
    struct bps_worker *worker;
    uint32_t index;
    struct bps_instance *transport; /* by which it is reached: the worker's `local_transport` or `net` */
    bool reached;                   /* it has let this worker in */
    bool came;                      /* into the job, while that ran */
    uint64_t patience;              /* ns that it is dialled for */
    uint32_t lanes;
    struct bps_remote_lane lane[BPS_LANES_LIMIT];
    struct bps_heap queue; /* tasks to send, the most urgent first */
    struct bps_credit credit;
    struct bps_delivered delivered;
    double part;           /* of the credit of all shards on average */
    bool retired;          /* it is gone, and this worker has left it, or lost it */
    bool broken;           /* its links have ended: nothing is sent any more */
    bool has_heirs;        /* it may be lost, and the job goes on */
    uint32_t opened;       /* links that it has let in */
    const char *unkept;    /* why the job cannot go on without it; NULL: all of its results are kept */
    bool bare;             /* those of rounds that began before another server came are not: see settle.c */
    uint32_t codings;      /* of the worker's, by number: those that it knows */
    bool starved;          /* the most urgent one has no credit, */
    uint32_t starved_step; /* in which that is recorded, counted from 1; 0: it is not */
    bool making;           /* or its slice is still being made */
    bool told;             /* no lane's transport was told BPS_AGAIN since all were kicked */
};

struct bps_shards {
    uint32_t remotes;
    size_t room;
    struct bps_remote **remote;
    uint32_t asked_in; /* the view in which it was asked which rounds have begun */
    bool armed; /* it is known which rounds began before all workers kept the results of shards that are `bare` */
    struct bps_window window; /* over the remotes */
    struct bps_pushed {
        uint64_t all, uneven; /* bytes since rates were reported last; uneven: of other operations than push_pull */
    } pushed;
    struct bps_timer *patience; /* while one of them is starved */
    struct bps_kept_store kept;
    struct bps_value_copies copies;
    uint32_t lost_in; /* the newest view in which a server was lost; 0: none was */
    /* Takes what a shard has answered to a FEEDBACK: of whoever asks for it, who puts this here. */
    bps_status (*feedback)(struct bps_worker *worker, const struct bps_header *header,
                           const struct bps_reader *payload);
    /* Hears that a shard is lost, of which answers were waited for: likewise. */
    void (*lost)(struct bps_worker *worker, const struct bps_remote *remote);
    bps_status verdict; /* BPS_OK, or how the job is about to fail, and why */
    char why[BPS_TEXT_LIMIT];
};

/*
 * What the slices of a partition carry: its bytes as they are, or something made of them. A payload that works on a
 * slice elsewhere counts it in `computing`, and tells when it is there. [core]
 */
struct bps_payload_ops {
    /* The task is about to be pushed to this shard, or to another one. Optional. */
    void (*begin)(struct bps_task *task, struct bps_remote *remote);
    /* Bytes of a slice that is pushed; before it has been made, at most. */
    uint32_t (*bytes)(const struct bps_task *task, uint32_t index);
    /* It is sent soon: makes it elsewhere, if that is faster. False: bps_push_made() follows. Optional. */
    bool (*ready)(struct bps_task *task, uint32_t index);
    /* Makes it, if that has not happened yet, and what its header says of it. BPS_ERR_NOMEM, _PLUGIN: it cannot, */
    bps_status (*make)(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                       struct bps_report *report);
    /* then this withdraws the task, or lets the job fail. NULL: making never fails. */
    void (*refuse)(struct bps_task *task, bps_status status, const char *text);
    /* A slice of the result with so many bytes has begun to come. BPS_ERR_PROTOCOL: it cannot have so many. */
    bps_status (*expect)(struct bps_task *task, uint32_t index, uint32_t bytes);
    /* Where they go. */
    char *(*place)(struct bps_task *task, uint32_t index);
    /* They are there. BPS_INPROGRESS: bps_push_settled() follows. Optional. */
    bps_status (*settle)(struct bps_task *task, uint32_t index, struct bps_report *report);
};

/* What a step to a shard keeps of a task: all of it, or the first of it. */
struct bps_push {
    const struct bps_payload_ops *payload;
    struct bps_remote *remote;
    struct bps_kept *kept;       /* its result is; */
    struct bps_value_copy *copy; /* or its answers are. NULL, both: its shard is not lost without the job */
    uint32_t slices, slice;      /* how many; bytes of the partition in each but the last */
    uint32_t wire;               /* bytes that one has on the network, about: for the credit */
    bool bare;                   /* its shard had no heirs when it began */
    uint8_t flags, answer;       /* of the frames of its slices, beside others; of the newest frame of the result */
    void (*finish)(struct bps_task *task); /* it is over, whatever has come of it; optional */
    bool spoilt;                           /* what has come makes no sense: the job is about to fail */
    uint32_t sent;                         /* slices handed to the transport */
    uint32_t answered;                     /* slices of the result */
    uint32_t outstanding;                  /* frames that the transport still reads, or is filling */
    uint32_t computing;                    /* slices that the payload works on elsewhere */
    bool *got;                             /* of each slice: its result is there */
    struct bps_sent_slice {
        struct bps_task *task;
        uint8_t header[BPS_HEADER_BYTES];
    } *frame; /* of each, while it is sent */
};

static inline struct bps_push *bps_push_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

/* [core] The shard that a partition belongs to. */
static inline struct bps_remote *bps_remote_of(struct bps_tensor_entry *tensor, uint32_t partition)
{
    struct bps_worker *worker = tensor->worker;
    const struct bps_process_group *group = tensor->operation.group;
    const struct bps_view *view = tensor->operation.view;
    uint16_t shard =
        group != NULL
            ? bps_unnamed_group_shard(&view->book, &worker->view->book, group->rank, group->n, tensor->id, partition)
        : tensor->named.unnamed ? bps_unnamed_shard(&view->book, &worker->view->book, tensor->id, partition)
                                : tensor->placed.partition[partition].shard;
    return worker->shards->remote[shard];
}

/* ---- process_group.c ---- */
/* Before the first frame of a process group to a shard. False: no memory, and the job is about to fail. */
bool bps_remote_announce(struct bps_remote *remote, struct bps_process_group *group);

/* ---- remote.c ---- */
bps_status bps_remotes_connect(struct bps_worker *worker, struct bps_report *report);
/* Dials the shards of the newest view that are not known yet. [core] */
bps_status bps_remotes_grow(struct bps_worker *worker, struct bps_report *report);
/* Whether all links to shards have come about. */
bool bps_remotes_reached(const struct bps_worker *worker);
/* Whether what was pushed since it was asked last was mostly push_pulls, which load all links alike. */
bool bps_remotes_even(const struct bps_worker *worker);
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
/* Tells shards that this worker begins nothing any more; what it has begun goes on. [core] */
void bps_remotes_announce_leave(struct bps_worker *worker);
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

/* [core] A POISON for a shard, as it is; it is sent to its heir as well. */
void bps_remote_poison(struct bps_remote *remote, const struct bps_header *poison, const char *text);

/* ---- plain.c ---- */
extern const struct bps_step_ops bps_push_plain; /* takes all */
extern const struct bps_step_ops bps_push_rows;  /* takes those of which some rows are sent: sparse.c */
/* [core] A slice as it is. */
bps_status bps_plain_make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                          struct bps_report *report);
/* [core] Before bps_push_start(): the slices of the task carry its bytes as they are. The memory is what they need. */
void bps_push_init_plain(struct bps_task *task, void *memory);

/* ---- value.c ---- */
extern const struct bps_step_ops bps_push_value;      /* takes those in mode async */
extern const struct bps_step_ops bps_push_value_rows; /* and of which some rows are sent: value_rows.c */

/* ---- value_lost.c ---- */
/* [core] Shards are lost in this view: tells their heirs what this worker has of values, and all that this was all. */
void bps_value_copies_inherit(struct bps_worker *worker);
/* [core] The latter to one, if there was a loss. */
void bps_value_copies_told(struct bps_remote *remote);
/* [core] A WANT of a value. BPS_ERR_PROTOCOL: this worker has told nobody that it has it. */
bps_status bps_value_copy_wanted(struct bps_remote *remote, const struct bps_header *want);

/* ---- remote_send.c ---- */
/* Bytes of the partition that a slice stands for. */
uint32_t bps_push_bytes(const struct bps_task *task, uint32_t index);
/* Bytes behind struct bps_push that so many slices need. */
size_t bps_push_more(uint32_t slices);
/* [core] Nothing of the task has been sent. Its slices have so many bytes; the memory is what they need. */
void bps_push_init(struct bps_task *task, const struct bps_payload_ops *payload, uint32_t slice, void *memory);
/* [core] Of each step to a shard, after bps_push_init(). */
bool bps_push_start(struct bps_task *task);
void bps_push_cancel(struct bps_task *task);
void bps_push_abandon(struct bps_task *task);
/* [core] No more of the task is sent. */
void bps_push_withdraw(struct bps_task *task);
/* [core] Its shard is lost, and all links to it are dropped: what is not answered goes to its heir. */
void bps_push_restart(struct bps_task *task);
/* [core] Nothing is sent to this shard any more. */
void bps_push_rest(struct bps_remote *remote);
/* [core] By the payload: a slice has been made, or not, that was not ready; */
void bps_push_made(struct bps_task *task);
/* the result of one is where it belongs, or cannot be brought there: then the job fails. */
void bps_push_settled(struct bps_task *task, uint32_t index, bps_status status, const char *text);
/* [core] The job fails, but not within a call of the transport's. */
void bps_push_fail(struct bps_worker *worker, bps_status status, const char *why);
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

/* ---- move.c ---- */
/* [core] Messages of the scheduler: see its declared_move.c. */
bps_status bps_move_begin(void *worker, struct bps_reader *request);
bps_status bps_move_end(void *worker, struct bps_reader *answer);
/* [core] A link to a shard has come about, which such a request may wait for. */
void bps_move_resume(struct bps_worker *worker);

/* ---- settle.c ---- */
/* [core] Whether something is under way under an earlier view, or is going to begin under one. */
bool bps_remotes_is_behind(const struct bps_worker *worker);
/* [core] Results of shards that had no heirs are kept from now on. */
void bps_remotes_disarm(struct bps_worker *worker);
/* [core] Something has ended: looks whether all shards may be lost by now. */
void bps_remotes_settle(struct bps_worker *worker);
/* [core] Reads which rounds of tensors that stay are the first that no worker had begun; with `all`: of all of them. */
bps_status bps_remotes_arm(struct bps_worker *worker, struct bps_reader *answer, bool all);

/* ---- failover.c ---- */
/* [core] There is a view: which shards have heirs, so that they may be lost. */
void bps_remotes_find_heirs(struct bps_worker *worker);
/* [core] A link to it has ended, for this reason, and it may be lost. */
void bps_remote_break(struct bps_remote *remote, const char *why);
/* [core] What was on its way, or kept, for shards that are lost in this view goes to their heirs. */
void bps_remotes_inherit(struct bps_worker *worker);
/* [core] A WANT. BPS_ERR_PROTOCOL: this worker has told nobody that it has it. */
bps_status bps_remote_wanted(struct bps_remote *remote, const struct bps_header *want);
/* [core] A shard says that a round of a partition has failed. */
void bps_remote_failed(struct bps_remote *remote, const struct bps_header *failed, const char *text);

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
