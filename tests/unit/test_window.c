/* SPDX-License-Identifier: Apache-2.0 */
/* test_window.c - the order over all shards of a worker: shares, urgency, and that nobody waits in vain. */
#include <stdlib.h>

#include "checks.h"
#include "shards/window.h"

#define SLICE      (64u << 10)
#define NONE       BPS_WINDOW_NONE
#define SHARDS_MAX 4u

static struct bps_window window;

static void begin(uint32_t shards, const uint32_t *weight)
{
    struct bps_book_shard shard[SHARDS_MAX] = {0};
    struct bps_book book = {.shards = shards, .shard = shard};
    for (uint32_t i = 0; i < shards; i++) {
        shard[i].weight = weight[i];
    }
    ck_assert(bps_book_weigh(&book));
    ck_assert_int_eq(bps_window_init(&window, &book), BPS_OK);
}

/* Sends slices to a shard until the window stops it; how many bytes. */
static uint64_t send_all(uint32_t i)
{
    uint64_t bytes = 0;
    while (bps_window_admits(&window, i)) {
        ck_assert_uint_lt(bytes, 1u << 30);
        bps_window_sent(&window, i, SLICE);
        bytes += SLICE;
    }
    return bytes;
}

START_TEST(test_alone_it_is_never_held)
{
    begin(1, (uint32_t[]){1});
    bps_window_wait(&window, 0, 0, false);
    for (int i = 0; i < 10000; i++) {
        ck_assert(bps_window_admits(&window, 0));
        bps_window_sent(&window, 0, SLICE);
        ck_assert_uint_eq(bps_window_freed(&window, 0), NONE);
    }
    bps_window_fini(&window);
}
END_TEST

START_TEST(test_a_fast_one_waits_for_a_slow_one)
{
    begin(2, (uint32_t[]){1, 1});
    bps_window_wait(&window, 0, 0, false);
    bps_window_wait(&window, 1, 0, false);
    uint64_t bytes = send_all(0);
    ck_assert_uint_ge(bytes, BPS_WINDOW_BYTES / 2);
    ck_assert_uint_le(bytes, BPS_WINDOW_BYTES / 2 + SLICE);
    ck_assert_uint_eq(bps_window_freed(&window, 1), NONE);
    bps_window_sent(&window, 1, SLICE);
    ck_assert_uint_eq(bps_window_freed(&window, 1), 0);
    ck_assert_uint_eq(bps_window_freed(&window, 1), NONE);
    ck_assert(bps_window_admits(&window, 0));
    bps_window_fini(&window);
}
END_TEST

/* Whoever the transport asks for first, in the end each has its share. */
START_TEST(test_shares_are_kept)
{
    const uint32_t weight[] = {1, 6, 3};
    uint64_t bytes[3] = {0}, all = 0;
    begin(3, weight);
    for (uint32_t i = 0; i < 3; i++) {
        bps_window_wait(&window, i, 0, false);
    }
    for (uint32_t i = 0; all < 1u << 30; i = (i + 1) % 3) {
        uint64_t sent = send_all(i);
        bytes[i] += sent;
        all += sent;
    }
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_double_eq_tol((double)bytes[i] / (double)all, weight[i] / 10.0, 0.01);
    }
    bps_window_fini(&window);
}
END_TEST

START_TEST(test_the_most_urgent_waits_for_nobody)
{
    begin(2, (uint32_t[]){1, 1});
    bps_window_wait(&window, 0, 0, false);
    bps_window_wait(&window, 1, 0, false);
    send_all(0);
    bps_window_wait(&window, 0, 1, false); /* something more urgent has come to its queue */
    ck_assert(bps_window_admits(&window, 0));
    bps_window_sent(&window, 0, SLICE);
    bps_window_wait(&window, 0, 0, false);
    ck_assert(!bps_window_admits(&window, 0));
    bps_window_wait(&window, 1, -1, false); /* and the other one has only less urgent things left */
    ck_assert_uint_eq(bps_window_freed(&window, 1), 0);
    bps_window_fini(&window);
}
END_TEST

