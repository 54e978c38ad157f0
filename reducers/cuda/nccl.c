/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - finds NCCL, so that the plugin works without it where there is none. Frameworks bring one of their
 * own: where that is loaded already, it is taken, since it has the same name.
 */
#include "nccl.h"

#include "library.h"

static const struct cuda_function functions[] = {
#define FUNCTION(member, symbol, result, parameters) {#symbol, offsetof(struct nccl, member), false},
    NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

bps_status nccl_open(struct nccl *nccl, struct bps_report *report)
{
    static const struct cuda_library library = {
        .name = "libnccl.so.2",
        .missing = "install NCCL, or load a framework that brings it first",
        .old = "version 2.14 or newer of NCCL",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return cuda_library_load(&library, nccl, report);
}

bool nccl_combines(uint32_t size, uint32_t kind, uint32_t op, uint32_t dtype)
{
    bool is_power = (size & (size - 1)) == 0;
    if (kind == BPS_STEP_BROADCAST) {
        return true;
    }
    switch (dtype) {
    case BPS_FLOAT32:
    case BPS_FLOAT64:
        /* It divides before it sums, which rounds but for powers of two. */
        return op < BPS_OPS && (op != BPS_AVERAGE || is_power);
    case BPS_UINT8:
    case BPS_INT8:
    case BPS_INT32:
    case BPS_INT64:
        return op < BPS_OPS && op != BPS_AVERAGE;
    default: /* floating point of 8 and 16 bits would be rounded, or overflow, with each contribution */
        return false;
    }
}

unsigned nccl_op(uint32_t op)
{
    static const unsigned ops[BPS_OPS] = {
        [BPS_SUM] = NCCL_SUM, [BPS_AVERAGE] = NCCL_AVERAGE, [BPS_MIN] = NCCL_MIN,
        [BPS_MAX] = NCCL_MAX, [BPS_PRODUCT] = NCCL_PRODUCT,
    };
    return ops[op];
}

unsigned nccl_type(uint32_t dtype)
{
    static const unsigned types[BPS_DTYPES] = {
        [BPS_FLOAT32] = NCCL_FLOAT32, [BPS_FLOAT64] = NCCL_FLOAT64,     [BPS_FLOAT16] = NCCL_FLOAT16,
        [BPS_INT16] = NCCL_FLOAT16,   [BPS_BFLOAT16] = NCCL_FLOAT16,    [BPS_UINT8] = NCCL_UINT8,
        [BPS_BOOL] = NCCL_UINT8,      [BPS_INT8] = NCCL_INT8,           [BPS_INT32] = NCCL_INT32,
        [BPS_INT64] = NCCL_INT64,     [BPS_FLOAT8_E4M3FN] = NCCL_UINT8, [BPS_FLOAT8_E5M2] = NCCL_UINT8,
    };
    return types[dtype];
}
