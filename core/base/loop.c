/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the event loop on epoll. A turn is: poll, wait, events, posts, timers, deferred calls, and its end.
 *
 * What a callback removes is freed only when no event of the turn can refer to it any more. Work that callbacks
 * add belongs to the next turn, so that no kind of work starves another.
 */
#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/pollers.h"
#include "base/timers.h"

#define EVENTS_PER_TURN 64
#ifndef POLLS_PER_TURN    /* fewer where no other thread runs meanwhile */
#define POLLS_PER_TURN 64 /* while it spins: descriptors wait for so many polls */
#endif
#define POLLS_ALONE    (20 * BPS_US) /* so long may pollers with work keep descriptors waiting */
#define SPARE_CALLS    32            /* that can be deferred when there is no memory any more */
#define SHORT_SLEEP    4             /* times `spin`: after a longer sleep it does not pay to spin */
#define PATIENCE       (10 * BPS_MS) /* how long a loop stays without a driver that may come back */
#define SHORT_PATIENCE BPS_MS        /* the same with work for that driver */

/* Who drives the loop; a futex. */
enum driver {
    DRIVER_OWN,    /* its own thread */
    DRIVER_WANTED, /* its own thread, which is asked to stand back after this turn */
    DRIVER_LENT,   /* a thread in bps_loop_drive() */
    DRIVER_NONE,   /* that one has gone; whoever comes first */
};

struct bps_watch {
    LIST_ENTRY(bps_watch) entry; /* in watches or removed */
    int fd;
    bps_watch_fn fn; /* NULL: removed */
    void *arg;
};
LIST_HEAD(watch_list, bps_watch);

struct call {
    const void *owner;
    bps_call_fn fn; /* NULL: taken back */
    void *arg;
};

struct call_list {
    struct call *calls;
    size_t count, room;
};

struct bps_loop {
    LIST_ENTRY(bps_loop) entry;
    int epoll, event; /* event: an eventfd that ends the sleep */
    struct watch_list watches, removed;
    struct bps_pollers pollers;
    uint64_t now;          /* read once in a turn, after a sleep, and after events */
    uint64_t spin, worked; /* ns to go on looking after the last work; when that was */
    uint64_t looked;       /* when descriptors were asked last */
    bool eager;            /* the last sleep was short */
    struct bps_timers timers;
    struct call_list deferred, running;
    struct call at_end; /* of a turn in which it is asked for */
    bool end_asked;

    /* Touched by other threads. */
    _Atomic(struct bps_post *) posts; /* the latest first */
    atomic_bool sleeping, stop;
    _Atomic uint32_t driver; /* enum driver */
    atomic_bool driven;      /* another thread has begun to drive since the loop's own one looked */
    atomic_bool watched;     /* the loop's own thread sleeps until the driver tells that it goes */
    atomic_bool awaited;     /* one of them may have left work for the next one */

    /* For bps_loops_look(). */
    _Atomic pid_t thread;  /* which drives, or did last; 0: it does not run */
    _Atomic uintptr_t in;  /* the callback that it is in */
    struct bps_post look;  /* asks it to come round */
    atomic_bool looked_at; /* that post has been called, or none was made */
    uint32_t asked;        /* guarded by loops_mutex */
};

/* ---- all loops of the process, for fork ---- */

/* Guards `loops` and the list of watches of each, so that a child finds them whole. */
static pthread_mutex_t loops_mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, bps_loop) loops = LIST_HEAD_INITIALIZER(loops);

static void lock_loops(void)
{
    pthread_mutex_lock(&loops_mutex);
}

static void unlock_loops(void)
{
    pthread_mutex_unlock(&loops_mutex);
}

/* Before there are threads: a fork that is under way does not call what is registered meanwhile. */
__attribute__((constructor)) static void loop_prepare_for_fork(void)
{
    pthread_atfork(lock_loops, unlock_loops, unlock_loops);
}

