/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_bytes.c - the bytes that a state is saved as: what coding has left of a tensor's partitions.
 *
 * A head: magic, version, coding, type, elements, elements of a partition. Then the parts, each with its partition,
 * elements, slices, and which arrays follow: rates of the slices, error, momentum. Several parts may be of one
 * partition, of which there is then their sum.
 */
#include <string.h>

#include "coded/coded.h"

#define MAGIC        0x46535042u /* "BPSF" */
#define VERSION      1u
#define HAS_ERROR    1u
#define HAS_MOMENTUM 2u

/* ---- writing ---- */

void bps_state_put_head(struct bps_writer *w, const struct bps_tensor_entry *tensor, const struct bps_coding *coding)
{
    size_t size = bps_dtype_size(tensor->path_dtype);
    bps_put_u32(w, MAGIC);
    bps_put_u32(w, VERSION);
    bps_put_string(w, coding->text);
    bps_put_u32(w, bps_coding_type(tensor->path_dtype));
    bps_put_u64(w, tensor->path_bytes / size);
    bps_put_u64(w, tensor->worker->partition / size);
}

static void put_array(struct bps_writer *w, const void *array, const struct bps_feedback *feedback)
{
    if (array != NULL) {
        bps_put_bytes(w, array, feedback->count * bps_dtype_size(feedback->type));
    }
}

void bps_state_put_part(struct bps_writer *w, uint32_t partition, const struct bps_feedback *feedback,
                        const void *error)
{
    bps_put_u32(w, partition);
    bps_put_u64(w, feedback->count);
    bps_put_u32(w, feedback->slices);
    bps_put_u32(w, (feedback->now.error != NULL ? HAS_ERROR : 0) | (feedback->now.momentum != NULL ? HAS_MOMENTUM : 0));
    bps_put_bytes(w, feedback->now.rate, feedback->slices * sizeof *feedback->now.rate);
    put_array(w, error != NULL ? error : feedback->now.error, feedback);
    put_array(w, feedback->now.momentum, feedback);
}

/* ---- reading ---- */

bool bps_state_open(struct bps_state *state, const void *bytes, size_t n)
{
    struct bps_reader *r = &state->r;
    struct bps_state_head *head = &state->head;
    bps_reader_init(r, bytes, n);
    bool known = bps_get_u32(r) == MAGIC && bps_get_u32(r) == VERSION;
    bps_get_string(r, head->coding, sizeof head->coding);
    head->type = bps_get_u32(r);
    head->count = bps_get_u64(r);
    head->partition = bps_get_u64(r);
    return known && !r->bad && (head->type == BPS_FLOAT32 || head->type == BPS_FLOAT64);
}

static const uint8_t *skip(struct bps_reader *r, uint64_t n, size_t size)
{
    const uint8_t *at = r->at;
    if (r->bad || n > (size_t)(r->end - r->at) / size) {
        r->bad = true;
        return NULL;
    }
    r->at += n * size;
    return at;
}

bool bps_state_next(struct bps_state *state)
{
    struct bps_reader *r = &state->r;
    struct bps_state_part *part = &state->part;
    size_t size = bps_dtype_size(state->head.type);
    const uint8_t *at = r->at;
    if (r->at == r->end) {
        return false;
    }
    part->index = bps_get_u32(r);
    part->count = bps_get_u64(r);
    part->slices = bps_get_u32(r);
    uint32_t has = bps_get_u32(r);
    part->rate = skip(r, part->slices, sizeof(double));
    part->error = (has & HAS_ERROR) != 0 ? skip(r, part->count, size) : NULL;
    part->momentum = (has & HAS_MOMENTUM) != 0 ? skip(r, part->count, size) : NULL;
    part->at = at;
    part->bytes = (size_t)(r->at - at);
    r->bad |= (has & ~(HAS_ERROR | HAS_MOMENTUM)) != 0;
    return !r->bad;
}

uint64_t bps_state_limit(const struct bps_worker *worker)
{
    /* The widest: of 2 bytes for each element 4 of error and of momentum, and a slice, with its rate, for each. */
    return 256 + BPS_CODING_TEXT + worker->partition / 2 * (2 * sizeof(float) + sizeof(double));
}

void bps_state_add(uint32_t type, void *to, const void *from, size_t bytes, double factor)
{
    for (size_t at = 0; at < bytes; at += bps_dtype_size(type)) {
        if (type == BPS_FLOAT64) {
            double own, other;
            memcpy(&own, (char *)to + at, sizeof own);
            memcpy(&other, (const char *)from + at, sizeof other);
            own += factor * other;
            memcpy((char *)to + at, &own, sizeof own);
        } else {
            float own, other;
            memcpy(&own, (char *)to + at, sizeof own);
            memcpy(&other, (const char *)from + at, sizeof other);
            own += (float)factor * other;
            memcpy((char *)to + at, &own, sizeof own);
        }
    }
}
