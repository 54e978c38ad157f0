/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.h - the part of the DLPack ABI (major version 1) that the extension reads.
 *
 * Written out here so that no framework's headers are needed to build. Two ways lead to a tensor: the
 * capsule that __dlpack__() returns, and the table of C functions behind the type attribute
 * __dlpack_c_exchange_api__.
 */
#ifndef BYTEPS_PYTHON_DLPACK_H
#define BYTEPS_PYTHON_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR 1u

#define DLPACK_CUDA      2
#define DLPACK_CPU       1 /* from here on device types whose memory the CPU can read and write */
#define DLPACK_CUDA_HOST 3
#define DLPACK_ROCM_HOST 11

#define DLPACK_INT     0u /* type codes */
#define DLPACK_UINT    1u
#define DLPACK_FLOAT   2u
#define DLPACK_BFLOAT  4u
#define DLPACK_COMPLEX 5u
#define DLPACK_BOOL    6u
#define DLPACK_E4M3FN  10u /* 8 bits of floating point */
#define DLPACK_E5M2    12u

#define DLPACK_READ_ONLY 1u /* flag */

struct dlpack_version {
    uint32_t major;
    uint32_t minor;
};

struct dlpack_type {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct dlpack_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    struct dlpack_type type;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous */
    uint64_t byte_offset;
};

/* In a capsule named "dltensor". */
struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *);
};

/* In a capsule named "dltensor_versioned". */
struct dlpack_managed_versioned {
    struct dlpack_version version;
    void *context;
    void (*deleter)(struct dlpack_managed_versioned *);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

/* In a capsule named "dlpack_exchange_api", kept by the tensor's type. */
struct dlpack_exchange {
    struct dlpack_version version;
    struct dlpack_exchange *previous; /* the table of an older major version, or NULL */
    void (*unused[3])(void);
    /* Fills a view that lives as long as the object; 0, or -1 with a Python exception. May be NULL. */
    int (*borrow)(void *object, struct dlpack_tensor *out);
    /* The stream that work of the calling thread goes to now; 0, or -1 with a Python exception. */
    int (*stream)(int32_t device_type, int32_t device_id, void **out);
};

#endif