static void close_descriptor(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* Takes no lock: the child has one thread, and fork() waited until the lists were whole. */
void bps_loops_close_after_fork(void)
{
    struct bps_loop *loop;
    LIST_FOREACH(loop, &loops, entry) {
        struct bps_watch *watch;
        LIST_FOREACH(watch, &loop->watches, entry) {
            close_descriptor(&watch->fd);
        }
        close_descriptor(&loop->epoll);
        close_descriptor(&loop->event);
    }
}

/* ---- whether loops come round ---- */

static pid_t own_id(void)
{
    static _Thread_local pid_t id __attribute__((tls_model("initial-exec")));
    return id != 0 ? id : (id = gettid());
}

static void on_look(struct bps_post *post)
{
    atomic_store(&bps_container(post, struct bps_loop, look)->looked_at, true);
}

void bps_loops_look(void (*fn)(void *arg, const struct bps_loop_look *look), void *arg)
{
    struct bps_loop *loop;
    lock_loops();
    LIST_FOREACH(loop, &loops, entry) {
        pid_t thread = atomic_load(&loop->thread);
        if (thread == 0) {
            continue;
        }
        if (atomic_exchange(&loop->looked_at, false)) {
            loop->asked = 0;
            bps_loop_post(loop, &loop->look);
        }
        const struct bps_loop_look look = {loop, thread, loop->asked++, atomic_load(&loop->in)};
        fn(arg, &look);
    }
    unlock_loops();
}

/* ---- new, free ---- */

/* Grows early: what a job does that fails for want of memory still finds room, and is not called at once. */
static bool call_list_reserve(struct call_list *list)
{
    bps_assert(list->count <= list->room);
    return bps_array_reserve(list->calls, list->room, list->count + SPARE_CALLS + 1) || list->count < list->room;
}

static bool watch_event(struct bps_loop *loop)
{
    /* Each write is a new edge, so the counter need not be read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->event, &event) == 0;
}

struct bps_loop *bps_loop_new(void)
{
    struct bps_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        return NULL;
    }
    lock_loops(); /* a child closes the descriptors of the loops on the list */
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->event < 0 || !watch_event(loop) || !call_list_reserve(&loop->deferred) ||
        !call_list_reserve(&loop->running)) {
        goto fail;
    }
    loop->look.fn = on_look;
    atomic_store(&loop->looked_at, true);
    LIST_INSERT_HEAD(&loops, loop, entry);
    unlock_loops();
    return loop;

fail:
    free(loop->deferred.calls);
    free(loop->running.calls);
    close_descriptor(&loop->epoll);
    close_descriptor(&loop->event);
    unlock_loops();
    free(loop);
    return NULL;
}

static void free_watches(struct watch_list *list)
{
    while (!LIST_EMPTY(list)) {
        struct bps_watch *watch = LIST_FIRST(list);
        LIST_REMOVE(watch, entry);
        free(watch);
    }
}

void bps_loop_free(struct bps_loop *loop)
{
    bps_assert(loop == NULL || atomic_load(&loop->posts) == NULL || !atomic_load(&loop->sleeping));
    if (loop == NULL) {
        return;
    }
    lock_loops();
    LIST_REMOVE(loop, entry);
    close_descriptor(&loop->epoll);
    close_descriptor(&loop->event);
    unlock_loops();
    free_watches(&loop->watches);
    free_watches(&loop->removed);
    bps_pollers_fini(&loop->pollers);
    bps_timers_fini(&loop->timers);
    free(loop->deferred.calls);
    free(loop->running.calls);
    free(loop);
}

/* ---- descriptors ---- */

struct bps_watch *bps_loop_watch(struct bps_loop *loop, int fd, bps_watch_fn fn, void *arg)
{
    bps_assert(fn != NULL);
    struct bps_watch *watch = malloc(sizeof *watch);
    if (watch == NULL) {
        return NULL;
    }
    *watch = (struct bps_watch){.fd = fd, .fn = fn, .arg = arg};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = watch};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(watch);
        return NULL;
    }
    lock_loops();
    LIST_INSERT_HEAD(&loop->watches, watch, entry);
    unlock_loops();
    return watch;
}

