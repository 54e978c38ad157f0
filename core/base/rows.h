/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - rows of a partition as they travel: how many (4 bytes, then 4 of zeros), which ones, and their elements.
 * Rows are counted from the first one that begins in the partition, and ascend. Which ones is said in the fewest bytes,
 * so that rows never take notably more than all of the partition: nothing is said if they are all that begin in it;
 * else there is a list (4 bytes each, then zeros up to a multiple of 8), or, of more than about one in 32, a bit for
 * each row that begins there (of the first one the lowest of the first byte; then zeros up to a multiple of 8 bytes).
 *
 * Of a value something alike is sent for each slice, which may begin or end within a row: of such a row only the part
 * that is in the slice. They count from the first row of which something is in it; in place of the 4 bytes of zeros it
 * says how much of that row lies before the slice. Which ones is always a list.
 */
#ifndef BPS_BASE_ROWS_H
#define BPS_BASE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPS_ROWS_HEAD 8u /* bytes */

/* Neither index nor bits: they are all that there may be. */
struct bps_row_list {
    uint32_t count;
    const uint32_t *index;
    const uint64_t *bits;
    const char *data;
};

/* Rows that may begin in a partition of so many bytes. */
static inline uint32_t bps_rows_limit(uint32_t size, uint32_t row)
{
    return (uint32_t)(((uint64_t)size + row - 1) / row);
}

/* Of a bit for each row, in words of 64. */
static inline size_t bps_rows_words(uint32_t limit)
{
    return ((size_t)limit + 63) / 64;
}

static inline size_t bps_rows_list_bytes(uint64_t count)
{
    return (4 * count + 7) / 8 * 8;
}

/* Whether so many, of so many that there may be, are told by bits; else by a list, if not all. */
static inline bool bps_rows_by_bits(uint32_t count, uint32_t limit)
{
    return count < limit && bps_rows_list_bytes(count) > 8 * bps_rows_words(limit);
}

/* Bytes before the elements of so many rows. */
static inline size_t bps_rows_before(uint32_t count, uint32_t limit)
{
    size_t list = count < limit ? bps_rows_list_bytes(count) : 0;
    return BPS_ROWS_HEAD + (bps_rows_by_bits(count, limit) ? 8 * bps_rows_words(limit) : list);
}

/* Bytes of at most so many rows. */
static inline size_t bps_rows_room(uint32_t count, uint32_t limit, uint32_t row)
{
    size_t list = bps_rows_list_bytes(count), bits = 8 * bps_rows_words(limit);
    return BPS_ROWS_HEAD + (list < bits ? list : bits) + (size_t)count * row;
}

/* And of all that may begin in a partition. */
static inline size_t bps_rows_bound(uint32_t size, uint32_t row)
{
    return bps_rows_room(bps_rows_limit(size, row), bps_rows_limit(size, row), row);
}

/* Whether a partition of so many bytes can have these rows, of `row` bytes each. */
bool bps_rows_read(const void *data, size_t bytes, uint32_t size, uint32_t row, struct bps_row_list *out);
/* Adds them to bits, of which there is one for each row that there may be. */
void bps_rows_mark(const struct bps_row_list *list, uint32_t limit, uint64_t *bits);
/* Their numbers, counted from another row: this one has that number. */
void bps_rows_number(const struct bps_row_list *list, uint64_t first, int64_t *to);

/* Writes what comes before the elements of so many rows, each still to be named; returns where elements begin. */
char *bps_rows_begin(char *to, uint32_t count, uint32_t limit);

/* Row number i of them is this one. */
static inline void bps_rows_name(char *to, uint32_t count, uint32_t limit, uint32_t i, uint32_t row)
{
    if (bps_rows_by_bits(count, limit)) {
        ((uint64_t *)(void *)(to + BPS_ROWS_HEAD))[row / 64] |= 1ull << row % 64;
    } else if (count < limit) {
        ((uint32_t *)(void *)(to + BPS_ROWS_HEAD))[i] = row;
    }
}

/* All of them are these, counted from that one. */
void bps_rows_name_all(char *to, uint32_t count, uint32_t limit, const int64_t *row, int64_t first);
/* Both, of rows that bits say. */
char *bps_rows_write(char *to, uint32_t count, uint32_t limit, const uint64_t *bits);

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

/* Bytes before the elements of so many. */
static inline size_t bps_row_parts_before(uint32_t count)
{
    return BPS_ROWS_HEAD + bps_rows_list_bytes(count);
}

/* Bytes of so many, at most, wherever the slice begins. */
static inline size_t bps_row_parts_bound(uint32_t count, uint32_t bytes, uint32_t row)
{
    uint64_t all = (uint64_t)count * row;
    return bps_row_parts_before(count) + (all < bytes ? all : bytes);
}

/*
 * Whether a slice of so many bytes can have these rows. *cut: where it begins, as they say, which is
 * between two elements of this size.
 */
bool bps_row_parts_read(const void *data, size_t bytes, uint32_t size, uint32_t row, uint32_t element,
                        struct bps_row_cut *cut, struct bps_row_list *out);
/* Writes what comes before the elements, but for the list, which is there; returns where elements begin. */
char *bps_row_parts_finish(char *to, uint32_t count, const struct bps_row_cut *cut);

#endif
