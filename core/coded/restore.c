/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.c - what was saved of a tensor's coding counts again.
 *
 * Whoever pushes a partition goes on from it. If that is another worker of this host, because it leads the partition
 * now, the state is handed over to it; it adds what comes to what it has. Errors and momentum are linear in what has
 * been pushed: the sum of two workers' states is that of the sum of their gradients.
 */
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "coded/coded.h"

/* A state of one partition, from another worker. */
struct bps_handed {
    TAILQ_ENTRY(bps_handed) entry;
    uint32_t rank, tensor, partition, round;
    void *state;
    size_t bytes;
};

bps_status bps_state_check(const void *state, size_t bytes, struct bps_report *report)
{
    struct bps_state s;
    bool good = bps_state_open(&s, state, bytes);
    while (good && bps_state_next(&s)) {
    }
    if (!good || s.r.bad) {
        return bps_fail(report, BPS_ERR_INVALID, "the %zu bytes are not a complete state from bps_save_feedback()",
                        bytes);
    }
    return BPS_OK;
}

/* ---- taking ---- */

/* Whether a state is of the tensor as it is now. */
static bool is_of(const struct bps_state_head *head, const struct bps_tensor_entry *tensor)
{
    uint32_t dtype = tensor->path_dtype;
    return tensor->named.coding != NULL && strcmp(head->coding, tensor->named.coding->text) == 0 &&
           head->type == bps_coding_type(dtype) && head->count == tensor->path_bytes / bps_dtype_size(dtype) &&
           head->partition == tensor->worker->partition / bps_dtype_size(dtype);
}

/* The error is taken over as one of the learning rate of what is there. */
static void add_error(struct bps_task *task, uint32_t slice, const struct bps_state_part *part)
{
    struct bps_feedback *feedback = &task->feedback;
    uint32_t bytes = bps_push_of(task)->slice, size = bps_dtype_size(task->tensor->path_dtype);
    uint32_t width = bps_dtype_size(feedback->type);
    size_t at = (size_t)slice * bytes / size * width;
    size_t n = bps_partition_bytes(task->bytes, bytes, slice) / size * width;
    double *rate = &feedback->now.rate[slice], theirs;
    memcpy(&theirs, part->rate + slice * sizeof theirs, sizeof theirs);
    bps_state_add(feedback->type, (char *)feedback->now.error + at, part->error + at, n,
                  *rate > 0 && theirs > 0 ? theirs / *rate : 1);
    *rate = *rate > 0 ? *rate : theirs;
}

static void add_part(struct bps_task *task, const struct bps_state_part *part)
{
    struct bps_feedback *feedback = &task->feedback;
    if (part->count != feedback->count || part->slices != feedback->slices ||
        (part->error != NULL) != (feedback->now.error != NULL) ||
        (part->momentum != NULL) != (feedback->now.momentum != NULL)) {
        return;
    }
    for (uint32_t i = 0; i < part->slices && part->error != NULL; i++) {
        add_error(task, i, part);
    }
    if (part->momentum != NULL) {
        bps_state_add(feedback->type, feedback->now.momentum, part->momentum,
                      part->count * bps_dtype_size(feedback->type), 1);
    }
}

static void add_saved(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_state s;
    if (!bps_state_open(&s, tensor->saved, tensor->saved_bytes) || !is_of(&s.head, tensor)) {
        return;
    }
    while (bps_state_next(&s)) {
        if (s.part.index == task->partition) {
            add_part(task, &s.part);
            const uint32_t used = BPS_STATE_USED; /* it counts once */
            memcpy((uint8_t *)tensor->saved + (s.part.at - (const uint8_t *)tensor->saved), &used, sizeof used);
        }
    }
}

/* ---- handing over ---- */

bps_status bps_state_hand_over(struct bps_tensor_entry *tensor, bps_state_give_fn give)
{
    uint8_t *saved = tensor->saved, *end;
    struct bps_state s;
    bps_status status = BPS_OK;
    if (!bps_state_open(&s, saved, tensor->saved_bytes) || !is_of(&s.head, tensor)) {
        return BPS_OK;
    }
    size_t head_bytes = (size_t)(s.r.at - saved);
    end = saved + head_bytes; /* of what stays */
    while (status == BPS_OK && bps_state_next(&s)) {
        status = s.part.index < tensor->tasks ? give(tensor, saved, head_bytes, &s.part) : BPS_OK;
        if (status == BPS_AGAIN) {
            memmove(end, s.part.at, s.part.bytes);
            end += s.part.bytes;
            status = BPS_OK;
        }
    }
    tensor->saved_bytes = (size_t)(end - saved);
    if (tensor->saved_bytes == head_bytes) {
        free(saved);
        tensor->saved = NULL;
        tensor->saved_bytes = 0;
    }
    return status;
}

