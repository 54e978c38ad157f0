/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_held.c - a shard's engine and rounds that another shard has begun, which is lost: who has results already is
 * counted, gets nothing, and gives the others what they lack. Three workers, each alone, unless a test says otherwise.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "coding/coding.h"
#include "sum/round.h"
#include "sum_rig.h"

#define PARTITION 16384u
#define SLICE     1024u
#define ELEMENTS  (SLICE / (uint32_t)sizeof(float))
#define WORKERS   4u
#define ALL       0xffu

static struct bps_sum *sum;
static uint32_t workers;

static struct heard {
    uint32_t results, failures, wants, at; /* wants: from this worker, last of all at this offset */
    char text[BPS_TEXT_LIMIT + 1];
    uint32_t bytes; /* of all results */
    float first;    /* element of the last one */
} heard[WORKERS];

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    heard[rank].results++;
    if (bps_sum_wants_data(slice, rank) && slice->payload_bytes >= sizeof(float)) {
        heard[rank].bytes += slice->payload_bytes;
        memcpy(&heard[rank].first, slice->payload, sizeof heard[rank].first);
    }
    bps_sum_delivered(slice);
}

static void on_want(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    heard[rank].wants++;
    heard[rank].at = slice->offset;
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static const struct bps_sum_events events = {
    .finished = rig_finished, .result = on_result, .want = on_want, .notice = on_notice};

static void start_groups(uint32_t n, const uint32_t *group, bool rank_order)
{
    const struct bps_sum_config config = {.workers = n,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .group = group,
                                          .only = BPS_SUM_ALL,
                                          .rank_order = rank_order,
                                          .reducer = rig_reducer,
                                          .events = &events};
    memset(heard, 0, sizeof heard);
    workers = n;
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void start(bool rank_order)
{
    start_groups(3, NULL, rank_order);
}

static void stop(void)
{
    bps_sum_free(sum);
    sum = NULL;
    rig_close();
}

/* A tensor of so many slices. */
static struct bps_header of(uint32_t round, uint32_t slices)
{
    return rig_header(1, round, BPS_FLOAT32, BPS_SUM, (uint64_t)slices * SLICE);
}

static const float *filled(float value)
{
    static float data[PARTITION / sizeof(float)];
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        data[i] = value;
    }
    return data;
}

static bps_status push_slice(uint32_t rank, struct bps_header h, uint32_t index, float value)
{
    h.offset = index * SLICE;
    h.length = (h.flags & BPS_FLAG_EMPTY) != 0 ? 0 : bps_partition_bytes(h.size, SLICE, index);
    return rig_push(sum, rank, &h, filled(value));
}

static bps_status hold_bits(uint32_t rank, struct bps_header h, const uint8_t *bits, size_t bytes)
{
    struct bps_reader r;
    h.type = BPS_FRAME_HELD;
    h.slice = h.slice == 0 ? SLICE : h.slice;
    bps_reader_init(&r, bits, bytes);
    return bps_frame_held(sum, rank, &h, &r);
}

/* It has these of the first slices, or all. */
static bps_status hold(uint32_t rank, struct bps_header h, uint8_t bits)
{
    return hold_bits(rank, h, &bits, bits == ALL ? 0 : 1);
}

static bps_status final_bytes(uint32_t rank, struct bps_header h, uint32_t offset, float value, uint32_t bytes)
{
    struct bps_reader r;
    h.type = BPS_FRAME_FINAL;
    h.offset = offset;
    bps_reader_init(&r, filled(value), bytes);
    return bps_frame_final(sum, rank, &h, &r);
}

static bps_status final(uint32_t rank, struct bps_header h, uint32_t index, float value)
{
    return final_bytes(rank, h, index * SLICE, value, SLICE);
}

static bps_status poison(uint32_t rank, struct bps_header h, const char *text)
{
    h.type = BPS_FRAME_POISON;
    h.root = (uint32_t)-BPS_ERR_FAILED;
    return bps_frame_poison(sum, rank, &h, text);
}

static void expect(uint32_t rank, uint32_t results, float first)
{
    ck_assert_uint_eq(heard[rank].results, results);
    ck_assert_uint_eq(heard[rank].failures, 0);
    ck_assert(results == 0 || heard[rank].first == first);
}

static void expect_failure(uint32_t rank, const char *text)
{
    ck_assert_uint_eq(heard[rank].failures, 1);
    ck_assert_str_eq(heard[rank].text, text);
}

/* Nothing of any round is open, and the next one goes as if nothing had been. */
static void expect_recovery(uint32_t round)
{
    for (uint32_t i = 0; i < round; i++) {
        const struct bps_round_id id = {1, 0, i, BPS_KEY_ROUNDS};
        ck_assert(!bps_sum_is_open(sum, &id));
    }
    memset(heard, 0, sizeof heard);
    for (uint32_t r = 0; r < workers; r++) {
        ck_assert_int_eq(push_slice(r, of(round, 1), 0, 1.0f), BPS_OK);
    }
    for (uint32_t r = 0; r < workers; r++) {
        expect(r, 1, (float)workers);
        ck_assert_uint_eq(heard[r].wants, 0);
    }
}

/* ---- some have the result ---- */

/* Whenever that is told: before anybody contributes, between, or last. */
START_TEST(test_one_holds)
{
    start(_i / 3 != 0);
    for (uint32_t k = 0, rank = 0; k < 3; k++) {
        if (k == (uint32_t)_i % 3) {
            ck_assert_int_eq(hold(1, of(0, 1), ALL), BPS_OK);
        } else {
            ck_assert_int_eq(push_slice(rank, of(0, 1), 0, 5.0f), BPS_OK);
            rank = 2;
        }
    }
    ck_assert_uint_eq(heard[1].wants, 1);
    expect(0, 0, 0);
    ck_assert_int_eq(final(1, of(0, 1), 0, 7.5f), BPS_OK); /* it has been another sum */
    expect(0, 1, 7.5f);
    expect(1, 0, 0);
    expect(2, 1, 7.5f);
    ck_assert_uint_eq(heard[0].bytes, SLICE);
    expect_recovery(1);
}
END_TEST

/* Of several it is the first who said so that gives it. */
START_TEST(test_the_first_gives_it)
{
    start(_i != 0);
    ck_assert_int_eq(push_slice(1, of(0, 1), 0, 5.0f), BPS_OK);
    ck_assert_int_eq(hold(2, of(0, 1), 1), BPS_OK);
    ck_assert_int_eq(hold(0, of(0, 1), ALL), BPS_OK);
    ck_assert_uint_eq(heard[2].wants, 1);
    ck_assert_uint_eq(heard[0].wants, 0);
    ck_assert_int_eq(final(0, of(0, 1), 0, 1.0f), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final(1, of(0, 1), 0, 1.0f), BPS_ERR_PROTOCOL);
    expect(1, 0, 0);
    ck_assert_int_eq(final(2, of(0, 1), 0, 3.0f), BPS_OK);
    expect(1, 1, 3.0f);
    expect(0, 0, 0);
    expect(2, 0, 0);
    expect_recovery(1);
}
END_TEST

/* Who lacks a slice contributes to that, and others are fetched for who lacks them: bit by bit. */
START_TEST(test_parts)
{
    const uint32_t slices = 10;
    const uint8_t bits[2][2] = {{0x55, 0x01}, {0x33, 0x02}};
    const uint8_t *all[2] = {bits[0], bits[1]};
    start(_i % 2 != 0);
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t rank = (k + (uint32_t)_i / 2) % 3;
        if (rank < 2) {
            ck_assert_int_eq(hold_bits(rank, of(0, slices), all[rank], 2), BPS_OK);
        }
        for (uint32_t i = 0; i < slices; i++) {
            if (rank == 2 || (all[rank][i / 8] >> i % 8 & 1) == 0) {
                ck_assert_int_eq(push_slice(rank, of(0, slices), i, 1.0f), BPS_OK);
            }
        }
    }
    uint32_t lacked[3] = {0, 0, slices}, wanted = 0;
    for (uint32_t i = 0; i < slices; i++) {
        bool has[2] = {all[0][i / 8] >> i % 8 & 1, all[1][i / 8] >> i % 8 & 1};
        lacked[0] += !has[0];
        lacked[1] += !has[1];
        wanted += has[0] || has[1];
        if (has[0] || has[1]) {
            bool gave = final(0, of(0, slices), i, 9.0f) == BPS_OK;
            bool gives = final(1, of(0, slices), i, 9.0f) == BPS_OK;
            ck_assert_uint_eq(gave + gives, 1);
        }
    }
    ck_assert_uint_eq(heard[0].wants + heard[1].wants, wanted);
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_uint_eq(heard[r].results, lacked[r]);
        ck_assert_uint_eq(heard[r].bytes, lacked[r] * SLICE);
    }
    expect_recovery(1);
}
END_TEST

