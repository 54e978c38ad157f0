/* SPDX-License-Identifier: Apache-2.0 */
/* kept.h - how many elements of a slice compressors keep that send some of them only. */
#ifndef BPS_COMPRESSOR_KEPT_H
#define BPS_COMPRESSOR_KEPT_H

#include <byteps/plugin.h>

#include "util/environment.h"

/* The option k. */
#define KEPT_HELP                                                                                                      \
    "Elements to keep: below 1, that fraction of a slice, rounded to nearest, at least one; else their number."

static inline bool kept_is_valid(double k, struct bps_report *report)
{
    if (!(k > 0)) {
        BPS_REPORT(report, "k = %g: expected more than 0", k);
        return false;
    }
    return true;
}

/* As the original BytePS has it: in float32, of the bytes of a slice that is filled up to whole words of signs. */
static inline size_t kept_part_compat(double k, size_t count, size_t size)
{
    size_t word = 8 * size, padded = (count + word - 1) / word * word;
    volatile float factor = (float)k, bytes = (float)(padded * size);
    volatile float part = factor * bytes;
    part = part / (float)size;
    return (size_t)part;
}

static inline size_t kept_part(double k, size_t count)
{
    volatile double factor = k, part = factor * (double)count + 0.5;
    return (size_t)part;
}

/*
 * `compat`: as the original has it, of elements of so many bytes; 0: not so. The accesses to volatile objects keep the
 * products between fp_enter and fp_leave: peers must agree about them, whatever their threads have set.
 */
static inline size_t kept_of(double k, size_t count, size_t compat)
{
    if (k >= 1) {
        return k < (double)count ? (size_t)k : count;
    }
    uint32_t state = fp_enter();
    size_t kept = compat > 0 ? kept_part_compat(k, count, compat) : kept_part(k, count);
    fp_leave(state);
    kept = kept < 1 ? 1 : kept;
    return kept < count ? kept : count;
}

#endif
