/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - the part of the CUDA driver API that the plugin uses, written out here so that no header of
 * NVIDIA's is needed to build, and its functions, taken from libcuda.so.1 when an instance is opened.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <byteps/plugin.h>

struct CUctx_st;
struct CUuuid_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

/* CUresult */
typedef unsigned cuda_result;
#define CUDA_OK                 0u
#define CUDA_OUT_OF_MEMORY      2u
#define CUDA_STUB_LIBRARY       34u
#define CUDA_NO_DEVICE          100u
#define CUDA_INVALID_CONTEXT    201u
#define CUDA_OPERATING_SYSTEM   304u
#define CUDA_INVALID_HANDLE     400u
#define CUDA_NOT_READY          600u
#define CUDA_ALREADY_REGISTERED 712u
#define CUDA_NOT_PERMITTED      800u
#define CUDA_SYSTEM_NOT_READY   802u
#define CUDA_DRIVER_MISMATCH    803u
#define CUDA_COMPAT_UNSUPPORTED 804u
#define CUDA_CAPTURE_IMPLICIT   906u

#define CUDA_STREAM_NON_BLOCKING  1u /* knows no order with the legacy default stream */
#define CUDA_STREAM_LEGACY        1u /* handles of the default streams; 0 is the legacy one, too */
#define CUDA_STREAM_PER_THREAD    2u
#define CUDA_EVENT_DISABLE_TIMING 2u
#define CUDA_REGISTER_PORTABLE    1u
#define CUDA_CAPTURE_NONE         0u   /* CUstreamCaptureStatus */
#define CUDA_CAPTURE_RELAXED      2u   /* CUstreamCaptureMode */
#define CUDA_WRITES_ORDERING      118u /* CUdevice_attribute */
#define CUDA_DMA_BUF_SUPPORTED    124u
#define CUDA_ORDERED_FOR_OWNER                                                                                         \
    100u                       /* of CUGPUDirectRDMAWritesOrdering and CUflushGPUDirectRDMAWritesScope \
                                        */
#define CUDA_FLUSH_CURRENT  0u /* CUflushGPUDirectRDMAWritesTarget */
#define CUDA_POINTER_BUFFER 7u /* CUpointer_attribute */
#define CUDA_RANGE_DMA_BUF  1u /* CUmemRangeHandleType */

typedef void (*cuda_callback_fn)(struct CUstream_st *stream, cuda_result result, void *arg);

/* X(member, symbol of libcuda.so.1, parameters) */
#define CUDA_FUNCTIONS(X)                                                                                              \
    X(init, cuInit, (unsigned flags))                                                                                  \
    X(version, cuDriverGetVersion, (int *out))                                                                         \
    X(error_name, cuGetErrorName, (cuda_result error, const char **out))                                               \
    X(error_text, cuGetErrorString, (cuda_result error, const char **out))                                             \
    X(device_count, cuDeviceGetCount, (int *out))                                                                      \
    X(device_get, cuDeviceGet, (int *out, int index))                                                                  \
    X(device_name, cuDeviceGetName, (char *out, int bytes, int device))                                                \
    X(device_uuid, cuDeviceGetUuid, (struct CUuuid_st * out, int device))                                              \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st * *out, int device))                                  \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                                     \
    X(context_push, cuCtxPushCurrent_v2, (struct CUctx_st * context))                                                  \
    X(context_pop, cuCtxPopCurrent_v2, (struct CUctx_st * *out))                                                       \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (unsigned *mode))                                      \
    X(stream_priorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                     \
    X(stream_create, cuStreamCreateWithPriority, (struct CUstream_st * *out, unsigned flags, int priority))            \
    X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st * stream))                                               \
    X(stream_synchronize, cuStreamSynchronize, (struct CUstream_st * stream))                                          \
    X(stream_is_capturing, cuStreamIsCapturing, (struct CUstream_st * stream, unsigned *out))                          \
    X(stream_wait, cuStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))        \
    X(stream_call, cuStreamAddCallback, (struct CUstream_st * stream, cuda_callback_fn fn, void *arg, unsigned flags)) \
    X(event_create, cuEventCreate, (struct CUevent_st * *out, unsigned flags))                                         \
    X(event_destroy, cuEventDestroy_v2, (struct CUevent_st * event))                                                   \
    X(event_query, cuEventQuery, (struct CUevent_st * event))                                                          \
    X(event_record, cuEventRecord, (struct CUevent_st * event, struct CUstream_st * stream))                           \
    X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                                              \
      (void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream))                                   \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                                            \
      (unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream))                             \
    X(memory_alloc, cuMemAlloc_v2, (unsigned long long *out, size_t bytes))                                            \
    X(memory_free, cuMemFree_v2, (unsigned long long memory))                                                          \
    X(module_load, cuModuleLoadData, (struct CUmod_st * *out, const void *image))                                      \
    X(module_unload, cuModuleUnload, (struct CUmod_st * module))                                                       \
    X(module_function, cuModuleGetFunction, (struct CUfunc_st * *out, struct CUmod_st * module, const char *name))     \
    X(launch, cuLaunchKernel,                                                                                          \
      (struct CUfunc_st * function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,       \
       unsigned threads_y, unsigned threads_z, unsigned shared_bytes, struct CUstream_st *stream, void **parameters,   \
       void **extra))                                                                                                  \
    X(host_register, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))                               \
    X(host_unregister, cuMemHostUnregister, (void *memory))

/* The same of those that drivers before CUDA 11.7 do not have. */
#define CUDA_NEWER_FUNCTIONS(X)                                                                                        \
    X(device_attribute, cuDeviceGetAttribute, (int *out, unsigned attribute, int device))                              \
    X(pointer_attribute, cuPointerGetAttribute, (void *out, unsigned attribute, unsigned long long memory))            \
    X(memory_range, cuMemGetAddressRange_v2, (unsigned long long *base, size_t *bytes, unsigned long long memory))     \
    X(memory_handle, cuMemGetHandleForAddressRange,                                                                    \
      (void *out, unsigned long long memory, size_t bytes, unsigned type, unsigned long long flags))                   \
    X(flush_writes, cuFlushGPUDirectRDMAWrites, (unsigned target, unsigned scope))

struct cuda_driver {
#define CUDA_MEMBER(member, symbol, parameters) cuda_result(*member) parameters;
    CUDA_FUNCTIONS(CUDA_MEMBER)
    CUDA_NEWER_FUNCTIONS(CUDA_MEMBER) /* NULL: this driver has none */
#undef CUDA_MEMBER
};

/* Fills the table and starts the driver; *devices is at least 1. What it reports names the remedy. */
bps_status cuda_driver_open(struct cuda_driver *driver, int *devices, struct bps_report *report);

/* "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)" */
void cuda_driver_error(const struct cuda_driver *driver, cuda_result result, char *text, size_t n);

#endif
