/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_value.c - any bytes as what workers send to a shard about a tensor of which it keeps a value, perhaps as the
 * heir of another one. Some of it are rows.
 *
 * Whatever they send, the shard stays within its blocks, answers no slice twice, and changes nothing of an answer that
 * is still being sent.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rows.h"
#include "server/sum_frames.h"
#include "sum/value.h"
#include "sum_stubs.h"
#include "wire/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORKERS    3u
#define SLICE      64u
#define BYTES      160u /* the last slice is short */
#define STEP_BYTES 8u
#define ANSWERS    32u
#define TAIL       (12 + 8 * WORKERS)
#define ROOM       (BPS_ROWS_HEAD + 16 + SLICE + TAIL) /* of an answer */

static struct shard {
    struct bps_sum *sum;
    struct bps_sum_cursor cursor[WORKERS];
    uint32_t length[WORKERS], at[WORKERS]; /* bytes of what is on its way, and those that have come */
    bool closed[WORKERS];
    _Alignas(8) uint8_t bytes[WORKERS][2 * SLICE];
    struct sent {
        struct bps_sum_slice *slice; /* NULL: free */
        uint8_t copy[ROOM];
    } sent[ANSWERS];
} shard;

static void delivered(struct sent *sent)
{
    struct bps_sum_slice *slice = sent->slice;
    check(slice->payload_bytes <= ROOM && memcmp(sent->copy, slice->payload, slice->payload_bytes) == 0);
    sent->slice = NULL;
    bps_sum_delivered(slice);
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    uint32_t free = ANSWERS;
    (void)owner;
    check(rank < WORKERS && !shard.closed[rank]);
    for (uint32_t i = 0; i < ANSWERS; i++) {
        check(shard.sent[i].slice != slice);
        free = shard.sent[i].slice == NULL ? i : free;
    }
    if (free == ANSWERS) {
        bps_sum_delivered(slice);
        return;
    }
    shard.sent[free].slice = slice;
    memcpy(shard.sent[free].copy, slice->payload, slice->payload_bytes);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    check(rank < WORKERS && notice->id.kind == BPS_KEY_VALUE && notice->text != NULL);
}

static void on_want(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    check(rank < WORKERS && !shard.closed[rank] && slice->id.kind == BPS_KEY_VALUE && slice->offset < BYTES + 4);
}

static void end_link(uint32_t rank)
{
    if (!shard.closed[rank]) {
        shard.closed[rank] = true;
        bps_sum_abandon(&shard.cursor[rank]);
        bps_sum_gone(shard.sum, rank);
        shard.length[rank] = shard.at[rank] = 0;
    }
}

static struct bps_header header_of(const uint8_t *step)
{
    static const uint8_t ops[] = {BPS_SUM, BPS_AVERAGE, BPS_WIRE_BROADCAST, BPS_MAX};
    struct bps_header h = {.type = BPS_FRAME_PUSH,
                           .flags = (uint8_t)(BPS_FLAG_KEEPS | (step[2] & 19)),
                           .dtype = (step[2] & 32) != 0 ? BPS_INT32 : BPS_UINT8,
                           .op = ops[step[3] & 3],
                           .epoch = 1,
                           .tensor = 1 + (step[3] >> 7),
                           .bytes = BYTES + (step[3] >> 6 & 1) * 4,
                           .round = step[4],
                           .offset = (step[5] & 3) * SLICE + (step[5] >> 7),
                           .root = step[6] & 3,
                           .prescale = 1.0,
                           .postscale = 1.0 + (step[5] >> 6 & 1),
                           .view = (step[2] >> 6) & 1 ? step[7] & 3 : 0,
                           .slice = SLICE};
    h.size = (uint32_t)h.bytes;
    uint32_t rest = h.offset < h.size ? h.size - h.offset : 0;
    h.length = (h.flags & BPS_FLAG_EMPTY) != 0 ? 0 : (rest < SLICE ? rest : SLICE) + (step[6] >> 7);
    return h;
}

/* Rows of a slice, some of which there cannot be. */
static void make_rows(uint8_t *to, const uint8_t *step, struct bps_header *h)
{
    uint32_t rest = h->offset < h->size ? h->size - h->offset : 0, count = rest > 0 ? step[7] & 3 : 0;
    uint32_t *index = (uint32_t *)(void *)(to + BPS_ROWS_HEAD);
    h->flags |= BPS_FLAG_ROWS;
    h->root = 4u << (step[6] & 3);
    const struct bps_row_cut cut = {h->root, step[7] >> 4, rest < SLICE ? rest : SLICE};
    h->length = (uint32_t)bps_row_parts_before(count) + (step[6] >> 7);
    for (uint32_t i = 0; i < count; i++) {
        index[i] = i * (1 + (step[7] >> 2 & 3));
        bool there = cut.before < cut.row && index[i] < bps_row_cut_limit(&cut);
        h->length += there ? bps_row_part_bytes(&cut, index[i]) : 4;
    }
    bps_row_parts_finish((char *)to, count, &cut);
}

