/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c_api.h - what the binding uses of TensorFlow's C interface (tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h),
 * written out: it is compiled without TensorFlow, and one file serves all versions that have these symbols.
 */
#ifndef BYTEPS_TENSORFLOW_C_API_H
#define BYTEPS_TENSORFLOW_C_API_H

#include <stdint.h>
#include <stddef.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;

/* TF_Code: the classes of tf.errors. */
enum {
    TF_OK = 0,
    TF_INVALID_ARGUMENT = 3,
    TF_DEADLINE_EXCEEDED = 4,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13,
};

/* TF_DataType */
enum {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_HALF = 19,
    TF_FLOAT8_E5M2 = 24,
    TF_FLOAT8_E4M3FN = 25,
};

typedef void *(*TF_CreateKernel)(TF_OpKernelConstruction *construction);
typedef void (*TF_Compute)(void *kernel, TF_OpKernelContext *context);
typedef void (*TF_ComputeAsync)(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *done);
typedef void (*TF_DeleteKernel)(void *kernel);
typedef void (*TF_InferShape)(TF_ShapeInferenceContext *context, TF_Status *status);

/* SYMBOL(result, name, parameters) */
#define TENSORFLOW_SYMBOLS(SYMBOL)                                                                                     \
    SYMBOL(TF_Status *, TF_NewStatus, (void))                                                                          \
    SYMBOL(void, TF_DeleteStatus, (TF_Status *))                                                                       \
    SYMBOL(void, TF_SetStatus, (TF_Status *, int code, const char *text))                                              \
    SYMBOL(void, TF_SetPayload, (TF_Status *, const char *key, const char *value))                                     \
    SYMBOL(int, TF_GetCode, (const TF_Status *))                                                                       \
    SYMBOL(const char *, TF_Message, (const TF_Status *))                                                              \
    SYMBOL(void, TF_DeleteTensor, (TF_Tensor *))                                                                       \
    SYMBOL(void *, TF_TensorData, (const TF_Tensor *))                                                                 \
    SYMBOL(int, TF_TensorType, (const TF_Tensor *))                                                                    \
    SYMBOL(size_t, TF_DataTypeSize, (int type))                                                                        \
    SYMBOL(int64_t, TF_TensorElementCount, (const TF_Tensor *))                                                        \
    SYMBOL(int, TF_NumDims, (const TF_Tensor *))                                                                       \
    SYMBOL(int64_t, TF_Dim, (const TF_Tensor *, int index))                                                            \
    SYMBOL(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *name))                                    \
    SYMBOL(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *spec))                          \
    SYMBOL(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *spec))                         \
    SYMBOL(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *spec))                        \
    SYMBOL(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, _Bool stateful))                      \
    SYMBOL(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, TF_InferShape))           \
    SYMBOL(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                     \
    SYMBOL(TF_ShapeHandle *, TF_NewShapeHandle, (void))                                                                \
    SYMBOL(void, TF_DeleteShapeHandle, (TF_ShapeHandle *))                                                             \
    SYMBOL(TF_ShapeHandle *, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))                             \
    SYMBOL(void, TF_ShapeInferenceContextGetInput,                                                                     \
           (TF_ShapeInferenceContext *, int index, TF_ShapeHandle *, TF_Status *))                                     \
    SYMBOL(void, TF_ShapeInferenceContextSetOutput,                                                                    \
           (TF_ShapeInferenceContext *, int index, TF_ShapeHandle *, TF_Status *))                                     \
    SYMBOL(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                   \
    SYMBOL(TF_KernelBuilder *, TF_NewKernelBuilder,                                                                    \
           (const char *op, const char *device, TF_CreateKernel, TF_Compute, TF_DeleteKernel))                         \
    SYMBOL(TF_KernelBuilder *, TF_NewAsyncKernelBuilder,                                                               \
           (const char *op, const char *device, TF_CreateKernel, TF_ComputeAsync, TF_DeleteKernel))                    \
    SYMBOL(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder *, const char *argument))                              \
    SYMBOL(void, TF_RegisterKernelBuilder, (const char *name, TF_KernelBuilder *, TF_Status *))                        \
    SYMBOL(void, TF_OpKernelConstruction_GetAttrSize,                                                                  \
           (TF_OpKernelConstruction *, const char *name, int32_t *items, int32_t *bytes, TF_Status *))                 \
    SYMBOL(void, TF_OpKernelConstruction_GetAttrInt64,                                                                 \
           (TF_OpKernelConstruction *, const char *name, int64_t *value, TF_Status *))                                 \
    SYMBOL(void, TF_OpKernelConstruction_GetAttrString,                                                                \
           (TF_OpKernelConstruction *, const char *name, char *text, size_t bytes, TF_Status *))                       \
    SYMBOL(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                            \
    SYMBOL(void, TF_OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                      \
    SYMBOL(void, TF_GetInput, (TF_OpKernelContext *, int index, TF_Tensor **, TF_Status *))                            \
    SYMBOL(TF_Tensor *, TF_ForwardInputOrAllocateOutput,                                                               \
           (TF_OpKernelContext *, const int *candidates, int ncandidates, int index, const int64_t *shape, int ndim,   \
            int *forwarded, TF_Status *))                                                                              \
    SYMBOL(TF_Tensor *, TF_AllocateOutput,                                                                             \
           (TF_OpKernelContext *, int index, int type, const int64_t *shape, int ndim, size_t bytes, TF_Status *))     \
    SYMBOL(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback *))

#endif
