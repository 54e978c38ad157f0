/* SPDX-License-Identifier: Apache-2.0 */
/*
 * green.c - threads that take turns, and what the library asks of the system.
 *
 * A thread runs until it waits. Then one of those that can go on is drawn; if there is none, the clock jumps to the
 * first moment at which one can. Functions with __wrap_ are called in the place of those without.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <time.h>

#include "fiber.h"
#include "simulation.h"

#define TURN  300u /* ns that a turn takes, on average */
#define NEVER UINT64_MAX

enum wait { NOTHING, EPOLL, SEMAPHORE, FUTEX, THREAD, SLEEP };
static const char *const wait_names[] = {"its turn", "descriptors", "a semaphore", "a futex", "a thread", "the clock"};

struct green {
    TAILQ_ENTRY(green) entry;
    struct fiber fiber;
    struct sim_process *process;
    void *(*fn)(void *arg);
    void (*start)(void *arg);
    void *arg;
    bool ended, joined;
    enum wait waits;
    uint64_t deadline;
    int epoll, most, got;
    uint64_t asked; /* may_wake when there was no event; 0: not asked yet */
    struct epoll_event *events;
    sem_t *semaphore;
    const void *word;
    bool woken;
    struct green *other;
};

static TAILQ_HEAD(, green) greens = TAILQ_HEAD_INITIALIZER(greens);
static struct green *current;
static struct fiber scheduler;
static uint64_t now = 1000000000, state;
static uint64_t may_wake = 1; /* counts the calls that may bring events: what is watched are eventfds */

int __real_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout);
long __real_syscall(long number, ...);
ssize_t __real_write(int fd, const void *data, size_t n);
int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);

void sim_seed(uint64_t seed)
{
    state = seed * 0x2545f4914f6cdd1du;
    now = 1000000000;
}

uint32_t sim_random(uint32_t n)
{
    state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % n;
}

bool sim_chance(uint32_t percent)
{
    return sim_random(100) < percent;
}

struct sim_process *sim_self(void)
{
    return current->process;
}

/* ---- turns ---- */

static void wait_for(enum wait what, uint64_t deadline)
{
    current->waits = what;
    current->deadline = deadline;
    fiber_switch(&current->fiber, &scheduler);
}

static bool has_event(struct green *green)
{
    if (green->asked == may_wake) {
        return false;
    }
    green->got = __real_epoll_wait(green->epoll, green->events, green->most, 0);
    if (green->got == 0) {
        green->asked = may_wake;
    }
    return green->got != 0;
}

static bool can_go_on(struct green *green)
{
    int value = 0;
    switch (green->waits) {
    case EPOLL:
        return has_event(green) || now >= green->deadline;
    case SEMAPHORE:
        sem_getvalue(green->semaphore, &value);
        return value > 0;
    case FUTEX:
        return green->woken || now >= green->deadline;
    case THREAD:
        return green->other->ended;
    case SLEEP:
        return now >= green->deadline;
    default:
        return true;
    }
}

/* One that can go on, drawn; NULL: none can. */
static struct green *draw(void)
{
    uint32_t n = 0;
    struct green *green;
    TAILQ_FOREACH(green, &greens, entry) {
        n++;
    }
    green = TAILQ_FIRST(&greens);
    for (uint32_t i = n > 0 ? sim_random(n) : 0; i > 0; i--) {
        green = TAILQ_NEXT(green, entry);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!green->ended && !green->process->dead && can_go_on(green)) {
            return green;
        }
        green = TAILQ_NEXT(green, entry) != NULL ? TAILQ_NEXT(green, entry) : TAILQ_FIRST(&greens);
    }
    return NULL;
}

static bool all_ended(void)
{
    const struct green *green;
    TAILQ_FOREACH(green, &greens, entry) {
        if (!green->ended && !green->process->dead) {
            return false;
        }
    }
    return true;
}

static uint64_t next_moment(void)
{
    uint64_t next = NEVER;
    const struct green *green;
    TAILQ_FOREACH(green, &greens, entry) {
        if (!green->ended && !green->process->dead && green->deadline < next) {
            next = green->deadline;
        }
    }
    return next;
}

static void forget_greens(void)
{
    while (!TAILQ_EMPTY(&greens)) {
        struct green *green = TAILQ_FIRST(&greens);
        TAILQ_REMOVE(&greens, green, entry);
        fiber_forget(&green->fiber);
        free(green);
    }
}

