/* SPDX-License-Identifier: Apache-2.0 */
/* test_loop.c - the event loop: posts, timers, watches, deferred calls, fork. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checks.h"
#include "base/clock.h"
#include "base/loop.h"
#include "must.h"

static struct bps_loop *loop;

static void set_up(void)
{
    loop = bps_loop_new();
    ck_assert_ptr_nonnull(loop);
}

static void tear_down(void)
{
    bps_loop_free(loop);
}

static void stop(void *arg)
{
    (void)arg;
    bps_loop_stop(loop);
}

/* ---- posts ---- */

#define THREADS 4
#define POSTS   50000

struct numbered {
    struct bps_post post;
    int thread, number;
};

static struct numbered posts[THREADS][POSTS];
static int next_of[THREADS], posted;

static void on_post(struct bps_post *post)
{
    struct numbered *n = (struct numbered *)post;
    ck_assert_int_eq(n->number, next_of[n->thread]);
    next_of[n->thread]++;
    if (++posted == THREADS * POSTS) {
        bps_loop_stop(loop);
    }
    memset(post, 0xee, sizeof *post); /* it is the caller's again */
}

static void *post_all(void *arg)
{
    int thread = (int)(intptr_t)arg;
    for (int i = 0; i < POSTS; i++) {
        posts[thread][i] = (struct numbered){{.fn = on_post}, thread, i};
        bps_loop_post(loop, &posts[thread][i].post);
        if (i % 1000 == 999) {
            sched_yield(); /* so that the loop falls asleep now and then */
        }
    }
    return NULL;
}

START_TEST(posts_of_a_thread_come_in_order_and_none_is_lost)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, post_all, (void *)(intptr_t)i);
    }
    bps_loop_run(loop);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(next_of[i], POSTS);
    }
}
END_TEST

/* One post at a time, each from the other thread's answer: every one must wake a sleeping loop. */
static struct bps_loop *partner;
static struct bps_post ping, pong;
static int rounds;

static void on_pong(struct bps_post *post)
{
    (void)post;
    if (++rounds == 20000) {
        bps_loop_stop(partner);
        bps_loop_stop(loop);
    } else {
        bps_loop_post(partner, &ping);
    }
}

static void on_ping(struct bps_post *post)
{
    (void)post;
    bps_loop_post(loop, &pong);
}

static void *run_partner(void *arg)
{
    bps_loop_run(arg);
    return NULL;
}

START_TEST(a_post_wakes_a_sleeping_loop)
{
    pthread_t thread;
    partner = bps_loop_new();
    ping.fn = on_ping;
    pong.fn = on_pong;
    pthread_create(&thread, NULL, run_partner, partner);
    bps_loop_post(partner, &ping);
    bps_loop_run(loop);
    pthread_join(thread, NULL);
    ck_assert_int_eq(rounds, 20000);
    bps_loop_free(partner);
}
END_TEST

static void count_post(struct bps_post *post)
{
    (void)post;
    posted++;
}

START_TEST(what_is_posted_before_the_stop_is_called)
{
    struct bps_post a = {.fn = count_post}, b = {.fn = count_post};
    bps_loop_post(loop, &a);
    bps_loop_post(loop, &b);
    bps_loop_stop(loop);
    bps_loop_run(loop);
    ck_assert_int_eq(posted, 2);
    bps_loop_timer(loop, 0, 0, stop, NULL); /* the loop can run again */
    bps_loop_run(loop);
}
END_TEST

/* ---- timers ---- */

static struct bps_timer *timers[64];
static int fired[64], order[64], count;

static void on_timer(void *arg)
{
    int i = (int)(intptr_t)arg;
    fired[i]++;
    order[count++] = i;
}

START_TEST(timers_fire_in_the_order_of_their_deadlines)
{
    /* 64 timers in a scrambled order; every third is cancelled. A deadline lies between these two: */
    uint64_t earliest[64], latest[64];
    for (int k = 0; k < 64; k++) {
        int i = k * 37 % 64;
        uint64_t delay = 1000000 + (uint64_t)i * 200000;
        earliest[i] = bps_now() + delay;
        timers[i] = bps_loop_timer(loop, delay, 0, on_timer, (void *)(intptr_t)i);
        latest[i] = bps_now() + delay;
    }
    for (int i = 0; i < 64; i += 3) {
        bps_loop_cancel(loop, timers[i]);
    }
    bps_loop_timer(loop, 30000000, 0, stop, NULL);
    bps_loop_run(loop);
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(fired[i], i % 3 == 0 ? 0 : 1);
    }
    for (int k = 1; k < count; k++) {
        ck_assert_uint_le(earliest[order[k - 1]], latest[order[k]]);
    }
}
END_TEST