/* All have it, so that nobody is told anything; what comes for it later is not counted. */
START_TEST(test_all_hold)
{
    start(_i != 0);
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_int_eq(hold(r, of(0, 2), r == 0 ? 1 : ALL), BPS_OK);
    }
    ck_assert_int_eq(push_slice(0, of(0, 2), 1, 4.0f), BPS_OK); /* its second slice is lacking */
    ck_assert_uint_eq(heard[1].wants + heard[2].wants, 1);
    ck_assert_int_eq(final(heard[1].wants > 0 ? 1 : 2, of(0, 2), 1, 6.0f), BPS_OK);
    expect(0, 1, 6.0f);
    expect(1, 0, 0);
    expect(2, 0, 0);
    ck_assert_int_eq(push_slice(2, of(0, 2), 0, 4.0f), BPS_OK);
    ck_assert_int_eq(hold(2, of(0, 2), ALL), BPS_OK);
    ck_assert_int_eq(final(2, of(0, 2), 0, 4.0f), BPS_OK);
    expect(0, 1, 6.0f);
    expect_recovery(1);
}
END_TEST

/* Nobody comes to a round that all have: the next one is none the worse, and its end forgets what was told. */
START_TEST(test_nobody_comes)
{
    start(_i != 0);
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_int_eq(hold(r, of(0, 1), ALL), BPS_OK);
    }
    ck_assert_int_eq(hold(0, of(1, 1), ALL), BPS_OK);
    ck_assert_int_eq(push_slice(1, of(1, 1), 0, 4.0f), BPS_OK);
    ck_assert_int_eq(push_slice(2, of(1, 1), 0, 4.0f), BPS_OK);
    ck_assert_int_eq(final(0, of(1, 1), 0, 2.0f), BPS_OK);
    expect(1, 1, 2.0f);
    const struct bps_round_id id = {1, 0, 0, BPS_KEY_ROUNDS};
    ck_assert_ptr_null(bps_key_known(sum, &id)->notes);
    expect_recovery(2);
}
END_TEST