START_TEST(test_what_is_free_runs_ahead)
{
    begin(2, (uint32_t[]){1, 1});
    bps_window_wait(&window, 0, 0, false);
    bps_window_wait(&window, 1, 0, false);
    send_all(0);
    bps_window_wait(&window, 1, 0, true); /* nobody waits for it */
    ck_assert_uint_eq(bps_window_freed(&window, 1), 0);
    bps_window_wait(&window, 0, 0, true);
    bps_window_wait(&window, 1, 0, false);
    for (int i = 0; i < 10000; i++) { /* nor it for others */
        ck_assert(bps_window_admits(&window, 0));
        bps_window_sent(&window, 0, SLICE);
    }
    bps_window_fini(&window);
}
END_TEST

START_TEST(test_who_has_nothing_any_more_frees_others)
{
    begin(3, (uint32_t[]){2, 2, 1});
    for (uint32_t i = 0; i < 3; i++) {
        bps_window_wait(&window, i, 0, false);
    }
    send_all(0);
    bps_window_rest(&window, 1);
    ck_assert_uint_eq(bps_window_freed(&window, 1), NONE); /* the third is behind as well */
    bps_window_rest(&window, 2);
    ck_assert_uint_eq(bps_window_freed(&window, 2), 0);
    for (int i = 0; i < 10000; i++) {
        ck_assert(bps_window_admits(&window, 0));
        bps_window_sent(&window, 0, SLICE);
    }
    bps_window_fini(&window);
}
END_TEST

/* It has no claim to what it did not ask for while it had nothing to send. */
START_TEST(test_a_latecomer_does_not_stop_the_others)
{
    begin(2, (uint32_t[]){1, 1});
    bps_window_wait(&window, 0, 0, false);
    bps_window_sent(&window, 0, 64 * SLICE);
    bps_window_wait(&window, 1, 0, false);
    ck_assert(bps_window_admits(&window, 0));
    ck_assert(bps_window_admits(&window, 1));
    bps_window_fini(&window);
}
END_TEST

/* What a worker does with the window: asked for anybody, in any state, some shard may always send. */
START_TEST(test_somebody_may_always_send)
{
    begin(4, (uint32_t[]){1, 2, 3, 1000});
    unsigned seed = 1;
    for (uint32_t i = 0; i < 4; i++) {
        bps_window_wait(&window, i, 0, false);
    }
    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)rand_r(&seed) % 4, admitted = 0;
        if (rand_r(&seed) % 8 == 0) {
            bps_window_rest(&window, i);
        } else if (!window.shard[i].waits || rand_r(&seed) % 4 == 0) {
            bps_window_wait(&window, i, rand_r(&seed) % 3, false);
        } else if (bps_window_admits(&window, i)) {
            bps_window_sent(&window, i, SLICE);
        }
        while (bps_window_freed(&window, i) != NONE) {
        }
        for (uint32_t j = 0; j < 4; j++) {
            bool was_held = window.shard[j].blocked_by != NONE;
            bool admits = window.shard[j].waits && bps_window_admits(&window, j);
            ck_assert_msg(j == i || !(was_held && admits), "shard %u may send, and nobody has said so", j);
            admitted += admits;
        }
        ck_assert(admitted > 0 || window.waiting == 0);
    }
    bps_window_fini(&window);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window");
    TCase *tests = tcase_create("window");
    tcase_add_test(tests, test_alone_it_is_never_held);
    tcase_add_test(tests, test_a_fast_one_waits_for_a_slow_one);
    tcase_add_test(tests, test_shares_are_kept);
    tcase_add_test(tests, test_the_most_urgent_waits_for_nobody);
    tcase_add_test(tests, test_what_is_free_runs_ahead);
    tcase_add_test(tests, test_who_has_nothing_any_more_frees_others);
    tcase_add_test(tests, test_a_latecomer_does_not_stop_the_others);
    tcase_add_test(tests, test_somebody_may_always_send);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
