/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups of devices, as the loop sees them: it queues batches for the thread of the group
 * (communicator.c), waits for the events behind what that has put on the stream, and tells the core.
 */
#include "instance.h"

#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- what is asked before there is a group ---- */

bps_status cuda_group_query(void *instance, char *text, size_t n, struct bps_report *report)
{
    struct cuda *cuda = instance;
    int version = 0;
    bps_status status = nccl_open(&cuda->nccl, report);
    if (status == BPS_OK) {
        cuda->nccl.version(&version);
        snprintf(text, n, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    }
    return status;
}

bool cuda_group_takes(void *instance, int32_t device, uint32_t size, uint32_t op, uint32_t dtype)
{
    return nccl_combines(size, BPS_STEP_ALL_REDUCE, op, dtype) || cuda_exact_takes(instance, device, size, op, dtype);
}

bps_status cuda_group_identify(void *instance, int32_t index, uint8_t *identity, struct bps_report *report)
{
    struct cuda_device *device;
    bps_status status = cuda_device_get(instance, index, &device, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = device->cuda->driver.device_uuid((struct CUuuid_st *)(void *)identity, device->handle);
    return result == CUDA_OK ? BPS_OK : cuda_failed(device, "identity", result, report);
}

bps_status cuda_group_name(void *instance, uint8_t *name, struct bps_report *report)
{
    const struct cuda *cuda = instance;
    struct nccl_name made;
    nccl_result result = cuda->nccl.name(&made);
    if (result != NCCL_OK) {
        BPS_REPORT(report, "NCCL cannot make a unique ID for a group: %s", cuda->nccl.error_text(result));
        return BPS_ERR_FAILED;
    }
    memcpy(name, made.bytes, sizeof made.bytes);
    return BPS_OK;
}

/* ---- what has happened ---- */

/* The status of a batch whose memory nobody uses any more. */
static bps_status outcome(struct bps_group *group, char *text, size_t n)
{
    pthread_mutex_lock(&group->lock);
    bps_status status = group->status;
    snprintf(text, n, "%s", group->text);
    group->under_way--;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void on_reached(void *arg, bps_status status, const char *text)
{
    struct cuda_batch *batch = arg;
    struct bps_group *group = batch->group;
    char why[sizeof group->text];
    bps_status failed = outcome(group, why, sizeof why);
    STAILQ_INSERT_HEAD(&group->spare, batch, entry);
    batch->done(batch->arg, status != BPS_OK ? status : failed, status != BPS_OK ? text : why);
}

static void tell_joined(struct bps_group *group, bps_status status)
{
    bps_device_fn joined = group->joined;
    group->joined = NULL;
    if (joined != NULL) {
        joined(group->arg, status, group->text);
    }
}

/* False: none will tell when the batch is done, until the thread has ended. */
static bool await_event(struct cuda_batch *batch)
{
    return cuda_lane_await(batch->group->lane, batch->event, on_reached, batch) == CUDA_OK;
}

/* What the thread has put on the stream since. */
static struct cuda_batch *next_given(struct bps_group *group)
{
    pthread_mutex_lock(&group->lock);
    struct cuda_batch *batch = STAILQ_FIRST(&group->given);
    if (batch != NULL) {
        STAILQ_REMOVE_HEAD(&group->given, entry);
    }
    pthread_mutex_unlock(&group->lock);
    return batch;
}

static void on_event(void *arg, uint32_t events)
{
    struct bps_group *group = arg;
    struct cuda_batch *batch;
    uint64_t count;
    (void)events;
    (void)!read(group->event, &count, sizeof count);
    pthread_mutex_lock(&group->lock);
    bool together = group->together, over = group->over;
    bps_status status = group->status;
    pthread_mutex_unlock(&group->lock);
    if (together) {
        tell_joined(group, BPS_OK);
    }
    while ((batch = next_given(group)) != NULL) {
        if (!await_event(batch)) {
            cuda_group_abort(group);
            pthread_mutex_lock(&group->lock);
            STAILQ_INSERT_TAIL(&group->queue, batch, entry);
            pthread_mutex_unlock(&group->lock);
        }
    }
    if (!over) {
        return;
    }
    tell_joined(group, status);
    while ((batch = STAILQ_FIRST(&group->queue)) != NULL) {
        STAILQ_REMOVE_HEAD(&group->queue, entry);
        on_reached(batch, BPS_OK, "");
    }
}

/* ---- batches ---- */

static struct cuda_batch *batch_new(struct bps_group *group)
{
    const struct bps_host *host = group->cuda->host;
    struct cuda_batch *batch = host->alloc(host, sizeof *batch, 8);
    struct cuda_stay stay;
    if (batch == NULL) {
        return NULL;
    }
    batch->group = group;
    cuda_result result = cuda_enter(group->device, &stay);
    if (result == CUDA_OK) {
        result = group->cuda->driver.event_create(&batch->event, CUDA_EVENT_DISABLE_TIMING);
        cuda_leave(&stay);
    }
    if (result != CUDA_OK) {
        host->release(host, batch);
        return NULL;
    }
    SLIST_INSERT_HEAD(&group->batches, batch, next);
    return batch;
}

static struct cuda_batch *batch_take(struct bps_group *group)
{
    struct cuda_batch *batch = STAILQ_FIRST(&group->spare);
    if (batch == NULL) {
        return batch_new(group);
    }
    STAILQ_REMOVE_HEAD(&group->spare, entry);
    return batch;
}

bps_status cuda_group_run(struct bps_group *group, const struct bps_group_step *steps, uint32_t n, bps_device_fn done,
                          void *arg, struct bps_report *report)
{
    struct cuda_batch *batch = batch_take(group);
    if (batch == NULL) {
        BPS_REPORT(report, "device %d: out of memory for a batch of its group", group->device->index);
        return BPS_ERR_NOMEM;
    }
    batch->done = done;
    batch->arg = arg;
    batch->steps = n;
    memcpy(batch->step, steps, n * sizeof *steps);
    pthread_mutex_lock(&group->lock);
    bool over = group->over;
    if (!over) {
        STAILQ_INSERT_TAIL(&group->queue, batch, entry);
        group->under_way++;
        pthread_cond_signal(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    if (over) {
        STAILQ_INSERT_HEAD(&group->spare, batch, entry);
        BPS_REPORT(report, "%s", group->text);
        return BPS_ERR_FAILED;
    }
    return BPS_OK;
}

/* ---- life ---- */

void cuda_group_leave(struct bps_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->leaving = true;
    pthread_cond_signal(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

void cuda_group_abort(struct bps_group *group)
{
    pthread_mutex_lock(&group->lock);
    atomic_store(&group->aborted, true);
    pthread_cond_signal(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

static cuda_result open_stream(struct bps_group *group)
{
    struct cuda_stay stay;
    cuda_result result = cuda_enter(group->device, &stay);
    if (result != CUDA_OK) {
        return result;
    }
    result = cuda_stream_open(group->device, &group->stream);
    if (result == CUDA_OK) {
        result = cuda_lane_open(group->device, (uintptr_t)group->stream, true, &group->lane);
    }
    cuda_leave(&stay);
    return result;
}

static bps_status start_thread(struct bps_group *group, struct bps_report *report)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the application's threads */
    int error = pthread_create(&group->thread, NULL, cuda_communicator_work, group);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        BPS_REPORT(report, "cannot start a thread: %s", strerror(error));
        return BPS_ERR_IO;
    }
    pthread_setname_np(group->thread, "bps-nccl");
    group->running = true;
    return BPS_OK;
}

static bps_status open_parts(struct bps_group *group, struct bps_report *report)
{
    struct cuda *cuda = group->cuda;
    cuda_result result = open_stream(group);
    if (result != CUDA_OK) {
        return cuda_failed(group->device, "stream", result, report);
    }
    group->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    group->watch = group->event >= 0 ? cuda->host->watch(cuda->host, group->event, on_event, group) : NULL;
    if (group->watch == NULL) {
        BPS_REPORT(report, "cannot make a file descriptor for a group: %m");
        return BPS_ERR_IO;
    }
    return start_thread(group, report);
}

bps_status cuda_group_join(void *instance, const struct bps_group_seat *seat, struct bps_group **out,
                           struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_device *device;
    pthread_condattr_t monotonic;
    bps_status status = cuda_device_get(cuda, seat->device, &device, report);
    struct bps_group *group = status == BPS_OK ? cuda->host->alloc(cuda->host, sizeof *group, 64) : NULL;
    if (group == NULL) {
        return status == BPS_OK ? BPS_ERR_NOMEM : status;
    }
    *group = (struct bps_group){
        .cuda = cuda,
        .device = device,
        .place = seat->place,
        .size = seat->size,
        .joined = seat->joined,
        .arg = seat->arg,
        .event = -1,
    };
    memcpy(group->name.bytes, seat->name, sizeof group->name.bytes);
    SLIST_INIT(&group->batches);
    STAILQ_INIT(&group->spare);
    STAILQ_INIT(&group->queue);
    STAILQ_INIT(&group->given);
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&group->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    LIST_INSERT_HEAD(&cuda->groups, group, entry);
    status = open_parts(group, report);
    *out = group;
    return status;
}

void cuda_groups_end(struct cuda *cuda)
{
    struct bps_group *group;
    LIST_FOREACH(group, &cuda->groups, entry) {
        if (group->running && !group->leaving) {
            cuda_group_abort(group);
        }
        if (group->running) {
            pthread_join(group->thread, NULL);
        }
    }
}

static void free_batches(struct bps_group *group)
{
    while (!SLIST_EMPTY(&group->batches)) {
        struct cuda_batch *batch = SLIST_FIRST(&group->batches);
        SLIST_REMOVE_HEAD(&group->batches, next);
        group->cuda->driver.event_destroy(batch->event);
        group->cuda->host->release(group->cuda->host, batch);
    }
}

static void group_free(struct bps_group *group)
{
    const struct bps_host *host = group->cuda->host;
    struct cuda_stay stay;
    bool entered = cuda_enter(group->device, &stay) == CUDA_OK;
    free_batches(group);
    cuda_exact_close(group);
    if (group->stream != NULL) {
        group->cuda->driver.stream_destroy(group->stream);
    }
    if (entered) {
        cuda_leave(&stay);
    }
    if (group->watch != NULL) {
        host->unwatch(host, group->watch);
    }
    if (group->event >= 0) {
        close(group->event);
    }
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    LIST_REMOVE(group, entry);
    host->release(host, group);
}

void cuda_groups_free(struct cuda *cuda)
{
    while (!LIST_EMPTY(&cuda->groups)) {
        group_free(LIST_FIRST(&cuda->groups));
    }
}
