/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c_api.h - what is used of MXNet's C interface, written out so that MXNet need not be there to build.
 *
 * The names and types are those of mxnet/c_api.h and mxnet/engine.h of MXNet 1.9.
 */
#ifndef BYTEPS_MXNET_C_API_H
#define BYTEPS_MXNET_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *NDArrayHandle;
typedef void *ContextHandle;
typedef const void *EngineFnPropertyHandle;

/* The second argument is a pointer to a struct on_complete, which is gone when the function returns. */
typedef void (*EngineAsyncFunc)(void *engine, void *on_complete, void *param);
typedef void (*EngineFuncParamDeleter)(void *param);

/* mxnet::engine::CallbackOnComplete. The error is a dmlc::Error, a std::runtime_error without further members. */
struct on_complete {
    void (*callback)(void *engine, void *param, const void *error);
    void *engine;
    void *param;
};

/* mxnet::Context */
struct context {
    int32_t type; /* 1: cpu, 2: gpu, 3: pinned, 5: shared */
    int32_t id;
};

#define DEVICE_GPU 2

/* mxnet::NDArrayStorageType */
#define STORAGE_DENSE 0

/* mxnet::FnProperty */
#define FN_CPU_PRIORITIZED 3

/* Those of mshadow. */
enum {
    TYPE_FLOAT32 = 0,
    TYPE_FLOAT64 = 1,
    TYPE_FLOAT16 = 2,
    TYPE_UINT8 = 3,
    TYPE_INT32 = 4,
    TYPE_INT8 = 5,
    TYPE_INT64 = 6,
    TYPE_BOOL = 7,
    TYPE_INT16 = 8,
    TYPE_BFLOAT16 = 12,
};

/* X(result, name, parameters) */
#define MXNET_SYMBOLS(X)                                                                                               \
    X(int, MXEnginePushAsyncND,                                                                                        \
      (EngineAsyncFunc, void *, EngineFuncParamDeleter, ContextHandle, NDArrayHandle *, int, NDArrayHandle *, int,     \
       EngineFnPropertyHandle, int, const char *, bool))                                                               \
    X(int, MXShallowCopyNDArray, (NDArrayHandle, NDArrayHandle *))                                                     \
    X(int, MXNDArrayFree, (NDArrayHandle))                                                                             \
    X(int, MXNDArrayGetShapeEx64, (NDArrayHandle, int *, const int64_t **))                                            \
    X(int, MXNDArrayGetDType, (NDArrayHandle, int *))                                                                  \
    X(int, MXNDArrayGetStorageType, (NDArrayHandle, int *))                                                            \
    X(int, MXNDArrayGetContext, (NDArrayHandle, int *, int *))                                                         \
    X(int, MXNDArrayGetData, (NDArrayHandle, void **))                                                                 \
    X(const char *, MXGetLastError, (void))

/* std::runtime_error(const char *) and its destructor, by the names that g++ gives them. */
#define CXX_SYMBOLS(X)                                                                                                 \
    X(void, _ZNSt13runtime_errorC1EPKc, (void *, const char *))                                                        \
    X(void, _ZNSt13runtime_errorD1Ev, (void *))

#endif
