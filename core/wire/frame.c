/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - the frame header to bytes and back, little endian whatever the machine. */
#include "wire/frame.h"

#include <endian.h>
#include <string.h>

static void put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, 4);
}

static void put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, 8);
}

static void put_double(uint8_t *p, double d)
{
    uint64_t v;
    memcpy(&v, &d, 8);
    put64(p, v);
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return le64toh(v);
}

static double get_double(const uint8_t *p)
{
    uint64_t v = get64(p);
    double d;
    memcpy(&d, &v, 8);
    return d;
}

void bps_header_encode(const struct bps_header *header, uint8_t out[BPS_HEADER_BYTES])
{
    put32(out, header->length);
    out[4] = header->type;
    out[5] = header->flags;
    out[6] = header->dtype;
    out[7] = header->op;
    put32(out + 8, header->epoch);
    put32(out + 12, header->tensor);
    put64(out + 16, header->bytes);
    put32(out + 24, header->partition);
    put32(out + 28, header->round);
    put32(out + 32, header->offset);
    put32(out + 36, header->root);
    put_double(out + 40, header->prescale);
    put_double(out + 48, header->postscale);
    put32(out + 56, (uint32_t)header->priority);
    put32(out + 60, (uint32_t)header->shape << 16 | header->coding);
    put32(out + 64, header->size);
    put32(out + 68, header->slice);
    put32(out + 72, header->step);
    put32(out + 76, (uint32_t)header->late << 16 | header->last);
}

bps_status bps_header_decode(const uint8_t in[BPS_HEADER_BYTES], struct bps_header *out)
{
    out->length = get32(in);
    out->type = in[4];
    out->flags = in[5];
    out->dtype = in[6];
    out->op = in[7];
    out->epoch = get32(in + 8);
    out->tensor = get32(in + 12);
    out->bytes = get64(in + 16);
    out->partition = get32(in + 24);
    out->round = get32(in + 28);
    out->offset = get32(in + 32);
    out->root = get32(in + 36);
    out->prescale = get_double(in + 40);
    out->postscale = get_double(in + 48);
    out->priority = (int32_t)get32(in + 56);
    uint32_t rest = get32(in + 60);
    out->coding = (uint16_t)rest;
    out->shape = (uint16_t)(rest >> 16);
    out->size = get32(in + 64);
    out->slice = get32(in + 68);
    out->step = get32(in + 72);
    uint32_t late = get32(in + 76);
    out->last = (uint16_t)late;
    out->late = (uint16_t)(late >> 16);
    bool known = (out->type >= BPS_FRAME_CHALLENGE && out->type <= BPS_FRAME_LATENESS) ||
                 (out->type >= BPS_FRAME_PUSH && out->type <= BPS_FRAME_FEEDBACK);
    bool coding_fits = out->coding == 0 || out->type == BPS_FRAME_PUSH;
    bool shape_fits = out->shape == 0 || out->type == BPS_FRAME_PUSH || out->type == BPS_FRAME_READY;
    bool for_group = out->type == BPS_FRAME_PUSH && (out->flags & BPS_FLAG_GROUP) != 0;
    bool late_fits = late == 0 || (for_group && out->late != 0);
    return known && (out->flags & ~BPS_FLAGS) == 0 && coding_fits && shape_fits && late_fits ? BPS_OK
                                                                                             : BPS_ERR_PROTOCOL;
}
