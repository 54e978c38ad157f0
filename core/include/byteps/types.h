/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - what applications and plugins have in common: status, report, data types, operations and devices.
 *
 * The functions are libbyteps's: a plugin, which does not link to it, has only the types and the numbers.
 */
#ifndef BYTEPS_TYPES_H
#define BYTEPS_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_API __attribute__((visibility("default")))

/* ---- status ------------------------------------------------------------------------------------------- */

/* 0 is success, positive values mean "not finished", negative values are errors. */
typedef int bps_status;

#define BPS_OK              0
#define BPS_INPROGRESS      1     /* the operation goes on; its completion will be reported */
#define BPS_AGAIN           2     /* nothing to do or no room now; ask again later */
#define BPS_ERR_INVALID     (-1)  /* an argument or value is not allowed */
#define BPS_ERR_CONF        (-2)  /* the configuration is wrong */
#define BPS_ERR_PLUGIN      (-3)  /* a plugin was refused */
#define BPS_ERR_NOMEM       (-4)  /* out of memory */
#define BPS_ERR_IO          (-5)  /* a system call failed */
#define BPS_ERR_TIMEOUT     (-6)  /* a deadline has passed */
#define BPS_ERR_LOST        (-7)  /* a member of the job was lost */
#define BPS_ERR_MISMATCH    (-8)  /* the workers disagree about a tensor */
#define BPS_ERR_BUSY        (-9)  /* a tensor of this name or in this memory is in flight, or a port is taken */
#define BPS_ERR_STATE       (-10) /* not initialised, already shut down, or in a forked child */
#define BPS_ERR_UNSUPPORTED (-11) /* this build, plugin or data type cannot do it */
#define BPS_ERR_PROTOCOL    (-12) /* a peer sent bytes that the protocol does not allow */
#define BPS_ERR_REFUSED     (-13) /* the job refused this process */
#define BPS_ERR_FAILED      (-14) /* a stage failed on some worker */
#define BPS_ERR_MEMBERSHIP  (-15) /* a worker was lost or has left, and the others go on after bps_reform() */

/* Returns a static English phrase for a status, without the details that a report carries. */
BPS_API const char *bps_strerror(bps_status status);

/* One line of explanation, owned by the caller. Always terminated; too long text is cut. */
struct bps_report {
    char text[1024];
};

/* ---- data types and operations ------------------------------------------------------------------------ */

/* Element types. The numbers are part of the wire format. */
#define BPS_FLOAT32  0u
#define BPS_FLOAT64  1u
#define BPS_FLOAT16  2u
#define BPS_UINT8    3u
#define BPS_INT32    4u
#define BPS_INT8     5u
#define BPS_INT64    6u
#define BPS_BFLOAT16 7u
#define BPS_INT16    8u
#define BPS_BOOL     9u /* one byte, 0 or 1 */
/*
 * Floating point in 8 bits ("FP8 Formats for Deep Learning", Micikevicius et al., 2022): E4M3 with 3 bits of
 * fraction, up to 448, has a NaN and no infinity, so that what is too large becomes NaN; E5M2 has 2, up to
 * 57344, and is the upper half of float16.
 */
#define BPS_FLOAT8_E4M3FN 10u
#define BPS_FLOAT8_E5M2   11u
#define BPS_DTYPES        12u

/*
 * Reductions over the workers. Floating point of 8 and 16 bits is accumulated in float32 and rounded once; in
 * a job of several hosts the sum of each host is, too, for 16 bits, unless worker.round_on_host = false. The average
 * of floating point is finite where the mean is, also if the sum is not; subnormal contributions may be rounded for
 * that. Sums and products of integers wrap. The average of integers does not: it is the mean, however large the sum
 * is, rounded towards minus infinity. For bool, sum and max are "or", product and min are "and", and there is
 * no average. min and max yield NaN where any worker has NaN.
 */
#define BPS_SUM     0u
#define BPS_AVERAGE 1u
#define BPS_MIN     2u
#define BPS_MAX     3u
#define BPS_PRODUCT 4u
#define BPS_OPS     5u

/* How what the workers push of a tensor meets. */
enum bps_mode {
    BPS_MODE_CONFIGURED, /* as `mode` of the stage push_pull in byteps.conf(5) is, "sync" by default */
    BPS_MODE_SYNC,       /* the result is made of what all workers push, and each waits for all */
    /*
     * The servers keep a value of the tensor. What a worker pushes is added to it, and its result is what the value is
     * then; nobody waits for the others, and each may push as often as it likes. For training without rounds, a worker
     * pushes by what its step has changed the parameters. A bps_broadcast() sets the value; before the first one a
     * push_pull is BPS_ERR_STATE. Sums and averages alone, the latter of each push divided by the number of workers;
     * without postscale and coding, and of one form for ever.
     */
    BPS_MODE_ASYNC,
};

/* Bytes of one element, 0 for an unknown type. */
BPS_API size_t bps_dtype_size(uint32_t dtype);
/* "float32" and so on; "?" for an unknown type. */
BPS_API const char *bps_dtype_name(uint32_t dtype);
/* "sum" and so on; "?" for an unknown operation. */
BPS_API const char *bps_op_name(uint32_t op);

/* ---- devices ------------------------------------------------------------------------------------------- */

/* Kinds of memory that are not the host's: the numbers of DLPack. */
#define BPS_DEVICE_HOST 0u
#define BPS_DEVICE_CUDA 2u

/*
 * Where a tensor lies. For device memory a reducer of worker.use must bring that type of device. The
 * operation begins behind all work that `stream` was given before. What `stream` is given after the operation
 * has ended, which is when bps_wait() has returned or `done` is called, finds the result. The host waits for
 * neither. Stream and memory live at least until then. Such an operation may take host memory, as bps_alloc()
 * does, and like that may not be started from `done`.
 */
struct bps_device {
    uint32_t type; /* BPS_DEVICE_*; 0: host memory, and the rest is ignored */
    int32_t index; /* of the device */
    void *stream;  /* of the device, such as a CUstream; NULL: its default stream */
};

#ifdef __cplusplus
}
#endif
#endif
