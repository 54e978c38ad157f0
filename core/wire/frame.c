/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - the frame header to bytes and back, little endian whatever the machine. */
#include "wire/frame.h"

#include <endian.h>
#include <string.h>

/* Bytes of each field, in their order. */
static const uint8_t fields[] = {4, 1, 1, 1, 1, 4, 4, 8, 4, 4, 4, 4, 8, 8, 4, 2, 2, 4, 4, 4, 2, 2, 4, 4, 8};

_Static_assert(sizeof(struct bps_header) == BPS_HEADER_BYTES, "it is laid out in memory as it travels");

/* From the order of bytes of this machine to that of the wire, or back: only one that is big endian has another. */
static void frame_turn(uint8_t *at)
{
    for (size_t i = 0; BYTE_ORDER == BIG_ENDIAN && i < sizeof fields; at += fields[i++]) {
        for (uint8_t from = 0, to = (uint8_t)(fields[i] - 1); from < to; from++, to--) {
            uint8_t byte = at[from];
            at[from] = at[to];
            at[to] = byte;
        }
    }
}

void bps_header_encode(const struct bps_header *header, uint8_t out[BPS_HEADER_BYTES])
{
    memcpy(out, header, BPS_HEADER_BYTES);
    frame_turn(out);
}

bps_status bps_header_decode(const uint8_t in[BPS_HEADER_BYTES], struct bps_header *out)
{
    memcpy(out, in, BPS_HEADER_BYTES);
    frame_turn((uint8_t *)out);
    bool known = (out->type >= BPS_FRAME_CHALLENGE && out->type <= BPS_FRAME_NEWCOMERS) ||
                 (out->type >= BPS_FRAME_PUSH && out->type <= BPS_FRAME_GROUP);
    bool pushes = out->type == BPS_FRAME_PUSH;
    bool coding_fits = out->coding == 0 || pushes;
    bool shape_fits = out->shape == 0 || pushes || out->type == BPS_FRAME_READY;
    bool view_fits = out->view == 0 || pushes || out->type == BPS_FRAME_POISON || out->type == BPS_FRAME_HELD;
    bool for_group = pushes && (out->flags & BPS_FLAG_GROUP) != 0;
    bool late_fits = (out->late == 0 && out->last == 0) || (for_group && out->late != 0);
    bool unnamed = out->tensor >= BPS_ID_UNNAMED || out->type == BPS_FRAME_GROUP;
    bool group_fits = out->group == 0 ? out->type != BPS_FRAME_GROUP : unnamed;
    return known && coding_fits && shape_fits && view_fits && late_fits && group_fits ? BPS_OK : BPS_ERR_PROTOCOL;
}
