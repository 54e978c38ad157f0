/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - streams: each a queue and a thread that works it off, late by a little that differs each time.
 *
 * A stream that was destroyed finishes its work and stays in the list, so that points in it keep a meaning.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

#define GREATEST_PRIORITY (-5) /* smaller is more urgent */

static unsigned made, copies;

bool standin_reached(struct standin_point point)
{
    return point.stream == NULL || point.stream->done >= point.count;
}

/* ---- the thread ---- */

static void delay(struct CUstream_st *stream)
{
    stream->random = stream->random * 1103515245u + 12345u;
    unsigned r = stream->random >> 16;
    if (r % 4 == 0) {
        usleep(r % 300);
    } else if (r % 4 == 1) {
        sched_yield();
    }
}

static void run(struct CUstream_st *stream, const struct standin_work *work, cuda_result error)
{
    if (work->call != NULL) {
        work->call(work->stream, error, work->arg);
    }
    if (error != CUDA_OK) {
        return;
    }
    delay(stream);
    if (work->launch.function != NULL) {
        standin_compute(&work->launch);
    } else if (work->host != NULL) {
        work->host(work->arg);
    } else if (work->from != NULL) {
        memcpy(work->to, work->from, work->bytes);
    } else if (work->to != NULL) {
        memset(work->to, work->value, work->bytes);
    }
}

static void *work_off(void *arg)
{
    struct CUstream_st *stream = arg;
    struct CUctx_st *context = stream->context;
    pthread_mutex_lock(&standin_lock);
    for (;;) {
        while (STAILQ_EMPTY(&stream->queue) && !stream->destroyed) {
            pthread_cond_wait(&standin_changed, &standin_lock);
        }
        struct standin_work *work = STAILQ_FIRST(&stream->queue);
        if (work == NULL) {
            break;
        }
        while (!standin_reached(work->after) && context->error == CUDA_OK) {
            pthread_cond_wait(&standin_changed, &standin_lock);
        }
        if (work->can_fail && ++copies == standin_settings.failing_copy) {
            context->error = STANDIN_ILLEGAL_ADDRESS;
        }
        cuda_result error = context->error;
        pthread_mutex_unlock(&standin_lock);
        run(stream, work, error);
        pthread_mutex_lock(&standin_lock);
        STAILQ_REMOVE_HEAD(&stream->queue, entry);
        free(work->staged);
        free(work);
        stream->done++;
        pthread_cond_broadcast(&standin_changed);
    }
    pthread_mutex_unlock(&standin_lock);
    return NULL;
}

/* ---- work ---- */

static void append(struct CUstream_st *stream, const struct standin_work *work)
{
    struct standin_work *own = malloc(sizeof *own);
    if (own == NULL) {
        abort();
    }
    *own = *work;
    STAILQ_INSERT_TAIL(&stream->queue, own, entry);
    stream->issued++;
}

static void append_wait(struct CUstream_st *stream, const struct CUstream_st *other)
{
    struct standin_work wait = {.after = {(struct CUstream_st *)other, other->issued}};
    if (other != stream && !standin_reached(wait.after)) {
        append(stream, &wait);
    }
}

cuda_result standin_give(struct CUstream_st *stream, const struct standin_work *work)
{
    struct CUctx_st *context = stream->context;
    const struct CUstream_st *other;
    if (stream->capturing) {
        return CUDA_OK;
    }
    if (stream == context->legacy) {
        LIST_FOREACH(other, &context->streams, entry) {
            if (other->blocking) {
                append_wait(stream, other);
            }
        }
    } else if (stream->blocking) {
        append_wait(stream, context->legacy);
    }
    append(stream, work);
    pthread_cond_broadcast(&standin_changed);
    return CUDA_OK;
}

cuda_result standin_drain(struct CUstream_st *stream)
{
    struct standin_point end = {stream, stream->issued};
    while (!standin_reached(end)) {
        pthread_cond_wait(&standin_changed, &standin_lock);
    }
    return stream->context->error;
}

