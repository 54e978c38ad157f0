/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - saves what coding has left of a tensor: for a checkpoint, or a job that goes on with others.
 *
 * A worker has error and momentum of the partitions that it pushes. What the server has lost of their sums belongs to
 * all workers; one of them, in the group of rank 0, asks for it and adds it to its own error. Sent by one worker, it is
 * in the sum once; and what that worker sends first says so, so that a server which has an error itself forgets it. So
 * it does where workers begin with nothing: the error is of a tensor that they have forgotten.
 */
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coded/coded.h"

#define LOG "worker"

/* A call that waits for the core thread, and this perhaps for a shard. */
struct bps_save {
    struct bps_post post;
    TAILQ_ENTRY(bps_save) entry;
    struct bps_tensor_entry *tensor;
    struct bps_writer *out;
    uint32_t partition; /* that is saved next */
    const struct bps_remote *asked;
    char *error;    /* its error, to which the server's is added; NULL: nothing is asked */
    uint64_t added; /* bytes of that so far */
    bool listed;
    bps_status status;
    struct bps_report report;
    sem_t done;
};

static void end(struct bps_save *save, bps_status status, const char *text)
{
    if (save->listed) {
        TAILQ_REMOVE(&save->tensor->worker->coded->saves, save, entry);
    }
    free(save->error);
    save->status = status;
    BPS_REPORT(&save->report, "%s", text);
    sem_post(&save->done);
}

static uint64_t error_bytes(const struct bps_feedback *feedback)
{
    return feedback->now.error != NULL ? feedback->count * bps_dtype_size(feedback->type) : 0;
}

static void put_partition(struct bps_save *save)
{
    const struct bps_task *task = &save->tensor->task[save->partition];
    bps_state_put_part(save->out, task->partition, &task->feedback, save->error);
}

/* Asks the shard for what it has lost, from where the last answer has ended. */
static void ask(struct bps_save *save)
{
    struct bps_remote *remote = bps_remote_of(save->tensor, save->partition);
    const struct bps_feedback *feedback = &save->tensor->task[save->partition].feedback;
    const struct bps_header header = {.type = BPS_FRAME_FEEDBACK,
                                      .flags = feedback->dropped ? BPS_FLAG_DROPPED : 0,
                                      .epoch = remote->worker->job.epoch,
                                      .tensor = save->tensor->id,
                                      .partition = save->partition,
                                      .bytes = save->added};
    save->asked = remote;
    bps_link_send(&remote->lane[0].link, &header, NULL, 0);
}

/* What has not counted yet comes last. */
static void finish(struct bps_save *save)
{
    bps_state_put_waiting(save->tensor, save->out);
    end(save, save->out->failed ? BPS_ERR_NOMEM : BPS_OK, "out of memory for the error feedback");
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
        if (bytes > 0 && bps_state_speaks_for_server(tensor->worker) && !feedback->brings) {
            save->error = malloc(bytes);
            save->added = 0;
            if (save->error == NULL) {
                end(save, BPS_ERR_NOMEM, "out of memory for the error feedback");
                return;
            }
            memcpy(save->error, feedback->now.error, bytes);
            ask(save);
            return;
        }
        put_partition(save);
    }
    finish(save);
}

/* What some of it is has come: all of it is gone, and the heir has lost perhaps something since. */
void bps_state_lost(struct bps_worker *worker, const struct bps_remote *remote)
{
    struct bps_save *save;
    TAILQ_FOREACH(save, &worker->coded->saves, entry) {
        const struct bps_feedback *feedback = &save->tensor->task[save->partition].feedback;
        if (save->error != NULL && save->asked == remote) {
            memcpy(save->error, feedback->now.error, error_bytes(feedback));
            save->added = 0;
            ask(save);
        }
    }
    if (worker->job.rank == 0 && worker->graph->codings.count > 0) {
        bps_warn(
            LOG,
            "the error feedback of the lost server's sums is lost with it; the error feedback of the workers is kept");
    }
}

/* As often as the server's error is in that of a contribution: the result of that one is scaled. */
static void add(struct bps_save *save, const uint8_t *from, size_t bytes)
{
    const struct bps_tensor_entry *tensor = save->tensor;
    double scale = tensor->operation.request.postscale;
    double workers = tensor->path_op == BPS_AVERAGE ? tensor->worker->job.size : 1;
    bps_state_add(tensor->task[save->partition].feedback.type, save->error + save->added, from, bytes,
                  scale != 0 ? workers / scale : 0);
    save->added += bytes;
}

/* A tensor is asked about by one call at a time, and forgotten by none meanwhile. */
static struct bps_save *find(const struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_save *save;
    TAILQ_FOREACH(save, &worker->coded->saves, entry) {
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
    while (worker->coded != NULL && (save = TAILQ_FIRST(&worker->coded->saves)) != NULL) {
        end(save, status, text);
    }
}

/* Of which coding its feedback is; NULL: it has none. After a push of another form that failed the tensor has that. */
static const struct bps_coding *coding_of(const struct bps_tensor_entry *tensor)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        if (tensor->task[i].feedback.coding != NULL) {
            return tensor->task[i].feedback.coding;
        }
    }
    return NULL;
}

static void begin(struct bps_post *post)
{
    struct bps_save *save = bps_container(post, struct bps_save, post);
    struct bps_tensor_entry *tensor = save->tensor;
    struct bps_worker *worker = tensor->worker;
    const struct bps_coding *coding = coding_of(tensor);
    if (worker->failure != BPS_OK) {
        end(save, worker->failure, worker->failure_text);
    } else if (worker->phase >= BPS_WORKER_DRAINING) {
        end(save, BPS_ERR_STATE, "the worker is shutting down");
    } else if (tensor->operation.phase != BPS_PHASE_OFF) {
        end(save, BPS_ERR_BUSY, "the tensor is in flight; wait for it first");
    } else if (coding != NULL) {
        TAILQ_INSERT_TAIL(&worker->coded->saves, save, entry);
        save->listed = true;
        bps_state_put_head(save->out, tensor, coding);
        advance(save);
    } else {
        finish(save);
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
        BPS_REPORT(report, "tensor '%.200s': %.800s", tensor->named.name, save.report.text);
    }
    return save.status;
}