/* A link ends when it brings nonsense. */
static void push(uint32_t rank, const uint8_t *step)
{
    struct bps_header h = header_of(step);
    if (shard.closed[rank] || shard.at[rank] < shard.length[rank]) {
        return; /* the frame before is still coming */
    }
    memset(shard.bytes[rank], 1 + (int)rank, sizeof shard.bytes[rank]);
    if ((step[2] & 8) != 0) {
        make_rows(shard.bytes[rank], step, &h);
    }
    shard.length[rank] = h.length;
    shard.at[rank] = 0;
    if (bps_frame_push(shard.sum, rank, &h, &shard.cursor[rank]) != BPS_OK) {
        end_link(rank);
    }
}

static void feed(uint32_t rank, uint32_t most)
{
    const uint8_t *bytes = shard.bytes[rank] + shard.at[rank];
    struct bps_sum_cursor *cursor = &shard.cursor[rank];
    uint32_t left = shard.length[rank] - shard.at[rank], room = 0, n = left < most ? left : most;
    if (shard.closed[rank] || n == 0) {
        return;
    }
    void *place = (most & 1) != 0 ? cursor->sink.place(&cursor->sink, shard.at[rank], &room) : NULL;
    if (place != NULL) {
        n = n < room ? n : room;
        memcpy(place, bytes, n);
    }
    shard.at[rank] += cursor->sink.take(&cursor->sink, shard.at[rank], place != NULL ? place : bytes, n);
}

/* What a worker has from a shard that is lost, and a slice of that: mostly as long as they must be. */
static void inherit(uint32_t rank, const uint8_t *step)
{
    uint8_t bytes[SLICE + TAIL + 1] = {step[7]};
    struct bps_header h = header_of(step);
    struct bps_reader r;
    bool final = (step[7] & 1) != 0, all = (step[7] & 6) == 0;
    h.type = final ? BPS_FRAME_FINAL : BPS_FRAME_HELD;
    h.view = 1 + (step[7] >> 6);
    h.tensor = all ? 0 : h.tensor;
    for (size_t i = 4; i < sizeof bytes; i += 4) {
        bytes[i] = step[4 + (i / 4) % 4] & 15;
    }
    uint32_t slices = bps_partitions(h.size, SLICE), own = bps_partition_bytes(h.size, SLICE, step[5] & 3);
    bps_reader_init(&r, bytes, (final ? own + TAIL : 4 + 8 * slices) + (step[7] >> 5 & 1));
    bps_status status = final ? bps_frame_final(shard.sum, rank, &h, &r) : bps_frame_held(shard.sum, rank, &h, &r);
    if (status != BPS_OK) {
        end_link(rank);
    }
}

static void act(const uint8_t *step)
{
    uint32_t rank = step[1] % WORKERS;
    struct bps_header h = header_of(step);
    switch (step[0] % 8) {
    case 0:
    case 1:
        push(rank, step);
        break;
    case 2:
    case 3:
        feed(rank, 1u + step[2]);
        break;
    case 4:
        if (shard.sent[step[2] % ANSWERS].slice != NULL) {
            delivered(&shard.sent[step[2] % ANSWERS]);
        }
        break;
    case 5:
        h.root = (uint32_t)-BPS_ERR_FAILED;
        if (!shard.closed[rank] && bps_frame_poison(shard.sum, rank, &h, "no") != BPS_OK) {
            end_link(rank);
        }
        break;
    case 6:
        if ((step[2] & 7) == 0) {
            end_link(rank);
        } else if ((step[2] & 7) == 1 && !shard.closed[rank]) {
            bps_sum_leave(shard.sum, rank);
        }
        break;
    default:
        if ((step[3] & 16) == 0) {
            bps_sum_check_stalls(shard.sum, bps_now() + BPS_S, 1, step[2] & 1);
        } else if (!shard.closed[rank]) {
            inherit(rank, step);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct bps_sum_events events = {.result = on_result, .want = on_want, .notice = on_notice};
    static const struct bps_reducer_ops ops = {.kernels = stub_kernels};
    static struct bps_instance reducer = {.ops = &ops};
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = 4096,
        .slice = SLICE,
        .only = BPS_SUM_ALL,
        .staleness = size > 0 ? (int64_t)(data[0] % 4) - 1 : -1,
        .ops = {[BPS_KEY_VALUE] = &bps_value_ops},
        .reducer = &reducer,
        .events = &events,
    };
    memset(&shard, 0, sizeof shard);
    check(bps_sum_new(&config, &shard.sum) == BPS_OK);
    for (size_t at = 1; at + STEP_BYTES <= size; at += STEP_BYTES) {
        act(data + at);
    }
    for (uint32_t i = 0; i < ANSWERS; i++) {
        if (shard.sent[i].slice != NULL) {
            delivered(&shard.sent[i]);
        }
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        end_link(rank);
    }
    bps_sum_free(shard.sum);
    return 0;
}