/* ---- handles ---- */

struct CUstream_st *standin_stream_new(struct CUctx_st *context, bool blocking)
{
    pthread_t thread;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        abort();
    }
    stream->context = context;
    stream->blocking = blocking;
    stream->random = standin_settings.seed * 7919u + made++;
    STAILQ_INIT(&stream->queue);
    LIST_INSERT_HEAD(&context->streams, stream, entry);
    if (pthread_create(&thread, NULL, work_off, stream) != 0) {
        abort();
    }
    pthread_detach(thread);
    return stream;
}

static bool default_is_blocked(const struct CUctx_st *context)
{
    const struct CUstream_st *stream;
    LIST_FOREACH(stream, &context->streams, entry) {
        if (stream->blocking && stream->capturing) {
            return true;
        }
    }
    return false;
}

cuda_result standin_stream(struct CUstream_st *handle, struct CUstream_st **out)
{
    static _Thread_local struct CUstream_st *own[STANDIN_DEVICES];
    struct CUctx_st *context;
    cuda_result result = standin_context(&context);
    if (result != CUDA_OK) {
        return result;
    }
    if ((uintptr_t)handle <= CUDA_STREAM_LEGACY) {
        *out = context->legacy;
        return default_is_blocked(context) ? CUDA_CAPTURE_IMPLICIT : CUDA_OK;
    }
    if ((uintptr_t)handle == CUDA_STREAM_PER_THREAD) {
        if (own[context->device] == NULL) {
            own[context->device] = standin_stream_new(context, true);
        }
        *out = own[context->device];
        return CUDA_OK;
    }
    LIST_FOREACH(*out, &context->streams, entry) {
        if (*out == handle && !handle->destroyed) {
            return CUDA_OK;
        }
    }
    return CUDA_INVALID_HANDLE;
}

cuda_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = GREATEST_PRIORITY;
    return CUDA_OK;
}

cuda_result cuStreamCreateWithPriority(struct CUstream_st **out, unsigned flags, int priority)
{
    return priority <= 0 && priority >= GREATEST_PRIORITY ? cuStreamCreate(out, flags) : STANDIN_INVALID_VALUE;
}

cuda_result cuStreamCreate(struct CUstream_st **out, unsigned flags)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        *out = standin_stream_new(context, (flags & CUDA_STREAM_NON_BLOCKING) == 0);
        standin_counts.streams++;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* Of a context that has failed, too. */
cuda_result cuStreamDestroy_v2(struct CUstream_st *stream)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result != CUDA_INVALID_CONTEXT) {
        result = stream->context == context && !stream->destroyed ? result : CUDA_INVALID_HANDLE;
    }
    if (result != CUDA_INVALID_CONTEXT && result != CUDA_INVALID_HANDLE) {
        stream->destroyed = true;
        standin_counts.streams--;
        pthread_cond_broadcast(&standin_changed);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuStreamSynchronize(struct CUstream_st *handle)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK) {
        result = standin_unsafe();
    }
    if (result == CUDA_OK) {
        result = standin_drain(stream);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* ---- calls of the host ---- */

cuda_result cuLaunchHostFunc(struct CUstream_st *handle, standin_host_fn fn, void *arg)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_stream(handle, &stream);
    if (result == CUDA_OK) {
        result = standin_give(stream, &(struct standin_work){.host = fn, .arg = arg});
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuStreamAddCallback(struct CUstream_st *handle, cuda_callback_fn fn, void *arg, unsigned flags)
{
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = flags != 0 ? STANDIN_INVALID_VALUE : standin_stream(handle, &stream);
    if (result == CUDA_OK) {
        result = stream->capturing
                     ? STANDIN_CAPTURE
                     : standin_give(stream, &(struct standin_work){.call = fn, .arg = arg, .stream = handle});
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
