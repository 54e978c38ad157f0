/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - rows of a partition as they travel: how many (4 bytes, then 4 of zeros), which ones (4 bytes each, counted
 * from the first row that begins in the partition, ascending, then zeros up to a multiple of 8), and their elements.
 */
#ifndef BPS_BASE_ROWS_H
#define BPS_BASE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPS_ROWS_HEAD 8u /* bytes */

struct bps_row_list {
    uint32_t count;
    const uint32_t *index;
    const char *data;
};

/* Rows that may begin in a partition of so many bytes. */
static inline uint32_t bps_rows_limit(uint32_t size, uint32_t row)
{
    return (uint32_t)(((uint64_t)size + row - 1) / row);
}

/* Bytes before the elements of so many rows, with them, and of all that may begin in a partition. */
static inline size_t bps_rows_before(uint64_t count)
{
    return BPS_ROWS_HEAD + (4 * count + 7) / 8 * 8;
}

static inline size_t bps_rows_bytes(uint64_t count, uint32_t row)
{
    return bps_rows_before(count) + count * row;
}

static inline size_t bps_rows_bound(uint32_t size, uint32_t row)
{
    return bps_rows_bytes(bps_rows_limit(size, row), row);
}

/* Whether a partition of so many bytes can have these rows, of `row` bytes each. */
bool bps_rows_read(const void *data, size_t bytes, uint32_t size, uint32_t row, struct bps_row_list *out);
/* Writes what comes before the elements, but for the indices, which are there; returns where elements begin. */
char *bps_rows_finish(char *to, uint32_t count);

#endif
