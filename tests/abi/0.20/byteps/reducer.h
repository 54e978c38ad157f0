/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer.h - the interface for reducers: the arithmetic of the summation service.
 *
 * Elements of type T are accumulated in type A: float32 for floating point of 8 and 16 bits, T for all others. Any
 * alignment of any pointer, any count, 0 included. Elementwise, left to right: results are repeatable bit by bit and
 * do not depend on where a buffer is cut. Thread-safe. The floating-point settings of the calling thread, such as how
 * it rounds, neither matter nor change. Every NaN that is written is the quiet one without sign and payload. min and
 * max are NaN if one of the two is, and take -0 for less than +0. Subnormal numbers count as what they are.
 *
 * Scales multiply in the precision of A. Integers are multiplied in float64, truncated, and become the nearest
 * number that T holds. For integers and bool divisors are 1; for bool scales are, too.
 *
 * The average of integers has `reduce` alone, and NULL for the others: (src[0] + ... + src[n-1]) / divisor,
 * each scaled as above, with a sum that does not wrap. The quotient is rounded to minus infinity; with a scale
 * it is scale * sum / divisor in float64, truncated. The divisor is at least n.
 */
#ifndef BYTEPS_REDUCER_H
#define BYTEPS_REDUCER_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bps_kernels {
    uint32_t accumulator; /* dtype A */
    void *context; /* whatever the reducer needs, such as its instance: the first argument of each; until close */
    /* acc = scale * src. Must allow A == T with acc == src. */
    void (*first)(void *context, void *acc, const void *src, size_t count, double scale);
    /* acc = acc op scale * src */
    void (*fold)(void *context, void *acc, const void *src, size_t count, double scale);
    /*
     * dst = T(scale * acc / divisor). dst may be equal to acc, even where T is narrower than A. For floating
     * point the factor is A(scale / divisor).
     */
    void (*finish)(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor);
    /*
     * All of it in one pass over n >= 1 sources: dst = finish(first(src[0]) fold src[1] ... fold src[n-1]),
     * bit by bit the same as those steps. scales[n], or NULL for all 1. dst may be equal to one of the src.
     */
    void (*reduce)(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor);
    /*
     * For sums of float32 and float64: `reduce` is not those steps but nearer to the exact sum, as it keeps what its
     * additions round off. With x for the elements as they are scaled, and u for 2^-24 or 2^-53, the sum that it
     * finishes is off by no more than u |sum of x| + n^2 u^2 (sum of |x|). Of one or two sources, and where the steps
     * yield no finite number, it yields the same bits as they do. Which contributions meet in one `reduce` is the
     * core's affair: those of one host; and those of all with server.order = "rank".
     */
    bool compensated;
};

struct bps_device_ops; /* device.h */

struct bps_reducer_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    /*
     * Waits for the copies, reductions and batches under way, whose `done` is not called any more; it aborts
     * groups that have not been left. All marks have been released.
     */
    void (*close)(void *instance);
    /*
     * The kernels for BPS_SUM, BPS_MIN, BPS_MAX or BPS_PRODUCT of a type, or BPS_AVERAGE of integers (that of
     * floating point is a sum with a divisor), on host memory. BPS_ERR_UNSUPPORTED if it has none. Called
     * from any thread.
     */
    bps_status (*kernels)(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out);
    /* Optional: one line, such as the instruction set in use. */
    void (*describe)(void *instance, char *text, size_t n);
    /* Optional: it has devices. Its operations must be there, but for those that are optional. */
    const struct bps_device_ops *device;
};

#ifdef __cplusplus
}
#endif
#endif
