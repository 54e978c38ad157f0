/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notice.c - how the loop hears that events of a device are reached: it asks for them in its turns and,
 * before it sleeps, lets the driver call.
 *
 * A callback comes some 50 us after its event, and holds up whoever gives the driver more work; so there is
 * none while the loop is awake. A lane is a list of awaited events of one stream, which are reached
 * in their order: only the first of them is asked for. Each direction of copies has one, and each stream of
 * the application takes one while marks on it are awaited. Before the loop sleeps, a stream that does nothing
 * else waits for the first event of each lane, and calls. As many lanes are made as are needed at once; then
 * nothing is allocated any more.
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
    struct CUevent_st *event; /* that is awaited */
    struct CUevent_st *own;   /* for cuda_lane_follow(); NULL until it is needed */
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
    (void)result; /* whoever asks for the event is told it, too */
    pthread_mutex_lock(&cuda->notice_lock);
    lane->called++;
    /* Fails only when the counter is at its end, and then the loop has yet to see it. */
    (void)!write(cuda->event, &one, sizeof one);
    pthread_mutex_unlock(&cuda->notice_lock);
}

/* ---- on the loop: what is awaited ---- */

static struct cuda_wait *wait_take(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    struct cuda_wait *wait = STAILQ_FIRST(&device->spare_waits);
    if (wait == NULL) {
        wait = cuda->host->alloc(cuda->host, sizeof *wait, 8);
        if (wait != NULL) {
            *wait = (struct cuda_wait){.own = NULL};
        }
        return wait;
    }
    STAILQ_REMOVE_HEAD(&device->spare_waits, entry);
    return wait;
}

static void append(struct cuda_lane *lane, struct cuda_wait *wait, struct CUevent_st *event, bps_device_fn fn,
                   void *arg)
{
    wait->event = event;
    wait->fn = fn;
    wait->arg = arg;
    STAILQ_INSERT_TAIL(&lane->waits, wait, entry);
    lane->device->cuda->awaited++;
}

