/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quorum.c - rounds that end without the slowest workers, with the reducer cpu.
 *
 * What a worker contributes is a power of two of its own, so that a sum tells whose contributions are in it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checks.h"
#include "server/sum_frames.h"
#include "sum/round.h"
#include "sum_rig.h"

#define LIMIT   8u /* of workers */
#define ROUNDS  40u
#define SLICES  3u
#define NOTHING (-1.0f)

static struct bps_sum *sum;
static uint32_t workers, slice_bytes;
static bool work_waits;
static float result[ROUNDS][SLICES]; /* of each slice, once it is known */

static struct worker {
    uint32_t round, slice; /* that it comes to next */
    uint32_t got;          /* results of its round */
    bool sending;
    struct rig_frame frame;
    uint32_t late, failures; /* results that it was too late for */
    char text[400];
} worker[LIMIT];

static struct delivery {
    struct bps_sum_slice *slice;
    uint32_t rank;
} delivery[LIMIT * SLICES];
static uint32_t under_way;

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    ck_assert_uint_lt(under_way, LIMIT * SLICES);
    delivery[under_way++] = (struct delivery){slice, rank};
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    worker[rank].failures++;
    snprintf(worker[rank].text, sizeof worker[rank].text, "%s", notice->text);
}

static void on_due(void *owner)
{
    (void)owner;
    work_waits = true;
}

static const struct bps_sum_events at_once = {.finished = rig_finished, .result = on_result, .notice = on_notice},
                                   put_off = {.finished = rig_finished,
                                              .result = on_result,
                                              .notice = on_notice,
                                              .due = on_due};