/* Workers are a round apart: one has the last round, another that under way, and a third neither. */
START_TEST(test_two_rounds)
{
    start(false);
    ck_assert_int_eq(hold(0, of(4, 1), ALL), BPS_OK);
    ck_assert_int_eq(hold(0, of(5, 2), 2), BPS_OK);
    ck_assert_int_eq(push_slice(0, of(5, 2), 0, 1.0f), BPS_OK);
    for (uint32_t r = 1; r < 3; r++) {
        ck_assert_int_eq(push_slice(r, of(4, 1), 0, 1.0f), BPS_OK);
    }
    ck_assert_int_eq(final(0, of(4, 1), 0, 8.0f), BPS_OK);
    expect(1, 1, 8.0f);
    expect(2, 1, 8.0f);
    for (uint32_t r = 1; r < 3; r++) {
        ck_assert_int_eq(push_slice(r, of(5, 2), 0, 1.0f), BPS_OK);
        ck_assert_int_eq(push_slice(r, of(5, 2), 1, 1.0f), BPS_OK);
    }
    ck_assert_int_eq(final(0, of(5, 2), 1, 9.0f), BPS_OK);
    expect(0, 1, 3.0f);
    expect(1, 3, 9.0f);
    expect_recovery(6);
}
END_TEST

/* An empty tensor has one slice of nothing. */
START_TEST(test_empty)
{
    start(_i % 2 != 0);
    struct bps_header h = of(0, 0);
    ck_assert_int_eq(_i < 2 ? hold(1, h, ALL) : push_slice(0, h, 0, 0), BPS_OK);
    ck_assert_int_eq(_i < 2 ? push_slice(0, h, 0, 0) : hold(1, h, 1), BPS_OK);
    ck_assert_int_eq(push_slice(2, h, 0, 0), BPS_OK);
    ck_assert_uint_eq(heard[1].wants, 1);
    ck_assert_int_eq(final_bytes(1, h, 0, 0, 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(1, h, 0, 0, 0), BPS_OK);
    expect(0, 1, 0);
    expect(1, 0, 0);
    expect(2, 1, 0);
    expect_recovery(1);
}
END_TEST

/* A call without a name: the key is gone with it, and with what was told; nothing that has it says what has ended. */
START_TEST(test_unnamed)
{
    struct bps_header h = of(0, 1), push = h;
    h.tensor = push.tensor = BPS_ID_UNNAMED | 700;
    push.round = 650; /* as calls before it have ended */
    start(_i != 0);
    ck_assert_int_eq(hold(2, h, ALL), BPS_OK);
    ck_assert_int_eq(push_slice(0, push, 0, 1.0f), BPS_OK);
    ck_assert_int_eq(push_slice(1, push, 0, 1.0f), BPS_OK);
    ck_assert_int_eq(final(2, h, 0, 4.0f), BPS_OK);
    expect(0, 1, 4.0f);
    expect(1, 1, 4.0f);
    expect(2, 0, 0);
    const struct bps_round_id id = bps_frame_round(&h);
    ck_assert_ptr_null(bps_key_known(sum, &id));
}
END_TEST

/* ---- groups and broadcasts ---- */

/* Who leads the partition for a group holds for all of it. */
START_TEST(test_group)
{
    static const uint32_t group[4] = {0, 0, 2, 2};
    struct bps_header h = of(0, 1);
    start_groups(4, group, _i % 2 != 0);
    h.flags = BPS_FLAG_GROUP;
    uint32_t holder = _i / 2 % 2 != 0 ? 0 : 1;
    if (_i < 4) {
        ck_assert_int_eq(hold(holder, h, ALL), BPS_OK);
    }
    ck_assert_int_eq(push_slice(3, h, 0, 1.0f), BPS_OK);
    if (_i >= 4) {
        ck_assert_int_eq(hold(holder, h, ALL), BPS_OK);
    }
    ck_assert_uint_eq(heard[holder].wants, 1);
    ck_assert_int_eq(final(holder, h, 0, 2.0f), BPS_OK);
    expect(3, 1, 2.0f);
    expect(0, 0, 0);
    expect(1, 0, 0);
    expect(2, 0, 0);
    expect_recovery(1);
}
END_TEST

/* A member cannot hold for itself what another one holds for all. */
START_TEST(test_group_breach)
{
    static const uint32_t group[4] = {0, 0, 2, 2};
    struct bps_header h = of(0, 2), alone = h;
    start_groups(4, group, false);
    h.flags = BPS_FLAG_GROUP;
    ck_assert_int_eq(push_slice(0, h, 0, 1.0f), BPS_OK);
    ck_assert_int_eq(hold(1, _i == 0 ? alone : h, 1), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hold(0, alone, 2), BPS_ERR_PROTOCOL);
}
END_TEST

/* The root has what it has brought, receivers what they have got. */
START_TEST(test_broadcast)
{
    struct bps_header h = of(0, 2), request;
    h.op = BPS_WIRE_BROADCAST;
    h.root = 1;
    request = h;
    request.flags = BPS_FLAG_EMPTY;
    start(_i / 3 != 0);
    uint32_t holder = (uint32_t)_i % 3;
    ck_assert_int_eq(hold(holder, h, ALL), BPS_OK);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; r != holder && i < (r == 1 ? 2u : 1u); i++) {
            ck_assert_int_eq(push_slice(r, r == 1 ? h : request, i, 5.0f), BPS_OK);
        }
    }
    ck_assert_uint_eq(heard[holder].wants, 2);
    ck_assert_int_eq(final(holder, h, 1, 5.0f), BPS_OK);
    ck_assert_int_eq(final(holder, h, 0, 5.0f), BPS_OK);
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_uint_eq(heard[r].results, r == holder ? 0 : 2);
        ck_assert_uint_eq(heard[r].bytes, r == holder || r == 1 ? 0 : 2 * SLICE); /* the root gets no bytes */
    }
    expect_recovery(1);
}
END_TEST

