/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - what coding has left of a tensor, as bytes: for a checkpoint, or a job that goes on with others.
 *
 * A worker has error and momentum of the partitions that it pushes. What the server has lost of their sums belongs to
 * all workers; one of them, in the group of rank 0, asks for it and adds it to its own error. Sent by one worker, it is
 * in the sum once; and what that worker sends first says so, so that a server which has an error itself forgets it. So
 * it does where workers begin with nothing: the error is of a tensor that they have forgotten.
 *
 * The bytes: magic, version, coding, type, elements, elements of a partition, and of each partition that there is
 * something of: its index, its elements, slices, and which arrays follow: rates of the slices, error, momentum.
 */
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "shards/shards.h"

#define MAGIC        0x46535042u /* "BPSF" */
#define VERSION      1u
#define HAS_ERROR    1u
#define HAS_MOMENTUM 2u

/* A call that waits for the core thread, and this perhaps for a shard. */
struct bps_save {
    struct bps_post post;
    TAILQ_ENTRY(bps_save) entry;
    struct bps_tensor_entry *tensor;
    struct bps_writer *out;
    uint32_t partition; /* that is saved next */
    char *error;        /* its error, to which the server's is added; NULL: nothing is asked */
    uint64_t added;     /* bytes of that so far */
    bool listed;
    bps_status status;
    struct bps_report report;
    sem_t done;
};

/* ---- saving ---- */

static void end(struct bps_save *save, bps_status status, const char *text)
{
    if (save->listed) {
        TAILQ_REMOVE(&save->tensor->worker->shards->saves, save, entry);
    }
    free(save->error);
    save->status = status;
    BPS_REPORT(&save->report, "%s", text);
    sem_post(&save->done);
}

static void put_array(struct bps_writer *w, const void *array, const struct bps_feedback *feedback)
{
    if (array != NULL) {
        bps_put_bytes(w, array, feedback->count * bps_dtype_size(feedback->type));
    }
}

static void put_partition(struct bps_save *save)
{
    const struct bps_task *task = &save->tensor->task[save->partition];
    const struct bps_feedback *feedback = &task->feedback;
    struct bps_writer *w = save->out;
    bps_put_u32(w, task->partition);
    bps_put_u64(w, feedback->count);
    bps_put_u32(w, feedback->slices);
    bps_put_u32(w, (feedback->error != NULL ? HAS_ERROR : 0) | (feedback->momentum != NULL ? HAS_MOMENTUM : 0));
    bps_put_bytes(w, feedback->rate, feedback->slices * sizeof *feedback->rate);
    put_array(w, save->error != NULL ? save->error : feedback->error, feedback);
    put_array(w, feedback->momentum, feedback);
}

static uint64_t error_bytes(const struct bps_feedback *feedback)
{
    return feedback->error != NULL ? feedback->count * bps_dtype_size(feedback->type) : 0;
}

/* Asks the shard for what it has lost, from where the last answer has ended. */
static void ask(const struct bps_save *save)
{
    struct bps_remote *remote = bps_remote_of(save->tensor, save->partition);
    const struct bps_header header = {.type = BPS_FRAME_FEEDBACK,
                                      .epoch = remote->worker->book->epoch,
                                      .tensor = save->tensor->id,
                                      .partition = save->partition,
                                      .bytes = save->added};
    bps_link_send(&remote->lane[0].link, &header, NULL, 0);
}

/* Whether it is this worker that answers for what the server has lost of its partitions. */
static bool speaks_for_server(const struct bps_worker *worker)
{
    return worker->book->member[worker->rank].group == 0;
}

/* Goes on until a shard is asked, or all is there. */
static void advance(struct bps_save *save)
{
    struct bps_tensor_entry *tensor = save->tensor;
    for (; save->partition < tensor->tasks; save->partition++) {
        const struct bps_feedback *feedback = &tensor->task[save->partition].feedback;
        uint64_t bytes = error_bytes(feedback);
        if (feedback->coding == NULL) {
            continue;
        }
        if (bytes > 0 && speaks_for_server(tensor->worker)) {
            save->error = malloc(bytes);
            save->added = 0;
            if (save->error == NULL) {
                end(save, BPS_ERR_NOMEM, "out of memory for what coding has left");
                return;
            }
            memcpy(save->error, feedback->error, bytes);
            ask(save);
            return;
        }
        put_partition(save);
    }
    end(save, save->out->failed ? BPS_ERR_NOMEM : BPS_OK, "out of memory for what coding has left");
}

