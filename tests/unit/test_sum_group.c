/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sum_group.c - a shard's engine and frames that stand for groups: who is counted, who hears what, what
 * is a breach. Four workers on two hosts unless a test says otherwise: 0 and 2 on one, 1 and 3 on the other.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "sum_rig.h"

#define PARTITION 4096u
#define SLICE     1024u
#define WORKERS   4u

static struct bps_sum *sum;

static struct heard {
    uint32_t results, empty, failures, stalls;
    char text[BPS_TEXT_LIMIT + 1];
    float first; /* element of the last result */
} heard[WORKERS];

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    heard[rank].results++;
    heard[rank].empty += !bps_sum_wants_data(slice, rank);
    ck_assert_ptr_null(bps_sum_loan(slice, rank));
    if (slice->bytes > 0) {
        memcpy(&heard[rank].first, slice->payload, sizeof heard[rank].first);
    }
    bps_sum_delivered(slice); /* at once: as fast as any network */
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    heard[rank].stalls += notice->kind == BPS_NOTICE_STALLED;
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static const struct bps_sum_events events = {.finished = rig_finished, .result = on_result, .notice = on_notice};

static void start_groups(const uint32_t *group, bool rank_order)
{
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .group = group,
                                          .only = BPS_SUM_ALL,
                                          .rank_order = rank_order,
                                          .reducer = rig_reducer,
                                          .events = &events};
    memset(heard, 0, sizeof heard);
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void start(bool rank_order)
{
    static const uint32_t group[WORKERS] = {0, 1, 0, 1};
    start_groups(group, rank_order);
}

static void stop(void)
{
    bps_sum_free(sum);
    sum = NULL;
    rig_close();
}

/* A tensor of one slice, all elements with one value. */
static bps_status push(uint32_t rank, uint8_t flags, struct bps_header h, float value)
{
    float data[SLICE / sizeof(float)];
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        data[i] = value;
    }
    h.flags = flags;
    h.length = (flags & BPS_FLAG_EMPTY) != 0 ? 0 : (uint32_t)h.bytes;
    return rig_push(sum, rank, &h, data);
}

static struct bps_header header(uint32_t round, uint8_t op)
{
    return rig_header(1, round, BPS_FLOAT32, op, 400);
}

static void expect_results(uint32_t rank, uint32_t results, float first)
{
    ck_assert_uint_eq(heard[rank].results, results);
    ck_assert_uint_eq(heard[rank].failures, 0);
    ck_assert(results == 0 || heard[rank].first == first);
}

static void expect_failure(uint32_t rank, const char *text)
{
    ck_assert_uint_eq(heard[rank].failures, 1);
    ck_assert_str_eq(heard[rank].text, text);
    ck_assert_uint_eq(heard[rank].results, 0);
}

static void expect_nothing(uint32_t rank)
{
    ck_assert_uint_eq(heard[rank].results + heard[rank].failures + heard[rank].stalls, 0);
}

/* The next round of the same tensor works, whoever speaks. */
static void expect_recovery(uint32_t round)
{
    memset(heard, 0, sizeof heard);
    ck_assert_int_eq(push(0, BPS_FLAG_GROUP, header(round, BPS_SUM), 1.0f), BPS_OK);
    ck_assert_int_eq(push(3, BPS_FLAG_GROUP, header(round, BPS_SUM), 2.0f), BPS_OK);
    expect_results(0, 1, 3.0f);
    expect_results(3, 1, 3.0f);
}

/* Those who spoke get the result, an average counts the ranks, and any member may speak. */
START_TEST(test_results)
{
    start(_i % 2 != 0);
    uint32_t a = _i / 2 % 2 == 0 ? 0 : 2, b = _i / 4 % 2 == 0 ? 1 : 3;
    for (uint32_t round = 0; round < 3; round++) {
        memset(heard, 0, sizeof heard);
        ck_assert_int_eq(push(a, BPS_FLAG_GROUP, header(round, BPS_AVERAGE), 4.0f), BPS_OK);
        expect_nothing(a);
        ck_assert_int_eq(push(b, BPS_FLAG_GROUP, header(round, BPS_AVERAGE), 2.0f), BPS_OK);
        expect_results(a, 1, 1.5f);
        expect_results(b, 1, 1.5f);
        expect_nothing(2 - a);
        expect_nothing(4 - b);
    }
}
END_TEST

/* One host sums first, the ranks of the other push for themselves; so may all of them. */
START_TEST(test_some_alone)
{
    start(_i != 0);
    ck_assert_int_eq(push(3, 0, header(0, BPS_SUM), 1.0f), BPS_OK);
    ck_assert_int_eq(push(2, BPS_FLAG_GROUP, header(0, BPS_SUM), 4.0f), BPS_OK);
    expect_nothing(3);
    ck_assert_int_eq(push(1, 0, header(0, BPS_SUM), 2.0f), BPS_OK);
    expect_results(1, 1, 7.0f);
    expect_results(2, 1, 7.0f);
    expect_results(3, 1, 7.0f);
    expect_nothing(0);
    memset(heard, 0, sizeof heard);
    for (uint32_t r = 0; r < WORKERS; r++) {
        ck_assert_int_eq(push(r, 0, header(1, BPS_SUM), 1.0f), BPS_OK);
    }
    for (uint32_t r = 0; r < WORKERS; r++) {
        expect_results(r, 1, 4.0f);
    }
}
END_TEST

