/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes.h - elements to byte planes and back: the same bits.
 *
 * The bits of an element are rotated by one, so that its sign, which looks like chance, comes to the lower end and the
 * exponent of float32 is a byte. The plane p has the byte p of all elements, the highest one being 0; a plane follows
 * the other.
 */
#ifndef BPS_LOSSLESS_PLANES_H
#define BPS_LOSSLESS_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements of `size` bytes, 4 or 8, at any address. */
void bps_lossless_split(const uint8_t *src, size_t count, size_t size, uint8_t *planes);
void bps_lossless_join(const uint8_t *planes, size_t count, size_t size, uint8_t *dst, bool add);

#endif
