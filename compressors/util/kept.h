/* SPDX-License-Identifier: Apache-2.0 */
/* kept.h - how many elements of a slice compressors keep that send some of them only. */
#ifndef BPS_COMPRESSOR_KEPT_H
#define BPS_COMPRESSOR_KEPT_H

#include <byteps/plugin.h>

#include "util/environment.h"

/* The option k. */
#define KEPT_HELP                                                                                                      \
    "Elements that are kept: below 1 that part of a slice's, rounded to nearest, but at least one; else so many."

static inline bool kept_is_valid(double k, struct bps_report *report)
{
    if (!(k > 0)) {
        BPS_REPORT(report, "k = %g: expected more than 0", k);
        return false;
    }
    return true;
}

/*
 * `down`: a part is rounded down. The accesses to volatile objects keep the product between fp_enter and fp_leave:
 * peers must agree about it, whatever their threads have set.
 */
static inline size_t kept_of(double k, size_t count, bool down)
{
    if (k >= 1) {
        return k < (double)count ? (size_t)k : count;
    }
    uint32_t state = fp_enter();
    volatile double factor = k, part = factor * (double)count + (down ? 0 : 0.5);
    fp_leave(state);
    size_t kept = (size_t)part;
    kept = kept < 1 ? 1 : kept;
    return kept < count ? kept : count;
}

#endif
