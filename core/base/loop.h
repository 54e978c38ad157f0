/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - an event loop: descriptors, pollers, timers, deferred calls, and posts from other threads.
 *
 * One thread at a time drives a loop: its own one, in bps_loop_run(), or one that waits for something the loop
 * does and drives it meanwhile, in bps_loop_drive(). All functions belong to that thread, except bps_loop_post(),
 * bps_loop_post_quietly(), bps_loop_post_here(), bps_loop_drive() and bps_loop_stop(). A loop without events sleeps
 * in epoll_wait.
 */
#ifndef BPS_BASE_LOOP_H
#define BPS_BASE_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <byteps/plugin.h> /* BPS_READABLE, bps_watch_fn, bps_call_fn */

struct bps_loop;

/* NULL: no memory or no descriptor. */
struct bps_loop *bps_loop_new(void);
/* Closes its own descriptors; watches must have been removed. NULL is allowed. */
void bps_loop_free(struct bps_loop *loop);
/* Runs until bps_loop_stop(); posts made before that are still called. */
void bps_loop_run(struct bps_loop *loop);
void bps_loop_stop(struct bps_loop *loop);

/* Edge-triggered for both directions. Removal is safe in any callback; none follows it. */
struct bps_watch *bps_loop_watch(struct bps_loop *loop, int fd, bps_watch_fn fn, void *arg);
void bps_loop_unwatch(struct bps_loop *loop, struct bps_watch *watch);

/* As poller and unpoll of struct bps_host. */
struct bps_poller *bps_loop_poller(struct bps_loop *loop, bool (*poll)(void *arg), bool (*arm)(void *arg), void *arg);
void bps_loop_unpoll(struct bps_loop *loop, struct bps_poller *poller);
/*
 * How long a loop goes on looking for work after the last one, while work comes often; 0 (the beginning): not at
 * all.
 */
void bps_loop_spin(struct bps_loop *loop, uint64_t ns);
#define BPS_LOOP_SPIN 30000u /* ns: less than what a sleep and a wake-up take */

/* Calls fn after delay_ns, and then every period_ns unless that is 0. A one-shot timer frees itself. */
struct bps_timer *bps_loop_timer(struct bps_loop *loop, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                 void *arg);
void bps_loop_cancel(struct bps_loop *loop, struct bps_timer *timer);
/* In a timer's callback: by how many ns it is late. That is long if the process was stopped meanwhile. */
uint64_t bps_loop_late(const struct bps_loop *loop);

/* Calls fn once, after the events of this turn and before the loop sleeps. */
void bps_loop_defer(struct bps_loop *loop, bps_call_fn fn, void *arg);
/* The same for an owner (not NULL) that may end before: bps_loop_forget() takes back all its calls. */
void bps_loop_defer_for(struct bps_loop *loop, const void *owner, bps_call_fn fn, void *arg);
void bps_loop_forget(struct bps_loop *loop, const void *owner);
/* Takes back such calls of an owner alone. */
void bps_loop_undefer(struct bps_loop *loop, const void *owner, bps_call_fn fn, void *arg);
/* Calls fn at the end of each turn in which that is asked for, behind all that was deferred before. One for a loop. */
void bps_loop_at_end(struct bps_loop *loop, bps_call_fn fn, void *arg);
void bps_loop_ask_end(struct bps_loop *loop);

/*
 * A message to the loop's thread. The caller owns the memory until fn is called; posts of one thread are called
 * in order. Any thread; takes no lock and makes a system call only when the loop sleeps.
 */
struct bps_post {
    struct bps_post *next;
    void (*fn)(struct bps_post *post);
};
void bps_loop_post(struct bps_loop *loop, struct bps_post *post);
/* The same from a thread that calls bps_loop_drive() next: wakes nobody. */
void bps_loop_post_quietly(struct bps_loop *loop, struct bps_post *post);
/*
 * The same, but if nobody drives the loop the calling thread makes the call, and what that defers, itself. Then the
 * loop's own thread goes on at once if busy(arg), else only when nobody has driven it for a moment.
 */
void bps_loop_post_here(struct bps_loop *loop, struct bps_post *post, bool (*busy)(void *arg), void *arg);

/*
 * Drives the loop on the calling thread until done(arg) is true or the deadline has passed (bps_now();
 * UINT64_MAX: never), so that waiting for one's own work costs no switch of threads. False: another thread drives
 * it in this way already. When it returns, the loop's own thread goes on at once if busy(arg), else only when
 * there is work for it or after a moment.
 */
struct bps_loop_wish {
    bool (*done)(void *arg);
    bool (*busy)(void *arg);
    void *arg;
};
bool bps_loop_drive(struct bps_loop *loop, const struct bps_loop_wish *wish, uint64_t deadline);

/*
 * For whoever looks after the loops of the process: asks each that runs to show that it comes round, and says of each
 * to fn how often it has been asked since it last did (0: it is new, or has shown it), with the thread that drives it
 * and the function that it calls now (NULL: none). Loops neither begin nor end meanwhile.
 */
struct bps_loop_look {
    struct bps_loop *loop;
    pid_t thread;
    uint32_t asked;
    uintptr_t in;
};
void bps_loops_look(void (*fn)(void *arg, const struct bps_loop_look *look), void *arg);

/*
 * In a forked child: closes the descriptors of every loop of the process, those that are watched too, so that
 * peers see the parent's end. The loops cannot be used there any more.
 */
void bps_loops_close_after_fork(void);

#endif
