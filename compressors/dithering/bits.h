/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bits.h - codes to bits and back, in two forms.
 *
 * Bits are those of 64-bit words, little endian, the first one the lowest; the last word has no more bytes than it
 * needs, and the bits behind the last code are zero.
 *
 * In the fixed form each code has the same number of bits. In Elias's, each that is not zero is the distance from the
 * one before, then the bit of its sign, then the number of its level; the last distance leads to the place behind all
 * codes. Distances (of the first one, from the place before all codes) and numbers are Elias delta: for a number x of N
 * bits, N of M + 1 bits, it is M zeros, a one, the M lower bits of N, and the N - 1 lower bits of x.
 */
#ifndef BPS_DITHERING_BITS_H
#define BPS_DITHERING_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODES_LIMIT  16384u /* at a time */
#define CODE_BITS    16u    /* that a code has at most */
#define ELIAS_MARGIN 8u     /* bytes that Elias's form must save: so it can be written eight bytes at a time */

/* Bytes of the fixed form. */
static inline size_t fixed_bytes(size_t count, unsigned width)
{
    return (count * width + 7) / 8;
}

void bps_dithering_put_fixed(const uint16_t *codes, size_t count, unsigned width, uint8_t *dst);
/* Any codes of so many bits. false: bits behind the last one are not zero. */
bool bps_dithering_get_fixed(const uint8_t *src, unsigned width, uint16_t *codes, size_t count);

/* How many bytes it has written, at most `room` less the margin; 0: they would be more, and `room` is undefined. */
size_t bps_dithering_put_elias(const uint16_t *codes, size_t count, uint8_t *dst, size_t room);
/* How many bytes of the source it has read; 0: it cannot be what put_elias makes of so many codes. */
size_t bps_dithering_get_elias(const uint8_t *src, size_t bytes, uint32_t levels, uint16_t *codes, size_t count);

#endif
