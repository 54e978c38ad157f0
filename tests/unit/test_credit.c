/* SPDX-License-Identifier: Apache-2.0 */
/* test_credit.c - the bound of what a shard has not answered: by urgency, and that it gives way. */
#include <check.h>
#include <stdlib.h>

#include "worker/credit.h"

#define SLICE (128u << 10)
#define BASE  (2u << 20)

static struct bps_credit credit;

static void begin(void)
{
    bps_credit_init(&credit, BASE);
}

/* Sends slices as long as they are admitted; how many bytes. */
static uint64_t send_all(int32_t priority)
{
    uint64_t bytes = 0;
    while (bps_credit_admits(&credit, priority)) {
        ck_assert_uint_lt(bytes, 1u << 30);
        bps_credit_sent(&credit, priority, SLICE);
        bytes += SLICE;
    }
    return bytes;
}

START_TEST(test_unanswered_bytes_are_bounded)
{
    ck_assert_uint_eq(send_all(0), BASE);
    bps_credit_answered(&credit, 0, SLICE);
    ck_assert_uint_eq(send_all(0), SLICE);
    bps_credit_answered(&credit, 0, BASE);
    ck_assert_uint_eq(credit.unanswered, 0);
    ck_assert_uint_eq(send_all(0), BASE);
}
END_TEST

START_TEST(test_a_slice_larger_than_the_credit_goes_alone)
{
    bps_credit_sent(&credit, 0, 2 * BASE);
    ck_assert(!bps_credit_admits(&credit, 0));
    bps_credit_answered(&credit, 0, 2 * BASE);
    ck_assert(bps_credit_admits(&credit, 0));
}
END_TEST

START_TEST(test_the_urgent_does_not_wait_for_answers_to_others)
{
    send_all(-5);
    ck_assert_uint_eq(send_all(-3), BASE);
    ck_assert(!bps_credit_admits(&credit, -4)); /* more urgent bytes count, less urgent ones do not */
    ck_assert_uint_eq(send_all(7), BASE);
    ck_assert(!bps_credit_admits(&credit, -3));
}
END_TEST

START_TEST(test_what_was_more_urgent_still_counts)
{
    send_all(1);
    bps_credit_answered(&credit, 1, SLICE);
    ck_assert_uint_eq(send_all(0), SLICE);
    bps_credit_answered(&credit, 1, BASE - SLICE);
    ck_assert(bps_credit_admits(&credit, 0));
    bps_credit_answered(&credit, 0, SLICE);
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
    bps_credit_answered(&credit, 0, SLICE);
    ck_assert(!bps_credit_look(&credit)); /* there was an answer */
    bps_credit_answered(&credit, 0, 4 * BASE - SLICE);
    ck_assert_uint_eq(send_all(0), BASE);
    for (int i = 0; i < 100; i++) {
        bps_credit_look(&credit); /* without an end, it does not overflow */
    }
    ck_assert(bps_credit_admits(&credit, 0));
}
END_TEST

START_TEST(test_without_a_bound)
{
    bps_credit_init(&credit, 0);
    for (int i = 0; i < 100; i++) {
        bps_credit_sent(&credit, 0, 1ull << 40);
        ck_assert(bps_credit_admits(&credit, 0));
    }
    bps_credit_answered(&credit, 0, 1ull << 40);
    ck_assert(bps_credit_admits(&credit, 0));
}
END_TEST

/* Any order of priorities, more of them than there are levels. */
START_TEST(test_the_sum_is_right_in_any_order)
{
    static uint64_t sent[100];
    uint64_t all = 0;
    unsigned seed = 1;
    for (int step = 0; step < 100000; step++) {
        int32_t priority = (int32_t)(rand_r(&seed) % 100);
        if (sent[priority] > 0 && rand_r(&seed) % 3 > 0) {
            bps_credit_answered(&credit, priority, sent[priority]);
            all -= sent[priority];
            sent[priority] = 0;
        } else if (bps_credit_admits(&credit, priority)) {
            bps_credit_sent(&credit, priority, SLICE);
            sent[priority] += SLICE;
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
        bps_credit_answered(&credit, priority, sent[priority]);
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
    tcase_add_test(tests, test_the_sum_is_right_in_any_order);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
