/* SPDX-License-Identifier: Apache-2.0 */
/* test_lateness.c - waits of rounds: which are one, whom they are for, and when that is worth telling. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lateness.h"
#include "checks.h"
#include "node/late_message.h"

#define WORKERS 4u

static struct bps_lateness lateness;
static struct bps_wait wait;
static uint64_t now;
static const char keys[3];

static void setup(void)
{
    wait = (struct bps_wait){.late = 0};
    now = BPS_S;
    bps_lateness_init(&lateness, WORKERS);
}

static void teardown(void)
{
    bps_lateness_fini(&lateness);
}

/* A step of 100 ms, of one round, to which `who` has come so late. */
static void step(uint32_t who, uint64_t late)
{
    now += 100 * BPS_MS;
    bps_wait_note(&wait, &lateness, &keys[0], now - late, now, who);
}

static void steps(uint32_t count, uint32_t who, uint64_t late)
{
    while (count-- > 0) {
        step(who, late);
    }
}

START_TEST(test_the_usual_one)
{
    struct bps_usual usual;
    char text[300];
    ck_assert(!bps_lateness_usual(&lateness, &usual));
    for (int i = 0; i < 30; i++) {
        step(3, 50 * BPS_MS);
        step((uint32_t)i % 3, 2 * BPS_MS);
    }
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert_uint_eq(usual.who, 3);
    ck_assert(usual.notable);
    ck_assert_double_eq_tol(usual.part, 0.25, 0.02);
    ck_assert_double_eq_tol(usual.late.median, 0.05, 0.002);
    bps_usual_text(&usual, "worker 3", false, text, sizeof text);
    ck_assert_ptr_eq(strstr(text, "worker 3 is usually the last: the others wait for it 2"), text);
}
END_TEST

/* Most rounds say nothing: those that flow control holds until the first ones are over. */
START_TEST(test_time_counts_not_rounds)
{
    struct bps_usual usual;
    for (int i = 0; i < 20; i++) {
        step(2, 50 * BPS_MS);
        steps(9, 1, 200 * BPS_US);
    }
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert_uint_eq(usual.who, 2);
}
END_TEST

/* In a job of few, somebody is the last most of the time. */
START_TEST(test_chance)
{
    struct bps_usual usual;
    for (int i = 0; i < 100; i++) {
        step(i % 2 == 0 ? 0 : 1, 50 * BPS_MS);
    }
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert(!usual.notable);
}
END_TEST

START_TEST(test_short_waits)
{
    struct bps_usual usual;
    steps(100, 1, 3 * BPS_MS);
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert(!usual.notable);
    ck_assert_double_eq_tol(usual.share, 1, 1e-9);
}
END_TEST

/* However late somebody was: of a job so short nobody will make it faster. */
START_TEST(test_short_jobs)
{
    struct bps_usual usual;
    steps(18, 1, 25 * BPS_MS);
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert(!usual.notable);
    steps(10, 1, 25 * BPS_MS);
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert(usual.notable);
}
END_TEST

/* A long wait now and then is no habit: of a start, of a checkpoint. */
START_TEST(test_rare_waits)
{
    struct bps_usual usual;
    steps(40, 2, 20 * BPS_MS);
    now += 60 * BPS_S;
    step(1, 60 * BPS_S);
    steps(40, 2, 20 * BPS_MS);
    ck_assert(bps_lateness_usual(&lateness, &usual));
    ck_assert_uint_eq(usual.who, 2);
    ck_assert_double_eq(bps_lateness_of(&lateness, 1).seconds, 0);
    ck_assert_uint_eq(bps_lateness_of(&lateness, 1).last, 1);
}
END_TEST

/* Rounds that wait at the same time are one wait, as long as the longest. */
START_TEST(test_one_wait)
{
    for (int i = 0; i < 21; i++) {
        uint64_t begun = now;
        bps_wait_note(&wait, &lateness, &keys[0], begun, begun + 10 * BPS_MS, 1);
        bps_wait_note(&wait, &lateness, &keys[1], begun + 1, begun + 20 * BPS_MS, 2);
        bps_wait_note(&wait, &lateness, &keys[2], begun + 2, begun + 21 * BPS_MS, 3);
        now = begun + 50 * BPS_MS;
    }
    ck_assert_uint_eq(lateness.waits, 20); /* the last one may go on */
    ck_assert_uint_eq(bps_lateness_of(&lateness, 3).last, 20);
    ck_assert_double_eq_tol(bps_lateness_of(&lateness, 3).median, 0.021, 0.0015);
}
END_TEST

START_TEST(test_gathering)
{
    struct bps_gathering g = {.there = 0};
    uint64_t at;
    ck_assert(!bps_gathering_note(&g, 1, 5, &at));
    ck_assert(!bps_gathering_note(&g, 2, 5, &at));
    ck_assert(!bps_gathering_note(&g, 3, 5, &at));
    uint64_t most = g.most;
    ck_assert(!bps_gathering_note(&g, 4, 5, &at)); /* more than half of the others were there */
    ck_assert_uint_eq(g.most, most);
    ck_assert(bps_gathering_note(&g, 5, 5, &at));
    ck_assert_uint_ge(at, most);
    g = (struct bps_gathering){.there = 0};
    ck_assert(!bps_gathering_note(&g, 5, 5, &at)); /* one for all: nobody waits */
}
END_TEST

START_TEST(test_message)
{
    struct bps_lateness other;
    struct bps_writer w;
    struct bps_reader r;
    bps_lateness_init(&other, WORKERS);
    steps(5, 1, 3 * BPS_MS);
    steps(20, WORKERS + 2, 70 * BPS_MS);
    bps_writer_init(&w);
    bps_lateness_write(&lateness, &w);
    for (int i = 0; i < 2; i++) {
        bps_reader_init(&r, w.data, w.size);
        ck_assert_int_eq(bps_lateness_read(&r, &other), BPS_OK);
    }
    ck_assert_uint_eq(other.waits, 2 * lateness.waits);
    ck_assert_uint_eq(other.span, 2 * lateness.span);
    ck_assert_uint_eq(bps_lateness_of(&other, WORKERS + 2).last, 38);
    ck_assert_double_eq_tol(bps_lateness_of(&other, WORKERS + 2).median, 0.07, 0.003);
    bps_reader_init(&r, w.data, w.size - 1);
    ck_assert_int_eq(bps_lateness_read(&r, &other), BPS_ERR_PROTOCOL);
    w.data[16] = 2 * WORKERS; /* no such worker */
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_lateness_read(&r, &other), BPS_ERR_PROTOCOL);
    bps_writer_fini(&w);
    bps_lateness_clear(&other);
    ck_assert_uint_eq(other.waits, 0);
    bps_lateness_fini(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lateness");
    TCase *tests = tcase_create("lateness");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_the_usual_one);
    tcase_add_test(tests, test_time_counts_not_rounds);
    tcase_add_test(tests, test_chance);
    tcase_add_test(tests, test_short_waits);
    tcase_add_test(tests, test_short_jobs);
    tcase_add_test(tests, test_rare_waits);
    tcase_add_test(tests, test_one_wait);
    tcase_add_test(tests, test_gathering);
    tcase_add_test(tests, test_message);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
