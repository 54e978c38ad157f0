/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - events, which remember a point in the work of a stream; and captures, which keep work away from
 * it. */
#include <stdlib.h>

#include "standin.h"

#define CAPTURE_GLOBAL 0u

struct CUevent_st {
    LIST_ENTRY(CUevent_st) entry;
    struct CUctx_st *context;
    struct standin_point point;
    bool captured; /* recorded last in a capture */
};

static LIST_HEAD(, CUevent_st) events = LIST_HEAD_INITIALIZER(events);

static bool is_event(const struct CUevent_st *handle)
{
    const struct CUevent_st *event;
    LIST_FOREACH(event, &events, entry) {
        if (event == handle) {
            return true;
        }
    }
    return false;
}

/* ---- events ---- */

cuda_result cuEventCreate(struct CUevent_st **out, unsigned flags)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = (flags & ~7u) != 0 ? STANDIN_INVALID_VALUE : standin_context(&context);
    if (result == CUDA_OK) {
        *out = calloc(1, sizeof **out);
        (*out)->context = context;
        LIST_INSERT_HEAD(&events, *out, entry);
        standin_counts.events++;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuEventDestroy_v2(struct CUevent_st *event)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result != CUDA_INVALID_CONTEXT) {
        result = is_event(event) && event->context == context ? result : CUDA_INVALID_HANDLE;
    }
    if (result != CUDA_INVALID_CONTEXT && result != CUDA_INVALID_HANDLE) {
        LIST_REMOVE(event, entry);
        free(event);
        standin_counts.events--;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuEventRecord(struct CUevent_st *event, struct CUstream_st *handle)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK && (!is_event(event) || event->context != stream->context)) {
        result = CUDA_INVALID_HANDLE;
    }
    if (result == CUDA_OK) {
        /* A piece of work of its own: the default stream waits for others even when nothing follows. */
        result = standin_give(stream, &(struct standin_work){0});
        event->captured = stream->capturing;
        event->point = (struct standin_point){stream, stream->issued};
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static cuda_result stream_wait(struct CUstream_st *handle, const struct CUevent_st *event)
{
    struct CUstream_st *stream;
    cuda_result result = standin_stream(handle, &stream);
    if (result != CUDA_OK) {
        return result;
    }
    if (!is_event(event)) {
        return CUDA_INVALID_HANDLE;
    }
    if (stream->capturing != event->captured) {
        stream->invalidated = stream->capturing;
        return STANDIN_ISOLATION;
    }
    return standin_give(stream, &(struct standin_work){.after = event->point});
}

cuda_result cuStreamWaitEvent(struct CUstream_st *handle, struct CUevent_st *event, unsigned flags)
{
    pthread_mutex_lock(&standin_lock);
    cuda_result result = flags != 0 ? STANDIN_INVALID_VALUE : stream_wait(handle, event);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static cuda_result query(const struct CUevent_st *event, bool wait)
{
    cuda_result result = standin_unsafe();
    if (result != CUDA_OK) {
        return result;
    }
    if (!is_event(event)) {
        return CUDA_INVALID_HANDLE;
    }
    while (wait && !standin_reached(event->point)) {
        pthread_cond_wait(&standin_changed, &standin_lock);
    }
    if (event->context->error != CUDA_OK) {
        return event->context->error;
    }
    return standin_reached(event->point) ? CUDA_OK : CUDA_NOT_READY;
}

cuda_result cuEventQuery(struct CUevent_st *event)
{
    pthread_mutex_lock(&standin_lock);
    cuda_result result = query(event, false);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuEventSynchronize(struct CUevent_st *event)
{
    pthread_mutex_lock(&standin_lock);
    cuda_result result = query(event, true);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* ---- captures ---- */

static _Thread_local unsigned thread_mode = CAPTURE_GLOBAL;
static struct CUstream_st *captured; /* the stream of the only capture there may be */

cuda_result cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    unsigned before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_OK;
}

cuda_result standin_unsafe(void)
{
    if (captured == NULL || captured->capture_mode != CAPTURE_GLOBAL || thread_mode == CUDA_CAPTURE_RELAXED) {
        return CUDA_OK;
    }
    captured->invalidated = true;
    return STANDIN_CAPTURE;
}

cuda_result cuStreamIsCapturing(struct CUstream_st *handle, unsigned *out)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK) {
        *out = stream->capturing + (stream->capturing && stream->invalidated);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuStreamBeginCapture_v2(struct CUstream_st *handle, unsigned mode)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK && (captured != NULL || stream == stream->context->legacy)) {
        result = STANDIN_CAPTURE;
    }
    if (result == CUDA_OK) {
        captured = stream;
        stream->capturing = true;
        stream->invalidated = false;
        stream->capture_mode = mode;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuStreamEndCapture(struct CUstream_st *handle, struct CUgraph_st **out)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK && !stream->capturing) {
        result = STANDIN_CAPTURE;
    }
    if (result == CUDA_OK) {
        captured = NULL;
        stream->capturing = false;
        *out = NULL;
        result = stream->invalidated ? STANDIN_INVALIDATED : CUDA_OK;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