/* The root was answered for its first slice only, and a receiver for all. */
START_TEST(test_broadcast_in_parts)
{
    struct bps_header h = of(0, 2), request;
    h.op = BPS_WIRE_BROADCAST;
    h.root = 1;
    request = h;
    request.flags = BPS_FLAG_EMPTY;
    start(_i != 0);
    ck_assert_int_eq(hold(1, h, 1), BPS_OK);
    ck_assert_int_eq(push_slice(1, h, 1, 5.0f), BPS_OK);
    ck_assert_int_eq(push_slice(0, request, 0, 0), BPS_OK);
    ck_assert_int_eq(hold(2, h, ALL), BPS_OK);
    ck_assert_uint_eq(heard[1].wants, 1);
    ck_assert_uint_eq(heard[2].wants, 1);
    ck_assert_int_eq(final(1, h, 0, 5.0f), BPS_OK);
    ck_assert_int_eq(final(2, h, 1, 5.0f), BPS_OK);
    expect(0, 2, 5.0f);
    ck_assert_uint_eq(heard[0].bytes, 2 * SLICE);
    ck_assert_uint_eq(heard[1].results, 1);
    expect(2, 0, 0);
    expect_recovery(1);
}
END_TEST

/* ---- coded rounds: of an identity ---- */

static size_t same_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count * sizeof(float) : 0;
}

