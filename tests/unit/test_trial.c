/* SPDX-License-Identifier: Apache-2.0 */
/* test_trial.c - whether a coding pays, by a training whose steps take what each example says. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "coding/trial.h"

#define TENSORS 5
#define BYTES   (1u << 20)

/* Of one step: nothing is under way for `idle`, then all tensors are, and end one after the other. */
struct costs {
    uint64_t plain, coded, idle; /* ns; the first two of a tensor */
};

struct training {
    struct bps_trial trial;
    uint64_t now;
    bool coded, next;          /* what is asked for in one step happens in the next one */
    uint64_t in_coded, in_all; /* ns */
    unsigned changes;
    char text[200];
};

static void step(struct training *t, const struct costs *costs, bool well)
{
    uint64_t begin = t->now;
    bool coded = t->coded;
    t->coded = t->next;
    t->next = bps_trial_codes(&t->trial);
    t->now += costs->idle;
    for (int i = 0; i < TENSORS; i++) {
        bps_trial_begin(&t->trial, coded, t->now);
    }
    for (int i = 0; i < TENSORS; i++) {
        t->now += coded ? costs->coded : costs->plain;
        bps_trial_end(&t->trial, coded, BYTES, well, t->now);
    }
    t->in_coded += coded ? t->now - begin : 0;
    t->in_all += t->now - begin;
    t->changes += t->coded != coded;
    bps_trial_tell(&t->trial, t->text, sizeof t->text);
}

static void run(struct training *t, const struct costs *costs, uint64_t ns)
{
    for (uint64_t end = t->now + ns; t->now < end;) {
        step(t, costs, true);
    }
}

static double share(const struct training *t)
{
    return (double)t->in_coded / (double)t->in_all;
}

static const struct costs slow_link = {80 * BPS_MS, 4 * BPS_MS, 20 * BPS_MS};
static const struct costs fast_link = {1 * BPS_MS, 4 * BPS_MS, 1 * BPS_MS};
static const struct costs hardly_better = {10 * BPS_MS, 95 * BPS_MS / 10, BPS_MS};
static const struct costs idle_link = {1 * BPS_MS, BPS_MS / 10, 100 * BPS_MS};
static const struct costs seconds_a_step = {4000 * BPS_MS, 500 * BPS_MS, 2000 * BPS_MS};

START_TEST(test_pays)
{
    struct training t = {.now = 1000 * BPS_S};
    run(&t, &slow_link, 1000 * BPS_S);
    ck_assert(share(&t) > 0.9);
    ck_assert_ptr_nonnull(strstr(t.text, "pays: a MiB takes 4 ms coded and 80 ms plain"));
    ck_assert_msg(strstr(t.text, "links busy 9") != NULL, "%s", t.text);
}
END_TEST

START_TEST(test_does_not_pay)
{
    const struct costs *all[] = {&fast_link, &hardly_better, &idle_link};
    for (int i = 0; i < 3; i++) {
        struct training t = {.now = 1};
        run(&t, all[i], 1000 * BPS_S);
        ck_assert_msg(share(&t) < 0.05 && t.in_coded > 0, "%d: %g", i, share(&t));
        ck_assert_ptr_eq(strstr(t.text, "does not pay"), t.text);
    }
}
END_TEST

/* A window does not wait for all to end. */
START_TEST(test_long_steps)
{
    struct training t = {.now = 1};
    run(&t, &seconds_a_step, 2000 * BPS_S);
    ck_assert(share(&t) > 0.8);
}
END_TEST

START_TEST(test_what_changes_is_found)
{
    struct training t = {.now = 1};
    run(&t, &slow_link, 600 * BPS_S);
    t.in_coded = t.in_all = 0;
    run(&t, &fast_link, 3000 * BPS_S);
    ck_assert(share(&t) < 0.5);
    t.in_coded = t.in_all = 0;
    run(&t, &slow_link, 3000 * BPS_S);
    ck_assert(share(&t) > 0.5);
}
END_TEST

/* Not from one way to the other all the time where both cost the same. */
START_TEST(test_it_is_steady)
{
    const struct costs same = {10 * BPS_MS, 10 * BPS_MS, BPS_MS};
    struct training t = {.now = 1};
    run(&t, &same, 1000 * BPS_S);
    ck_assert_uint_lt(t.changes, 210); /* two for each time that it is tried */
}
END_TEST

/* Rounds that fail say nothing, nor do those that go both ways at once, however they end. */
START_TEST(test_what_says_nothing)
{
    struct training t = {.now = 1};
    for (int i = 0; i < 1000; i++) {
        step(&t, &slow_link, false);
    }
    ck_assert(!bps_trial_codes(&t.trial));
    unsigned seed = 1;
    struct bps_trial trial = {.begin = 0};
    uint32_t under_way[2] = {0, 0};
    for (uint64_t now = 1; now < 100000; now++) {
        bool coded = rand_r(&seed) % 2;
        if (under_way[coded] < 9 && rand_r(&seed) % 2) {
            bps_trial_begin(&trial, coded, now * BPS_MS);
            under_way[coded]++;
        } else if (under_way[coded] > 1) {
            bps_trial_end(&trial, coded, BYTES, true, now * BPS_MS);
            under_way[coded]--;
        }
    }
    ck_assert(!bps_trial_codes(&trial));
    ck_assert(!bps_trial_tell(&trial, t.text, sizeof t.text));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trial");
    TCase *tests = tcase_create("trial");
    tcase_add_test(tests, test_pays);
    tcase_add_test(tests, test_does_not_pay);
    tcase_add_test(tests, test_long_steps);
    tcase_add_test(tests, test_what_changes_is_found);
    tcase_add_test(tests, test_it_is_steady);
    tcase_add_test(tests, test_what_says_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
