/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - rows of a partition as they travel: how many (4 bytes, then 4 of zeros), which ones (4 bytes each, counted
 * from the first row that begins in the partition, ascending, then zeros up to a multiple of 8), and their elements.
 *
 * Of a value the same is sent for each slice, which may begin or end within a row: of such a row only the part that is
 * in the slice. They count from the first row of which something is in it; in place of the 4 bytes of zeros it says how
 * much of that row lies before the slice.
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

/* ---- of a slice ---- */

/* Where it cuts the rows of a table. */
struct bps_row_cut {
    uint32_t row, before; /* bytes of a row, and of the first one before the slice */
    uint32_t bytes;       /* of the slice */
};

/* Of a slice that begins at this byte of the table. */
static inline struct bps_row_cut bps_row_cut(uint64_t offset, uint32_t bytes, uint32_t row)
{
    return (struct bps_row_cut){row, (uint32_t)(offset % row), bytes};
}

/* Rows of which something may be in it. */
static inline uint32_t bps_row_cut_limit(const struct bps_row_cut *cut)
{
    return (uint32_t)(((uint64_t)cut->before + cut->bytes + cut->row - 1) / cut->row);
}

/* What is in the slice of its row with this number: from which byte on, and as many. */
static inline uint32_t bps_row_part_at(const struct bps_row_cut *cut, uint32_t number)
{
    return number == 0 ? 0 : (uint32_t)((uint64_t)number * cut->row - cut->before);
}

static inline uint32_t bps_row_part_bytes(const struct bps_row_cut *cut, uint32_t number)
{
    uint64_t end = ((uint64_t)number + 1) * cut->row - cut->before;
    return (uint32_t)(end < cut->bytes ? end : cut->bytes) - bps_row_part_at(cut, number);
}

/* Bytes of so many, at most, wherever the slice begins. */
static inline size_t bps_row_parts_bound(uint32_t count, uint32_t bytes, uint32_t row)
{
    uint64_t all = (uint64_t)count * row;
    return bps_rows_before(count) + (all < bytes ? all : bytes);
}

/*
 * Whether a slice of so many bytes can have these rows. *cut: where it begins, as they say, which is
 * between two elements of this size.
 */
bool bps_row_parts_read(const void *data, size_t bytes, uint32_t size, uint32_t row, uint32_t element,
                        struct bps_row_cut *cut, struct bps_row_list *out);
/* As bps_rows_finish(). */
char *bps_row_parts_finish(char *to, uint32_t count, const struct bps_row_cut *cut);

#endif
