/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor.h - the interface for compressors.
 *
 * A compressor codes slices of tensors, so that they need fewer bytes on their way, and makes elements of
 * what has arrived. It keeps nothing between two calls: what coding has lost is the core's to keep (error
 * feedback). The same elements and random numbers make the same bytes again. Any alignment of any pointer, any count, 0
 * included. Thread-safe: several threads of a worker code at once, and each server thread has its own instance.
 * There is no event loop.
 *
 * Slices: workers encode what they contribute and decode results, servers decode contributions and encode their sum, a
 * slice at a time: as many elements as `bound` allows in worker.slice of byteps.conf(5), a multiple of 64 and at
 * least this many; the last slice of a partition has what is left. Each is coded for itself.
 *
 * Types: the core passes BPS_FLOAT32 and BPS_FLOAT64 only; float16 and bfloat16 it widens before.
 * Overflow stays visible: if an element is not finite, at least that element, or all of its block or slice as the
 * plugin documents, is not finite after it was coded and decoded.
 */
#ifndef BYTEPS_COMPRESSOR_H
#define BYTEPS_COMPRESSOR_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers from which a method draws what it needs. One that draws nothing ignores them. */
struct bps_random {
    uint64_t shared; /* the same on all workers and the server for a slice of a round; others for other ones */
    uint64_t own;    /* differs among workers, too */
    uint64_t seed;   /* as the user has given it; 0: he has not. The two above depend on it, too */
    uint64_t round;  /* how often this slice was coded before, by each of them */
};

struct bps_compressor_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance);
    /*
     * Bytes that `count` elements of that type need at most when coded; no fewer for more elements. It is asked for up
     * to 2^30. A type of which one element needs 0 is not coded.
     */
    size_t (*bound)(void *instance, uint32_t dtype, size_t count);
    /*
     * Codes the elements at src into dst, which has room for bound() bytes; how many it has written. That is 1 to
     * bound() of one element or more; anything else fails the tensor, and the error names the compressor.
     */
    size_t (*encode)(void *instance, uint32_t dtype, const void *src, size_t count, const struct bps_random *random,
                     void *dst);
    /*
     * dst = the elements that src stands for. The bytes come from a peer and are not trusted:
     * BPS_ERR_PROTOCOL if they cannot be what encode makes of this many elements; dst is undefined then.
     */
    bps_status (*decode)(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count);
    /* The same, but dst += these elements that decode makes. */
    bps_status (*decode_add)(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count);
    /* Optional: one line. */
    void (*describe)(void *instance, char *text, size_t n);
};

#ifdef __cplusplus
}
#endif
#endif
