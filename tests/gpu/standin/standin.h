/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin.h - a stand-in for libcuda.so.1, so that what uses the driver is tested without a GPU.
 *
 * It keeps the driver's rules and hides none of its surprises: device memory faults when a thread of the host
 * touches it; streams are queues worked off by threads of their own, late and out of step; a call needs the
 * right context; a device that has failed stays so. It promises nothing else, least of all speed.
 *
 * The environment, read by cuInit, says what goes wrong:
 *   STANDIN_DEVICES=N        devices there are (2)
 *   STANDIN_INIT=CODE        what cuInit returns
 *   STANDIN_REGISTER=CODE    what cuMemHostRegister returns
 *   STANDIN_MODULE=CODE      what cuModuleLoadData returns
 *   STANDIN_LARGEST=N        bytes of the largest piece of device memory that there is (no limit)
 *   STANDIN_DMA_BUF=0        devices whose memory others cannot reach (1)
 *   STANDIN_FAILING_COPY=N   the N-th copy or kernel of a stream fails, and with it the device
 *   STANDIN_SEED=N           of the delays (1)
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <sys/queue.h>

#include "reducers/cuda/driver.h"
#include "reducers/cuda/kernels.h"

#define STANDIN_API __attribute__((visibility("default")))

typedef void (*standin_host_fn)(void *arg);

/* What there is beyond the functions that the plugin uses, for tests: X(symbol, parameters). */
#define STANDIN_FUNCTIONS(X)                                                                                           \
    X(cuCtxGetCurrent, (struct CUctx_st * *out))                                                                       \
    X(cuCtxSetCurrent, (struct CUctx_st * context))                                                                    \
    X(cuStreamCreate, (struct CUstream_st * *out, unsigned flags))                                                     \
    X(cuMemcpyHtoD_v2, (unsigned long long to, const void *from, size_t bytes))                                        \
    X(cuMemcpyDtoH_v2, (void *to, unsigned long long from, size_t bytes))                                              \
    X(cuMemcpyDtoDAsync_v2,                                                                                            \
      (unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream))                      \
    X(cuMemsetD8Async, (unsigned long long to, unsigned char value, size_t bytes, struct CUstream_st *stream))         \
    X(cuLaunchHostFunc, (struct CUstream_st * stream, standin_host_fn fn, void *arg))                                  \
    X(cuEventSynchronize, (struct CUevent_st * event))                                                                 \
    X(cuStreamBeginCapture_v2, (struct CUstream_st * stream, unsigned mode))                                           \
    X(cuStreamEndCapture, (struct CUstream_st * stream, struct CUgraph_st * *out))

struct CUgraph_st;
struct CUuuid_st {
    char bytes[16];
};
#define STANDIN_DECLARE(symbol, parameters)              STANDIN_API cuda_result symbol parameters;
#define STANDIN_DECLARE_USED(member, symbol, parameters) STANDIN_DECLARE(symbol, parameters)
CUDA_FUNCTIONS(STANDIN_DECLARE_USED)
CUDA_NEWER_FUNCTIONS(STANDIN_DECLARE_USED)
STANDIN_FUNCTIONS(STANDIN_DECLARE)

/* What exists now: nothing may be left behind. And how often others' writes were flushed. */
struct standin_counts {
    unsigned retained; /* of primary contexts */
    unsigned streams, events, registrations, allocations, modules;
    unsigned flushes;
};
STANDIN_API void standin_count(struct standin_counts *out);

/* For the stand-in of NCCL: where device memory of the current context can be read and written, or NULL. */
STANDIN_API uint8_t *standin_memory(const void *address, size_t bytes);

/* ---- inside ---- */

#define STANDIN_DEVICES         8
#define STANDIN_INVALID_VALUE   1u /* further CUresults */
#define STANDIN_UNINITIALIZED   3u
#define STANDIN_INVALID_DEVICE  101u
#define STANDIN_INVALID_IMAGE   200u
#define STANDIN_NOT_FOUND       500u
#define STANDIN_ILLEGAL_ADDRESS 700u
#define STANDIN_NOT_REGISTERED  713u
#define STANDIN_CAPTURE         900u /* not permitted while a stream is captured */
#define STANDIN_INVALIDATED     901u
#define STANDIN_ISOLATION       905u

/* One lock for all, and one condition: that anything has changed. Both are taken by every function. */
extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_changed;
extern struct standin_counts standin_counts;

struct standin_settings {
    int devices;
    cuda_result init, registration, module;
    unsigned largest, failing_copy, seed;
    bool dma_buf;
};
extern struct standin_settings standin_settings;

struct CUctx_st {
    int device;
    unsigned retained;
    cuda_result error;          /* once the device has failed */
    struct CUstream_st *legacy; /* the default stream */
    LIST_HEAD(, CUstream_st) streams;
};

/* The current context, if it has not failed. */
cuda_result standin_context(struct CUctx_st **out);
/* For calls that a capture in global mode forbids: breaks it, unless this thread has relaxed the mode. */
cuda_result standin_unsafe(void);

/* Where the stand-in itself reaches device memory of this context; NULL: there is none. */
uint8_t *standin_reach(const struct CUctx_st *context, unsigned long long address, size_t bytes);

/* A point in the work of a stream. */
struct standin_point {
    struct CUstream_st *stream; /* NULL: the beginning */
    uint64_t count;
};
bool standin_reached(struct standin_point point);

struct CUstream_st {
    LIST_ENTRY(CUstream_st) entry;
    struct CUctx_st *context;
    bool blocking; /* ordered with the legacy stream */
    bool destroyed;
    bool capturing, invalidated;
    unsigned capture_mode;
    unsigned random;
    uint64_t issued, done; /* pieces of work */
    STAILQ_HEAD(, standin_work) queue;
};

/* A kernel, which reaches its memory as the stand-in does. */
struct standin_launch {
    struct CUfunc_st *function; /* NULL: none */
    unsigned blocks, threads;
    struct cuda_reduction reduction;
};
void standin_compute(const struct standin_launch *launch);

/* A piece of work of a stream: what is set is done, in this order. */
struct standin_work {
    STAILQ_ENTRY(standin_work) entry;
    struct standin_point after;
    void *to;
    const void *from; /* NULL: fill with `value` */
    void *staged;     /* what `from` points to, if it is to be freed; NULL otherwise */
    size_t bytes;
    unsigned char value;
    bool can_fail; /* a copy or a kernel */
    struct standin_launch launch;
    standin_host_fn host;
    cuda_callback_fn call;
    void *arg;
    struct CUstream_st *stream; /* of the callback */
};

/* The stream of a handle in the current context. */
cuda_result standin_stream(struct CUstream_st *handle, struct CUstream_st **out);
struct CUstream_st *standin_stream_new(struct CUctx_st *context, bool blocking);
/* Hands work to a stream, or to the capture of it, which forgets it. */
cuda_result standin_give(struct CUstream_st *stream, const struct standin_work *work);
/* Waits until all work given so far is done. */
cuda_result standin_drain(struct CUstream_st *stream);

#endif
