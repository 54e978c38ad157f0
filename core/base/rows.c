/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows as they travel: read and checked, and written. */
#include "base/rows.h"

#include <string.h>

/* The indices, if they ascend and are below the limit; what comes behind them is there. */
static bool read_list(const char *data, uint32_t count, uint32_t limit, struct bps_row_list *out)
{
    const uint32_t *index = (const uint32_t *)(const void *)(data + BPS_ROWS_HEAD);
    uint32_t i = 0;
    while (i < count && index[i] < limit && (i == 0 || index[i] > index[i - 1])) {
        i++;
    }
    *out = (struct bps_row_list){count, index, data + bps_rows_before(count)};
    return i == count;
}

bool bps_rows_read(const void *data, size_t bytes, uint32_t size, uint32_t row, struct bps_row_list *out)
{
    uint32_t head[2], limit = bps_rows_limit(size, row);
    if (bytes < BPS_ROWS_HEAD) {
        return false;
    }
    memcpy(head, data, sizeof head);
    if (head[0] > limit || head[1] != 0 || bytes != bps_rows_bytes(head[0], row)) {
        return false;
    }
    return read_list(data, head[0], limit, out);
}

/* And zeros behind the indices. */
static char *write_head(char *to, uint32_t count, uint32_t before)
{
    memcpy(to, (const uint32_t[2]){count, before}, BPS_ROWS_HEAD);
    size_t end = BPS_ROWS_HEAD + 4 * (size_t)count;
    memset(to + end, 0, bps_rows_before(count) - end);
    return to + bps_rows_before(count);
}

char *bps_rows_finish(char *to, uint32_t count)
{
    return write_head(to, count, 0);
}

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
    if (head[0] > limit || bytes < bps_rows_before(head[0]) || !read_list(data, head[0], limit, out)) {
        return false;
    }
    size_t parts = 0;
    for (uint32_t i = 0; i < head[0]; i++) {
        parts += bps_row_part_bytes(cut, out->index[i]);
    }
    return bytes == bps_rows_before(head[0]) + parts;
}

char *bps_row_parts_finish(char *to, uint32_t count, const struct bps_row_cut *cut)
{
    return write_head(to, count, cut->before);
}
