/* SPDX-License-Identifier: Apache-2.0 */
/* test_credit.c - the bound of what a shard has not answered: by urgency, its size, and that it gives way. */
#include <stdlib.h>

#include "checks.h"
#include "shards/credit.h"

#define SLICE (128u << 10)
#define BASE  (2u << 20)

static struct bps_credit credit;
static uint64_t now;

static void begin(void)
{
    now = BPS_S;
    bps_credit_init(&credit, BASE, BASE);
}

static void sent(int32_t priority, uint64_t bytes)
{
    bps_credit_sent(&credit, priority, bytes, now);
}

static void answered(int32_t priority, uint64_t bytes)
{
    bps_credit_answered(&credit, priority, bytes, now);
}

/* Sends slices as long as they are admitted; how many bytes. */
static uint64_t send_all(int32_t priority)
{
    uint64_t bytes = 0;
    while (bps_credit_admits(&credit, priority, SLICE)) {
        ck_assert_uint_lt(bytes, 1u << 30);
        sent(priority, SLICE);
        bytes += SLICE;
    }
    return bytes;
}

START_TEST(test_unanswered_bytes_are_bounded)
{
    ck_assert_uint_eq(send_all(0), BASE);
    answered(0, SLICE);
    ck_assert_uint_eq(send_all(0), SLICE);
    now += BPS_MS;
    answered(0, BASE);
    ck_assert_uint_eq(credit.unanswered, 0);
    ck_assert_uint_eq(send_all(0), BASE);
}
END_TEST

START_TEST(test_a_slice_larger_than_the_credit_goes_alone)
{
    sent(0, 2 * BASE);
    ck_assert(!bps_credit_admits(&credit, 0, SLICE));
    answered(0, 2 * BASE);
    ck_assert(bps_credit_admits(&credit, 0, SLICE));
}
END_TEST

START_TEST(test_the_urgent_does_not_wait_for_answers_to_others)
{
    send_all(-5);
    ck_assert_uint_eq(send_all(-3), BASE);
    ck_assert(!bps_credit_admits(&credit, -4, SLICE)); /* more urgent bytes count, less urgent ones do not */
    ck_assert_uint_eq(send_all(7), BASE);
    ck_assert(!bps_credit_admits(&credit, -3, SLICE));
}
END_TEST

START_TEST(test_what_was_more_urgent_still_counts)
{
    send_all(1);
    answered(1, SLICE);
    ck_assert_uint_eq(send_all(0), SLICE);
    answered(1, BASE - SLICE);
    ck_assert(bps_credit_admits(&credit, 0, SLICE));
    answered(0, SLICE);
    ck_assert_uint_eq(credit.unanswered, 0);
    ck_assert_uint_eq(credit.levels, 0);
}
END_TEST

START_TEST(test_without_answers_it_grows_and_with_them_it_shrinks)
{
    send_all(0);
    ck_assert(bps_credit_look(&credit));
    ck_assert_uint_eq(send_all(0), BASE);
    ck_assert(bps_credit_look(&credit));
    ck_assert_uint_eq(send_all(0), 2 * BASE);
    answered(0, SLICE);
    ck_assert(!bps_credit_look(&credit)); /* there was an answer */
    answered(0, 4 * BASE - SLICE);
    ck_assert_uint_eq(send_all(0), BASE);
    for (int i = 0; i < 100; i++) {
        bps_credit_look(&credit); /* without an end, it does not overflow */
    }
    ck_assert(bps_credit_admits(&credit, 0, SLICE));
}
END_TEST

START_TEST(test_without_a_bound)
{
    bps_credit_init(&credit, SLICE, 0);
    for (int i = 0; i < 100; i++) {
        sent(0, 1ull << 40);
        ck_assert(bps_credit_admits(&credit, 0, SLICE));
    }
    answered(0, 1ull << 40);
    ck_assert(bps_credit_admits(&credit, 0, SLICE));
}
END_TEST

START_TEST(test_the_number_of_slices_is_the_nearest_one)
{
    bps_credit_init(&credit, 11 * SLICE / 4, 11 * SLICE / 4);
    ck_assert_uint_eq(send_all(0), 3 * SLICE);
    bps_credit_init(&credit, 9 * SLICE / 4, 9 * SLICE / 4);
    ck_assert_uint_eq(send_all(0), 2 * SLICE);
    bps_credit_init(&credit, SLICE / 8, SLICE / 8);
    ck_assert_uint_eq(send_all(0), SLICE); /* one always */
}
END_TEST