static size_t same_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    (void)instance;
    (void)dtype;
    (void)random;
    memcpy(dst, src, count * sizeof(float));
    return count * sizeof(float);
}

static bps_status same_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    (void)instance;
    (void)dtype;
    for (size_t i = 0; i < count && bytes == count * sizeof(float); i++) {
        float a, b;
        memcpy(&a, (char *)dst + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)src + i * sizeof b, sizeof b);
        a += b;
        memcpy((char *)dst + i * sizeof a, &a, sizeof a);
    }
    return bytes == count * sizeof(float) ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status same_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    memset(dst, 0, count * sizeof(float));
    return same_decode_add(instance, dtype, src, bytes, dst, count);
}

static const struct bps_compressor_ops same_ops = {
    .bound = same_bound, .encode = same_encode, .decode = same_decode, .decode_add = same_decode_add};
static struct bps_instance same = {.ops = &same_ops};
#define CODED (2 * SLICE) /* its slices are larger than those of what is not coded */
static const struct bps_coding coding = {
    .text = "same", .compressor = &same, .ops = &same_ops, .narrow = 2 * ELEMENTS, .wide = ELEMENTS};

static bps_status push_coded(uint32_t rank, struct bps_header h, uint32_t index, float value)
{
    struct rig_frame frame = {.payload = (const uint8_t *)filled(value)};
    h.coding = 1;
    h.slice = 0;
    h.offset = index * CODED;
    frame.length = h.length = bps_partition_bytes(h.size, CODED, index);
    bps_status status = bps_frame_push_coded(sum, rank, &h, &coding, &frame.cursor);
    while (status == BPS_OK && !rig_feed(&frame, UINT32_MAX)) {
    }
    return status;
}

START_TEST(test_coded)
{
    struct bps_header h = of(0, 4);
    start(_i % 2 != 0);
    h.slice = CODED;
    if (_i < 2) {
        ck_assert_int_eq(hold(0, h, 2), BPS_OK);
    }
    for (uint32_t r = 1; r < 3; r++) {
        ck_assert_int_eq(push_coded(r, h, 0, 1.0f), BPS_OK);
        ck_assert_int_eq(push_coded(r, h, 1, 1.0f), BPS_OK);
    }
    if (_i >= 2) {
        ck_assert_int_eq(hold(0, h, 2), BPS_OK);
    }
    ck_assert_uint_eq(heard[0].wants, 1);
    ck_assert_uint_eq(heard[0].at, CODED);
    expect(1, 0, 0);
    ck_assert_int_eq(push_coded(0, h, 0, 1.0f), BPS_OK);
    expect(1, 1, 3.0f);
    ck_assert_int_eq(final_bytes(0, h, CODED, 4.0f, CODED + 1), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, h, CODED, 4.0f, 0), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, h, CODED, 4.0f, 12), BPS_OK); /* shorter than that was pushed: as it is */
    expect(1, 2, 4.0f);
    expect(2, 2, 4.0f);
    ck_assert_uint_eq(heard[2].bytes, CODED + 12);
    expect(0, 1, 3.0f);
    expect_recovery(1);
}
END_TEST

