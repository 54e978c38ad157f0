/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - the part of NCCL that the plugin uses, written out here so that no header of NVIDIA's is needed to
 * build, and its functions, taken from libnccl.so.2 when an instance is opened.
 */
#ifndef CUDA_NCCL_H
#define CUDA_NCCL_H

#include <byteps/device.h>

struct CUstream_st;
struct ncclComm;

/* ncclResult_t */
typedef unsigned nccl_result;
#define NCCL_OK            0u
#define NCCL_INVALID_USAGE 5u
#define NCCL_IN_PROGRESS   7u

/* ncclDataType_t */
#define NCCL_INT8    0u
#define NCCL_UINT8   1u
#define NCCL_INT32   2u
#define NCCL_INT64   4u
#define NCCL_FLOAT16 6u
#define NCCL_FLOAT32 7u
#define NCCL_FLOAT64 8u

/* ncclRedOp_t */
#define NCCL_SUM     0u
#define NCCL_PRODUCT 1u
#define NCCL_MAX     2u
#define NCCL_MIN     3u
#define NCCL_AVERAGE 4u

struct nccl_name { /* ncclUniqueId */
    char bytes[BPS_GROUP_NAME_BYTES];
};

/* ncclConfig_t as it began; what was added since has its default where `version` is this one. */
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 21400u
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

/* X(member, symbol of libnccl.so.2, type of the result, parameters) */
#define NCCL_FUNCTIONS(X)                                                                                              \
    X(version, ncclGetVersion, nccl_result, (int *out))                                                                \
    X(error_text, ncclGetErrorString, const char *, (nccl_result result))                                              \
    X(last_error, ncclGetLastError, const char *, (struct ncclComm * comm))                                            \
    X(name, ncclGetUniqueId, nccl_result, (struct nccl_name * out))                                                    \
    X(init, ncclCommInitRankConfig, nccl_result,                                                                       \
      (struct ncclComm * *out, int size, struct nccl_name name, int rank, struct nccl_config *config))                 \
    X(finalize, ncclCommFinalize, nccl_result, (struct ncclComm * comm))                                               \
    X(destroy, ncclCommDestroy, nccl_result, (struct ncclComm * comm))                                                 \
    X(abort, ncclCommAbort, nccl_result, (struct ncclComm * comm))                                                     \
    X(async_error, ncclCommGetAsyncError, nccl_result, (struct ncclComm * comm, nccl_result * out))                    \
    X(begin, ncclGroupStart, nccl_result, (void))                                                                      \
    X(end, ncclGroupEnd, nccl_result, (void))                                                                          \
    X(reduce, ncclReduce, nccl_result,                                                                                 \
      (const void *from, void *to, size_t count, unsigned type, unsigned op, int root, struct ncclComm *comm,          \
       struct CUstream_st *stream))                                                                                    \
    X(broadcast, ncclBroadcast, nccl_result,                                                                           \
      (const void *from, void *to, size_t count, unsigned type, int root, struct ncclComm *comm,                       \
       struct CUstream_st *stream))                                                                                    \
    X(all_reduce, ncclAllReduce, nccl_result,                                                                          \
      (const void *from, void *to, size_t count, unsigned type, unsigned op, struct ncclComm *comm,                    \
       struct CUstream_st *stream))                                                                                    \
    X(send, ncclSend, nccl_result,                                                                                     \
      (const void *from, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream))    \
    X(receive, ncclRecv, nccl_result,                                                                                  \
      (void *to, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream))

struct nccl {
#define NCCL_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

/* Fills the table. What it reports names the remedy. */
bps_status nccl_open(struct nccl *nccl, struct bps_report *report);

static inline bool nccl_is_error(nccl_result result)
{
    return result != NCCL_OK && result != NCCL_IN_PROGRESS;
}

/* True if a step (BPS_STEP_*) gives what the reducer `cpu` would give, but for the order of a sum. */
bool nccl_combines(uint32_t size, uint32_t kind, uint32_t op, uint32_t dtype);
/* How NCCL calls an operation, and a type; one of the same size where it combines none such. */
unsigned nccl_op(uint32_t op);
unsigned nccl_type(uint32_t dtype);

#endif
