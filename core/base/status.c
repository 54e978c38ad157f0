/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - the words for statuses, data types and operations, and the version. */
#include <byteps/byteps.h>

#include "base/tensor.h"
#include "config.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

const char *bps_strerror(bps_status status)
{
    static const char *const progress[] = {"success", "in progress", "nothing to do or no room now"};
    static const char *const errors[] = {
        [-BPS_ERR_INVALID] = "invalid argument",
        [-BPS_ERR_CONF] = "wrong configuration",
        [-BPS_ERR_PLUGIN] = "plugin refused",
        [-BPS_ERR_NOMEM] = "out of memory",
        [-BPS_ERR_IO] = "input/output error",
        [-BPS_ERR_TIMEOUT] = "timed out",
        [-BPS_ERR_LOST] = "a member of the job was lost",
        [-BPS_ERR_MISMATCH] = "the workers disagree about a tensor",
        [-BPS_ERR_BUSY] = "already in flight or in use",
        [-BPS_ERR_STATE] = "not in a job",
        [-BPS_ERR_UNSUPPORTED] = "not supported",
        [-BPS_ERR_PROTOCOL] = "protocol violation",
        [-BPS_ERR_REFUSED] = "refused by the job",
        [-BPS_ERR_FAILED] = "a stage failed",
        [-BPS_ERR_MEMBERSHIP] = "another worker was lost or has left; the job goes on after a reform",
    };
    if (status >= 0 && status < (int)LENGTH(progress)) {
        return progress[status];
    }
    if (status < 0 && status > -(int)LENGTH(errors)) {
        return errors[-status];
    }
    return "unknown status";
}

static const char *const dtypes[BPS_DTYPES] = {
    [BPS_FLOAT32] = "float32",
    [BPS_FLOAT64] = "float64",
    [BPS_FLOAT16] = "float16",
    [BPS_UINT8] = "uint8",
    [BPS_INT32] = "int32",
    [BPS_INT8] = "int8",
    [BPS_INT64] = "int64",
    [BPS_BFLOAT16] = "bfloat16",
    [BPS_INT16] = "int16",
    [BPS_BOOL] = "bool",
    [BPS_FLOAT8_E4M3FN] = "float8_e4m3fn",
    [BPS_FLOAT8_E5M2] = "float8_e5m2",
};

size_t bps_dtype_size(uint32_t dtype)
{
    return bps_element_size(dtype);
}

const char *bps_dtype_name(uint32_t dtype)
{
    return dtype < BPS_DTYPES ? dtypes[dtype] : "?";
}

const char *bps_op_name(uint32_t op)
{
    static const char *const names[BPS_OPS] = {
        [BPS_SUM] = "sum", [BPS_AVERAGE] = "average", [BPS_MIN] = "min", [BPS_MAX] = "max", [BPS_PRODUCT] = "product",
    };
    return op < BPS_OPS ? names[op] : "?";
}

const char *bps_version(void)
{
    return PACKAGE_VERSION;
}
