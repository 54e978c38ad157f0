/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coded.h - what is coded on the network: the step push_pull of tensors that have a coding, and what coding leaves.
 *
 * The shards take such a task as any other (shards/shards.h): what a slice of it carries is made here. [core]
 */
#ifndef BPS_CODED_CODED_H
#define BPS_CODED_CODED_H

#include "flow/thread_pool.h"
#include "shards/shards.h"
#include "sum/pool.h"

/* Of a worker. */
struct bps_coded {
    struct bps_pool pool;            /* of what is coded */
    TAILQ_HEAD(, bps_save) saves;    /* under way */
    TAILQ_HEAD(, bps_handed) handed; /* states that others have handed over, and that have not counted yet */
};

struct bps_coded_slice {
    struct bps_job job; /* for the pool of threads */
    struct bps_task *task;
    enum { BPS_SLICE_RAW, BPS_SLICE_ENCODING, BPS_SLICE_ENCODED } state;
    void *sent, *result, *scratch; /* in blocks of memory; or NULL */
    size_t sent_bytes;             /* as encode has said */
    uint32_t result_bytes;
    bool dropped;      /* it came too late: the result is without it */
    bool own;          /* it was decoded, but what was sent of it was not */
    bps_status status; /* of decoding it */
};

/* What the step keeps of a task. */
struct bps_coded_push {
    struct bps_push push;          /* first: all that the shards know of it */
    struct bps_coded_slice *slice; /* of each; NULL: this round is not coded */
    bool exact;                    /* its slices are coded, but lose nothing: coding begins later */
    bool refused;                  /* a slice cannot be made: all of them hear of it */
};

static inline struct bps_coded_push *bps_coded_push_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

#define BPS_STATE_USED UINT32_MAX /* the partition of a part that has been taken */

struct bps_state_head {
    char coding[BPS_CODING_TEXT];
    uint32_t type;
    uint64_t count, partition; /* elements */
};

/* Its arrays are where they lie in the bytes, of any alignment. */
struct bps_state_part {
    uint32_t index, slices;
    uint64_t count;
    const uint8_t *rate, *error, *momentum; /* NULL: it has none */
    const uint8_t *at;                      /* all of it */
    size_t bytes;
};

/* While it is read. */
struct bps_state {
    struct bps_reader r;
    struct bps_state_head head;
    struct bps_state_part part;
};

/* ---- coded.c ---- */
/* The shards are known. */
bps_status bps_coded_open(struct bps_worker *worker);
/* Before something of the task is pushed to this shard. */
void bps_coded_tell(struct bps_task *task, struct bps_remote *remote);
/* No link to a shard is left. */
void bps_coded_close(struct bps_worker *worker);

/* ---- push.c ---- */
extern const struct bps_step_ops bps_push_coded;

/* ---- slices.c ---- */
extern const struct bps_payload_ops bps_payload_coded;
/* Before its slices are made. An error is one of this worker: its job fails. */
bps_status bps_coded_prepare(struct bps_task *task, struct bps_report *report);
/* The task is over: gives the memory of its slices back. */
void bps_coded_release(struct bps_task *task);

/* ---- state_bytes.c ---- */
void bps_state_put_head(struct bps_writer *w, const struct bps_tensor_entry *tensor, const struct bps_coding *coding);
/* With that error; NULL: with its own. */
void bps_state_put_part(struct bps_writer *w, uint32_t partition, const struct bps_feedback *feedback,
                        const void *error);
/* Begins with the head. False: these are no such bytes. */
bool bps_state_open(struct bps_state *state, const void *bytes, size_t n);
/* Goes on to the next part. False: there is none; or `bad`, as no part begins here. */
bool bps_state_next(struct bps_state *state);
/* to += factor * from, of any alignment. */
void bps_state_add(uint32_t type, void *to, const void *from, size_t bytes, double factor);
/* At least as much as a state of one partition has. */
uint64_t bps_state_limit(const struct bps_worker *worker);

/* ---- state.c ---- */
/* Whether it is this worker that answers for what the server has lost of its partitions. */
static inline bool bps_state_speaks_for_server(const struct bps_worker *worker)
{
    return worker->job.group == 0;
}
/* Writes what coding has left of a tensor of which nothing is in flight, nor will be before this returns. [app] */
bps_status bps_state_save(struct bps_tensor_entry *tensor, struct bps_writer *out, struct bps_report *report);
/* [core] A shard's answer. */
bps_status bps_state_answer(struct bps_worker *worker, const struct bps_header *header,
                            const struct bps_reader *payload);
/* [core] Nor from this shard, which is lost: its heir is asked. */
void bps_state_lost(struct bps_worker *worker, const struct bps_remote *remote);
/* [core] No answers will come any more. */
void bps_state_abandon(struct bps_worker *worker, bps_status status, const char *text);

/* ---- restore.c ---- */
/* Whether bytes are a state. */
bps_status bps_state_check(const void *state, size_t bytes, struct bps_report *report);
/*
 * [core] Takes what others have handed over for a task, whose feedback is ready. Nothing of it is in flight. If it is
 * fresh, takes what tensor->saved has of it, too; what the server has counts no more.
 */
void bps_state_restore(struct bps_task *task, bool fresh);
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
void bps_state_forget_handed(struct bps_coded *coded);
/* Adds what is there of a tensor and has not counted yet: saved, or handed over. */
void bps_state_put_waiting(const struct bps_tensor_entry *tensor, struct bps_writer *w);

#endif
