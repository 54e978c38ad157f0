/* SPDX-License-Identifier: Apache-2.0 */
/*
 * communicator.c - the thread of a group, which alone uses its communicator.
 *
 * NCCL's calls wait for other processes. The communicator is one that does not block, and the thread asks it
 * again and again until it has gone on or the group is given up; so neither the loop nor the end of a job
 * ever waits for a process that is lost. What the thread has put on the stream it hands to the loop, together
 * with an event behind it.
 */
#include "instance.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define ASK_NS   20000ull      /* between two questions while NCCL is in progress */
#define LOOK_NS  100000000ull  /* between two looks for errors while work is under way */
#define LEAVE_NS 5000000000ull /* how long the others may take to leave, too */

#define OPERATION    "NCCL: operation"
#define COMMUNICATOR "NCCL: communicator"

static const struct nccl *nccl_of(const struct bps_group *group)
{
    return &group->cuda->nccl;
}

static void wake_loop(const struct bps_group *group)
{
    const uint64_t one = 1;
    (void)!write(group->event, &one, sizeof one);
}

/* The first reason counts. */
static void fail(struct bps_group *group, const char *what, const char *why)
{
    pthread_mutex_lock(&group->lock);
    if (group->status == BPS_OK) {
        group->status = BPS_ERR_FAILED;
        snprintf(group->text, sizeof group->text, "device %d: %s: %s", group->device->index, what, why);
    }
    pthread_mutex_unlock(&group->lock);
}

static void fail_nccl(struct bps_group *group, const char *what, nccl_result result)
{
    char text[200];
    const char *more = nccl_of(group)->last_error(group->communicator);
    bool known = more != NULL && more[0] != '\0';
    snprintf(text, sizeof text, "%s%s%s%s", nccl_of(group)->error_text(result), known ? " (" : "", known ? more : "",
             known ? ")" : "");
    fail(group, what, text);
}

void cuda_communicator_fail(struct bps_group *group, const char *what, cuda_result result)
{
    char text[192];
    cuda_driver_error(&group->cuda->driver, result, text, sizeof text);
    fail(group, what, text);
}

/* Until NCCL is not in progress any more, or for so long. True: it has worked. */
static bool complete(struct bps_group *group, const char *what, nccl_result result, uint64_t limit_ns)
{
    const struct bps_host *host = group->cuda->host;
    uint64_t begun = host->now();
    while (result == NCCL_IN_PROGRESS && group->communicator != NULL && !atomic_load(&group->aborted) &&
           host->now() - begun < limit_ns) {
        nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
        nccl_result asked = nccl_of(group)->async_error(group->communicator, &result);
        result = asked != NCCL_OK ? asked : result;
    }
    if (result == NCCL_IN_PROGRESS) {
        fail(group, what, "it was aborted");
    } else if (result != NCCL_OK) {
        fail_nccl(group, what, result);
    }
    return result == NCCL_OK;
}

/* ---- batches ---- */

static nccl_result give_step(const struct bps_group *group, const struct bps_group_step *step)
{
    const struct nccl *nccl = nccl_of(group);
    unsigned type = nccl_type(step->dtype), op = nccl_op(step->op);
    switch (step->kind) {
    case BPS_STEP_REDUCE:
        return nccl->reduce(step->from, step->to, step->count, type, op, (int)step->root, group->communicator,
                            group->stream);
    case BPS_STEP_BROADCAST:
        return nccl->broadcast(step->from, step->to, step->count, type, (int)step->root, group->communicator,
                               group->stream);
    default:
        return nccl->all_reduce(step->from, step->to, step->count, type, op, group->communicator, group->stream);
    }
}

bool cuda_communicator_settle(struct bps_group *group, nccl_result result)
{
    return complete(group, OPERATION, result, UINT64_MAX);
}

static bool give(struct bps_group *group, const struct cuda_batch *batch)
{
    const struct nccl *nccl = nccl_of(group);
    nccl_result result = nccl->begin();
    for (uint32_t i = 0; i < batch->steps && !nccl_is_error(result); i++) {
        const struct bps_group_step *step = &batch->step[i];
        if (nccl_combines(group->size, step->kind, step->op, step->dtype)) {
            result = give_step(group, step);
        }
    }
    nccl_result ended = nccl->end();
    return cuda_communicator_settle(group, nccl_is_error(result) ? result : ended) &&
           cuda_exact_give(group, batch->step, batch->steps);
}

