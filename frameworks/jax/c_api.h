/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c_api.h - what is used of XLA's foreign function interface, written out so that JAX need not be there to build.
 *
 * The names, the numbers and the layout are those of xla/ffi/api/c_api.h in the package jaxlib, interface 0.1 to
 * 0.3. Structures grow at their ends and begin with their size; of later fields nothing is used.
 */
#ifndef BYTEPS_JAX_C_API_H
#define BYTEPS_JAX_C_API_H

#include <stddef.h>
#include <stdint.h>

#define XLA_FFI_MAJOR 0
#define XLA_FFI_MINOR 1 /* the oldest with what is used here; later ones take it */

typedef struct XLA_FFI_Error XLA_FFI_Error;
typedef struct XLA_FFI_Future XLA_FFI_Future;
typedef struct XLA_FFI_ExecutionContext XLA_FFI_ExecutionContext;
typedef struct XLA_FFI_InternalApi XLA_FFI_InternalApi;

enum {
    XLA_FFI_Error_Code_INVALID_ARGUMENT = 3,
    XLA_FFI_Error_Code_DEADLINE_EXCEEDED = 4,
    XLA_FFI_Error_Code_RESOURCE_EXHAUSTED = 8,
    XLA_FFI_Error_Code_FAILED_PRECONDITION = 9,
    XLA_FFI_Error_Code_UNIMPLEMENTED = 12,
    XLA_FFI_Error_Code_INTERNAL = 13,
    XLA_FFI_Error_Code_UNAVAILABLE = 14,
};

enum {
    XLA_FFI_DataType_PRED = 1,
    XLA_FFI_DataType_S8 = 2,
    XLA_FFI_DataType_S16 = 3,
    XLA_FFI_DataType_S32 = 4,
    XLA_FFI_DataType_S64 = 5,
    XLA_FFI_DataType_U8 = 6,
    XLA_FFI_DataType_F16 = 10,
    XLA_FFI_DataType_F32 = 11,
    XLA_FFI_DataType_F64 = 12,
    XLA_FFI_DataType_BF16 = 16,
    XLA_FFI_DataType_F8E5M2 = 19,
    XLA_FFI_DataType_F8E4M3FN = 20,
};

enum { XLA_FFI_AttrType_SCALAR = 3, XLA_FFI_AttrType_STRING = 4 };
enum { XLA_FFI_ExecutionStage_EXECUTE = 3 };
enum { XLA_FFI_Extension_Metadata = 1 };

typedef struct XLA_FFI_Extension_Base {
    size_t struct_size;
    int type;
    struct XLA_FFI_Extension_Base *next;
} XLA_FFI_Extension_Base;

typedef struct XLA_FFI_Api_Version {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    int major_version;
    int minor_version;
} XLA_FFI_Api_Version;

typedef struct XLA_FFI_Metadata {
    size_t struct_size;
    XLA_FFI_Api_Version api_version;
    uint32_t traits;
} XLA_FFI_Metadata;

typedef struct XLA_FFI_Metadata_Extension {
    XLA_FFI_Extension_Base extension_base;
    XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

typedef struct XLA_FFI_Buffer {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims; /* rank of them */
} XLA_FFI_Buffer;

typedef struct XLA_FFI_ByteSpan {
    const char *ptr;
    size_t len;
} XLA_FFI_ByteSpan;

typedef struct XLA_FFI_Scalar {
    int dtype;
    void *value;
} XLA_FFI_Scalar;

/* Arguments and results: size buffers. */
typedef struct XLA_FFI_Buffers {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    int64_t size;
    int *types;
    void **buffers;
} XLA_FFI_Buffers;

typedef struct XLA_FFI_Attrs {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    int64_t size;
    int *types;
    XLA_FFI_ByteSpan **names;
    void **attrs;
} XLA_FFI_Attrs;

typedef struct XLA_FFI_Api XLA_FFI_Api;

typedef struct XLA_FFI_CallFrame {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    const XLA_FFI_Api *api;
    XLA_FFI_ExecutionContext *ctx;
    int stage;
    XLA_FFI_Buffers args;
    XLA_FFI_Buffers rets;
    XLA_FFI_Attrs attrs;
    XLA_FFI_Future *future; /* set by the handler: the results come when it is completed */
} XLA_FFI_CallFrame;

typedef struct XLA_FFI_Error_Create_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    const char *message; /* copied */
    int errc;
} XLA_FFI_Error_Create_Args;

typedef struct XLA_FFI_Error_Destroy_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_Error *error;
} XLA_FFI_Error_Destroy_Args;

typedef struct XLA_FFI_Future_Create_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_Future *future; /* out */
} XLA_FFI_Future_Create_Args;

typedef struct XLA_FFI_Future_SetAvailable_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_Future *future;
} XLA_FFI_Future_SetAvailable_Args;

typedef struct XLA_FFI_Future_SetError_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_Future *future;
    XLA_FFI_Error *error; /* XLA's from now on */
} XLA_FFI_Future_SetError_Args;

typedef struct XLA_FFI_DeviceOrdinal_Get_Args {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_ExecutionContext *ctx;
    int32_t device_ordinal; /* out */
} XLA_FFI_DeviceOrdinal_Get_Args;

/* The functions of XLA; those that are not used here have no type. */
struct XLA_FFI_Api {
    size_t struct_size;
    XLA_FFI_Extension_Base *extension_start;
    XLA_FFI_Api_Version api_version;
    const XLA_FFI_InternalApi *internal_api;
    XLA_FFI_Error *(*Error_Create)(XLA_FFI_Error_Create_Args *);
    void (*Error_GetMessage)(void);
    void (*Error_Destroy)(XLA_FFI_Error_Destroy_Args *);
    void (*Handler_Register)(void);
    void (*Stream_Get)(void);
    void (*Type_Register)(void);
    void (*ExecutionContext_Get)(void);
    void (*State_Set)(void);
    void (*State_Get)(void);
    void (*DeviceMemory_Allocate)(void);
    void (*DeviceMemory_Free)(void);
    void (*ThreadPool_Schedule)(void);
    void (*ThreadPool_NumThreads)(void);
    XLA_FFI_Error *(*Future_Create)(XLA_FFI_Future_Create_Args *);
    XLA_FFI_Error *(*Future_SetAvailable)(XLA_FFI_Future_SetAvailable_Args *);
    XLA_FFI_Error *(*Future_SetError)(XLA_FFI_Future_SetError_Args *);
    void (*RunId_Get)(void);
    XLA_FFI_Error *(*DeviceOrdinal_Get)(XLA_FFI_DeviceOrdinal_Get_Args *);
};

#endif
