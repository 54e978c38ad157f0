/* SPDX-License-Identifier: Apache-2.0 */
/* spare.c - see spare.h. */
#include "wire/spare.h"

#include <stdlib.h>

#include "base/container.h"

struct bps_spare_piece {
    SLIST_ENTRY(bps_spare_piece) entry;
    size_t room;
    max_align_t memory[];
};

static struct bps_spare_piece *take_piece(struct bps_spare *spare)
{
    struct bps_spare_piece *piece = SLIST_FIRST(&spare->pieces);
    if (piece != NULL) {
        SLIST_REMOVE_HEAD(&spare->pieces, entry);
        spare->bytes -= piece->room;
    }
    return piece;
}

/* One that is too small goes: in the end all that are kept are as large as the largest slices. */
void *bps_spare_take(struct bps_spare *spare, size_t bytes)
{
    struct bps_spare_piece *piece = take_piece(spare);
    if (piece == NULL || piece->room < bytes) {
        free(piece);
        piece = malloc(sizeof *piece + bytes);
        if (piece == NULL) {
            return NULL;
        }
        piece->room = bytes;
    }
    return piece->memory;
}

void bps_spare_give(struct bps_spare *spare, void *memory, size_t limit)
{
    struct bps_spare_piece *piece = bps_container(memory, struct bps_spare_piece, memory);
    if (piece->room > limit || spare->bytes > limit - piece->room) {
        free(piece);
        return;
    }
    SLIST_INSERT_HEAD(&spare->pieces, piece, entry);
    spare->bytes += piece->room;
}

void bps_spare_fini(struct bps_spare *spare)
{
    struct bps_spare_piece *piece;
    while ((piece = take_piece(spare)) != NULL) {
        free(piece);
    }
}
