/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sum_loan.c - an aggregator and what it borrows: a loan comes back exactly once, with the result or
 * with the news that there is none, and is not touched after that. Worker 0 is alone, 1, 2 and 3 are the
 * group; 2 leads.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "sum_rig.h"

#define PARTITION (1u << 20)
#define COUNT     150000u /* floats: more than one chunk */
#define BYTES     (COUNT * 4u)
#define WORKERS   4u
#define LEADER    2u

static struct bps_sum *sum;
static bool at_once;   /* results are delivered as they come */
static uint32_t again; /* rounds that are begun when the last has ended, from within the news of it */

static struct member {
    float *data; /* and answer */
    struct rig_loan loan;
    struct bps_sum_slice *result; /* to be delivered */
    uint32_t results, failures, stalls;
    char text[BPS_TEXT_LIMIT + 1];
    uint64_t bytes; /* of the last failure's header */
    uint32_t round;
} member[WORKERS];

static struct bps_sum_slice *summed;
static uint32_t told; /* rounds that the network was told of */
static uint32_t due;  /* calls for bps_sum_work() */

static void lend(uint32_t rank, bool mapped);

static void deliver(uint32_t rank)
{
    struct bps_sum_slice *slice = member[rank].result;
    member[rank].result = NULL;
    if (bps_sum_loan(slice, rank) != NULL) {
        ck_assert_ptr_eq(bps_sum_loan(slice, rank), &member[rank].loan.loan);
        member[rank].loan.returned++;
    }
    bps_sum_delivered(slice);
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    member[rank].results++;
    ck_assert_ptr_null(member[rank].result);
    member[rank].result = slice;
    if (at_once) {
        deliver(rank);
    }
    if (again > 0 && rank == 3) {
        again--;
        for (uint32_t r = 1; r < WORKERS; r++) {
            member[r].round++;
            lend(r, true);
        }
    }
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    ck_assert_uint_eq(member[rank].loan.released, 0); /* it hears first */
    member[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    member[rank].stalls += notice->kind == BPS_NOTICE_STALLED;
    member[rank].bytes = notice->bytes;
    snprintf(member[rank].text, sizeof member[rank].text, "%s", notice->text);
}

static void on_released(void *owner, uint32_t rank, struct bps_loan *loan)
{
    (void)owner;
    ck_assert_ptr_eq(loan, &member[rank].loan.loan);
    member[rank].loan.released++;
}

static void on_summed(void *owner, struct bps_sum_slice *slice)
{
    (void)owner;
    ck_assert_ptr_null(summed);
    summed = slice;
}

static bool on_failed(void *owner, const struct bps_notice *notice)
{
    (void)owner;
    ck_assert_uint_eq(notice->kind, BPS_NOTICE_FAILED);
    ck_assert_uint_eq(notice->id.tensor, 1);
    ck_assert_uint_eq(notice->id.round, member[LEADER].round);
    ck_assert_uint_gt(strlen(notice->text), 0);
    ck_assert_uint_eq(member[1].failures, 0); /* it hears first */
    told++;
    return false;
}

static void on_due(void *owner)
{
    (void)owner;
    due++;
}

static struct bps_sum_events events = {
    .finished = rig_finished,
    .result = on_result,
    .notice = on_notice,
    .loan_read = rig_loan_read,
    .loan_write = rig_loan_write,
    .released = on_released,
    .summed = on_summed,
    .failed = on_failed,
};

static void start(bool partial)
{
    static const uint32_t groups[WORKERS] = {0, 1, 1, 1};
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = PARTITION,
                                          .slice = 1024,
                                          .group = groups,
                                          .only = 1,
                                          .leader = LEADER,
                                          .partial = partial,
                                          .reducer = rig_reducer,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void setup(void)
{
    rig_open();
    memset(member, 0, sizeof member);
    summed = NULL;
    told = due = 0;
    events.due = NULL;
    at_once = false;
    again = 0;
    for (uint32_t r = 0; r < WORKERS; r++) {
        member[r].data = malloc(BYTES);
    }
}

static void teardown(void)
{
    bps_sum_free(sum);
    sum = NULL;
    for (uint32_t r = 0; r < WORKERS; r++) {
        free(member[r].data);
    }
    rig_close();
}

static struct bps_header header_of(uint32_t rank)
{
    struct bps_header h = rig_header(1, member[rank].round, BPS_FLOAT32, BPS_SUM, BYTES);
    h.length = BYTES;
    return h;
}

/* Lends in place, each element the number of the rank. */
static void lend(uint32_t rank, bool mapped)
{
    struct bps_sum_cursor cursor;
    struct bps_header h = header_of(rank);
    for (uint32_t i = 0; i < COUNT; i++) {
        member[rank].data[i] = (float)rank;
    }
    rig_lend(&member[rank].loan, member[rank].data, member[rank].data, BYTES, mapped);
    ck_assert_int_eq(bps_frame_push(sum, rank, &h, &cursor), BPS_OK);
    ck_assert_int_eq(bps_sum_lend(&cursor.sink, &member[rank].loan.loan), BPS_OK);
}

/* Comes late to a round that has failed: it is told, and its bytes are wanted only to be discarded. */
static void come_late(uint32_t rank)
{
    struct bps_sum_cursor cursor;
    struct bps_header h = header_of(rank);
    rig_lend(&member[rank].loan, member[rank].data, member[rank].data, BYTES, false);
    ck_assert_int_eq(bps_frame_push(sum, rank, &h, &cursor), BPS_OK);
    ck_assert_int_eq(bps_sum_lend(&cursor.sink, &member[rank].loan.loan), BPS_AGAIN);
    ck_assert_uint_eq(bps_sum_take(&cursor.sink, 0, member[rank].data, BYTES), BYTES);
    ck_assert_uint_eq(member[rank].loan.released, 0);
}

static void expect_failure(uint32_t rank, const char *text, uint32_t released)
{
    ck_assert_uint_eq(member[rank].failures, 1);
    ck_assert_str_eq(member[rank].text, text);
    ck_assert_uint_eq(member[rank].results, 0);
    ck_assert_uint_eq(member[rank].loan.released, released);
}

static void expect_answer(uint32_t rank, float value)
{
    uint32_t i = 0;
    while (i < COUNT && member[rank].data[i] == value) {
        i++;
    }
    ck_assert_uint_eq(i, COUNT); /* one assertion for all elements: libcheck writes each one down */
}

/* The next round goes well. */
static void expect_recovery(bool partial)
{
    for (uint32_t r = 1; r < WORKERS; r++) {
        member[r].round++;
        member[r].results = member[r].failures = 0;
        lend(r, r != 1);
    }
    if (partial) {
        ck_assert_ptr_nonnull(summed);
        bps_sum_distribute(summed, member[LEADER].data);
        summed = NULL;
    }
    for (uint32_t r = 1; r < WORKERS; r++) {
        uint32_t results = partial && r == LEADER ? 0 : 1;
        ck_assert_uint_eq(member[r].results, results);
        ck_assert_uint_eq(member[r].failures, 0);
        expect_answer(r, 6.0f);
        if (results == 1) {
            deliver(r);
        }
        ck_assert_uint_eq(member[r].loan.released, 0);
    }
}

/* ---- tests ---- */

/* Nobody else gets the sum before the network has summed, and then all get that. */
START_TEST(test_partial)
{
    start(true);
    lend(1, _i % 2 != 0);
    lend(3, _i / 2 % 2 != 0);
    lend(2, true);
    ck_assert_ptr_eq(summed->payload, member[2].data);
    expect_answer(1, 1.0f);
    expect_answer(2, 6.0f);
    expect_answer(3, 3.0f);
    for (uint32_t i = 0; i < COUNT; i++) {
        member[2].data[i] = 10.0f;
    }
    bps_sum_distribute(summed, member[2].data);
    summed = NULL;
    expect_answer(1, 10.0f);
    expect_answer(3, 10.0f);
    ck_assert_uint_eq(member[2].results, 0);
    deliver(1);
    deliver(3);
    expect_recovery(true);
}
END_TEST

/* The owner may deliver and push the next round from within the news of the last. */
START_TEST(test_at_once)
{
    start(false);
    at_once = true;
    again = 20;
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, true);
    }
    for (uint32_t r = 1; r < WORKERS; r++) {
        ck_assert_uint_eq(member[r].results, 21);
        expect_answer(r, 6.0f);
    }
}
END_TEST

