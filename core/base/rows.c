/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows as they travel: read and checked, and written. */
#include "base/rows.h"

#include <string.h>

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
    const uint32_t *index = (const uint32_t *)((const char *)data + BPS_ROWS_HEAD);
    for (uint32_t i = 0; i < head[0]; i++) {
        if (index[i] >= limit || (i > 0 && index[i] <= index[i - 1])) {
            return false;
        }
    }
    *out = (struct bps_row_list){head[0], index, (const char *)data + bps_rows_before(head[0])};
    return true;
}

char *bps_rows_finish(void *data, uint32_t count)
{
    const uint32_t head[2] = {count, 0};
    char *to = data;
    size_t end = BPS_ROWS_HEAD + 4 * (size_t)count;
    memcpy(to, head, sizeof head);
    memset(to + end, 0, bps_rows_before(count) - end);
    return to + bps_rows_before(count);
}
