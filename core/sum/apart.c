/* SPDX-License-Identifier: Apache-2.0 */
/* apart.c - contributions that are kept apart, as they have come: what the policies that do so have in common. */
#include <string.h>

#include "base/assert.h"
#include "sum/round.h"

struct bps_block *bps_apart_entry(const struct bps_sum_cursor *cursor, uint32_t offset, size_t *room)
{
    bps_assert(bps_cursor_round(cursor)->policy->apart && offset <= cursor->bytes);
    (void)offset;
    *room = cursor->bytes;
    return &bps_part_of(cursor)->block;
}

bps_status bps_apart_take(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    bps_assert(offset <= cursor->bytes && bytes <= cursor->bytes - offset);
    struct bps_part *part = bps_part_of(cursor);
    char *block = bps_block_get(cursor->sum, &part->block, cursor->bytes);
    part->scale = cursor->scale;
    if (block != NULL && block + offset != data) {
        memcpy(block + offset, data, bytes);
    }
    return block != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

void bps_apart_free(struct bps_sum_slice *slice)
{
    for (uint32_t i = 0; i < slice->round->ranks->n; i++) {
        if (!bps_part_is_open(slice, i)) {
            bps_block_put(slice->round->sum, &bps_parts(slice)[i].block);
        }
    }
}