/* The pass waits until the owner has time for it. */
START_TEST(test_put_off)
{
    events.due = on_due;
    start(false);
    for (uint32_t r = 1; r < WORKERS; r++) {
        ck_assert_uint_eq(due, 0);
        lend(r, r != 3);
    }
    ck_assert_uint_eq(due, 1);
    expect_answer(LEADER, LEADER);
    ck_assert(!bps_sum_work(sum));
    for (uint32_t r = 1; r < WORKERS; r++) {
        ck_assert_uint_eq(member[r].results, 1);
        expect_answer(r, 6.0f);
        deliver(r);
    }
    ck_assert(!bps_sum_work(sum));
    ck_assert_uint_eq(due, 1);
}
END_TEST

/* Meanwhile the round may fail: what was lent is touched no more. */
START_TEST(test_gone_while_put_off)
{
    events.due = on_due;
    start(false);
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, r != 3);
    }
    bps_sum_gone(sum, 3);
    expect_failure(1, "worker 3 was lost", 1);
    expect_failure(2, "worker 3 was lost", 1);
    ck_assert(!bps_sum_work(sum));
    expect_failure(1, "worker 3 was lost", 1);
    expect_answer(1, 1.0f);
}
END_TEST

static void fail_in_network(uint64_t bytes)
{
    struct bps_header failed = rig_header(1, member[LEADER].round, BPS_FLOAT32, BPS_SUM, bytes);
    failed.size = BYTES;
    failed.root = (uint32_t)-BPS_ERR_MISMATCH;
    ck_assert_int_eq(bps_frame_fail(sum, &failed, "worker 0 pushed too much"), BPS_OK);
}