/* A round trip of all that the credit admits. */
static void turn(uint64_t time)
{
    uint64_t bytes = send_all(0);
    now += time;
    answered(0, bytes);
}

/* The credit after round trips over a link that carries so many bytes in a second, and takes so long for one.
 */
static uint64_t settle(double rate, uint64_t way)
{
    for (int i = 0; i < 100; i++) {
        sent(0, 1);
        now += way;
        answered(0, 1); /* the fastest one */
        uint64_t busy = (uint64_t)((double)credit.base / rate * 1e9);
        turn(busy > way ? busy : way);
    }
    return credit.base;
}

#define LEAST 256000u
#define MOST  50000000u

START_TEST(test_it_is_what_a_link_carries_in_a_round_trip_and_some_queues)
{
    static const struct {
        double rate;
        uint64_t way, credit;
    } links[] = {
        {1e9, 100 * BPS_US, 1100000}, {1e9, 300 * BPS_US, 1300000}, {12e9, 20 * BPS_US, 12240000},
        {1e8, 100 * BPS_US, LEAST},   {1e11, 100 * BPS_US, MOST},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        bps_credit_init(&credit, LEAST, MOST);
        double got = (double)settle(links[i].rate, links[i].way), want = (double)links[i].credit;
        ck_assert_double_eq_tol(got, want, 0.02 * want);
    }
}
END_TEST

#define FLOW 5000

/* Slices over a link of that rate: each is answered a way after it was sent, or behind the one before. */
static void flow(double rate, uint64_t way)
{
    static uint64_t due[FLOW];
    uint64_t busy = (uint64_t)(SLICE / rate * 1e9);
    for (int i = 0, k = 0; i < FLOW; i++) {
        while (k < FLOW && bps_credit_admits(&credit, 0, SLICE)) {
            sent(0, SLICE);
            uint64_t after = k > 0 ? due[k - 1] + busy : 0;
            due[k++] = now + way > after ? now + way : after;
        }
        now = due[i];
        answered(0, SLICE);
    }
}

static void begin_on_way(uint64_t way)
{
    now = BPS_S;
    bps_credit_init(&credit, LEAST, 2 * LEAST);
    bps_credit_set_way(&credit, way);
}

/* Losses make all trips some times as long as the way takes. */
START_TEST(test_a_long_way_is_full_with_losses_too)
{
    static const struct {
        double rate;
        uint64_t way, longer;
    } ways[] = {
        {1e8, 10 * BPS_MS, 1}, {1e8, 10 * BPS_MS, 3}, {1e8, 50 * BPS_MS, 2}, {1e8, 150 * BPS_MS, 3}, {1e8, BPS_MS, 3},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double holds = ways[i].rate * (double)ways[i].way / 1e9;
        begin_on_way(ways[i].way);
        flow(ways[i].rate, ways[i].longer * ways[i].way);
        ck_assert_double_ge((double)credit.base, (double)ways[i].longer * holds);
        ck_assert_double_le((double)credit.base, 1.1 * BPS_CREDIT_WAYS * holds + 2 * LEAST);
    }
}
END_TEST

/* What trips take longer than the path is the time of other workers, or of the slices themselves. */
START_TEST(test_slow_answers_do_not_make_a_path_long)
{
    begin_on_way(100 * BPS_US);
    flow(SLICE * 100.0, 11 * BPS_MS);
    ck_assert_uint_le(credit.base, 2 * LEAST);
}
END_TEST

START_TEST(test_a_slower_link_gets_less_after_some_trips)
{
    begin_on_way(10 * BPS_MS);
    flow(1e9, 10 * BPS_MS);
    ck_assert_uint_gt(credit.base, 35000000);
    flow(1e8, 10 * BPS_MS);
    ck_assert_uint_lt(credit.base, 5000000);
}
END_TEST

/* Of a small model little may be under way; but not less than what a long path holds. */
START_TEST(test_other_bounds)
{
    bps_credit_init(&credit, LEAST, 4 * LEAST);
    flow(1e9, 100 * BPS_US);
    bps_credit_set_bounds(&credit, SLICE, 2 * SLICE);
    ck_assert_uint_le(credit.base, 2 * SLICE);
    ck_assert_uint_eq(credit.limit, credit.base);
    bps_credit_set_bounds(&credit, 8 * SLICE, 2 * SLICE); /* the least counts */
    ck_assert_uint_eq(credit.base, 8 * SLICE);
    begin_on_way(10 * BPS_MS);
    flow(1e9, 10 * BPS_MS);
    uint64_t base = credit.base;
    bps_credit_set_bounds(&credit, SLICE, 2 * SLICE);
    ck_assert_uint_gt(base, 35000000);
    ck_assert_double_ge((double)credit.base, 0.9 * (double)base);
    for (int i = 0; i < 100; i++) {
        now += BPS_S;
        bps_credit_look(&credit);
    }
    uint64_t raised = credit.limit; /* for want of answers: that stays */
    bps_credit_set_bounds(&credit, SLICE, 2 * SLICE);
    ck_assert_uint_eq(credit.limit, raised);
}
END_TEST