/* order = "rank": a group's sum has the place of its lowest rank, whoever speaks and whoever comes first. */
START_TEST(test_order)
{
    static const uint32_t group[WORKERS] = {0, 1, 2, 0};
    static const float value[3] = {1.0f, 16777216.0f, -16777216.0f}; /* 1 is lost where it comes first */
    start_groups(group, true);
    for (uint32_t round = 0; round < 6; round++) {
        uint32_t speaker[3] = {round % 2 == 0 ? 0 : 3, 1, 2};
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t k = (i + round / 2) % 3;
            uint8_t flags = k == 0 ? BPS_FLAG_GROUP : 0;
            ck_assert_int_eq(push(speaker[k], flags, header(round, BPS_SUM), value[k]), BPS_OK);
        }
        ck_assert_uint_eq(heard[1].results, round + 1);
        ck_assert(heard[1].first == 0.0f);
    }
}
END_TEST

/* Who pushes for the root pushes data, and needs none back. */
START_TEST(test_broadcast)
{
    struct bps_header h = header(0, BPS_WIRE_BROADCAST);
    h.root = 2;
    start(_i != 0);
    ck_assert_int_eq(push(0, BPS_FLAG_GROUP | BPS_FLAG_EMPTY, h, 0.0f), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push(0, BPS_FLAG_GROUP, h, 5.0f), BPS_OK);
    ck_assert_int_eq(push(1, BPS_FLAG_GROUP, h, 5.0f), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push(1, BPS_FLAG_GROUP | BPS_FLAG_EMPTY, h, 0.0f), BPS_OK);
    expect_results(0, 1, 5.0f);
    expect_results(1, 1, 5.0f);
    ck_assert_uint_eq(heard[0].empty, 1);
    ck_assert_uint_eq(heard[1].empty, 0);
    /* Alone, the root's neighbour is a receiver as any other. */
    h.round = 1;
    for (uint32_t r = 0; r < WORKERS; r++) {
        ck_assert_int_eq(push(r, r == 2 ? 0 : BPS_FLAG_EMPTY, h, 6.0f), BPS_OK);
    }
    for (uint32_t r = 0; r < WORKERS; r++) {
        ck_assert(heard[r].first == 6.0f);
    }
    ck_assert_uint_eq(heard[2].empty, 1);
    ck_assert_uint_eq(heard[0].empty, 1);
}
END_TEST

/* Ranks are named, not hosts. */
START_TEST(test_odd_group)
{
    struct bps_header odd = header(0, BPS_SUM);
    odd.bytes = odd.size = 200;
    start(false);
    ck_assert_int_eq(push(_i == 0 ? 0 : 1, BPS_FLAG_GROUP, _i == 0 ? header(0, BPS_SUM) : odd, 1.0f), BPS_OK);
    ck_assert_int_eq(push(_i == 0 ? 3 : 2, BPS_FLAG_GROUP, _i == 0 ? odd : header(0, BPS_SUM), 1.0f), BPS_OK);
    const char *text = "workers 1 and 3 pushed 50 float32 (sum), workers 0 and 2 pushed 100 float32 (sum)";
    expect_failure(_i == 0 ? 0 : 1, text);
    expect_failure(_i == 0 ? 3 : 2, text);
    expect_nothing(_i == 0 ? 1 : 0);
    expect_recovery(1);
}
END_TEST

