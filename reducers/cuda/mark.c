/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.c - marks: events, kept for the next use when they are given back.
 *
 * A wait for an event is for what was recorded last when the wait was asked for. So a mark may be given back,
 * and its event recorded anew, while streams still wait for what it stood for.
 */
#include "instance.h"

/* ---- streams of the application ---- */

static uintptr_t origin_of(struct CUstream_st *stream)
{
    switch ((uintptr_t)stream) {
    case 0:
        return CUDA_STREAM_LEGACY;
    case CUDA_STREAM_PER_THREAD:
        return (uintptr_t)pthread_self();
    default:
        return (uintptr_t)stream;
    }
}

/* What a graph runs later has no part in this operation, and waiting for it would break the capture. */
static bps_status check_stream(struct cuda_device *device, struct CUstream_st *stream, struct bps_report *report)
{
    unsigned capturing = CUDA_CAPTURE_NONE;
    cuda_result result = device->cuda->driver.stream_is_capturing(stream, &capturing);
    if (result == CUDA_CAPTURE_IMPLICIT) {
        BPS_REPORT(report,
                   "device %d: the default stream cannot be used while another one is being captured into a "
                   "CUDA graph; begin this operation before or after the capture",
                   device->index);
        return BPS_ERR_STATE;
    }
    if (result != CUDA_OK) {
        return cuda_failed(device, "stream", result, report);
    }
    if (capturing != CUDA_CAPTURE_NONE) {
        BPS_REPORT(report,
                   "device %d: the stream is being captured into a CUDA graph, whose later runs would leave "
                   "this operation out; begin it before or after the capture",
                   device->index);
        return BPS_ERR_STATE;
    }
    return BPS_OK;
}

/* ---- marks at rest ---- */

static struct bps_mark *spare_take(struct cuda_device *device)
{
    pthread_mutex_lock(&device->cuda->lock);
    struct bps_mark *mark = SLIST_FIRST(&device->marks);
    if (mark != NULL) {
        SLIST_REMOVE_HEAD(&device->marks, entry);
    }
    pthread_mutex_unlock(&device->cuda->lock);
    return mark;
}

static cuda_result mark_take(struct cuda_device *device, struct bps_mark **out)
{
    const struct bps_host *host = device->cuda->host;
    struct bps_mark *mark = spare_take(device);
    if (mark == NULL) {
        mark = host->alloc(host, sizeof *mark, 8);
        if (mark == NULL) {
            return CUDA_OUT_OF_MEMORY;
        }
        mark->device = device;
        cuda_result result = device->cuda->driver.event_create(&mark->event, CUDA_EVENT_DISABLE_TIMING);
        if (result != CUDA_OK) {
            host->release(host, mark);
            return result;
        }
    }
    *out = mark;
    return CUDA_OK;
}

void cuda_release(void *instance, struct bps_mark *mark)
{
    struct cuda *cuda = instance;
    pthread_mutex_lock(&cuda->lock);
    SLIST_INSERT_HEAD(&mark->device->marks, mark, entry);
    pthread_mutex_unlock(&cuda->lock);
}

void cuda_marks_close(struct cuda_device *device)
{
    const struct bps_host *host = device->cuda->host;
    while (!SLIST_EMPTY(&device->marks)) {
        struct bps_mark *mark = SLIST_FIRST(&device->marks);
        SLIST_REMOVE_HEAD(&device->marks, entry);
        device->cuda->driver.event_destroy(mark->event);
        host->release(host, mark);
    }
}

/* ---- marks in use ---- */

static bps_status mark_behind(struct cuda_device *device, struct CUstream_st *stream, struct bps_mark **out,
                              struct bps_report *report)
{
    struct bps_mark *mark;
    cuda_result result = mark_take(device, &mark);
    if (result != CUDA_OK) {
        return cuda_failed(device, "no event", result, report);
    }
    result = device->cuda->driver.event_record(mark->event, stream);
    if (result != CUDA_OK) {
        cuda_release(device->cuda, mark);
        return cuda_failed(device, "cannot mark the stream", result, report);
    }
    mark->origin = origin_of(stream);
    *out = mark;
    return BPS_OK;
}

/* A stay in the context of a device, opened if need be. */
static bps_status enter(struct cuda *cuda, int32_t index, struct cuda_stay *stay, struct bps_report *report)
{
    struct cuda_device *device;
    bps_status status = cuda_device_get(cuda, index, &device, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = cuda_enter(device, stay);
    return result == CUDA_OK ? BPS_OK : cuda_failed(device, "context", result, report);
}

bps_status cuda_mark(void *instance, const struct bps_device *device, struct bps_mark **out, struct bps_report *report)
{
    struct cuda_stay stay;
    bps_status status = enter(instance, device->index, &stay, report);
    if (status != BPS_OK) {
        return status;
    }
    status = check_stream(stay.device, device->stream, report);
    if (status == BPS_OK) {
        status = mark_behind(stay.device, device->stream, out, report);
    }
    cuda_leave(&stay);
    return status;
}

bps_status cuda_mark_copies(void *instance, int32_t device, struct bps_mark **out, struct bps_report *report)
{
    struct cuda_stay stay;
    bps_status status = enter(instance, device, &stay, report);
    if (status == BPS_OK) {
        status = mark_behind(stay.device, stay.device->to_device.stream, out, report);
        cuda_leave(&stay);
    }
    return status;
}

bps_status cuda_follow(void *instance, const struct bps_device *device, struct bps_mark *mark,
                       struct bps_report *report)
{
    struct cuda_stay stay;
    bps_status status = enter(instance, device->index, &stay, report);
    if (status != BPS_OK) {
        return status;
    }
    status = check_stream(stay.device, device->stream, report);
    if (status == BPS_OK) {
        cuda_result result = stay.device->cuda->driver.stream_wait(device->stream, mark->event, 0);
        if (result != CUDA_OK) {
            status = cuda_failed(stay.device, "the stream cannot wait", result, report);
        }
    }
    cuda_leave(&stay);
    return status;
}

bps_status cuda_await(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                      struct bps_report *report)
{
    struct cuda_stay stay;
    struct cuda_lane *lane;
    bps_status status = enter(instance, mark->device->index, &stay, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = cuda_lane_of(mark->device, mark->origin, &lane);
    if (result == CUDA_OK) {
        result = cuda_lane_await(lane, mark->event, reached, arg);
    }
    if (result != CUDA_OK) {
        status = cuda_failed(mark->device, "cannot wait for the stream", result, report);
    }
    cuda_leave(&stay);
    return status;
}
