/* SPDX-License-Identifier: Apache-2.0 */
/* case_reducer.c - the kernels of the reducer cpu, in the version for every processor. */
#include <string.h>

#include <byteps/reducer.h>

#include "hot_paths.h"

#define COUNT   4096u /* elements */
#define SOURCES 4u

static struct bps_kernels kernels;
static uint8_t source[SOURCES][COUNT * sizeof(float)], accumulator[COUNT * sizeof(float)];

static void open_kernels(const void *dtype)
{
    const struct bps_instance *reducer = hot_path_reducer();
    const struct bps_reducer_ops *ops = reducer->ops;
    bps_status status = ops->kernels(reducer->self, BPS_SUM, *(const uint32_t *)dtype, &kernels);
    hot_path_need(status == BPS_OK, "the reducer has no kernels for a type: %s", bps_strerror(status));
    memset(source, 0x3c, sizeof source); /* ordinary numbers in all types */
    memset(accumulator, 0x3c, sizeof accumulator);
}

static void first(void)
{
    kernels.first(kernels.context, accumulator, source[0], COUNT, 0.5);
}

static void fold(void)
{
    kernels.fold(kernels.context, accumulator, source[0], COUNT, 1.0);
}

static void finish(void)
{
    kernels.finish(kernels.context, source[0], accumulator, COUNT, 1.0, 2);
}

static void reduce(void)
{
    const void *const all[SOURCES] = {source[0], source[1], source[2], source[3]};
    kernels.reduce(kernels.context, accumulator, all, NULL, SOURCES, COUNT, 1.0, SOURCES);
}

static const uint32_t float32 = BPS_FLOAT32, float16 = BPS_FLOAT16, bfloat16 = BPS_BFLOAT16;
static const uint32_t int32 = BPS_INT32;

const struct hot_path hot_paths_reducer[] = {
    {"reducer-first-float32", 10, open_kernels, first, &float32},
    {"reducer-fold-float32", 10, open_kernels, fold, &float32},
    {"reducer-finish-float32", 10, open_kernels, finish, &float32},
    {"reducer-reduce-float32", 10, open_kernels, reduce, &float32},
    {"reducer-fold-float16", 10, open_kernels, fold, &float16},
    {"reducer-finish-float16", 10, open_kernels, finish, &float16},
    {"reducer-fold-bfloat16", 10, open_kernels, fold, &bfloat16},
    {"reducer-finish-bfloat16", 10, open_kernels, finish, &bfloat16},
    {"reducer-fold-int32", 10, open_kernels, fold, &int32},
    {NULL, 0, NULL, NULL, NULL},
};
