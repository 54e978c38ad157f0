/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows as they travel: read and checked, and written. */
#include "base/rows.h"

#include <string.h>

bool bps_rows_read(const void *data, size_t bytes, uint32_t size, uint32_t row, struct bps_row_list *out)
{
    uint32_t head[2], limit = bps_rows_limit(size, row), i = 0;
    if (bytes < BPS_ROWS_HEAD) {
        return false;
    }
    memcpy(head, data, sizeof head);
    if (head[0] > limit || head[1] != 0 || bytes != bps_rows_bytes(head[0], row)) {
        return false;
    }
    const uint32_t *index = (const uint32_t *)((const char *)data + BPS_ROWS_HEAD);
    while (i < head[0] && index[i] < limit && (i == 0 || index[i] > index[i - 1])) {
        i++;
    }
    *out = (struct bps_row_list){head[0], index, (const char *)data + bps_rows_before(head[0])};
    return i == head[0];
}

char *bps_rows_finish(char *to, uint32_t count)
{
    memcpy(to, (const uint32_t[2]){count}, BPS_ROWS_HEAD);
    size_t end = BPS_ROWS_HEAD + 4 * (size_t)count;
    memset(to + end, 0, bps_rows_before(count) - end);
    return to + bps_rows_before(count);
}