/* How many times the server's error is in that of a contribution: the result of that one is scaled. */
static double share_of(const struct bps_tensor_entry *tensor)
{
    double scale = tensor->operation.request.postscale;
    double workers = tensor->path_op == BPS_AVERAGE ? tensor->worker->size : 1;
    return scale != 0 ? workers / scale : 0;
}

static void add(struct bps_save *save, const uint8_t *from, size_t bytes)
{
    const struct bps_feedback *feedback = &save->tensor->task[save->partition].feedback;
    double share = share_of(save->tensor);
    char *to = save->error + save->added;
    for (size_t at = 0; at < bytes; at += bps_dtype_size(feedback->type)) {
        if (feedback->type == BPS_FLOAT64) {
            double own, other;
            memcpy(&own, to + at, sizeof own);
            memcpy(&other, from + at, sizeof other);
            own += share * other;
            memcpy(to + at, &own, sizeof own);
        } else {
            float own, other;
            memcpy(&own, to + at, sizeof own);
            memcpy(&other, from + at, sizeof other);
            own += (float)share * other;
            memcpy(to + at, &own, sizeof own);
        }
    }
    save->added += bytes;
}

/* A tensor is asked about by one call at a time, and forgotten by none meanwhile. */
static struct bps_save *find(const struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_save *save;
    TAILQ_FOREACH(save, &worker->shards->saves, entry) {
        if (save->tensor->id == header->tensor && save->partition == header->partition && save->error != NULL) {
            return save;
        }
    }
    return NULL;
}

bps_status bps_state_answer(struct bps_worker *worker, const struct bps_header *header,
                            const struct bps_reader *payload)
{
    struct bps_save *save = find(worker, header);
    size_t bytes = (size_t)(payload->end - payload->at);
    if (save == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    const struct bps_feedback *feedback = &save->tensor->task[save->partition].feedback;
    uint64_t rest = error_bytes(feedback) - save->added;
    if (bytes > rest || bytes % bps_dtype_size(feedback->type) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    add(save, payload->at, bytes);
    if (bytes > 0 && bytes < rest) {
        ask(save);
        return BPS_OK;
    }
    put_partition(save);
    free(save->error);
    save->error = NULL;
    save->partition++;
    advance(save);
    return BPS_OK;
}

void bps_state_abandon(struct bps_worker *worker, bps_status status, const char *text)
{
    struct bps_save *save;
    while (worker->shards != NULL && (save = TAILQ_FIRST(&worker->shards->saves)) != NULL) {
        end(save, status, text);
    }
}

static bool has_feedback(const struct bps_tensor_entry *tensor)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        if (tensor->task[i].feedback.coding != NULL) {
            return true;
        }
    }
    return false;
}

static void begin(struct bps_post *post)
{
    struct bps_save *save = bps_container(post, struct bps_save, post);
    struct bps_tensor_entry *tensor = save->tensor;
    struct bps_worker *worker = tensor->worker;
    struct bps_writer *w = save->out;
    if (worker->failure != BPS_OK) {
        end(save, worker->failure, worker->failure_text);
    } else if (worker->phase >= BPS_WORKER_DRAINING) {
        end(save, BPS_ERR_STATE, "the worker is shutting down");
    } else if (tensor->operation.active) {
        end(save, BPS_ERR_BUSY, "the tensor is in flight; wait for it first");
    } else if (!has_feedback(tensor)) {
        bps_put_bytes(w, tensor->saved, tensor->saved_bytes); /* that has not counted yet */
        end(save, w->failed ? BPS_ERR_NOMEM : BPS_OK, "out of memory for what coding has left");
    } else {
        TAILQ_INSERT_TAIL(&worker->shards->saves, save, entry);
        save->listed = true;
        bps_put_u32(w, MAGIC);
        bps_put_u32(w, VERSION);
        bps_put_string(w, tensor->coding->text);
        bps_put_u32(w, bps_coding_type(tensor->path_dtype));
        bps_put_u64(w, tensor->path_bytes / bps_dtype_size(tensor->path_dtype));
        bps_put_u64(w, worker->partition / bps_dtype_size(tensor->path_dtype));
        advance(save);
    }
}

bps_status bps_state_save(struct bps_tensor_entry *tensor, struct bps_writer *out, struct bps_report *report)
{
    struct bps_save save = {.post.fn = begin, .tensor = tensor, .out = out};
    sem_init(&save.done, 0, 0);
    bps_loop_post(tensor->worker->loop, &save.post);
    while (sem_wait(&save.done) != 0) {
    }
    sem_destroy(&save.done);
    if (save.status != BPS_OK) {
        BPS_REPORT(report, "tensor '%.200s': %.800s", tensor->name, save.report.text);
    }
    return save.status;
}