bool sim_run(uint64_t limit_ns)
{
    uint64_t begin = now;
    while (!all_ended()) {
        struct green *green = draw();
        if (green == NULL) {
            uint64_t next = next_moment();
            if (next == NEVER || next - begin > limit_ns) {
                return false;
            }
            now = next > now ? next : now;
            continue;
        }
        now += sim_random(2 * TURN);
        green->waits = NOTHING;
        green->deadline = NEVER;
        current = green;
        fiber_switch(&scheduler, &green->fiber);
        current = NULL;
    }
    forget_greens();
    return true;
}

void sim_explain(void)
{
    const struct green *green;
    TAILQ_FOREACH(green, &greens, entry) {
        if (!green->ended) {
            printf("  a thread of %s%s waits for %s\n", green->process->name, green->process->dead ? " (dead)" : "",
                   wait_names[green->waits]);
        }
    }
}

/* ---- threads ---- */

static void body(void)
{
    struct green *green = current;
    fiber_begin(&scheduler);
    if (green->start != NULL) {
        green->start(green->arg);
    } else {
        green->fn(green->arg);
    }
    green->ended = true;
    fiber_switch(&green->fiber, &scheduler);
}

static struct green *new_green(struct sim_process *process)
{
    struct green *green = __real_calloc(1, sizeof *green);
    green->process = process;
    green->deadline = NEVER;
    fiber_make(&green->fiber, body);
    TAILQ_INSERT_TAIL(&greens, green, entry);
    return green;
}

void sim_start(struct sim_process *process, void (*fn)(void *arg), void *arg)
{
    struct green *green = new_green(process);
    green->start = fn;
    green->arg = arg;
}

void sim_sleep(uint64_t ns)
{
    wait_for(SLEEP, now + ns);
}

void sim_kill(struct sim_process *process)
{
    process->dead = true;
    sim_disconnect(process);
    if (current != NULL && current->process == process) {
        wait_for(SLEEP, NEVER);
    }
}

/* ---- in the place of the system's ---- */

static const struct sim_process *starving;
static uint32_t allocations_left;

void sim_starve(const struct sim_process *process, uint32_t n)
{
    starving = process;
    allocations_left = n;
}

static bool fails(void)
{
    return current != NULL && starving == current->process && allocations_left > 0 && --allocations_left == 0;
}

void *__real_malloc(size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);

void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    struct green *green = new_green(current->process);
    (void)attr;
    green->fn = fn;
    green->arg = arg;
    *thread = (pthread_t)(uintptr_t)green;
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
    struct green *green = (struct green *)(uintptr_t)thread;
    (void)result;
    while (!green->ended) {
        current->other = green;
        wait_for(THREAD, NEVER);
    }
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

/* Who gives way gives it to another thread of the job, by what it asks next, and not to other programs. */
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    return 0;
}

int __wrap_sem_wait(sem_t *semaphore);
int __wrap_sem_wait(sem_t *semaphore)
{
    while (sem_trywait(semaphore) != 0) {
        current->semaphore = semaphore;
        wait_for(SEMAPHORE, NEVER);
    }
    return 0;
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    current->epoll = epoll;
    current->events = events;
    current->most = most;
    current->got = 0;
    current->asked = 0;
    wait_for(EPOLL, timeout < 0 ? NEVER : now + (uint64_t)timeout * 1000000u);
    return current->got;
}

ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    may_wake++;
    return __real_write(fd, data, n);
}

int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    may_wake++;
    return __real_epoll_ctl(epoll, what, fd, event);
}

static long futex(const uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    struct green *green;
    long count = 0;
    if ((op & FUTEX_CMD_MASK) == FUTEX_WAIT) {
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
            errno = EAGAIN;
            return -1;
        }
        current->word = word;
        current->woken = false;
        wait_for(FUTEX,
                 timeout == NULL ? NEVER : now + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec);
        errno = ETIMEDOUT;
        return current->woken ? 0 : -1;
    }
    TAILQ_FOREACH(green, &greens, entry) {
        if (!green->ended && green->waits == FUTEX && green->word == word) {
            green->woken = true;
            count++;
        }
    }
    return count;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        argument[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_futex && current != NULL) {
        return futex((const uint32_t *)argument[0], (int)argument[1], (uint32_t)argument[2],
                     (const struct timespec *)argument[3]);
    }
    return __real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    out->tv_sec = (time_t)(now / 1000000000u);
    out->tv_nsec = (long)(now % 1000000000u);
    return 0;
}

int __wrap_gethostname(char *name, size_t n);
int __wrap_gethostname(char *name, size_t n)
{
    snprintf(name, n, "%s", current->process->host);
    return 0;
}
