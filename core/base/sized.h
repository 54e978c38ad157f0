/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sized.h - structs that begin with their size: whoever made one knew an older or a newer version than this. Fields are
 * only ever added to the end, and 0 in a new one is what there was before. [any thread]
 */
#ifndef BPS_BASE_SIZED_H
#define BPS_BASE_SIZED_H

#include <stddef.h>

#include <byteps/types.h>

#include "base/layout.h"

/*
 * Makes *own, of `size` bytes, of what lies at `given`: what that has not is 0. With own NULL it only checks.
 * BPS_ERR_INVALID: it is NULL, or smaller than the first version of it; BPS_ERR_UNSUPPORTED: it is larger, and what
 * this version does not know is not 0.
 */
bps_status bps_sized(const void *given, void *own, size_t size, size_t least, const char *name,
                     struct bps_report *report);
#define BPS_SIZED(struct_, given_, own_, report_)                                                                      \
    bps_sized((given_), (own_), sizeof(struct struct_), BPS_LEAST(struct_), #struct_, (report_))

/* The other way: `out` is the caller's, of the size that it says, and gets as much of *own, and 0 for more. */
bps_status bps_sized_out(void *out, const void *own, size_t size, size_t least, const char *name,
                         struct bps_report *report);
#define BPS_SIZED_OUT(struct_, out_, own_, report_)                                                                    \
    bps_sized_out((out_), (own_), sizeof(struct struct_), BPS_LEAST(struct_), #struct_, (report_))

#endif
