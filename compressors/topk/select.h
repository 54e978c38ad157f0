/* SPDX-License-Identifier: Apache-2.0 */
/* select.h - which elements have the largest magnitudes: a key, and how many with that very key. */
#ifndef BPS_TOPK_SELECT_H
#define BPS_TOPK_SELECT_H

#include "kernels.h"

/* Of the elements those with larger keys, and the first `ties` of those with this one. */
struct threshold {
    uint64_t key;
    size_t ties;
};

/* That of `kept` of the `count` elements, 1 <= kept <= count, of `size` bytes each. */
struct threshold topk_select(const struct topk_kernels *kernels, const uint8_t *src, size_t count, size_t size,
                             size_t kept);

#endif
