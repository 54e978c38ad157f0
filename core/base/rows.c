/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows as they travel: read and checked, and written. */
#include "base/rows.h"

#include <string.h>

/* Whether there are so many, ascending and below the limit. */
static bool is_list(const uint32_t *index, uint32_t count, uint32_t limit)
{
    uint32_t i = 0;
    while (i < count && index[i] < limit && (i == 0 || index[i] > index[i - 1])) {
        i++;
    }
    return i == count;
}

/* Whether so many bits are set, and none behind the limit. */
static bool are_bits(const uint64_t *bits, uint32_t count, uint32_t limit)
{
    uint64_t n = 0;
    for (size_t w = 0; w < bps_rows_words(limit); w++) {
        n += (uint64_t)__builtin_popcountll(bits[w]);
    }
    return n == count && (limit % 64 == 0 || bits[limit / 64] >> limit % 64 == 0);
}

bool bps_rows_read(const void *data, size_t bytes, uint32_t size, uint32_t row, struct bps_row_list *out)
{
    uint32_t head[2], limit = bps_rows_limit(size, row);
    if (bytes < BPS_ROWS_HEAD) {
        return false;
    }
    memcpy(head, data, sizeof head);
    uint32_t count = head[0];
    if (count > limit || head[1] != 0 || bytes != bps_rows_before(count, limit) + (size_t)count * row) {
        return false;
    }
    const char *names = (const char *)data + BPS_ROWS_HEAD;
    *out = (struct bps_row_list){.count = count, .data = (const char *)data + bps_rows_before(count, limit)};
    if (bps_rows_by_bits(count, limit)) {
        out->bits = (const uint64_t *)(const void *)names;
        return are_bits(out->bits, count, limit);
    }
    out->index = count < limit ? (const uint32_t *)(const void *)names : NULL;
    return out->index == NULL || is_list(out->index, count, limit);
}

void bps_rows_mark(const struct bps_row_list *list, uint32_t limit, uint64_t *bits)
{
    for (uint32_t i = 0; list->index != NULL && i < list->count; i++) {
        bits[list->index[i] / 64] |= 1ull << list->index[i] % 64;
    }
    for (size_t w = 0; list->bits != NULL && w < bps_rows_words(limit); w++) {
        bits[w] |= list->bits[w];
    }
    if (list->index == NULL && list->bits == NULL) {
        memset(bits, 0xff, limit / 64 * sizeof *bits);
        if (limit % 64 > 0) {
            bits[limit / 64] = (1ull << limit % 64) - 1;
        }
    }
}

void bps_rows_number(const struct bps_row_list *list, uint64_t first, int64_t *to)
{
    if (list->bits == NULL) {
        for (uint32_t i = 0; i < list->count; i++) {
            to[i] = (int64_t)(first + (list->index != NULL ? list->index[i] : i));
        }
        return;
    }
    const uint64_t *word = list->bits;
    for (const int64_t *end = to + list->count; to < end; word++, first += 64) {
        for (uint64_t left = *word; left != 0; left &= left - 1) {
            *to++ = (int64_t)(first + (uint64_t)__builtin_ctzll(left));
        }
    }
}

char *bps_rows_begin(char *to, uint32_t count, uint32_t limit)
{
    size_t before = bps_rows_before(count, limit);
    memset(to, 0, before);
    memcpy(to, &count, sizeof count);
    return to + before;
}

void bps_rows_name_all(char *to, uint32_t count, uint32_t limit, const int64_t *row, int64_t first)
{
    if (!bps_rows_by_bits(count, limit)) {
        for (uint32_t i = 0; i < count && count < limit; i++) {
            bps_rows_name(to, count, limit, i, (uint32_t)(row[i] - first));
        }
        return;
    }
    uint64_t *bits = (uint64_t *)(void *)(to + BPS_ROWS_HEAD);
    /* A word is written once: to read it for each row what was just written takes longer. */
    for (uint32_t i = 0; i < count;) {
        uint64_t word = 0, at = (uint64_t)(row[i] - first) / 64;
        for (; i < count && (uint64_t)(row[i] - first) / 64 == at; i++) {
            word |= 1ull << (uint64_t)(row[i] - first) % 64;
        }
        bits[at] = word;
    }
}

char *bps_rows_write(char *to, uint32_t count, uint32_t limit, const uint64_t *bits)
{
    char *place = bps_rows_begin(to, count, limit);
    if (bps_rows_by_bits(count, limit)) {
        memcpy(to + BPS_ROWS_HEAD, bits, 8 * bps_rows_words(limit));
        return place;
    }
    uint32_t *index = (uint32_t *)(void *)(to + BPS_ROWS_HEAD);
    for (size_t w = 0; count < limit && w < bps_rows_words(limit); w++) {
        for (uint64_t left = bits[w]; left != 0; left &= left - 1) {
            *index++ = (uint32_t)(64 * w + (uint32_t)__builtin_ctzll(left));
        }
    }
    return place;
}

/* ---- of a slice ---- */

bool bps_row_parts_read(const void *data, size_t bytes, uint32_t size, uint32_t row, uint32_t element,
                        struct bps_row_cut *cut, struct bps_row_list *out)
{
    uint32_t head[2];
    if (bytes < BPS_ROWS_HEAD) {
        return false;
    }
    memcpy(head, data, sizeof head);
    *cut = (struct bps_row_cut){row, head[1], size};
    uint32_t limit = head[1] < row && head[1] % element == 0 ? bps_row_cut_limit(cut) : 0;
    const char *names = (const char *)data + BPS_ROWS_HEAD;
    *out = (struct bps_row_list){.count = head[0], .index = (const uint32_t *)(const void *)names};
    if (head[0] > limit || bytes < bps_row_parts_before(head[0]) || !is_list(out->index, head[0], limit)) {
        return false;
    }
    out->data = (const char *)data + bps_row_parts_before(head[0]);
    size_t parts = 0;
    for (uint32_t i = 0; i < head[0]; i++) {
        parts += bps_row_part_bytes(cut, out->index[i]);
    }
    return bytes == bps_row_parts_before(head[0]) + parts;
}

char *bps_row_parts_finish(char *to, uint32_t count, const struct bps_row_cut *cut)
{
    size_t end = BPS_ROWS_HEAD + 4 * (size_t)count, before = bps_row_parts_before(count);
    memcpy(to, (const uint32_t[2]){count, cut->before}, BPS_ROWS_HEAD);
    memset(to + end, 0, before - end);
    return to + before;
}