START_TEST(test_poison)
{
    struct bps_header poison = header(0, BPS_SUM);
    poison.flags = BPS_FLAG_GROUP;
    poison.root = (uint32_t)-BPS_ERR_FAILED;
    start(false);
    if (_i == 0) {
        ck_assert_int_eq(push(1, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
        ck_assert_int_eq(bps_frame_poison(sum, 2, &poison, "worker 0: stage clip: no"), BPS_OK);
    } else {
        poison.flags |= BPS_FLAG_ANSWER;
        ck_assert_int_eq(bps_frame_poison(sum, 2, &poison, "worker 0: stage clip: no"), BPS_OK);
        ck_assert_int_eq(push(1, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
        expect_failure(2, "worker 0: stage clip: no");
    }
    expect_failure(1, "worker 0: stage clip: no");
    expect_nothing(0);
    ck_assert_uint_eq(heard[2].failures, _i == 0 ? 0 : 1);
    expect_recovery(1);
}
END_TEST

START_TEST(test_stall)
{
    start(false);
    uint64_t now = bps_now();
    ck_assert_int_eq(push(2, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
    bps_sum_check_stalls(sum, now + 61 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[2].stalls, 1);
    ck_assert_str_eq(heard[2].text, "has waited 61 s for workers 1 and 3");
    expect_nothing(0);
    bps_sum_check_stalls(sum, now + 101 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    expect_failure(2, "workers 1 and 3 did not contribute within 100 s (cluster.stall_timeout)");
    expect_nothing(0);
    ck_assert_int_eq(push(3, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
    ck_assert_uint_eq(heard[3].failures, 1);
    expect_recovery(1);
}
END_TEST

/* A member that leaves fails the round, even if another one was to speak for it. */
START_TEST(test_leave)
{
    start(false);
    ck_assert_int_eq(push(0, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
    bps_sum_leave(sum, 3);
    expect_failure(0, "worker 3 has left the job");
    ck_assert_int_eq(push(1, BPS_FLAG_GROUP, header(0, BPS_SUM), 1.0f), BPS_OK);
    expect_failure(1, "worker 3 has left the job");
    expect_nothing(2);
    expect_nothing(3);
}
END_TEST

/* What a job does not do: the second frame is the breach. */
START_TEST(test_mixed)
{
    static const struct {
        uint32_t first, second;
        uint8_t first_flags, second_flags;
    } mixes[] = {
        {0, 2, BPS_FLAG_GROUP, 0},
        {0, 2, 0, BPS_FLAG_GROUP},
        {0, 2, BPS_FLAG_GROUP, BPS_FLAG_GROUP},
        {2, 0, BPS_FLAG_GROUP, 0},
        {2, 2, BPS_FLAG_GROUP, BPS_FLAG_GROUP},
    };
    struct bps_header poison = header(0, BPS_SUM);
    poison.flags = mixes[_i].second_flags;
    start(false);
    ck_assert_int_eq(push(mixes[_i].first, mixes[_i].first_flags, header(0, BPS_SUM), 1.0f), BPS_OK);
    uint32_t second = mixes[_i].second;
    ck_assert_int_eq(push(second, poison.flags, header(0, BPS_SUM), 1.0f), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_poison(sum, second, &poison, "no"), BPS_ERR_PROTOCOL);
    expect_nothing(0);
    expect_nothing(2);
}
END_TEST

/* Nor slices of a partition with and without the flag, nor one slice twice at a time. */
START_TEST(test_mixed_slices)
{
    struct bps_header h = rig_header(1, 0, BPS_FLOAT32, BPS_SUM, 2 * SLICE);
    struct rig_frame first, again;
    h.flags = BPS_FLAG_GROUP;
    h.length = SLICE;
    start(_i != 0);
    ck_assert_int_eq(rig_begin(&first, sum, 0, &h, NULL), BPS_OK);
    ck_assert_int_eq(rig_begin(&again, sum, 0, &h, NULL), BPS_ERR_PROTOCOL);
    ck_assert(rig_feed(&first, SLICE));
    h.offset = SLICE;
    h.flags = 0;
    ck_assert_int_eq(rig_begin(&again, sum, 0, &h, NULL), BPS_ERR_PROTOCOL);
    h.flags = BPS_FLAG_GROUP;
    ck_assert_int_eq(rig_push(sum, 0, &h, NULL), BPS_OK);
    h.offset = 0;
    ck_assert_int_eq(rig_push(sum, 1, &h, NULL), BPS_OK);
    h.offset = SLICE;
    ck_assert_int_eq(rig_push(sum, 1, &h, NULL), BPS_OK);
    expect_results(0, 2, 0.0f);
    expect_results(1, 2, 0.0f);
}
END_TEST

START_TEST(test_groups_that_are_none)
{
    static const uint32_t groups[][2] = {{1, 1}, {0, 2}, {1, 0}};
    struct bps_sum *out = NULL;
    const struct bps_sum_config config = {.workers = 2,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .group = groups[_i],
                                          .only = BPS_SUM_ALL,
                                          .reducer = rig_reducer,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &out), BPS_ERR_INVALID);
    ck_assert_ptr_null(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sum_group");
    TCase *tests = tcase_create("sum_group");
    tcase_add_checked_fixture(tests, rig_open, stop);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_results, 0, 8);
    tcase_add_loop_test(tests, test_some_alone, 0, 2);
    tcase_add_test(tests, test_order);
    tcase_add_loop_test(tests, test_broadcast, 0, 2);
    tcase_add_loop_test(tests, test_odd_group, 0, 2);
    tcase_add_loop_test(tests, test_poison, 0, 2);
    tcase_add_test(tests, test_stall);
    tcase_add_test(tests, test_leave);
    tcase_add_loop_test(tests, test_mixed, 0, 5);
    tcase_add_loop_test(tests, test_mixed_slices, 0, 2);
    tcase_add_loop_test(tests, test_groups_that_are_none, 0, 3);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
