/* SPDX-License-Identifier: Apache-2.0 */
/*
 * indices.h - increasing indices as a string of bits, and what stands at them.
 *
 * The code of Elias and Fano: of `kept` indices below `count` the lowest floor(log2(count / kept)) bits are as they
 * are, and the rest, which increases, is the distance of ones in a row of zeros and ones. That is at most 2 +
 * log2(count / kept) bits an index, whatever they are, half a bit more than the least there can be on average; and the
 * length does not depend on them. (There are never more than 32 low bits.)
 */
#ifndef BPS_TOPK_INDICES_H
#define BPS_TOPK_INDICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * First the row: where the j-th index, from 0, has the high bits h, there is a one at h + j. Behind it the low bits of
 * each. Bits are counted from the lowest of the first byte.
 */
struct indices {
    size_t count, kept;
    unsigned low; /* bits */
    size_t row;   /* bits */
    size_t bytes;
};

/* kept is 0 only if count is. */
struct indices indices_layout(size_t count, size_t kept);

/* A string while it is written. */
struct index_writer {
    struct indices indices;
    uint8_t *string, *low; /* where the low bits go on */
    size_t written;
    uint64_t pending; /* low bits that are not in the string yet, */
    unsigned bits;    /* and how many */
};

struct index_writer indices_begin(const struct indices *indices, uint8_t *string);
/* The next `n` indices: first + places[...]. */
void indices_put(struct index_writer *writer, size_t first, const uint16_t *places, size_t n);
void indices_end(struct index_writer *writer);

/* dst, `count` elements of 4 or 8 bytes, gets the values at their indices. false: the string is no code of any. */
bool indices_assign32(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst);
bool indices_assign64(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst);
/* The same, but they are added, as float32 or float64. */
bool indices_add32(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst);
bool indices_add64(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst);

#endif