/* Puts a batch on the stream and hands it to the loop. */
static bool perform(struct bps_group *group, struct cuda_batch *batch)
{
    if (!give(group, batch)) {
        return false;
    }
    cuda_result result = group->cuda->driver.event_record(batch->event, group->stream);
    if (result != CUDA_OK) {
        cuda_communicator_fail(group, "event of its group", result);
        return false;
    }
    pthread_mutex_lock(&group->lock);
    STAILQ_REMOVE_HEAD(&group->queue, entry);
    STAILQ_INSERT_TAIL(&group->given, batch, entry);
    pthread_mutex_unlock(&group->lock);
    wake_loop(group);
    return true;
}

/* Waits for something to do, and for no longer than until the next look. False: there is nothing yet. */
static bool sleep_for_work(struct bps_group *group)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (group->under_way == 0) {
        pthread_cond_wait(&group->changed, &group->lock);
        return true;
    }
    return pthread_cond_timedwait(&group->changed, &group->lock, &until) == 0;
}

/* The next batch. NULL: the group is left or given up, or a look for errors is due. */
static struct cuda_batch *next_batch(struct bps_group *group, bool *due)
{
    *due = false;
    pthread_mutex_lock(&group->lock);
    while (STAILQ_EMPTY(&group->queue) && !group->leaving && !atomic_load(&group->aborted) && !*due) {
        *due = !sleep_for_work(group);
    }
    struct cuda_batch *batch = atomic_load(&group->aborted) ? NULL : STAILQ_FIRST(&group->queue);
    pthread_mutex_unlock(&group->lock);
    return batch;
}

/* True: all was done that there was to do, and the group is left. */
static bool serve(struct bps_group *group)
{
    bool due, fine = true;
    do {
        struct cuda_batch *batch = next_batch(group, &due);
        if (batch != NULL) {
            fine = perform(group, batch);
        } else if (due) {
            nccl_result result = NCCL_OK;
            nccl_result asked = nccl_of(group)->async_error(group->communicator, &result);
            fine = cuda_communicator_settle(group, asked != NCCL_OK ? asked : result);
        } else {
            break;
        }
    } while (fine);
    if (atomic_load(&group->aborted)) {
        fail(group, OPERATION, "it was aborted");
        return false;
    }
    return fine;
}

/* ---- life ---- */

static bool join(struct bps_group *group)
{
    struct nccl_config config = {
        .size = sizeof config,
        .magic = NCCL_CONFIG_MAGIC,
        .version = NCCL_CONFIG_VERSION,
        .blocking = 0,
    };
    cuda_result opened = cuda_exact_open(group);
    if (opened != CUDA_OK) {
        cuda_communicator_fail(group, "memory for its group", opened);
        return false;
    }
    nccl_result result =
        nccl_of(group)->init(&group->communicator, (int)group->size, group->name, (int)group->place, &config);
    if (!complete(group, COMMUNICATOR, result, UINT64_MAX)) {
        return false;
    }
    pthread_mutex_lock(&group->lock);
    group->together = true;
    pthread_mutex_unlock(&group->lock);
    wake_loop(group);
    return true;
}

/* The memory of others may be in use until they have left, too; but they may have been lost. */
static bool part(struct bps_group *group)
{
    const struct nccl *nccl = nccl_of(group);
    if (!complete(group, "NCCL: end", nccl->finalize(group->communicator), LEAVE_NS)) {
        return false;
    }
    nccl->destroy(group->communicator);
    return true;
}

void *cuda_communicator_work(void *arg)
{
    struct bps_group *group = arg;
    struct cuda_stay stay;
    if (cuda_enter(group->device, &stay) != CUDA_OK) {
        fail(group, COMMUNICATOR, "the device cannot be entered");
    } else {
        if (!(join(group) && serve(group) && part(group)) && group->communicator != NULL) {
            nccl_of(group)->abort(group->communicator);
        }
        group->cuda->driver.stream_synchronize(group->stream);
        cuda_leave(&stay);
    }
    pthread_mutex_lock(&group->lock);
    group->over = true;
    pthread_mutex_unlock(&group->lock);
    wake_loop(group);
    return NULL;
}