START_TEST(test_it_changes_only_where_it_held_something_back)
{
    bps_credit_init(&credit, SLICE, 64 * SLICE);
    turn(BPS_MS);
    turn(BPS_MS);
    uint64_t base = credit.base;
    ck_assert_uint_gt(base, SLICE);
    for (int i = 0; i < 10; i++) {
        sent(0, SLICE);
        now += BPS_S;
        answered(0, SLICE);
    }
    ck_assert_uint_eq(credit.base, base);
}
END_TEST

START_TEST(test_what_is_given_up_is_no_round_trip)
{
    bps_credit_init(&credit, SLICE, 64 * SLICE);
    turn(100 * BPS_MS);
    uint64_t fastest = credit.trip.fastest;
    uint64_t bytes = send_all(0);
    now += 1;
    bps_credit_given_up(&credit, 0, bytes);
    ck_assert_uint_eq(credit.unanswered, 0);
    turn(100 * BPS_MS);
    ck_assert_uint_eq(credit.trip.fastest, fastest);
}
END_TEST

START_TEST(test_it_is_not_sized_while_nothing_is_answered)
{
    bps_credit_init(&credit, BASE, 64ull * BASE);
    send_all(0);
    ck_assert(bps_credit_look(&credit));
    uint64_t bytes = BASE + send_all(0);
    now += BPS_S;
    answered(0, bytes);
    ck_assert_uint_eq(credit.base, BASE);
    ck_assert_uint_eq(credit.limit, BASE);
}
END_TEST

/* Any order of priorities, more of them than there are levels. */
START_TEST(test_the_sum_is_right_in_any_order)
{
    static uint64_t pushed[100];
    uint64_t all = 0;
    unsigned seed = 1;
    for (int step = 0; step < 100000; step++) {
        int32_t priority = (int32_t)(rand_r(&seed) % 100);
        if (pushed[priority] > 0 && rand_r(&seed) % 3 > 0) {
            answered(priority, pushed[priority]);
            all -= pushed[priority];
            pushed[priority] = 0;
        } else if (bps_credit_admits(&credit, priority, SLICE)) {
            sent(priority, SLICE);
            pushed[priority] += SLICE;
            all += SLICE;
        }
        uint64_t levels = 0;
        for (uint32_t i = 0; i < credit.levels; i++) {
            ck_assert(i == 0 || credit.level[i - 1].priority < credit.level[i].priority);
            levels += credit.level[i].bytes;
        }
        ck_assert_uint_eq(credit.unanswered, all);
        ck_assert_uint_eq(levels, all);
    }
    for (int32_t priority = 0; priority < 100; priority++) {
        answered(priority, pushed[priority]);
    }
    ck_assert_uint_eq(credit.levels, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("credit");
    TCase *tests = tcase_create("credit");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_add_test(tests, test_unanswered_bytes_are_bounded);
    tcase_add_test(tests, test_a_slice_larger_than_the_credit_goes_alone);
    tcase_add_test(tests, test_the_urgent_does_not_wait_for_answers_to_others);
    tcase_add_test(tests, test_what_was_more_urgent_still_counts);
    tcase_add_test(tests, test_without_answers_it_grows_and_with_them_it_shrinks);
    tcase_add_test(tests, test_without_a_bound);
    tcase_add_test(tests, test_the_number_of_slices_is_the_nearest_one);
    tcase_add_test(tests, test_it_is_what_a_link_carries_in_a_round_trip_and_some_queues);
    tcase_add_test(tests, test_a_long_way_is_full_with_losses_too);
    tcase_add_test(tests, test_slow_answers_do_not_make_a_path_long);
    tcase_add_test(tests, test_a_slower_link_gets_less_after_some_trips);
    tcase_add_test(tests, test_other_bounds);
    tcase_add_test(tests, test_it_changes_only_where_it_held_something_back);
    tcase_add_test(tests, test_what_is_given_up_is_no_round_trip);
    tcase_add_test(tests, test_it_is_not_sized_while_nothing_is_answered);
    tcase_add_test(tests, test_the_sum_is_right_in_any_order);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