/* ---- rounds that fail ---- */

/* Who has a part of it and waits for the rest hears that the round fails, in whatever order that comes. */
START_TEST(test_poison)
{
    struct bps_header h = of(0, 2);
    start(false);
    for (uint32_t k = 0; k < 4; k++) {
        switch ((k + (uint32_t)_i) % 4) {
        case 0:
            ck_assert_int_eq(hold(1, h, 1), BPS_OK);
            break;
        case 1:
            ck_assert_int_eq(push_slice(1, h, 1, 1.0f), BPS_OK);
            break;
        case 2:
            ck_assert_int_eq(push_slice(2, h, 0, 1.0f), BPS_OK);
            break;
        default:
            ck_assert_int_eq(poison(0, h, "worker 0: stage clip: no"), BPS_OK);
        }
    }
    expect_failure(1, "worker 0: stage clip: no");
    expect_failure(2, "worker 0: stage clip: no");
    ck_assert_uint_eq(heard[0].failures, 0);
    expect_recovery(1);
}
END_TEST

/* So does who is of a round whose slices are of another size than those that a POISON stands for. */
START_TEST(test_poison_of_other_slices)
{
    struct bps_header h = of(0, 4);
    start(false);
    if (_i == 0) {
        h.slice = CODED;
        ck_assert_int_eq(hold(1, h, 1), BPS_OK);
    } else {
        h = of(0, 16);
        h.slice = SLICE * 8;
        ck_assert_int_eq(hold(1, h, 1), BPS_OK);
    }
    ck_assert_int_eq(poison(0, h, "no"), BPS_OK);
    expect_failure(1, "no");
    ck_assert_int_eq(poison(2, h, "no"), BPS_OK);
    expect_recovery(1);
}
END_TEST

/* A holder of a part cannot go on itself. */
START_TEST(test_holder_poisons)
{
    struct bps_header h = of(0, 2);
    start(false);
    ck_assert_int_eq(hold(1, h, 2), BPS_OK);
    ck_assert_int_eq(push_slice(0, h, 0, 1.0f), BPS_OK);
    ck_assert_int_eq(poison(1, h, "worker 1 cannot"), BPS_OK);
    expect_failure(0, "worker 1 cannot");
    ck_assert_int_eq(push_slice(2, h, 0, 1.0f), BPS_OK);
    expect_failure(2, "worker 1 cannot");
    expect_recovery(1);
}
END_TEST