static void forget(struct bps_coded *coded, struct bps_handed *handed)
{
    TAILQ_REMOVE(&coded->handed, handed, entry);
    free(handed->state);
    free(handed);
}

void bps_state_forget_handed(struct bps_coded *coded)
{
    while (!TAILQ_EMPTY(&coded->handed)) {
        forget(coded, TAILQ_FIRST(&coded->handed));
    }
}

/* One partition's, and nothing behind it. */
static bool is_state_of(uint32_t partition, const struct bps_writer *state)
{
    struct bps_state s;
    return bps_state_open(&s, state->data, state->size) && bps_state_next(&s) && bps_reader_done(&s.r) &&
           s.part.index == partition;
}

static void forget_earlier(struct bps_coded *coded, const struct bps_handed *later)
{
    struct bps_handed *handed;
    TAILQ_FOREACH(handed, &coded->handed, entry) {
        if (handed->rank == later->rank && handed->tensor == later->tensor && handed->partition == later->partition) {
            forget(coded, handed);
            return;
        }
    }
}

bps_status bps_state_handed(struct bps_worker *worker, uint32_t rank, const struct bps_header *header,
                            struct bps_writer *state)
{
    if (header->tensor == 0 || header->tensor >= BPS_ID_UNNAMED || header->partition >= BPS_PARTITIONS_LIMIT ||
        !is_state_of(header->partition, state)) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_handed *handed = malloc(sizeof *handed);
    if (handed == NULL) {
        return BPS_ERR_NOMEM;
    }
    *handed = (struct bps_handed){.rank = rank,
                                  .tensor = header->tensor,
                                  .partition = header->partition,
                                  .round = header->round,
                                  .state = state->data,
                                  .bytes = state->size};
    bps_writer_init(state);
    forget_earlier(worker->coded, handed);
    TAILQ_INSERT_TAIL(&worker->coded->handed, handed, entry);
    return BPS_OK;
}

/* An id may have been another name's, which this worker has forgotten before it got that. */
static bool is_for(const struct bps_handed *handed, const struct bps_tensor_entry *tensor)
{
    return handed->tensor == tensor->id && (int32_t)(handed->round - tensor->first_round) >= 0;
}

static void add_handed(struct bps_task *task)
{
    struct bps_coded *coded = task->tensor->worker->coded;
    struct bps_handed *handed, *next;
    for (handed = TAILQ_FIRST(&coded->handed); handed != NULL; handed = next) {
        struct bps_state s;
        next = TAILQ_NEXT(handed, entry);
        if (handed->tensor != task->tensor->id || handed->partition != task->partition) {
            continue;
        }
        if (is_for(handed, task->tensor) && bps_state_open(&s, handed->state, handed->bytes) &&
            is_of(&s.head, task->tensor) && bps_state_next(&s)) {
            add_part(task, &s.part);
        }
        forget(coded, handed);
    }
}

void bps_state_restore(struct bps_task *task, bool fresh)
{
    if (fresh) {
        task->feedback.brings = bps_state_speaks_for_server(task->tensor->worker);
        add_saved(task);
    }
    add_handed(task);
}

/* ---- saving it again ---- */

/* To a state of the same form of the tensor, or a new one. */
static void put_parts(struct bps_writer *w, const uint8_t *state, size_t bytes)
{
    struct bps_state s;
    if (w->failed || !bps_state_open(&s, state, bytes)) {
        return;
    }
    size_t n = (size_t)(s.r.at - state);
    if (w->size == 0) {
        bps_put_bytes(w, state, n);
    } else if (w->size < n || memcmp(w->data, state, n) != 0) {
        return;
    }
    while (bps_state_next(&s)) {
        if (s.part.index != BPS_STATE_USED) {
            bps_put_bytes(w, s.part.at, s.part.bytes);
        }
    }
}

void bps_state_put_waiting(const struct bps_tensor_entry *tensor, struct bps_writer *w)
{
    const struct bps_coded *coded = tensor->worker->coded;
    const struct bps_handed *handed;
    put_parts(w, tensor->saved, tensor->saved_bytes);
    if (coded == NULL) {
        return;
    }
    TAILQ_FOREACH(handed, &coded->handed, entry) {
        if (is_for(handed, tensor)) {
            put_parts(w, handed->state, handed->bytes);
        }
    }
}