START_TEST(test_network_fails)
{
    start(true);
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, r != 3);
    }
    ck_assert_ptr_nonnull(summed);
    summed = NULL;
    fail_in_network(2 * BYTES);
    for (uint32_t r = 1; r < WORKERS; r++) {
        expect_failure(r, "worker 0 pushed too much", 1);
        ck_assert_uint_eq(member[r].bytes, 2 * BYTES);
    }
    fail_in_network(2 * BYTES); /* that round is over */
    ck_assert_uint_eq(told, 0); /* it knows */
    expect_recovery(true);
}
END_TEST

/* It has failed before all came, or any; or when the results are there, which does not matter any more. */
START_TEST(test_network_fails_early)
{
    start(true);
    for (uint32_t r = 1; r < (uint32_t)_i + 1; r++) {
        lend(r, r != 3);
    }
    fail_in_network(BYTES);
    for (uint32_t r = 1; r < WORKERS; r++) {
        bool late = r >= (uint32_t)_i + 1;
        if (late) {
            come_late(r);
        }
        expect_failure(r, "worker 0 pushed too much", !late);
    }
    ck_assert_uint_eq(told, 0);
    expect_recovery(true);
}
END_TEST

START_TEST(test_network_fails_late)
{
    start(true);
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, true);
    }
    bps_sum_distribute(summed, member[LEADER].data);
    summed = NULL;
    fail_in_network(BYTES);
    deliver(1);
    deliver(3);
    ck_assert_uint_eq(member[1].failures + member[2].failures + member[3].failures, 0);
    ck_assert_uint_eq(member[1].loan.released + member[2].loan.released + member[3].loan.released, 0);
    expect_recovery(true);
}
END_TEST

/* A member's memory cannot be read when all have come, or not be written after that. */
START_TEST(test_out_of_reach)
{
    bool partial = _i % 2 != 0, unreadable = _i / 2 == 0;
    start(partial);
    lend(1, true);
    lend(3, false);
    member[3].loan.unreadable = unreadable;
    member[3].loan.unwritable = !unreadable;
    lend(2, true);
    ck_assert_int_eq(summed != NULL, partial && !unreadable);
    if (summed != NULL) {
        bps_sum_distribute(summed, member[2].data);
        summed = NULL;
    }
    for (uint32_t r = 1; r < WORKERS; r++) {
        expect_failure(r, "worker 3 was lost: its memory is no longer accessible", 1);
    }
    ck_assert_uint_eq(told, partial && unreadable); /* else it has the sum, or there is none */
    expect_recovery(partial);
}
END_TEST

