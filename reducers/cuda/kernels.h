/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels that run on a device, as both sides see them: kernels.cu defines them, reduce.c
 * starts them. There is one for each type and operation, bps_reduce_TYPE_OPERATION.
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include <stdint.h>

#define CUDA_SOURCES 8u

/*
 * Threads of a block, and blocks that each processor has room for at once: all that it can have; fewer for
 * elements of one byte, 16 of which a thread has in work, so that they find their registers.
 */
#define CUDA_BLOCK_THREADS           256
#define CUDA_PROCESSOR_BLOCKS(bytes) ((bytes) == 1 ? 6 : 8)

/* Bytes that go at once where all pointers are aligned alike: a thread has one such vector in work. */
#define CUDA_VECTOR 16u

/* X(type, dtype, bytes) */
#define CUDA_TYPES(X)                                                                                                  \
    X(f32, BPS_FLOAT32, 4)                                                                                             \
    X(f64, BPS_FLOAT64, 8)                                                                                             \
    X(f16, BPS_FLOAT16, 2)                                                                                             \
    X(bf16, BPS_BFLOAT16, 2)                                                                                           \
    X(e4m3, BPS_FLOAT8_E4M3FN, 1)                                                                                      \
    X(e5m2, BPS_FLOAT8_E5M2, 1)                                                                                        \
    X(u8, BPS_UINT8, 1)                                                                                                \
    X(i8, BPS_INT8, 1)                                                                                                 \
    X(i16, BPS_INT16, 2)                                                                                               \
    X(i32, BPS_INT32, 4)                                                                                               \
    X(i64, BPS_INT64, 8)                                                                                               \
    X(b8, BPS_BOOL, 1)

/* X(type, dtype, operation, op) */
#define CUDA_OPERATIONS(X, type, dtype)                                                                                \
    X(type, dtype, sum, BPS_SUM)                                                                                       \
    X(type, dtype, min, BPS_MIN)                                                                                       \
    X(type, dtype, max, BPS_MAX)                                                                                       \
    X(type, dtype, product, BPS_PRODUCT)

/* What a kernel is given. */
struct cuda_reduction {
    uint8_t *dst;
    const uint8_t *src[CUDA_SOURCES];
    double scale[CUDA_SOURCES];
    double factor;                 /* of the end; as scale, for floating point alone */
    uint64_t count, head, vectors; /* elements; before the first vector; vectors */
    uint32_t n;
};

#endif