static void cancel_itself(void *arg)
{
    struct bps_timer **timer = arg;
    count++;
    bps_loop_cancel(loop, *timer);
}

static void cancel_other(void *arg)
{
    bps_loop_cancel(loop, *(struct bps_timer **)arg);
}

static void five_times(void *arg)
{
    (void)arg;
    if (++posted == 5) {
        bps_loop_cancel(loop, timers[2]);
        bps_loop_stop(loop);
    }
}

START_TEST(timers_can_be_cancelled_in_callbacks)
{
    timers[0] = bps_loop_timer(loop, 0, 0, cancel_itself, &timers[0]);
    timers[1] = bps_loop_timer(loop, 0, 1, cancel_itself, &timers[1]);
    timers[2] = bps_loop_timer(loop, 2000000, 500000, five_times, NULL);
    bps_loop_timer(loop, 500000, 0, cancel_other, &timers[3]);
    timers[3] = bps_loop_timer(loop, 1000000, 0, on_timer, (void *)3);
    bps_loop_run(loop);
    ck_assert_int_eq(count, 2);
    ck_assert_int_eq(posted, 5);
    ck_assert_int_eq(fired[3], 0);
    bps_loop_cancel(loop, NULL);
}
END_TEST

START_TEST(a_timer_does_not_fire_too_early)
{
    uint64_t before = bps_now();
    bps_loop_timer(loop, 5300000, 0, stop, NULL);
    bps_loop_run(loop);
    ck_assert_uint_ge(bps_now() - before, 5300000);
    bps_loop_timer(loop, UINT64_MAX, UINT64_MAX, on_timer, NULL); /* never, and freed with the loop */
}
END_TEST

static void note_late(void *arg)
{
    *(uint64_t *)arg = bps_loop_late(loop);
    bps_loop_stop(loop);
}

static void be_away_for_20_ms(void *arg)
{
    bps_loop_timer(loop, 1000000, 0, note_late, arg);
    usleep(20000);
}

START_TEST(a_timer_knows_that_it_is_late)
{
    uint64_t late = 0;
    uint64_t before = bps_now();
    bps_loop_timer(loop, 0, 0, be_away_for_20_ms, &late);
    bps_loop_run(loop);
    ck_assert_uint_ge(late, 19000000);
    ck_assert_uint_le(late, bps_now() - before);
}
END_TEST

/* ---- watches ---- */

static struct bps_watch *watches[2];
static int pairs[2][2];

static void read_all(int fd)
{
    char bytes[64];
    while (read(fd, bytes, sizeof bytes) > 0) {
    }
}

static void open_pair(int pair[2])
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
}