cuda_result cuda_lane_await(struct cuda_lane *lane, struct CUevent_st *event, bps_device_fn fn, void *arg)
{
    struct cuda_wait *wait = wait_take(lane->device);
    if (wait == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    append(lane, wait, event, fn, arg);
    return CUDA_OK;
}

cuda_result cuda_lane_follow(struct cuda_lane *lane, struct CUstream_st *stream, bps_device_fn fn, void *arg)
{
    const struct cuda_driver *driver = &lane->device->cuda->driver;
    struct cuda_wait *wait = wait_take(lane->device);
    cuda_result result = CUDA_OK;
    if (wait == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    if (wait->own == NULL) {
        result = driver->event_create(&wait->own, CUDA_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_OK) {
        result = driver->event_record(wait->own, stream);
    }
    if (result != CUDA_OK) {
        STAILQ_INSERT_HEAD(&lane->device->spare_waits, wait, entry);
        return result;
    }
    append(lane, wait, wait->own, fn, arg);
    return CUDA_OK;
}

/* ---- on the loop: asking ---- */

static bool is_reached(struct cuda_device *device, const struct cuda_wait *wait)
{
    if (device->failure == CUDA_OK) {
        cuda_result result = device->cuda->driver.event_query(wait->event);
        if (result == CUDA_NOT_READY) {
            return false;
        }
        device->failure = result;
    }
    return true; /* nothing that a failed device was given will be, and nobody waits for it */
}

static void deliver(struct cuda_lane *lane, struct cuda_wait *wait)
{
    struct cuda_device *device = lane->device;
    struct bps_report report = {""};
    bps_status status = BPS_OK;
    bps_device_fn fn = wait->fn;
    void *arg = wait->arg;
    STAILQ_REMOVE_HEAD(&lane->waits, entry);
    STAILQ_INSERT_HEAD(&device->spare_waits, wait, entry);
    device->cuda->awaited--;
    lane->delivered++;
    if (device->failure != CUDA_OK) {
        (void)cuda_failed(device, "its work has failed", device->failure, &report);
        status = BPS_ERR_FAILED;
    }
    fn(arg, status, report.text);
}

static bool lane_poll(struct cuda_lane *lane)
{
    struct cuda_wait *wait;
    bool worked = false;
    while ((wait = STAILQ_FIRST(&lane->waits)) != NULL && is_reached(lane->device, wait)) {
        deliver(lane, wait);
        worked = true;
    }
    return worked;
}

/* Lets the driver call when the first event is reached, unless it does already. True: it cannot. */
static bool lane_fails_to_arm(struct cuda_lane *lane)
{
    const struct cuda_driver *driver = &lane->device->cuda->driver;
    const struct cuda_wait *first = STAILQ_FIRST(&lane->waits);
    if (first == NULL || lane->armed == lane->delivered + 1) {
        return false;
    }
    cuda_result result = driver->stream_wait(lane->stream, first->event, 0);
    if (result == CUDA_OK) {
        result = driver->stream_call(lane->stream, on_reached, lane, 0);
    }
    if (result != CUDA_OK) {
        lane->device->failure = result; /* which the next poll tells */
        return true;
    }
    lane->armed = lane->delivered + 1;
    lane->calls++;
    return false;
}

/* Does `step` for all lanes, and returns whether it was true for any. */
static bool for_lanes(struct cuda *cuda, bool (*step)(struct cuda_lane *lane))
{
    bool any = false;
    for (int32_t i = 0; i < cuda->devices; i++) {
        struct cuda_device *device = &cuda->device[i];
        struct cuda_lane *lane;
        struct cuda_stay stay;
        if (!atomic_load_explicit(&device->open, memory_order_acquire)) {
            continue;
        }
        cuda_result entered = cuda_enter(device, &stay);
        if (entered != CUDA_OK) {
            device->failure = entered;
        }
        SLIST_FOREACH(lane, &device->lanes, entry) {
            any = step(lane) || any;
        }
        if (entered == CUDA_OK) {
            cuda_leave(&stay);
        }
    }
    return any;
}

static bool on_poll(void *arg)
{
    struct cuda *cuda = arg;
    return cuda->awaited > 0 && for_lanes(cuda, lane_poll);
}

static bool on_arm(void *arg)
{
    struct cuda *cuda = arg;
    return cuda->awaited == 0 || !for_lanes(cuda, lane_fails_to_arm);
}

/* The loop is awake; the poll that follows finds what is reached. */
static void on_event(void *arg, uint32_t events)
{
    const struct cuda *cuda = arg;
    uint64_t count;
    (void)events;
    (void)!read(cuda->event, &count, sizeof count);
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
    cuda_result result = cuda_stream_open(device, &lane->stream);
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
    SLIST_FOREACH(lane, &device->lanes, entry) {
        if (lane->origin == origin) {
            *out = lane;
            return CUDA_OK;
        }
        if (!lane->bound && STAILQ_EMPTY(&lane->waits)) {
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

static bool has_called(struct cuda_lane *lane)
{
    struct cuda *cuda = lane->device->cuda;
    pthread_mutex_lock(&cuda->notice_lock);
    bool all = lane->called == lane->calls;
    pthread_mutex_unlock(&cuda->notice_lock);
    return all;
}

void cuda_lane_wait(struct cuda_lane *lane)
{
    const struct cuda_driver *driver = &lane->device->cuda->driver;
    if (lane->bound) {
        driver->stream_synchronize((struct CUstream_st *)lane->origin);
    }
    if (!has_called(lane)) {
        driver->stream_synchronize(lane->stream);
    }
}

static bool await_calls(struct cuda_lane *lane)
{
    for (int ms = 0; !has_called(lane); ms++) {
        if (ms == LAST_CALL_MS) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static void free_waits(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    while (!STAILQ_EMPTY(&device->spare_waits)) {
        struct cuda_wait *wait = STAILQ_FIRST(&device->spare_waits);
        STAILQ_REMOVE_HEAD(&device->spare_waits, entry);
        if (wait->own != NULL) {
            cuda->driver.event_destroy(wait->own);
        }
        cuda->host->release(cuda->host, wait);
    }
}

bool cuda_lanes_close(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    bool quiet = true;
    while (!SLIST_EMPTY(&device->lanes)) {
        struct cuda_lane *lane = SLIST_FIRST(&device->lanes);
        SLIST_REMOVE_HEAD(&device->lanes, entry);
        cuda->driver.stream_destroy(lane->stream);
        STAILQ_CONCAT(&device->spare_waits, &lane->waits);
        if (await_calls(lane)) {
            cuda->host->release(cuda->host, lane);
        } else {
            quiet = false;
        }
    }
    free_waits(device);
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
    cuda->poller = cuda->watch != NULL ? cuda->host->poller(cuda->host, on_poll, on_arm, cuda) : NULL;
    if (cuda->poller == NULL) {
        cuda_notices_close(cuda);
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void cuda_notices_ignore(struct cuda *cuda)
{
    if (cuda->poller != NULL) {
        cuda->host->unpoll(cuda->host, cuda->poller);
    }
    if (cuda->watch != NULL) {
        cuda->host->unwatch(cuda->host, cuda->watch);
    }
}

void cuda_notices_close(struct cuda *cuda)
{
    cuda_notices_ignore(cuda);
    close(cuda->event);
}
