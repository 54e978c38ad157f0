/* SPDX-License-Identifier: Apache-2.0 */
/* values.h - the elements that are drawn, out of a slice and into one; to be called as environment.h says. */
#ifndef BPS_RANDOMK_VALUES_H
#define BPS_RANDOMK_VALUES_H

#include "draw.h"

/* Elements of one type at any address; `values` has as many as are drawn. */
struct randomk_values {
    size_t size; /* of an element */
    /* Writes the elements times `factor`. One that is drawn again is -0.0 then, which adds nothing. */
    void (*gather)(const uint8_t *src, const struct draw *draw, double factor, uint8_t *values);
    /* Adds the values to their elements, or puts them there. */
    void (*scatter)(const uint8_t *values, const struct draw *draw, bool add, uint8_t *dst);
    /* Whether all elements are finite. */
    bool (*finite)(const uint8_t *src, size_t count);
    /* How many elements are NaN; all of them become NaN. */
    size_t (*nans)(const uint8_t *src, size_t count);
    void (*break_all)(uint8_t *dst, size_t count);
};

extern const struct randomk_values randomk_values32, randomk_values64;

#endif