/* Whichever comes first removes both, closes the other's descriptor and lets a new one have its number. */
static void remove_both(void *arg, uint32_t events)
{
    (void)arg;
    (void)events;
    count++;
    for (int i = 0; i < 2; i++) {
        bps_loop_unwatch(loop, watches[i]);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    bps_loop_timer(loop, 1000000, 0, stop, NULL);
}

START_TEST(watches_can_be_removed_while_their_events_wait)
{
    for (int i = 0; i < 2; i++) {
        open_pair(pairs[i]);
        watches[i] = bps_loop_watch(loop, pairs[i][0], remove_both, NULL);
        ck_assert_ptr_nonnull(watches[i]);
        ck_assert_int_eq(write(pairs[i][1], "x", 1), 1);
    }
    bps_loop_run(loop);
    ck_assert_int_eq(count, 1);
    bps_loop_unwatch(loop, NULL);
}
END_TEST

static uint32_t seen[8];

static void on_events(void *arg, uint32_t events)
{
    (void)arg;
    seen[count++] = events;
    read_all(pairs[0][0]);
    if (count == 1) {
        ck_assert_int_eq(write(pairs[0][1], "x", 1), 1);
    } else if (count == 2) {
        close(pairs[0][1]);
    } else {
        bps_loop_stop(loop);
    }
}

START_TEST(a_watch_tells_readable_writable_and_the_end)
{
    open_pair(pairs[0]);
    watches[0] = bps_loop_watch(loop, pairs[0][0], on_events, NULL);
    bps_loop_run(loop);
    ck_assert_int_eq(count, 3);
    ck_assert_uint_eq(seen[0], BPS_WRITABLE);
    ck_assert_uint_eq(seen[1] & BPS_READABLE, BPS_READABLE);
    ck_assert_uint_eq(seen[2], BPS_READABLE | BPS_WRITABLE | BPS_HANGUP);
    bps_loop_unwatch(loop, watches[0]);
    close(pairs[0][0]);
    ck_assert_ptr_null(bps_loop_watch(loop, -1, on_events, NULL));
}
END_TEST

/* ---- deferred calls ---- */

static char trace[64];

static void note(void *arg)
{
    strncat(trace, arg, sizeof trace - strlen(trace) - 1);
}

static void defer_more(void *arg)
{
    note(arg);
    bps_loop_defer(loop, note, "c");
    bps_loop_defer_for(loop, &loop, note, "never");
    bps_loop_forget(loop, &loop);
    bps_loop_timer(loop, 0, 0, stop, NULL);
}

START_TEST(deferred_calls_come_in_order_and_once)
{
    bps_loop_defer(loop, note, "a");
    bps_loop_defer_for(loop, trace, note, "forgotten");
    bps_loop_defer(loop, defer_more, "b");
    bps_loop_defer_for(loop, &loop, note, "forgotten as well");
    bps_loop_forget(loop, trace);
    static char one[] = "taken back", other[] = "d";
    bps_loop_defer_for(loop, one, note, one);
    bps_loop_defer_for(loop, one, note, other);
    bps_loop_undefer(loop, one, note, one);
    bps_loop_run(loop);
    ck_assert_str_eq(trace, "abdc");
}
END_TEST

static void count_up(void *arg)
{
    ++*(int *)arg;
}

START_TEST(many_calls_can_be_deferred)
{
    for (int i = 0; i < 1000; i++) {
        bps_loop_defer(loop, count_up, &count);
    }
    bps_loop_stop(loop);
    bps_loop_run(loop);
    ck_assert_int_eq(count, 1000);
}
END_TEST

static void defer_for_ever(void *arg)
{
    bps_loop_defer(loop, defer_for_ever, arg);
}

START_TEST(a_call_that_defers_itself_starves_nobody)
{
    defer_for_ever(NULL);
    open_pair(pairs[0]);
    watches[0] = bps_loop_watch(loop, pairs[0][0], on_events, NULL);
    bps_loop_run(loop);
    ck_assert_int_eq(count, 3);
    bps_loop_unwatch(loop, watches[0]);
    close(pairs[0][0]);
}
END_TEST

static bool always(void *arg)
{
    (void)arg;
    return true;
}

START_TEST(a_poller_that_always_works_starves_nobody)
{
    struct bps_poller *poller = bps_loop_poller(loop, always, always, NULL);
    open_pair(pairs[0]);
    watches[0] = bps_loop_watch(loop, pairs[0][0], on_events, NULL);
    bps_loop_run(loop);
    ck_assert_int_eq(count, 3);
    bps_loop_unwatch(loop, watches[0]);
    bps_loop_unpoll(loop, poller);
    close(pairs[0][0]);
}
END_TEST

/* ---- driving ---- */

static bool drive_is_over;

static void end_drive(void *arg)
{
    drive_is_over = true;
    bps_loop_defer(loop, count_up, arg); /* such as an answer for someone who waits */
}

static void on_drive_post(struct bps_post *post)
{
    (void)post;
    bps_loop_defer(loop, end_drive, &count);
    bps_loop_timer(loop, 50 * BPS_MS, 0, stop, NULL); /* after the drive */
}

static bool drive_done(void *arg)
{
    (void)arg;
    return drive_is_over;
}

static bool drive_busy(void *arg)
{
    (void)arg;
    return false;
}

static void *run_loop(void *arg)
{
    bps_loop_run(loop);
    return arg;
}

/* A thread that drives leaves no work behind; and if it does not come back, the timers fire all the same. */
START_TEST(a_driver_leaves_nothing_undone)
{
    const struct bps_loop_wish wish = {.done = drive_done, .busy = drive_busy};
    pthread_t thread;
    drive_is_over = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_loop, NULL), 0);
    struct bps_post post = {.fn = on_drive_post};
    bps_loop_post_quietly(loop, &post);
    ck_assert(bps_loop_drive(loop, &wish, UINT64_MAX));
    ck_assert_int_eq(count, 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

static sem_t about_to_sleep;

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Called right before the loop sleeps. When there is nothing left to do, a driver comes meanwhile. */
static bool arm_slowly(void *arg)
{
    bool *came = arg;
    if (drive_is_over && !*came) {
        *came = true;
        sem_post(&about_to_sleep);
        usleep(50000);
    }
    return true;
}

static void on_last_post(struct bps_post *post)
{
    (void)post;
    drive_is_over = true; /* leaves no work behind */
}

/* Nothing else would ever wake the loop. */
START_TEST(a_loop_about_to_sleep_stands_back_for_a_driver)
{
    const struct bps_loop_wish wish = {.done = drive_done, .busy = drive_busy};
    struct bps_post post = {.fn = on_last_post};
    bool came = false;
    pthread_t thread;
    struct bps_poller *poller = bps_loop_poller(loop, never, arm_slowly, &came);
    drive_is_over = false;
    ck_assert_int_eq(sem_init(&about_to_sleep, 0, 0), 0);
    bps_loop_post_quietly(loop, &post);
    ck_assert_int_eq(pthread_create(&thread, NULL, run_loop, NULL), 0);
    ck_assert_int_eq(sem_wait(&about_to_sleep), 0);
    ck_assert(bps_loop_drive(loop, &wish, UINT64_MAX));
    bps_loop_stop(loop);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    bps_loop_unpoll(loop, poller);
    sem_destroy(&about_to_sleep);
}
END_TEST

#define DRIVES 30000

static void on_counted_post(struct bps_post *post)
{
    (void)post;
    count++;
}

static void *post_often(void *arg)
{
    static struct bps_post post[DRIVES];
    atomic_bool *over = arg;
    for (int i = 0; i < DRIVES && !atomic_load(over); i++) {
        post[i].fn = on_counted_post;
        bps_loop_post(loop, &post[i]);
        usleep(i % 16);
    }
    return NULL;
}

/* The loop's own thread is called back by posts and asked to stand back by drivers, again and again. */
START_TEST(drivers_come_and_go)
{
    const struct bps_loop_wish wish = {.done = drive_done, .busy = drive_busy};
    struct bps_post post = {.fn = on_last_post};
    atomic_bool over = false;
    pthread_t own, poster;
    ck_assert_int_eq(pthread_create(&own, NULL, run_loop, NULL), 0);
    ck_assert_int_eq(pthread_create(&poster, NULL, post_often, &over), 0);
    for (int i = 0; i < DRIVES; i++) {
        drive_is_over = false;
        bps_loop_post_quietly(loop, &post);
        bool drove = bps_loop_drive(loop, &wish, UINT64_MAX);
        ck_assert(drove && drive_is_over);
    }
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(poster, NULL), 0);
    bps_loop_stop(loop);
    ck_assert_int_eq(pthread_join(own, NULL), 0);
}
END_TEST

