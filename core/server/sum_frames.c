/* SPDX-License-Identifier: Apache-2.0 */
/* sum_frames.c - frames to the words of those who sum, and back. What only a frame can have wrong is checked here. */
#include "server/sum_frames.h"

#include "sum/value.h"

/* Of a PUSH that is coded, but for EXACT, which is ROWS of one that is not. */
#define CODED_FLAGS (BPS_FLAG_BRINGS | BPS_FLAG_DROPPED)

static bool names_round(const struct bps_header *h)
{
    return h->tensor != 0 && (h->tensor < BPS_ID_UNNAMED || h->round == 0);
}

bps_status bps_frame_contribution(const struct bps_header *h, struct bps_contribution *out)
{
    bool finite = h->prescale - h->prescale == 0.0 && h->postscale - h->postscale == 0.0;
    *out = (struct bps_contribution){
        .id = bps_frame_round(h),
        .spec = {.bytes = h->bytes, .dtype = h->dtype, .shape = h->shape, .postscale = h->postscale},
        .prescale = h->prescale,
        .priority = h->priority,
        .size = h->size,
        .slice = h->slice,
        .offset = h->offset,
        .length = h->length,
        .step = h->step,
        .last = h->last,
        .late = h->late,
        .mark = h->tensor < BPS_ID_UNNAMED ? 0 : h->round,
        .for_group = (h->flags & BPS_FLAG_GROUP) != 0,
        .view = h->view,
        .codes = (h->flags & BPS_FLAG_CODES) != 0,
        .counts = (h->flags & BPS_FLAG_COUNTS) != 0,
        .empty = (h->flags & BPS_FLAG_EMPTY) != 0};
    bool plain = h->coding == 0 && (h->flags & CODED_FLAGS) == 0;
    bool known = h->tensor != 0 && (h->tensor < BPS_ID_UNNAMED || h->round <= BPS_ID_NUMBER);
    known = bps_op_read(h->op, &out->spec.kind, &out->spec.op) && known;
    out->spec.roles = bps_roles_read(out->spec.op, h->root);
    if ((h->flags & BPS_FLAG_ROWS) != 0 && h->coding == 0) {
        bool keeps = (h->flags & BPS_FLAG_KEEPS) != 0; /* such values are cut as others, and have no roles */
        out->spec.roles = bps_roles_read(out->spec.op, keeps ? 0 : h->root);
        out->spec.row = keeps ? h->root : h->slice;
        out->slice = keeps ? h->slice : 0;
    }
    return known && finite && plain ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* By kind of notice. */
static const uint8_t types[] = {BPS_FRAME_POISON, BPS_FRAME_FAILED, BPS_FRAME_STALLED};

bps_status bps_frame_notice(const struct bps_header *h, const char *text, struct bps_notice *out)
{
    *out = (struct bps_notice){.kind = h->type == BPS_FRAME_POISON ? BPS_NOTICE_POISON : BPS_NOTICE_FAILED,
                               .id = bps_frame_round(h),
                               .bytes = h->bytes,
                               .size = h->size,
                               .roles = bps_roles_read(h->op, h->type == BPS_FRAME_POISON ? h->offset : 0),
                               .status = bps_wire_status(h->root),
                               .text = text,
                               .summed = h->type == BPS_FRAME_FAILED && (h->flags & BPS_FLAG_SUMMED) != 0,
                               .for_group = (h->flags & BPS_FLAG_GROUP) != 0,
                               .answer = (h->flags & BPS_FLAG_ANSWER) != 0};
    return names_round(h) ? BPS_OK : BPS_ERR_PROTOCOL;
}

struct bps_header bps_notice_header(const struct bps_notice *notice, uint32_t epoch, uint8_t flags)
{
    const struct bps_round_id *id = &notice->id;
    flags |= notice->summed ? BPS_FLAG_SUMMED : 0;
    flags |= id->kind == BPS_KEY_EXCHANGE ? BPS_FLAG_EXCHANGE : 0;
    flags |= id->kind == BPS_KEY_VALUE ? BPS_FLAG_KEEPS : 0;
    return (struct bps_header){.type = types[notice->kind],
                               .flags = flags,
                               .epoch = epoch,
                               .tensor = id->tensor,
                               .bytes = notice->bytes,
                               .size = notice->size,
                               .partition = id->partition,
                               .round = id->round,
                               .root = (uint32_t)-notice->status};
}

bps_status bps_frame_push(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                          struct bps_sum_cursor *cursor)
{
    struct bps_contribution c;
    bps_status status = bps_frame_contribution(header, &c);
    return status == BPS_OK ? bps_sum_push(sum, rank, &c, cursor) : status;
}

bps_status bps_frame_push_coded(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                const struct bps_coding *coding, struct bps_sum_cursor *cursor)
{
    struct bps_contribution c;
    struct bps_header plain = *header;
    plain.coding = 0;
    plain.flags &= (uint8_t)~(CODED_FLAGS | BPS_FLAG_EXACT);
    bps_status status = bps_frame_contribution(&plain, &c);
    if (status != BPS_OK) {
        return status;
    }
    c.spec.coding = coding;
    c.spec.exact = (header->flags & BPS_FLAG_EXACT) != 0;
    c.rate = c.prescale;
    c.brings = (header->flags & BPS_FLAG_BRINGS) != 0;
    c.dropped = (header->flags & BPS_FLAG_DROPPED) != 0;
    c.prescale = 1.0;
    return bps_sum_push(sum, rank, &c, cursor);
}

bps_status bps_frame_poison(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, const char *text)
{
    struct bps_notice poison;
    bps_status status = bps_frame_notice(header, text, &poison);
    return status == BPS_OK ? bps_sum_poison(sum, rank, &poison) : status;
}

/* What a worker has of a value; of no tensor: that was all. */
static bps_status frame_held_value(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                   struct bps_reader *numbers)
{
    if (header->tensor == 0) {
        bps_value_told(sum, rank, header->view);
        return BPS_OK;
    }
    uint32_t broadcasts = bps_get_u32(numbers);
    size_t bytes = (size_t)(numbers->end - numbers->at);
    const struct bps_value_held held = {.id = bps_frame_round(header),
                                        .bytes = header->bytes,
                                        .size = header->size,
                                        .grid = header->slice,
                                        .view = header->view,
                                        .broadcasts = broadcasts,
                                        .numbers = numbers->at,
                                        .slices = (uint32_t)(bytes / sizeof(uint64_t)),
                                        .dtype = header->dtype};
    bool fits = !numbers->bad && bytes % sizeof(uint64_t) == 0 && names_round(header);
    return fits ? bps_value_hold(sum, rank, &held) : BPS_ERR_PROTOCOL;
}

bps_status bps_frame_held(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, struct bps_reader *bits)
{
    if ((header->flags & BPS_FLAG_KEEPS) != 0) {
        return frame_held_value(sum, rank, header, bits);
    }
    size_t bytes = (size_t)(bits->end - bits->at);
    uint32_t slices = header->slice > 0 ? bps_partitions(header->size, header->slice) : 0;
    const struct bps_held held = {.id = bps_frame_round(header),
                                  .bytes = header->bytes,
                                  .size = header->size,
                                  .grid = header->slice,
                                  .bits = bytes > 0 ? bits->at : NULL,
                                  .for_group = (header->flags & BPS_FLAG_GROUP) != 0};
    bool fits = bytes == 0 || bytes == ((size_t)slices + 7) / 8;
    return fits && names_round(header) ? bps_sum_hold(sum, rank, &held) : BPS_ERR_PROTOCOL;
}

bps_status bps_frame_final(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                           const struct bps_reader *result)
{
    const struct bps_round_id id = bps_frame_round(header);
    if (id.kind == BPS_KEY_VALUE) {
        return bps_value_final(sum, rank, &id, header->offset, result->at, (uint32_t)(result->end - result->at));
    }
    return bps_sum_final(sum, rank, &id, header->offset, (header->flags & BPS_FLAG_CODES) != 0, result->at,
                         (uint32_t)(result->end - result->at));
}

bps_status bps_frame_fail(struct bps_sum *sum, const struct bps_header *header, const char *text)
{
    struct bps_notice failed;
    bps_status status = bps_frame_notice(header, text, &failed);
    return status == BPS_OK ? bps_sum_fail(sum, &failed) : status;
}

void bps_frame_result(struct bps_sum_slice *slice, uint32_t epoch, uint32_t group)
{
    const struct bps_spec *spec = slice->spec;
    const struct bps_round_id *id = &slice->id;
    struct bps_header header = {.type = BPS_FRAME_RESULT,
                                .flags = slice->codes ? BPS_FLAG_CODES : 0,
                                .dtype = spec->dtype,
                                .op = bps_op_write(spec->kind, spec->op),
                                .epoch = epoch,
                                .tensor = id->tensor,
                                .bytes = spec->bytes,
                                .size = slice->size,
                                .partition = id->partition,
                                .round = id->tensor < BPS_ID_UNNAMED ? id->round : slice->mark,
                                .offset = slice->offset,
                                .root = bps_roles_write(&spec->roles),
                                .priority = slice->priority,
                                .group = group,
                                .length = slice->payload_bytes};
    bps_header_encode(&header, slice->header);
    header.length = slice->may_end_early ? header.length : 0;
    header.flags |= slice->may_end_early ? BPS_FLAG_DROPPED : BPS_FLAG_EMPTY;
    bps_header_encode(&header, slice->other_header);
}
