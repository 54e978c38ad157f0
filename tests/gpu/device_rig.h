/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_rig.h - for tests of the reducer "cuda" that run with the stand-ins (tests/gpu/standin) or, with
 * TEST_GPU=1, with the driver, NCCL and the first GPU of this machine: an instance of it, and an application.
 */
#ifndef DEVICE_RIG_H
#define DEVICE_RIG_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <byteps/device.h>

#include "base/loop.h"
#include "plugin/instance.h"
#include "reducers/cuda/driver.h"

/* Ends the test with what is wrong unless the condition holds. */
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s: ", program_invocation_short_name);                                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* What an application calls: X(symbol, parameters). */
#define RIG_DRIVER(X)                                                                                                  \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDevicePrimaryCtxRetain, (struct CUctx_st * *out, int device))                                                  \
    X(cuCtxSetCurrent, (struct CUctx_st * context))                                                                    \
    X(cuMemAlloc_v2, (unsigned long long *out, size_t bytes))                                                          \
    X(cuMemFree_v2, (unsigned long long memory))                                                                       \
    X(cuMemcpyHtoD_v2, (unsigned long long to, const void *from, size_t bytes))                                        \
    X(cuMemcpyDtoH_v2, (void *to, unsigned long long from, size_t bytes))                                              \
    X(cuMemcpyDtoDAsync_v2,                                                                                            \
      (unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *stream))                      \
    X(cuStreamSynchronize, (struct CUstream_st * stream))

struct device_rig {
    struct {
#define RIG_MEMBER(symbol, parameters) cuda_result(*symbol) parameters;
        RIG_DRIVER(RIG_MEMBER)
    } driver;
    struct bps_loop *loop;
    struct bps_instance *instance;
    const struct bps_device_ops *ops;
    unsigned left; /* of what rig_done() is to be told */
};
extern struct device_rig rig;

#define CUDA(call, ...)                                                                                                \
    do {                                                                                                               \
        cuda_result result_ = rig.driver.call(__VA_ARGS__);                                                            \
        EXPECT(result_ == CUDA_OK, #call " returned %u", result_);                                                     \
    } while (0)

/* The driver, and the context of device 0 for this thread. */
void rig_open_driver(void);
/* NCCL, for the reducer; where there is none, the test is skipped. */
void rig_open_nccl(void);
void rig_open_reducer(void);
void rig_close_reducer(void);

/* What operations call at their end: counts down, and lets rig_run() return at 0. A failure ends the test. */
void rig_done(void *arg, bps_status status, const char *text);
void rig_run(void);

/* Device memory with these bytes. */
void rig_write(unsigned long long memory, const void *bytes, size_t count);

#endif