static pthread_t called_on;

static void on_post_here(struct bps_post *post)
{
    (void)post;
    called_on = pthread_self();
    bps_loop_timer(loop, BPS_MS, 0, stop, NULL); /* which nobody else looks after */
}

static bool is_busy_here(void *arg)
{
    return *(bool *)arg;
}

/* Makes the call itself if nobody drives; what is left the loop's own thread does, at once or after a moment. */
START_TEST(a_post_is_called_here)
{
    const struct bps_loop_wish wish = {.done = drive_done, .busy = drive_busy};
    struct bps_post first = {.fn = on_last_post}, post = {.fn = on_post_here};
    bool busy = _i != 0;
    pthread_t own;
    drive_is_over = false;
    ck_assert_int_eq(pthread_create(&own, NULL, run_loop, NULL), 0);
    bps_loop_post_quietly(loop, &first);
    ck_assert(bps_loop_drive(loop, &wish, UINT64_MAX)); /* from now on nobody drives, for a moment */
    bps_loop_post_here(loop, &post, is_busy_here, &busy);
    ck_assert_int_eq(pthread_join(own, NULL), 0);
    ck_assert(pthread_equal(called_on, pthread_self()) || pthread_equal(called_on, own));
}
END_TEST

/* Against drivers and posts of other threads: each is called, and no thread is left asleep. */
START_TEST(posts_here_come_and_go)
{
    const struct bps_loop_wish wish = {.done = drive_done, .busy = drive_busy};
    struct bps_post post = {.fn = on_last_post};
    atomic_bool over = false;
    pthread_t own, poster;
    ck_assert_int_eq(pthread_create(&own, NULL, run_loop, NULL), 0);
    ck_assert_int_eq(pthread_create(&poster, NULL, post_often, &over), 0);
    for (int i = 0; i < DRIVES; i++) {
        bool busy = i % 3 == 0;
        drive_is_over = false;
        bps_loop_post_here(loop, &post, is_busy_here, &busy);
        ck_assert(bps_loop_drive(loop, &wish, UINT64_MAX) && drive_is_over);
    }
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(poster, NULL), 0);
    bps_loop_stop(loop);
    ck_assert_int_eq(pthread_join(own, NULL), 0);
}
END_TEST