void bps_loop_unwatch(struct bps_loop *loop, struct bps_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    lock_loops();
    LIST_REMOVE(watch, entry);
    unlock_loops();
    watch->fn = NULL;
    LIST_INSERT_HEAD(&loop->removed, watch, entry);
}

static void call_watch(struct bps_loop *loop, const struct epoll_event *event)
{
    struct bps_watch *watch = event->data.ptr;
    if (watch == NULL || watch->fn == NULL) {
        return;
    }
    uint32_t events = 0;
    if (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
        events |= BPS_READABLE;
    }
    if (event->events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        events |= BPS_WRITABLE;
    }
    if (event->events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
        events |= BPS_HANGUP;
    }
    atomic_store_explicit(&loop->in, (uintptr_t)watch->fn, memory_order_relaxed);
    watch->fn(watch->arg, events);
}

/* ---- pollers ---- */

struct bps_poller *bps_loop_poller(struct bps_loop *loop, bool (*poll)(void *arg), bool (*arm)(void *arg), void *arg)
{
    return bps_pollers_add(&loop->pollers, poll, arm, arg);
}

void bps_loop_unpoll(struct bps_loop *loop, struct bps_poller *poller)
{
    bps_pollers_remove(&loop->pollers, poller);
}

void bps_loop_spin(struct bps_loop *loop, uint64_t ns)
{
    loop->spin = ns;
}

/* Polls, several times if the loop is not going to sleep. True: there was work, or a post. */
static bool poll(struct bps_loop *loop, bool spinning)
{
    if (bps_pollers_none(&loop->pollers)) {
        return false;
    }
    for (int i = 0; i < (spinning ? POLLS_PER_TURN : 1); i++) {
        if (bps_pollers_poll(&loop->pollers) || atomic_load_explicit(&loop->posts, memory_order_relaxed) != NULL) {
            return true;
        }
        bps_pause();
    }
    return false;
}

/* ---- timers ---- */

struct bps_timer *bps_loop_timer(struct bps_loop *loop, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                 void *arg)
{
    return bps_timers_add(&loop->timers, delay_ns, period_ns, fn, arg);
}

void bps_loop_cancel(struct bps_loop *loop, struct bps_timer *timer)
{
    bps_timers_cancel(&loop->timers, timer);
}

uint64_t bps_loop_late(const struct bps_loop *loop)
{
    return loop->timers.late;
}

/* ---- deferred calls ---- */

void bps_loop_defer_for(struct bps_loop *loop, const void *owner, bps_call_fn fn, void *arg)
{
    bps_assert(fn != NULL);
    if (!call_list_reserve(&loop->deferred)) {
        bps_error("loop", "out of memory for a deferred call; running it immediately");
        fn(arg);
        return;
    }
    loop->deferred.calls[loop->deferred.count++] = (struct call){owner, fn, arg};
}

void bps_loop_defer(struct bps_loop *loop, bps_call_fn fn, void *arg)
{
    bps_loop_defer_for(loop, NULL, fn, arg);
}

static void forget_calls(struct call_list *list, const void *owner)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->calls[i].owner == owner) {
            list->calls[i].fn = NULL;
        }
    }
}

void bps_loop_forget(struct bps_loop *loop, const void *owner)
{
    forget_calls(&loop->deferred, owner);
    forget_calls(&loop->running, owner);
}

void bps_loop_undefer(struct bps_loop *loop, const void *owner, bps_call_fn fn, void *arg)
{
    struct call_list *const lists[] = {&loop->deferred, &loop->running};
    for (size_t list = 0; list < 2; list++) {
        for (size_t i = 0; i < lists[list]->count; i++) {
            struct call *call = &lists[list]->calls[i];
            if (call->owner == owner && call->fn == fn && call->arg == arg) {
                call->fn = NULL;
            }
        }
    }
}