/* ---- loading ---- */

/* The head of such bytes, up to the first partition. */
struct head {
    char coding[BPS_CODING_TEXT];
    uint32_t type;
    uint64_t count, partition;
};

static bool get_head(struct bps_reader *r, struct head *head)
{
    bool known = bps_get_u32(r) == MAGIC && bps_get_u32(r) == VERSION;
    bps_get_string(r, head->coding, sizeof head->coding);
    head->type = bps_get_u32(r);
    head->count = bps_get_u64(r);
    head->partition = bps_get_u64(r);
    return known && !r->bad && (head->type == BPS_FLOAT32 || head->type == BPS_FLOAT64);
}

/* One partition; the arrays are where they lie in the bytes. */
struct part {
    uint32_t index, slices, has;
    uint64_t count;
    const uint8_t *rate, *error, *momentum;
};

static const uint8_t *skip(struct bps_reader *r, uint64_t n, size_t size)
{
    const uint8_t *at = r->at;
    if (r->bad || n > (size_t)(r->end - r->at) / size) {
        r->bad = true;
        return NULL;
    }
    r->at += n * size;
    return at;
}

static bool get_part(struct bps_reader *r, const struct head *head, struct part *part)
{
    size_t size = bps_dtype_size(head->type);
    part->index = bps_get_u32(r);
    part->count = bps_get_u64(r);
    part->slices = bps_get_u32(r);
    part->has = bps_get_u32(r);
    part->rate = skip(r, part->slices, sizeof(double));
    part->error = (part->has & HAS_ERROR) != 0 ? skip(r, part->count, size) : NULL;
    part->momentum = (part->has & HAS_MOMENTUM) != 0 ? skip(r, part->count, size) : NULL;
    return !r->bad && (part->has & ~(HAS_ERROR | HAS_MOMENTUM)) == 0;
}

bps_status bps_state_check(const void *state, size_t bytes, struct bps_report *report)
{
    struct bps_reader r;
    struct head head;
    struct part part;
    bps_reader_init(&r, state, bytes);
    bool good = get_head(&r, &head);
    while (good && r.at < r.end) {
        good = get_part(&r, &head, &part);
    }
    if (!good) {
        BPS_REPORT(report, "these %zu bytes are not what bps_save_feedback() writes, or not all of it", bytes);
    }
    return good ? BPS_OK : BPS_ERR_INVALID;
}

/* Takes a part into arrays that are new. False: it is of something else. */
static bool restore(struct bps_feedback *feedback, const struct part *part)
{
    size_t size = bps_dtype_size(feedback->type);
    if (part->count != feedback->count || part->slices != feedback->slices ||
        (part->error != NULL) != (feedback->error != NULL) ||
        (part->momentum != NULL) != (feedback->momentum != NULL)) {
        return false;
    }
    memcpy(feedback->rate, part->rate, part->slices * sizeof *feedback->rate);
    if (part->error != NULL) {
        memcpy(feedback->error, part->error, part->count * size);
    }
    if (part->momentum != NULL) {
        memcpy(feedback->momentum, part->momentum, part->count * size);
    }
    return true;
}

static void restore_saved(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_reader r;
    struct head head;
    struct part part;
    bps_reader_init(&r, tensor->saved, tensor->saved_bytes);
    if (!get_head(&r, &head) || strcmp(head.coding, tensor->coding->text) != 0 || head.type != task->feedback.type ||
        head.count != tensor->path_bytes / bps_dtype_size(tensor->path_dtype) ||
        head.partition != tensor->worker->partition / bps_dtype_size(tensor->path_dtype)) {
        return;
    }
    for (const uint8_t *at = r.at; at < r.end && get_part(&r, &head, &part); at = r.at) {
        if (part.index == task->partition && restore(&task->feedback, &part)) {
            memset((uint8_t *)tensor->saved + (at - (const uint8_t *)tensor->saved), 0xff,
                   sizeof part.index); /* once */
        }
    }
}

bps_status bps_state_begin(struct bps_task *task)
{
    struct bps_feedback *feedback = &task->feedback;
    if (speaks_for_server(task->tensor->worker)) {
        feedback->brings = malloc(feedback->slices * sizeof *feedback->brings);
        if (feedback->brings == NULL) {
            bps_feedback_fini(feedback);
            return BPS_ERR_NOMEM;
        }
        memset(feedback->brings, true, feedback->slices * sizeof *feedback->brings);
    }
    if (task->tensor->saved != NULL) {
        restore_saved(task);
    }
    return BPS_OK;
}
