/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notice.c - how the loop hears that an event of a device is reached, without asking for it again and again.
 *
 * A lane is a stream that does nothing but wait for events and call the host: the callback counts, and writes
 * to the event descriptor that the loop watches. So no stream that has work to do waits for the host.
 *
 * What a lane waits for comes in its order, and an event that is not reached holds back all behind it. So a
 * lane has events of one stream only, which are reached in that order anyway: each direction of copies has
 * one, and each stream of the application takes one while marks on it are awaited. As many lanes are made as
 * are needed at once; then nothing is allocated any more.
 *
 * The callback is cuStreamAddCallback's, since cuLaunchHostFunc's need not come once a device has failed, and
 * what waits for it would wait for ever.
 */
#include "instance.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* How long a failed device may take to call back when the instance is closed. */
#define LAST_CALL_MS 1000

struct cuda_wait {
    STAILQ_ENTRY(cuda_wait) entry;
    bps_device_fn fn;
    void *arg;
};

/* ---- on threads of the driver ---- */

static void on_reached(struct CUstream_st *stream, cuda_result result, void *arg)
{
    const uint64_t one = 1;
    struct cuda_lane *lane = arg;
    struct cuda *cuda = lane->device->cuda;
    (void)stream;
    pthread_mutex_lock(&cuda->notice_lock);
    lane->reached++;
    if (result != CUDA_OK && lane->device->failure == CUDA_OK) {
        lane->device->failure = result;
    }
    /* Fails only when the counter is at its end, and then the loop has yet to see it. */
    (void)!write(cuda->event, &one, sizeof one);
    pthread_mutex_unlock(&cuda->notice_lock);
}

/* ---- on the loop ---- */

static uint64_t reached(struct cuda_lane *lane, cuda_result *failure)
{
    struct cuda *cuda = lane->device->cuda;
    pthread_mutex_lock(&cuda->notice_lock);
    uint64_t count = lane->reached;
    *failure = lane->device->failure;
    pthread_mutex_unlock(&cuda->notice_lock);
    return count;
}

/* Once a device has failed, nothing waits for it any more, whichever callbacks are still to come. */
static void lane_deliver(struct cuda_lane *lane)
{
    struct cuda *cuda = lane->device->cuda;
    struct bps_report report = {""};
    bps_status status = BPS_OK;
    cuda_result failure;
    uint64_t due = reached(lane, &failure);
    if (failure != CUDA_OK) {
        (void)cuda_failed(lane->device, "its work has failed", failure, &report);
        status = BPS_ERR_FAILED;
        due = lane->issued;
    }
    while (lane->delivered < due) {
        struct cuda_wait *wait = STAILQ_FIRST(&lane->waits);
        bps_device_fn fn = wait->fn;
        void *arg = wait->arg;
        STAILQ_REMOVE_HEAD(&lane->waits, entry);
        STAILQ_INSERT_HEAD(&cuda->spare_waits, wait, entry);
        lane->delivered++;
        fn(arg, status, report.text);
    }
}

static void on_event(void *arg, uint32_t events)
{
    struct cuda *cuda = arg;
    uint64_t count;
    (void)events;
    (void)!read(cuda->event, &count, sizeof count);
    for (int32_t i = 0; i < cuda->devices; i++) {
        struct cuda_device *device = &cuda->device[i];
        struct cuda_lane *lane;
        if (atomic_load_explicit(&device->open, memory_order_acquire)) {
            SLIST_FOREACH (lane, &device->lanes, entry) {
                lane_deliver(lane);
            }
        }
    }
}

static struct cuda_wait *wait_take(struct cuda *cuda)
{
    struct cuda_wait *wait = STAILQ_FIRST(&cuda->spare_waits);
    if (wait == NULL) {
        return cuda->host->alloc(cuda->host, sizeof *wait, 8);
    }
    STAILQ_REMOVE_HEAD(&cuda->spare_waits, entry);
    return wait;
}