static void run_deferred(struct bps_loop *loop)
{
    bps_assert(loop->running.count == 0);
    struct call_list list = loop->deferred;
    loop->deferred = loop->running;
    loop->running = list;
    for (size_t i = 0; i < loop->running.count; i++) {
        struct call call = loop->running.calls[i];
        if (call.fn != NULL) {
            atomic_store_explicit(&loop->in, (uintptr_t)call.fn, memory_order_relaxed);
            call.fn(call.arg);
        }
    }
    loop->running.count = 0;
}

void bps_loop_at_end(struct bps_loop *loop, bps_call_fn fn, void *arg)
{
    loop->at_end = (struct call){.fn = fn, .arg = arg};
}

void bps_loop_ask_end(struct bps_loop *loop)
{
    bps_assert(loop->at_end.fn != NULL);
    loop->end_asked = true;
}

/* What was deferred before, and behind that the end. */
static void end_turn(struct bps_loop *loop)
{
    run_deferred(loop);
    if (loop->end_asked) {
        loop->end_asked = false;
        atomic_store_explicit(&loop->in, (uintptr_t)loop->at_end.fn, memory_order_relaxed);
        loop->at_end.fn(loop->at_end.arg);
    }
}

/* ---- who drives ---- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(ns / BPS_S), .tv_nsec = (long)(ns % BPS_S)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

/* After a change, which is made already: storing the word again could undo what another thread made of it. */
static void tell_driver(struct bps_loop *loop)
{
    syscall(SYS_futex, &loop->driver, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool change_driver(struct bps_loop *loop, enum driver from, enum driver to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong(&loop->driver, &expected, to);
}

/* Nobody drives, but there is work: the loop's own thread has to. */
static void call_own_thread(struct bps_loop *loop)
{
    if (change_driver(loop, DRIVER_NONE, DRIVER_OWN)) {
        tell_driver(loop);
    }
}

/* On the loop's own thread, between two turns: stands back for another thread until it drives again. */
static void stand_back(struct bps_loop *loop)
{
    if (change_driver(loop, DRIVER_WANTED, DRIVER_LENT)) {
        tell_driver(loop);
    }
    bool same = false; /* nothing has changed while this thread waited */
    for (uint32_t driver = atomic_load(&loop->driver); driver != DRIVER_OWN && driver != DRIVER_WANTED;
         driver = atomic_load(&loop->driver)) {
        uint64_t patience = atomic_load_explicit(&loop->awaited, memory_order_relaxed) ? SHORT_PATIENCE : PATIENCE;
        atomic_store(&loop->watched, same && driver == DRIVER_LENT); /* then it tells that it goes, else nobody does */
        futex_wait(&loop->driver, driver, loop->watched ? UINT64_MAX : patience);
        same = !atomic_exchange(&loop->driven, false);
        if (driver == DRIVER_NONE && same) {
            change_driver(loop, DRIVER_NONE, DRIVER_OWN);
        }
    }
}

/* ---- posts ---- */

static void wake(struct bps_loop *loop)
{
    /* Only the first of several threads makes the system call. */
    if (atomic_load(&loop->sleeping) && atomic_exchange(&loop->sleeping, false)) {
        const uint64_t one = 1;
        ssize_t n = write(loop->event, &one, sizeof one);
        (void)n; /* fails only when the counter is full, and then the loop is awake */
    }
}

void bps_loop_post_quietly(struct bps_loop *loop, struct bps_post *post)
{
    bps_assert(post->fn != NULL);
    post->next = atomic_load_explicit(&loop->posts, memory_order_relaxed);
    /* Sequentially consistent with `sleeping`: either we see that the loop sleeps, or it sees the post. */
    while (!atomic_compare_exchange_weak(&loop->posts, &post->next, post)) {
    }
}

void bps_loop_post(struct bps_loop *loop, struct bps_post *post)
{
    bps_loop_post_quietly(loop, post);
    wake(loop);
    call_own_thread(loop);
}

void bps_loop_stop(struct bps_loop *loop)
{
    atomic_store(&loop->stop, true);
    wake(loop);
    call_own_thread(loop);
}

static void run_posts(struct bps_loop *loop)
{
    if (atomic_load_explicit(&loop->posts, memory_order_relaxed) == NULL) {
        return;
    }
    struct bps_post *latest = atomic_exchange(&loop->posts, NULL);
    struct bps_post *first = NULL;
    while (latest != NULL) {
        struct bps_post *next = latest->next;
        latest->next = first;
        first = latest;
        latest = next;
    }
    while (first != NULL) {
        struct bps_post *next = first->next; /* the callback may free its post */
        first->fn(first);
        first = next;
    }
}

/* ---- the turn ---- */

/* Milliseconds the loop may sleep; -1: until something happens. */
static int sleep_limit(struct bps_loop *loop, uint64_t deadline)
{
    if (loop->deferred.count > 0 || atomic_load(&loop->posts) != NULL || atomic_load(&loop->stop) ||
        atomic_load(&loop->driver) == DRIVER_WANTED) {
        return 0;
    }
    uint64_t timer = bps_timers_next(&loop->timers);
    deadline = timer < deadline ? timer : deadline;
    if (deadline == UINT64_MAX) {
        return -1;
    }
    uint64_t ms = deadline > loop->now ? (deadline - loop->now - 1) / BPS_MS + 1 : 0;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

/*
 * A loop that has just worked, and whose last sleep was short, is likely to have work again before a sleep and a
 * wake-up would be over: then it looks again and again for a moment, giving way to whoever else wants to run.
 */
static bool should_spin(const struct bps_loop *loop)
{
    return loop->eager && loop->now - loop->worked < loop->spin;
}

/* Sleeps until something happens, at most until the deadline. */
static int sleep_on_events(struct bps_loop *loop, struct epoll_event *events, uint64_t deadline)
{
    uint64_t since = loop->now;
    atomic_store(&loop->sleeping, true);
    int n = epoll_wait(loop->epoll, events, EVENTS_PER_TURN, sleep_limit(loop, deadline));
    atomic_store(&loop->sleeping, false);
    loop->now = bps_now();
    loop->eager = loop->now - since < SHORT_SLEEP * loop->spin;
    return n;
}

/*
 * Asks the descriptors without waiting. Where pollers have just had work that can wait for a moment: the system call
 * would take longer than a small frame.
 */
static int look_at_events(struct bps_loop *loop, struct epoll_event *events, bool worked)
{
    if (worked) {
        if (loop->now - loop->looked < POLLS_ALONE) {
            return 0;
        }
        loop->looked = loop->now;
    }
    return epoll_wait(loop->epoll, events, EVENTS_PER_TURN, 0);
}

static void wait_and_dispatch(struct bps_loop *loop, uint64_t deadline)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool spinning = loop->deferred.count == 0 && should_spin(loop);
    bool worked = poll(loop, spinning);
    bool sleepy = !worked && !spinning && bps_pollers_arm(&loop->pollers);
    loop->now = bps_now();
    int n = sleepy ? sleep_on_events(loop, events, deadline) : look_at_events(loop, events, worked);
    for (int i = 0; i < n; i++) {
        call_watch(loop, &events[i]);
    }
    if (n > 0) {
        loop->now = bps_now();
    }
    if (worked || n > 0) {
        loop->worked = loop->now;
    } else if (spinning) {
        sched_yield();
    }
    free_watches(&loop->removed);
    bps_pollers_sweep(&loop->pollers);
}

static void loop_turn(struct bps_loop *loop, uint64_t deadline)
{
    bps_assert(atomic_load(&loop->driver) != DRIVER_NONE);
    wait_and_dispatch(loop, deadline);
    run_posts(loop);
    bps_timers_fire(&loop->timers, loop->now);
    end_turn(loop);
    atomic_store_explicit(&loop->in, 0, memory_order_relaxed);
}

void bps_loop_run(struct bps_loop *loop)
{
    bool stop;
    atomic_store(&loop->thread, own_id());
    do {
        /* Read before a turn takes the posts: what a thread posted before it stopped the loop is called. */
        stop = atomic_load(&loop->stop);
        loop_turn(loop, UINT64_MAX);
        if (atomic_load_explicit(&loop->driver, memory_order_relaxed) != DRIVER_OWN) {
            stand_back(loop);
            atomic_store(&loop->thread, own_id());
        }
    } while (!stop);
    atomic_store(&loop->thread, 0);
    atomic_store(&loop->stop, false);
}

/* Waits until the calling thread may drive. False: another one does. */
static bool become_driver(struct bps_loop *loop)
{
    if (change_driver(loop, DRIVER_NONE, DRIVER_LENT)) {
        return true;
    }
    if (!change_driver(loop, DRIVER_OWN, DRIVER_WANTED)) {
        return false;
    }
    wake(loop);
    while (atomic_load(&loop->driver) == DRIVER_WANTED) {
        futex_wait(&loop->driver, DRIVER_WANTED, UINT64_MAX);
    }
    return true;
}

/* What is deferred still has to be done: others may wait for it. */
static bool is_over(const struct bps_loop *loop, const struct bps_loop_wish *wish)
{
    return wish->done(wish->arg) && (loop->deferred.count == 0 || wish->busy(wish->arg));
}

/* The end of driving on another thread. Whoever posted meanwhile has seen a driver; the post is ours to care for. */
static void leave_driving(struct bps_loop *loop, bool busy)
{
    bps_assert(atomic_load(&loop->driver) == DRIVER_LENT);
    if (busy || atomic_load(&loop->stop)) {
        atomic_store(&loop->driver, DRIVER_OWN);
        tell_driver(loop);
        return;
    }
    atomic_store(&loop->driver, DRIVER_NONE);
    if (atomic_load(&loop->watched)) {
        tell_driver(loop);
    }
    if (atomic_load(&loop->posts) != NULL || atomic_load(&loop->stop)) {
        call_own_thread(loop);
    }
}

/* What was posted, before the events: for a driver that comes for its own post, which may need no event. */
static void begin_driving(struct bps_loop *loop)
{
    bps_assert(atomic_load(&loop->driver) == DRIVER_LENT);
    atomic_store_explicit(&loop->driven, true, memory_order_relaxed);
    atomic_store_explicit(&loop->thread, own_id(), memory_order_relaxed);
    loop->now = bps_now();
    run_posts(loop);
    end_turn(loop);
}

void bps_loop_post_here(struct bps_loop *loop, struct bps_post *post, bool (*busy)(void *arg), void *arg)
{
    bps_loop_post_quietly(loop, post);
    if (!change_driver(loop, DRIVER_NONE, DRIVER_LENT)) {
        wake(loop);
        return;
    }
    atomic_store_explicit(&loop->awaited, true, memory_order_relaxed);
    begin_driving(loop);
    leave_driving(loop, loop->deferred.count > 0 || busy(arg));
}

bool bps_loop_drive(struct bps_loop *loop, const struct bps_loop_wish *wish, uint64_t deadline)
{
    if (!become_driver(loop)) {
        wake(loop); /* for what was posted quietly */
        return false;
    }
    begin_driving(loop);
    while (!is_over(loop, wish) && !atomic_load(&loop->stop) && (deadline == UINT64_MAX || bps_now() < deadline)) {
        loop_turn(loop, deadline);
    }
    leave_driving(loop, wish->busy(wish->arg));
    return true;
}