/* ---- fork ---- */

START_TEST(a_forked_child_holds_no_descriptor_of_a_loop)
{
    int gate[2];
    char byte;
    open_pair(pairs[0]);
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    watches[0] = bps_loop_watch(loop, pairs[0][0], on_events, NULL);
    pid_t child = must_fork();
    if (child == 0) {
        bps_loops_close_after_fork();
        bps_loops_close_after_fork();
        close(gate[1]);
        close(pairs[0][1]);
        _exit(fcntl(pairs[0][0], F_GETFD) == -1 && read(gate[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(gate[0]);
    bps_loop_unwatch(loop, watches[0]);
    close(pairs[0][0]);
    /* The child lives, and yet the peer sees the end once the child has closed its copies. */
    while (read(pairs[0][1], &byte, 1) != 0) {
        usleep(1000);
    }
    close(gate[1]);
    must(must_wait(child));
    close(pairs[0][1]);
    bps_loop_timer(loop, 0, 0, stop, NULL); /* the parent's loop works as before */
    bps_loop_run(loop);
}
END_TEST

START_TEST(loops_come_and_go_without_a_trace)
{
    int before = dup(0);
    for (int i = 0; i < 200; i++) {
        struct bps_loop *other = bps_loop_new();
        ck_assert_ptr_nonnull(other);
        bps_loop_free(other);
    }
    close(before);
    int after = dup(0);
    ck_assert_int_eq(before, after);
    close(after);
    bps_loop_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, posts_of_a_thread_come_in_order_and_none_is_lost);
    tcase_add_test(all, a_post_wakes_a_sleeping_loop);
    tcase_add_test(all, what_is_posted_before_the_stop_is_called);
    tcase_add_test(all, timers_fire_in_the_order_of_their_deadlines);
    tcase_add_test(all, timers_can_be_cancelled_in_callbacks);
    tcase_add_test(all, a_timer_does_not_fire_too_early);
    tcase_add_test(all, a_timer_knows_that_it_is_late);
    tcase_add_test(all, watches_can_be_removed_while_their_events_wait);
    tcase_add_test(all, a_watch_tells_readable_writable_and_the_end);
    tcase_add_test(all, deferred_calls_come_in_order_and_once);
    tcase_add_test(all, many_calls_can_be_deferred);
    tcase_add_test(all, a_call_that_defers_itself_starves_nobody);
    tcase_add_test(all, a_poller_that_always_works_starves_nobody);
    tcase_add_test(all, a_driver_leaves_nothing_undone);
    tcase_add_test(all, a_loop_about_to_sleep_stands_back_for_a_driver);
    tcase_add_test(all, drivers_come_and_go);
    tcase_add_loop_test(all, a_post_is_called_here, 0, 2);
    tcase_add_test(all, posts_here_come_and_go);
    tcase_add_test(all, a_forked_child_holds_no_descriptor_of_a_loop);
    tcase_add_test(all, loops_come_and_go_without_a_trace);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