static void begin(uint32_t n, uint32_t backups, uint32_t slice, uint64_t held, const struct bps_sum_events *events)
{
    const struct bps_sum_config config = {.workers = n,
                                          .backups = backups,
                                          .partition = SLICES * slice,
                                          .slice = slice,
                                          .only = BPS_SUM_ALL,
                                          .held = held,
                                          .reducer = rig_reducer,
                                          .events = events};
    workers = n;
    slice_bytes = slice;
    under_way = 0;
    work_waits = false;
    memset(worker, 0, sizeof worker);
    for (uint32_t i = 0; i < ROUNDS * SLICES; i++) {
        result[i / SLICES][i % SLICES] = NOTHING;
    }
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void teardown(void)
{
    bps_sum_free(sum);
    sum = NULL;
    rig_close();
}

static struct bps_header header_of(uint32_t rank, uint8_t op)
{
    struct bps_header header = rig_header(1, worker[rank].round, BPS_FLOAT32, op, (uint64_t)SLICES * slice_bytes);
    header.offset = worker[rank].slice * slice_bytes;
    header.length = slice_bytes;
    return header;
}

static const void *payload_of(uint32_t rank)
{
    static float data[LIMIT][16u << 10];
    for (uint32_t i = 0; i < slice_bytes / 4; i++) {
        data[rank][i] = (float)(1u << rank);
    }
    return data[rank];
}

static void send_some(uint32_t rank, uint8_t op, uint32_t most)
{
    struct worker *w = &worker[rank];
    if (!w->sending) {
        const struct bps_header header = header_of(rank, op);
        ck_assert_int_eq(rig_begin(&w->frame, sum, rank, &header, payload_of(rank)), BPS_OK);
        w->sending = true;
    } else if (rig_feed(&w->frame, most)) {
        w->sending = false;
        w->slice++;
    }
}

static uint32_t ones(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}

/* The contributions in a result, as bits; 0: it is none. */
static uint32_t members(float value, uint8_t op)
{
    for (uint32_t set = 1; set < 1u << workers; set++) {
        float expected = op == BPS_AVERAGE ? (float)set / (float)ones(set) : (float)set;
        if (value > expected * (1 - 1e-6f) && value < expected * (1 + 1e-6f)) {
            return set;
        }
    }
    return 0;
}

/* The same for all who get it. */
static void deliver_one(uint32_t i, uint8_t op, uint32_t backups)
{
    struct delivery d = delivery[i];
    const float *payload = d.slice->payload;
    float *known = &result[d.slice->id.round][d.slice->index], last = payload[slice_bytes / 4 - 1];
    delivery[i] = delivery[--under_way];
    *known = *known == NOTHING ? payload[0] : *known;
    ck_assert_float_eq(payload[0], *known);
    ck_assert_float_eq(last, *known);
    uint32_t set = members(*known, op);
    bool late = bps_sum_is_late(d.slice, d.rank);
    ck_assert_uint_ge(ones(set), workers - backups);
    if (op == BPS_SUM) {
        ck_assert_int_eq(late, !(set >> d.rank & 1));
    }
    struct bps_header header;
    ck_assert_int_eq(bps_header_decode(late ? d.slice->other_header : d.slice->header, &header), BPS_OK);
    ck_assert_int_eq((header.flags & BPS_FLAG_DROPPED) != 0, late);
    ck_assert_uint_eq(header.length, slice_bytes);
    worker[d.rank].late += late;
    worker[d.rank].got++;
    bps_sum_delivered(d.slice);
}

/* Whoever has all results of its round goes on to the next one; the last worker rarely does anything. */
static void run(uint8_t op, uint32_t backups, uint32_t rounds)
{
    uint32_t left = workers;
    while (left > 0) {
        uint32_t rank = rig_random(rig_random(16) == 0 ? workers : workers - 1);
        struct worker *w = &worker[rank];
        if (w->round < rounds && w->slice < SLICES) {
            send_some(rank, op, 1 + rig_random(2 * slice_bytes));
        } else if (w->round < rounds && w->got == SLICES) {
            w->slice = w->got = 0;
            w->round++;
            left -= w->round == rounds;
        }
        if (under_way > 0 && rig_random(2) == 0) {
            deliver_one(rig_random(under_way), op, backups);
        }
        if (work_waits && rig_random(4) == 0) {
            work_waits = bps_sum_work(sum);
        }
    }
    const struct bps_round_id id = {.tensor = 1};
    ck_assert_uint_eq(sum->backlog, 0);
    ck_assert_uint_eq(bps_key_known(sum, &id)->open, 0);
}

START_TEST(test_slow_workers)
{
    static const uint32_t n[] = {2, 3, 5, 8}, backups[] = {1, 1, 2, 7};
    uint32_t i = (uint32_t)_i % 4;
    begin(n[i], backups[i], _i < 4 ? 1024 : 64u << 10, 0, _i < 4 ? &at_once : &put_off);
    run(_i % 2 == 0 ? BPS_SUM : BPS_AVERAGE, backups[i], ROUNDS);
    ck_assert_uint_gt(worker[n[i] - 1].late, ROUNDS);
}
END_TEST

/* More backups than workers: one contribution is always needed. */
START_TEST(test_one_is_enough)
{
    begin(2, 9, 1024, 0, &at_once);
    run(BPS_SUM, 1, 10);
}
END_TEST

/* While more results than this wait for who is late, further rounds wait for it, too. */
START_TEST(test_backlog)
{
    begin(3, 1, 1024, 20 * 1024, &at_once);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 2 * SLICES; i++) {
            worker[i / SLICES].round = round;
            worker[i / SLICES].slice = i % SLICES;
            const struct bps_header header = header_of(i / SLICES, BPS_SUM);
            ck_assert_int_eq(rig_push(sum, i / SLICES, &header, payload_of(i / SLICES)), BPS_OK);
        }
        ck_assert_uint_eq(under_way, round < 7 ? 2 * SLICES : 0);
        while (under_way > 0) {
            deliver_one(0, BPS_SUM, 1);
        }
    }
    for (uint32_t i = 0; i < 10 * SLICES; i++) {
        worker[2].round = i / SLICES;
        worker[2].slice = i % SLICES;
        const struct bps_header header = header_of(2, BPS_SUM);
        ck_assert_int_eq(rig_push(sum, 2, &header, payload_of(2)), BPS_OK);
        ck_assert_uint_eq(under_way, i < 7 * SLICES ? 1 : 3);
        while (under_way > 0) {
            deliver_one(0, BPS_SUM, 1);
        }
    }
    ck_assert_uint_eq(worker[2].late, 7 * SLICES);
    ck_assert_uint_eq(sum->backlog, 0);
}
END_TEST

/* Two of three make a round of all slices. */
static void end_early(uint8_t op)
{
    begin(3, 1, 1024, 0, &at_once);
    for (uint32_t i = 0; i < 2 * SLICES; i++) {
        worker[i / SLICES].slice = i % SLICES;
        const struct bps_header header = header_of(i / SLICES, op);
        ck_assert_int_eq(rig_push(sum, i / SLICES, &header, payload_of(i / SLICES)), BPS_OK);
    }
    while (under_way > 0) {
        deliver_one(0, op, 1);
    }
}