cuda_result cuda_lane_notify(struct cuda_lane *lane, struct CUevent_st *event, bps_device_fn fn, void *arg)
{
    struct cuda *cuda = lane->device->cuda;
    struct cuda_wait *wait = wait_take(cuda);
    if (wait == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    *wait = (struct cuda_wait){.fn = fn, .arg = arg};
    cuda_result result = cuda->driver.stream_wait(lane->stream, event, 0);
    if (result == CUDA_OK) {
        result = cuda->driver.stream_call(lane->stream, on_reached, lane, 0);
    }
    if (result != CUDA_OK) {
        STAILQ_INSERT_HEAD(&cuda->spare_waits, wait, entry);
        return result;
    }
    STAILQ_INSERT_TAIL(&lane->waits, wait, entry);
    lane->issued++;
    return CUDA_OK;
}

/* ---- lanes ---- */

cuda_result cuda_lane_open(struct cuda_device *device, uintptr_t origin, bool bound, struct cuda_lane **out)
{
    struct cuda *cuda = device->cuda;
    struct cuda_lane *lane = cuda->host->alloc(cuda->host, sizeof *lane, 64);
    if (lane == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    *lane = (struct cuda_lane){.device = device, .origin = origin, .bound = bound};
    STAILQ_INIT(&lane->waits);
    cuda_result result = cuda->driver.stream_create(&lane->stream, CUDA_STREAM_NON_BLOCKING);
    if (result != CUDA_OK) {
        cuda->host->release(cuda->host, lane);
        return result;
    }
    SLIST_INSERT_HEAD(&device->lanes, lane, entry);
    *out = lane;
    return CUDA_OK;
}

cuda_result cuda_lane_of(struct cuda_device *device, uintptr_t origin, struct cuda_lane **out)
{
    struct cuda_lane *lane, *rests = NULL;
    SLIST_FOREACH (lane, &device->lanes, entry) {
        if (lane->origin == origin) {
            *out = lane;
            return CUDA_OK;
        }
        if (!lane->bound && lane->delivered == lane->issued) {
            rests = lane;
        }
    }
    if (rests == NULL) {
        return cuda_lane_open(device, origin, false, out);
    }
    rests->origin = origin;
    *out = rests;
    return CUDA_OK;
}

static bool all_reached(struct cuda_lane *lane)
{
    cuda_result failure;
    for (int ms = 0; reached(lane, &failure) < lane->issued; ms++) {
        if (ms == LAST_CALL_MS) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

bool cuda_lanes_close(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    bool quiet = true;
    while (!SLIST_EMPTY(&device->lanes)) {
        struct cuda_lane *lane = SLIST_FIRST(&device->lanes);
        SLIST_REMOVE_HEAD(&device->lanes, entry);
        cuda->driver.stream_destroy(lane->stream);
        STAILQ_CONCAT(&cuda->spare_waits, &lane->waits);
        if (all_reached(lane)) {
            cuda->host->release(cuda->host, lane);
        } else {
            quiet = false;
        }
    }
    return quiet;
}

/* ---- the loop's end of it ---- */

bps_status cuda_notices_open(struct cuda *cuda, struct bps_report *report)
{
    cuda->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (cuda->event < 0) {
        BPS_REPORT(report, "eventfd: %m");
        return BPS_ERR_IO;
    }
    cuda->watch = cuda->host->watch(cuda->host, cuda->event, on_event, cuda);
    if (cuda->watch == NULL) {
        close(cuda->event);
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void cuda_notices_close(struct cuda *cuda)
{
    cuda->host->unwatch(cuda->host, cuda->watch);
    close(cuda->event);
    while (!STAILQ_EMPTY(&cuda->spare_waits)) {
        struct cuda_wait *wait = STAILQ_FIRST(&cuda->spare_waits);
        STAILQ_REMOVE_HEAD(&cuda->spare_waits, entry);
        cuda->host->release(cuda->host, wait);
    }
}
