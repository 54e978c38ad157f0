/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - finds NCCL, so that the plugin works without it where there is none. Frameworks bring one of their
 * own: where that is loaded already, it is taken, since it has the same name.
 */
#include "nccl.h"

#include "library.h"

static const struct cuda_function functions[] = {
#define FUNCTION(member, symbol, result, parameters) {#symbol, offsetof(struct nccl, member)},
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

bool nccl_op(uint32_t op, unsigned *out)
{
    static const unsigned ops[BPS_OPS] = {
        [BPS_SUM] = NCCL_SUM, [BPS_AVERAGE] = NCCL_AVERAGE, [BPS_MIN] = NCCL_MIN,
        [BPS_MAX] = NCCL_MAX, [BPS_PRODUCT] = NCCL_PRODUCT,
    };
    if (op >= BPS_OPS) {
        return false;
    }
    *out = ops[op];
    return true;
}

bool nccl_type(uint32_t dtype, unsigned *out)
{
    switch (dtype) {
    case BPS_FLOAT32:
        *out = NCCL_FLOAT32;
        return true;
    case BPS_FLOAT64:
        *out = NCCL_FLOAT64;
        return true;
    case BPS_UINT8:
        *out = NCCL_UINT8;
        return true;
    case BPS_INT8:
        *out = NCCL_INT8;
        return true;
    case BPS_INT32:
        *out = NCCL_INT32;
        return true;
    case BPS_INT64:
        *out = NCCL_INT64;
        return true;
    default: /* float16 and bfloat16 would be rounded, or overflow, with each contribution */
        return false;
    }
}