/* Who is asked for a result is lost, or leaves. */
START_TEST(test_holder_is_lost)
{
    start(_i != 0);
    ck_assert_int_eq(hold(1, of(0, 1), ALL), BPS_OK);
    ck_assert_int_eq(push_slice(0, of(0, 1), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(push_slice(2, of(0, 1), 0, 1.0f), BPS_OK);
    ck_assert_uint_eq(heard[1].wants, 1);
    bps_sum_gone(sum, 1);
    expect_failure(0, "worker 1 was lost");
    expect_failure(2, "worker 1 was lost");
    ck_assert_int_eq(final(1, of(0, 1), 0, 1.0f), BPS_OK); /* it comes too late */
    ck_assert_uint_eq(heard[0].results, 0);
}
END_TEST

/* All who wait hear of it. */
START_TEST(test_stall)
{
    uint64_t now = bps_now();
    start(false);
    ck_assert_int_eq(hold(1, of(0, 2), 1), BPS_OK);
    ck_assert_int_eq(push_slice(0, of(0, 2), 0, 1.0f), BPS_OK);
    bps_sum_check_stalls(sum, now + 101 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[0].failures, 1);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_int_eq(hold(2, of(0, 2), 1), BPS_OK); /* too late, and needs the rest */
    ck_assert_uint_eq(heard[2].failures, 1);
    expect_recovery(1);
}
END_TEST

/* What fails because tensors differ is told once more, to a shard that does not know it: by who was told it. */
static struct bps_notice told;

static void note_told(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    on_notice(owner, rank, notice);
    told = *notice;
}

START_TEST(test_a_mismatch_is_told_again)
{
    struct bps_sum_events noting = events;
    noting.notice = note_told;
    const struct bps_sum_config config = {.workers = 2,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .only = BPS_SUM_ALL,
                                          .reducer = rig_reducer,
                                          .events = &noting};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
    memset(heard, 0, sizeof heard);
    ck_assert_int_eq(push_slice(0, of(0, _i == 0 ? 0 : 1), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(push_slice(1, of(0, _i == 0 ? 1 : 0), 0, 1.0f), BPS_OK);
    ck_assert_uint_eq(heard[0].failures, 1);
    struct bps_header failed = bps_notice_header(&told, 1, 0);
    bps_sum_free(sum);
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
    ck_assert_int_eq(poison(0, failed, "differs"), BPS_OK);
    ck_assert_int_eq(poison(1, failed, "differs"), BPS_OK);
}
END_TEST

/* ---- what no worker sends ---- */

START_TEST(test_bits_that_do_not_fit)
{
    static const uint8_t bits[3] = {1, 1, 1};
    start(false);
    struct bps_header h = of(0, 9);
    ck_assert_int_eq(hold_bits(0, h, bits, 1), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hold_bits(0, h, bits, 3), BPS_ERR_PROTOCOL);
    h.size += PARTITION;
    ck_assert_int_eq(hold_bits(0, h, bits, 0), BPS_ERR_PROTOCOL); /* larger than partitions are */
    h = of(0, 9);
    h.size = 0;
    ck_assert_int_eq(hold_bits(0, h, bits, 0), BPS_ERR_PROTOCOL);
    h = of(1, 9);
    h.tensor = BPS_ID_UNNAMED | 3;
    ck_assert_int_eq(hold_bits(0, h, bits, 0), BPS_ERR_PROTOCOL); /* there is only round 0 of it */
    h.tensor = 0;
    ck_assert_int_eq(hold_bits(0, h, bits, 0), BPS_ERR_PROTOCOL);
    h = of(0, 9);
    h.flags = BPS_FLAG_EXCHANGE;
    ck_assert_int_eq(hold_bits(0, h, bits, 0), BPS_ERR_PROTOCOL);
    h = of(0, 9);
    ck_assert_int_eq(hold_bits(0, h, bits, 2), BPS_OK);
    struct bps_held held = {.id = {1, 0, 1, BPS_KEY_ROUNDS}, .bytes = h.bytes, .size = h.size};
    ck_assert_int_eq(bps_sum_hold(sum, 0, &held), BPS_ERR_PROTOCOL); /* slices of nothing */
}
END_TEST

/* The form that it tells is not that of the round. */
START_TEST(test_form_that_does_not_fit)
{
    struct bps_header h = of(0, 2);
    start(false);
    ck_assert_int_eq(push_slice(0, of(0, 2), 0, 1.0f), BPS_OK);
    h.slice = _i == 0 ? SLICE / 2 : SLICE * 2;
    if (_i == 2) {
        h = of(0, 3);
    }
    ck_assert_int_eq(hold(1, h, ALL), BPS_ERR_PROTOCOL);
}
END_TEST

START_TEST(test_told_twice)
{
    start(false);
    ck_assert_int_eq(hold(0, of(3, 1), ALL), BPS_OK);
    ck_assert_int_eq(hold(0, of(3, 1), ALL), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hold(0, of(7, 1), ALL), BPS_OK);
    ck_assert_int_eq(hold(0, of(5, 1), ALL), BPS_ERR_PROTOCOL); /* of three rounds */
    ck_assert_int_eq(hold(1, of(3, 1), ALL), BPS_OK);           /* another one may */
    ck_assert_int_eq(push_slice(0, of(3, 1), 0, 1.0f), BPS_ERR_PROTOCOL);
}
END_TEST

START_TEST(test_contributed_and_held)
{
    start(_i != 0);
    ck_assert_int_eq(push_slice(0, of(0, 2), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(hold(0, of(0, 2), 1), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hold(1, of(0, 2), 2), BPS_OK);
    ck_assert_int_eq(push_slice(1, of(0, 2), 1, 1.0f), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push_slice(1, of(0, 2), 0, 1.0f), BPS_OK);
}
END_TEST

START_TEST(test_final_that_is_not_wanted)
{
    start(_i != 0);
    ck_assert_int_eq(final(0, of(0, 2), 0, 1.0f), BPS_OK); /* of nothing that is known: it may be over */
    ck_assert_int_eq(hold(0, of(0, 2), ALL), BPS_OK);
    ck_assert_int_eq(final(0, of(0, 2), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(push_slice(1, of(0, 2), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(final(0, of(0, 2), 0, 1.0f), BPS_ERR_PROTOCOL); /* not yet */
    ck_assert_int_eq(push_slice(2, of(0, 2), 0, 1.0f), BPS_OK);
    ck_assert_int_eq(final(0, of(0, 2), 1, 1.0f), BPS_ERR_PROTOCOL); /* another slice */
    ck_assert_int_eq(final(0, of(0, 2), 2, 1.0f), BPS_ERR_PROTOCOL); /* none */
    ck_assert_int_eq(final_bytes(0, of(0, 2), 4, 1.0f, SLICE), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, of(0, 2), UINT32_MAX, 1.0f, SLICE), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, of(0, 2), 0, 1.0f, SLICE - 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, of(0, 2), 0, 1.0f, SLICE + 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final_bytes(0, of(0, 2), 0, 1.0f, 0), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(final(2, of(0, 2), 0, 1.0f), BPS_ERR_PROTOCOL);
    expect(1, 0, 0);
    ck_assert_int_eq(final(0, of(0, 2), 0, 2.0f), BPS_OK);
    ck_assert_int_eq(final(0, of(0, 2), 0, 2.0f), BPS_ERR_PROTOCOL); /* again */
    expect(1, 1, 2.0f);
    expect(2, 1, 2.0f);
}
END_TEST

/* Nothing is lost of the engine's memory, whenever it ends. */
START_TEST(test_end)
{
    start(_i != 0);
    ck_assert_int_eq(hold(0, of(0, 9), 0), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hold(0, of(0, 2), 0), BPS_OK); /* nothing of it */
    ck_assert_int_eq(hold(1, of(0, 2), ALL), BPS_OK);
    ck_assert_int_eq(push_slice(2, of(0, 2), 1, 1.0f), BPS_OK);
    ck_assert_int_eq(hold(1, of(1, 2), 3), BPS_OK);
    expect(2, 0, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("held");
    TCase *tests = tcase_create("held");
    tcase_add_checked_fixture(tests, rig_open, stop);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_one_holds, 0, 6);
    tcase_add_loop_test(tests, test_the_first_gives_it, 0, 2);
    tcase_add_loop_test(tests, test_parts, 0, 6);
    tcase_add_loop_test(tests, test_all_hold, 0, 2);
    tcase_add_loop_test(tests, test_nobody_comes, 0, 2);
    tcase_add_test(tests, test_two_rounds);
    tcase_add_loop_test(tests, test_empty, 0, 4);
    tcase_add_loop_test(tests, test_unnamed, 0, 2);
    tcase_add_loop_test(tests, test_group, 0, 8);
    tcase_add_loop_test(tests, test_group_breach, 0, 2);
    tcase_add_loop_test(tests, test_broadcast, 0, 6);
    tcase_add_loop_test(tests, test_broadcast_in_parts, 0, 2);
    tcase_add_loop_test(tests, test_coded, 0, 4);
    tcase_add_loop_test(tests, test_poison, 0, 4);
    tcase_add_loop_test(tests, test_poison_of_other_slices, 0, 2);
    tcase_add_test(tests, test_holder_poisons);
    tcase_add_loop_test(tests, test_holder_is_lost, 0, 2);
    tcase_add_test(tests, test_stall);
    tcase_add_loop_test(tests, test_a_mismatch_is_told_again, 0, 2);
    tcase_add_test(tests, test_bits_that_do_not_fit);
    tcase_add_loop_test(tests, test_form_that_does_not_fit, 0, 3);
    tcase_add_test(tests, test_told_twice);
    tcase_add_loop_test(tests, test_contributed_and_held, 0, 2);
    tcase_add_loop_test(tests, test_final_that_is_not_wanted, 0, 2);
    tcase_add_loop_test(tests, test_end, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