static void must_be_over(void)
{
    const struct bps_round_id id = {.tensor = 1};
    ck_assert_uint_eq(bps_key_known(sum, &id)->open, 0);
    ck_assert_uint_eq(sum->backlog, 0);
    ck_assert_uint_eq(worker[0].failures + worker[1].failures, 0);
}

/* What goes wrong at who is late is its own affair. */
START_TEST(test_late_failures)
{
    struct bps_header header;
    end_early(BPS_SUM);
    header = header_of(2, BPS_SUM);
    if (_i == 0) { /* another type */
        header.dtype = BPS_INT32;
        ck_assert_int_eq(rig_push(sum, 2, &header, NULL), BPS_OK);
        ck_assert_str_eq(worker[2].text, "worker 2 pushed 768 int32 (sum), workers 0 and 1 pushed 768 float32 (sum)");
    } else if (_i < 4) { /* it cannot go on, at once or amid the round */
        for (uint32_t i = 1; i < (uint32_t)_i; i++) {
            ck_assert_int_eq(rig_push(sum, 2, &header, payload_of(2)), BPS_OK);
            deliver_one(0, BPS_SUM, 1);
            header.offset += slice_bytes;
        }
        header.type = BPS_FRAME_POISON;
        header.flags = BPS_FLAG_ANSWER;
        header.root = (uint32_t)-BPS_ERR_FAILED;
        header.offset = header.length = 0;
        ck_assert_int_eq(bps_frame_poison(sum, 2, &header, "worker 2: no"), BPS_OK);
        ck_assert_str_eq(worker[2].text, "worker 2: no");
    } else if (_i == 4) {
        bps_sum_leave(sum, 2);
    } else {
        bps_sum_gone(sum, 2);
    }
    ck_assert_uint_eq(worker[2].failures, _i < 4);
    must_be_over();
}
END_TEST

/* The round goes on, and nobody is said to be missing. */
START_TEST(test_no_stall)
{
    end_early(BPS_AVERAGE);
    bps_sum_check_stalls(sum, bps_now() + 1000000000000u, 1, 2);
    ck_assert_uint_eq(worker[0].failures + worker[1].failures + worker[2].failures, 0);
    for (uint32_t i = 0; i < SLICES; i++) {
        worker[2].slice = i;
        const struct bps_header header = header_of(2, BPS_AVERAGE);
        ck_assert_int_eq(rig_push(sum, 2, &header, payload_of(2)), BPS_OK);
        deliver_one(0, BPS_AVERAGE, 1);
    }
    ck_assert_uint_eq(worker[2].late, SLICES);
    must_be_over();
}
END_TEST

/* Broadcasts and tensors without names wait for all. */
START_TEST(test_what_waits_for_all)
{
    begin(2, 1, 1024, 0, &at_once);
    struct bps_header header = rig_header(_i == 0 ? BPS_ID_UNNAMED : 1, 0, BPS_FLOAT32, BPS_SUM, 1024);
    header.op = _i == 1 ? BPS_WIRE_BROADCAST : BPS_SUM;
    header.length = 1024;
    ck_assert_int_eq(rig_push(sum, 0, &header, payload_of(0)), BPS_OK);
    ck_assert_uint_eq(under_way, 0);
    header.flags = _i == 1 ? BPS_FLAG_EMPTY : 0;
    header.length = _i == 1 ? 0 : 1024;
    ck_assert_int_eq(rig_push(sum, 1, &header, payload_of(1)), BPS_OK);
    ck_assert_uint_eq(under_way, 2);
    while (under_way > 0) {
        bps_sum_delivered(delivery[--under_way].slice);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quorum");
    TCase *tests = tcase_create("quorum");
    tcase_add_checked_fixture(tests, rig_open, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_slow_workers, 0, 8);
    tcase_add_test(tests, test_one_is_enough);
    tcase_add_test(tests, test_backlog);
    tcase_add_loop_test(tests, test_late_failures, 0, 6);
    tcase_add_test(tests, test_no_stall);
    tcase_add_loop_test(tests, test_what_waits_for_all, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
