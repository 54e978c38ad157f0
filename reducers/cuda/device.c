/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - devices: the context, and the streams of the copies.
 *
 * The context is the primary one of the device, which frameworks work in, too. It is retained when the device
 * is first used and released when the instance is closed. Threads of the application call as well as the
 * loop, and each may have another context; so every call enters and leaves.
 */
#include "instance.h"

/* ---- the context ---- */

cuda_result cuda_enter(struct cuda_device *device, struct cuda_stay *stay)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    cuda_result result = driver->context_push(device->context);
    if (result == CUDA_OK) {
        /* What we do on our own streams must not break a capture of one of the application's. */
        stay->device = device;
        stay->capture_mode = CUDA_CAPTURE_RELAXED;
        driver->exchange_capture_mode(&stay->capture_mode);
    }
    return result;
}

void cuda_leave(struct cuda_stay *stay)
{
    const struct cuda_driver *driver = &stay->device->cuda->driver;
    struct CUctx_st *context;
    driver->exchange_capture_mode(&stay->capture_mode);
    driver->context_pop(&context);
}

bps_status cuda_failed(const struct cuda_device *device, const char *what, cuda_result result,
                       struct bps_report *report)
{
    char text[192];
    cuda_driver_error(&device->cuda->driver, result, text, sizeof text);
    BPS_REPORT(report, "device %d: %s: %s", device->index, what, text);
    switch (result) {
    case CUDA_OUT_OF_MEMORY:
        return BPS_ERR_NOMEM;
    case CUDA_INVALID_CONTEXT:
    case CUDA_INVALID_HANDLE:
        return BPS_ERR_INVALID;
    default:
        return BPS_ERR_FAILED;
    }
}

/* ---- streams ---- */

cuda_result cuda_stream_open(const struct cuda_device *device, struct CUstream_st **out)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    int least, greatest = 0;
    cuda_result result = driver->stream_priorities(&least, &greatest);
    return result == CUDA_OK ? driver->stream_create(out, CUDA_STREAM_NON_BLOCKING, greatest) : result;
}

static cuda_result way_open(struct cuda_device *device, struct cuda_way *way)
{
    cuda_result result = cuda_stream_open(device, &way->stream);
    if (result == CUDA_OK) {
        result = cuda_lane_open(device, (uintptr_t)way->stream, true, &way->lane);
    }
    return result;
}

bps_status cuda_way_follow(struct cuda_way *way, cuda_result given, const char *what, bps_device_fn done, void *arg,
                           struct bps_report *report)
{
    const struct cuda_device *device = way->lane->device;
    const struct cuda_driver *driver = &device->cuda->driver;
    if (given == CUDA_OK) {
        given = cuda_lane_follow(way->lane, way->stream, done, arg);
    }
    if (given == CUDA_OK) {
        return BPS_OK;
    }
    /* No `done` will follow, so the memory must be the caller's when this returns. */
    driver->stream_synchronize(way->stream);
    return cuda_failed(device, what, given, report);
}

static void way_close(const struct cuda_driver *driver, struct cuda_way *way)
{
    if (way->stream != NULL) {
        driver->stream_destroy(way->stream);
    }
    *way = (struct cuda_way){0};
}

/* ---- life ---- */

void cuda_device_wait(struct cuda_device *device)
{
    struct cuda_lane *lane;
    struct cuda_stay stay;
    if (cuda_enter(device, &stay) == CUDA_OK) {
        SLIST_FOREACH(lane, &device->lanes, entry) { /* every stream of ours has one */
            cuda_lane_wait(lane);
        }
        cuda_leave(&stay);
    }
}

bool cuda_device_close(struct cuda_device *device)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    struct cuda_stay stay;
    bool entered = cuda_enter(device, &stay) == CUDA_OK;
    bool quiet = cuda_lanes_close(device);
    way_close(driver, &device->to_host);
    way_close(driver, &device->to_device);
    cuda_marks_close(device);
    if (device->kernels.module != NULL) {
        driver->module_unload(device->kernels.module);
    }
    device->kernels = (struct cuda_kernels){0};
    if (entered) {
        cuda_leave(&stay);
    }
    driver->context_release(device->handle);
    atomic_store(&device->open, false);
    return quiet;
}

static cuda_result device_open(struct cuda_device *device)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    struct cuda_stay stay;
    cuda_result result = driver->device_get(&device->handle, device->index);
    if (result == CUDA_OK) {
        result = driver->context_retain(&device->context, device->handle);
    }
    if (result != CUDA_OK) {
        return result;
    }
    cuda_share_learn(device);
    result = cuda_enter(device, &stay);
    if (result == CUDA_OK) {
        result = way_open(device, &device->to_host);
        if (result == CUDA_OK) {
            result = way_open(device, &device->to_device);
        }
        cuda_leave(&stay);
    }
    if (result != CUDA_OK) {
        cuda_device_close(device);
    }
    return result;
}

bps_status cuda_device_get(struct cuda *cuda, int32_t index, struct cuda_device **out, struct bps_report *report)
{
    if (index < 0 || index >= cuda->devices) {
        BPS_REPORT(report,
                   "there is no CUDA device %d; this process sees %d, counted from 0 "
                   "(CUDA_VISIBLE_DEVICES chooses them)",
                   index, cuda->devices);
        return BPS_ERR_INVALID;
    }
    struct cuda_device *device = &cuda->device[index];
    if (!atomic_load_explicit(&device->open, memory_order_acquire)) {
        cuda_result result = CUDA_OK;
        pthread_mutex_lock(&cuda->lock);
        if (!atomic_load_explicit(&device->open, memory_order_relaxed)) {
            result = device_open(device);
            atomic_store_explicit(&device->open, result == CUDA_OK, memory_order_release);
        }
        pthread_mutex_unlock(&cuda->lock);
        if (result != CUDA_OK) {
            return cuda_failed(device, "cannot be opened", result, report);
        }
    }
    *out = device;
    return BPS_OK;
}