/* A member is lost: what it has lent is not even returned. */
START_TEST(test_gone)
{
    start(false);
    lend(3, false);
    lend(1, true);
    member[3].loan.unreadable = member[3].loan.unwritable = true;
    bps_sum_gone(sum, 3);
    ck_assert_uint_eq(member[3].failures, 0);
    ck_assert_uint_eq(member[3].loan.released, 0);
    expect_failure(1, "worker 3 was lost", 1);
    come_late(2);
    expect_failure(2, "worker 3 was lost", 0);
    member[1].round++;
    member[1].failures = 0;
    come_late(1);
    expect_failure(1, "worker 3 was lost", 0);
}
END_TEST

/* It is lost when all have contributed: the others get the result. */
START_TEST(test_gone_after_summed)
{
    start(true);
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, r == 2);
    }
    member[3].loan.unreadable = member[3].loan.unwritable = true;
    bps_sum_gone(sum, 3);
    bps_sum_distribute(summed, member[2].data);
    ck_assert_uint_eq(member[3].results + member[3].failures, 0);
    ck_assert_uint_eq(member[1].results, 1);
    expect_answer(1, 6.0f);
    deliver(1);
    ck_assert_uint_eq(member[1].failures + member[3].loan.released, 0);
}
END_TEST

START_TEST(test_leave)
{
    start(false);
    lend(1, false);
    lend(2, true);
    bps_sum_leave(sum, 0); /* of another group */
    ck_assert_uint_eq(member[1].failures, 0);
    bps_sum_leave(sum, 3);
    expect_failure(1, "worker 3 has left the job", 1);
    expect_failure(2, "worker 3 has left the job", 1);
    ck_assert_uint_eq(member[3].failures, 0);
}
END_TEST

START_TEST(test_poison)
{
    struct bps_header poison = header_of(3);
    poison.root = (uint32_t)-BPS_ERR_FAILED;
    start(true);
    lend(1, true);
    ck_assert_int_eq(bps_frame_poison(sum, 3, &poison, "worker 3: stage clip: no"), BPS_OK);
    ck_assert_int_eq(bps_frame_poison(sum, 3, &poison, "worker 3: once more"), BPS_OK);
    expect_failure(1, "worker 3: stage clip: no", 1);
    come_late(2);
    expect_failure(2, "worker 3: stage clip: no", 0);
    ck_assert_uint_eq(member[3].failures, 0);
    ck_assert_uint_eq(told, 1);
    expect_recovery(true);
}
END_TEST

START_TEST(test_mismatch)
{
    struct bps_header odd = rig_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    struct bps_sum_cursor cursor;
    odd.length = 400;
    start(true);
    lend(1, false);
    ck_assert_int_eq(bps_frame_push(sum, 3, &odd, &cursor), BPS_OK);
    member[3].loan.loan.bytes = 400;
    ck_assert_int_eq(bps_sum_lend(&cursor.sink, &member[3].loan.loan), BPS_AGAIN);
    ck_assert_uint_eq(member[1].failures, 0);
    come_late(2);
    const char *text = "worker 3 pushed 100 float32 (sum), workers 1 and 2 pushed 150000 float32 (sum)";
    expect_failure(1, text, 1);
    expect_failure(2, text, 0);
    expect_failure(3, text, 0);
    ck_assert_uint_eq(told, 1);
    expect_recovery(true);
}
END_TEST

