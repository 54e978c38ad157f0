/* SPDX-License-Identifier: Apache-2.0 */
/* declarations_nccl.c - what the plugin declares of NCCL is what NVIDIA's header declares. */
#include <nccl.h>
#include <stddef.h>

#include "reducers/cuda/nccl.h"

#define COMPATIBLE(a, b) __builtin_types_compatible_p(__typeof__(a), __typeof__(b))

/* Two of them have structures in their parameters, which have the names of one side only. */
#define HAS_STRUCTURES(member)                                                                                         \
    (offsetof(struct nccl, member) == offsetof(struct nccl, name) ||                                                   \
     offsetof(struct nccl, member) == offsetof(struct nccl, init))
#define IS_THE_SAME(member, symbol, result, parameters)                                                                \
    _Static_assert(HAS_STRUCTURES(member) || COMPATIBLE(&symbol, ((struct nccl *)0)->member), #symbol);
NCCL_FUNCTIONS(IS_THE_SAME)

_Static_assert(COMPATIBLE(&ncclGetUniqueId, (ncclResult_t(*)(ncclUniqueId *))0), "ncclGetUniqueId");
_Static_assert(COMPATIBLE(&ncclCommInitRankConfig,
                          (ncclResult_t(*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))0),
               "ncclCommInitRankConfig");
_Static_assert(sizeof(struct nccl_name) == sizeof(ncclUniqueId), "ncclUniqueId");

/* Of the configuration NCCL reads as many bytes as `size` says: ours are its first ones. */
#define IS_AT(member)                                                                                                  \
    _Static_assert(offsetof(struct nccl_config, member) == offsetof(ncclConfig_t, member) &&                           \
                       COMPATIBLE(((struct nccl_config *)0)->member, ((ncclConfig_t *)0)->member),                     \
                   #member);
IS_AT(size)
IS_AT(magic)
IS_AT(version)
IS_AT(blocking)

#define IS_EQUAL(ours, theirs) _Static_assert((ours) == (unsigned)(theirs), #theirs);
IS_EQUAL(NCCL_OK, ncclSuccess)
IS_EQUAL(NCCL_INVALID_USAGE, ncclInvalidUsage)
IS_EQUAL(NCCL_IN_PROGRESS, ncclInProgress)
IS_EQUAL(NCCL_INT8, ncclInt8)
IS_EQUAL(NCCL_UINT8, ncclUint8)
IS_EQUAL(NCCL_INT32, ncclInt32)
IS_EQUAL(NCCL_INT64, ncclInt64)
IS_EQUAL(NCCL_FLOAT16, ncclFloat16)
IS_EQUAL(NCCL_FLOAT32, ncclFloat32)
IS_EQUAL(NCCL_FLOAT64, ncclFloat64)
IS_EQUAL(NCCL_SUM, ncclSum)
IS_EQUAL(NCCL_PRODUCT, ncclProd)
IS_EQUAL(NCCL_MAX, ncclMax)
IS_EQUAL(NCCL_MIN, ncclMin)
IS_EQUAL(NCCL_AVERAGE, ncclAvg)
#ifdef NCCL_API_MAGIC /* older headers have no name for it */
IS_EQUAL(NCCL_CONFIG_MAGIC, NCCL_API_MAGIC)
#endif