START_TEST(test_stall)
{
    start(true);
    uint64_t now = bps_now();
    lend(1, false);
    bps_sum_check_stalls(sum, now + 61 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(member[1].stalls, 1);
    ck_assert_str_eq(member[1].text, "has waited 61 s for workers 2 and 3"); /* 0 has nothing to do here */
    bps_sum_check_stalls(sum, now + 101 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    expect_failure(1, "workers 2 and 3 did not contribute within 100 s (cluster.stall_timeout)", 1);
    come_late(2);
    come_late(3);
    ck_assert_uint_eq(told, 1);
    expect_recovery(true);
}
END_TEST

/* While the network sums, nobody here is missing. */
START_TEST(test_no_stall_after_summed)
{
    start(true);
    for (uint32_t r = 1; r < WORKERS; r++) {
        lend(r, true);
    }
    bps_sum_check_stalls(sum, bps_now() + 1000 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(member[1].stalls + member[1].failures + member[1].loan.released, 0);
}
END_TEST

START_TEST(test_frames_that_nobody_sends)
{
    struct bps_header h = header_of(1), group = h, empty = h;
    struct bps_sum_cursor cursor;
    struct bps_loan small = {.size = sizeof small, .bytes = BYTES - 4};
    start(true);
    ck_assert_int_eq(bps_frame_push(sum, 0, &h, &cursor), BPS_ERR_PROTOCOL); /* of another group */
    ck_assert_int_eq(bps_frame_poison(sum, 0, &h, "no"), BPS_ERR_PROTOCOL);
    group.flags = BPS_FLAG_GROUP;
    ck_assert_int_eq(bps_frame_push(sum, 1, &group, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_poison(sum, 1, &group, "no"), BPS_ERR_PROTOCOL);
    empty.flags = BPS_FLAG_EMPTY;
    ck_assert_int_eq(bps_frame_push(sum, 1, &empty, &cursor), BPS_ERR_PROTOCOL); /* no broadcast */
    empty.op = BPS_WIRE_BROADCAST;
    empty.length = BYTES - 4;
    ck_assert_int_eq(bps_frame_push(sum, 1, &empty, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_push(sum, 1, &h, &cursor), BPS_OK);
    ck_assert_int_eq(bps_sum_lend(&cursor.sink, &small), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_push(sum, 1, &h, &(struct bps_sum_cursor){0}), BPS_ERR_PROTOCOL); /* twice */
    bps_sum_abandon(&cursor);
    h.partition = 2 * BPS_PARTITIONS_LIMIT;
    ck_assert_int_eq(bps_frame_fail(sum, &h, "no"), BPS_ERR_PROTOCOL);
}
END_TEST

/* A receiver's push with nothing to it is complete when that is said, also if the round has failed. */
START_TEST(test_hollow)
{
    struct bps_header h = rig_header(1, 0, BPS_FLOAT32, BPS_WIRE_BROADCAST, BYTES);
    struct bps_sum_cursor cursor;
    h.flags = BPS_FLAG_EMPTY;
    start(true);
    for (uint32_t r = 1; r < WORKERS; r++) {
        ck_assert_int_eq(bps_frame_push(sum, r, &h, &cursor), BPS_OK); /* of root 0, in another group */
        ck_assert_ptr_null(bps_sum_place(&cursor.sink, 0, &(uint32_t){0}));
        ck_assert_ptr_null(summed);
        ck_assert_uint_eq(bps_sum_take(&cursor.sink, 0, NULL, 0), 0);
    }
    ck_assert_ptr_nonnull(summed);
    ck_assert_ptr_null(summed->payload);
    bps_sum_distribute(summed, member[2].data);
    ck_assert_ptr_eq(member[1].result->payload, member[2].data);
    deliver(1);
    deliver(3);
    summed = NULL;
    h.round = member[LEADER].round = 1;
    ck_assert_int_eq(bps_frame_push(sum, 1, &h, &cursor), BPS_OK);
    ck_assert_int_eq(bps_frame_poison(sum, 3, &h, "no"), BPS_OK);
    ck_assert_int_eq(bps_sum_lend(&cursor.sink, &member[1].loan.loan), BPS_AGAIN);
    ck_assert_ptr_null(cursor.round);
    ck_assert_uint_eq(member[1].failures, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sum_loan");
    TCase *tests = tcase_create("sum_loan");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_partial, 0, 4);
    tcase_add_test(tests, test_at_once);
    tcase_add_test(tests, test_put_off);
    tcase_add_test(tests, test_gone_while_put_off);
    tcase_add_test(tests, test_network_fails);
    tcase_add_loop_test(tests, test_network_fails_early, 0, 3);
    tcase_add_test(tests, test_network_fails_late);
    tcase_add_loop_test(tests, test_out_of_reach, 0, 4);
    tcase_add_test(tests, test_gone);
    tcase_add_test(tests, test_gone_after_summed);
    tcase_add_test(tests, test_leave);
    tcase_add_test(tests, test_poison);
    tcase_add_test(tests, test_mismatch);
    tcase_add_test(tests, test_stall);
    tcase_add_test(tests, test_no_stall_after_summed);
    tcase_add_test(tests, test_frames_that_nobody_sends);
    tcase_add_test(tests, test_hollow);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
