/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c - see watchdog.h. */
#include "base/watchdog.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/plugin_call.h"
#include "base/thread.h"

#define LOG      "watchdog"
#define LONGEST  BPS_S /* between two looks */
#define SHORTEST (20 * BPS_MS)
#define THREADS  64u /* that are watched at a time */

/* A thread that has not come back since a look. */
struct suspect {
    const void *what; /* a loop, or the calls of a thread; NULL: the entry is free */
    uint64_t mark;    /* of calls: their changes */
    uint64_t silent;  /* ns */
    uint64_t told;    /* how long it had been silent when the log told */
    bool seen;        /* in this look */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running;
    uintptr_t begun; /* how many threads have; all but the last of them end */
    LIST_HEAD(, bps_watchdog_user) users;
    uint64_t stuck; /* for how long something has been over the limit, ns */
    char text[700]; /* what */
    struct suspect suspect[THREADS];
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

static struct bps_watchdog_limits limits(void)
{
    struct bps_watchdog_limits all = {0};
    const struct bps_watchdog_user *user;
    LIST_FOREACH(user, &dog.users, entry) {
        all.warn = least(all.warn, user->limits.warn);
        all.loop = least(all.loop, user->limits.loop);
        all.call = least(all.call, user->limits.call);
    }
    return all;
}

/* ---- words ---- */

/* The state of a thread as proc(5) has it, in words. */
static const char *state_in_words(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "waiting for a disk, a network file system or a driver";
    case 'T':
    case 't':
        return "stopped";
    default:
        return "in an unknown state";
    }
}

/* "thread bps-shard (4711, stopped)" */
static void name_thread(pid_t thread, char *text, size_t n)
{
    char path[64], line[128], state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    bps_first_line(path, line, sizeof line);
    char *name = strchr(line, '('), *at = strrchr(line, ')');
    if (name != NULL && at != NULL && at[1] == ' ') {
        state = at[2];
        *at = '\0';
    }
    snprintf(text, n, "thread %.31s (%d, %s)", name != NULL ? name + 1 : "?", (int)thread, state_in_words(state));
}

/* The file that a callback lies in; "": none. The loader would know it, too, but a thread may be stuck in there. */
static void file_of(uintptr_t function, char *file, size_t n)
{
    char line[512], flags[8], path[400];
    FILE *maps = function != 0 ? fopen("/proc/self/maps", "re") : NULL;
    file[0] = '\0';
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %*s %399s", &from, &to, flags, path) == 4 &&
            from <= function && function < to) {
            snprintf(file, n, "%s", path);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

/* ---- a look ---- */

struct look {
    struct bps_watchdog_limits limits;
    uint64_t passed; /* ns since the last one */
    bool stuck;
    struct bps_loop_look loop[THREADS]; /* those that were asked already: of their threads' calls the loop tells */
    uint32_t loops;
};

static struct suspect *watchdog_find(const void *what)
{
    struct suspect *empty = NULL;
    for (uint32_t i = 0; i < THREADS; i++) {
        if (dog.suspect[i].what == what) {
            return &dog.suspect[i];
        }
        if (dog.suspect[i].what == NULL && empty == NULL) {
            empty = &dog.suspect[i];
        }
    }
    if (empty != NULL) {
        *empty = (struct suspect){.what = what};
    }
    return empty;
}

/* One more look has found it so. */
static void watchdog_judge(struct look *look, struct suspect *s, uint64_t warn, uint64_t limit, const char *what)
{
    bool stuck = limit != 0 && s->silent >= limit;
    if (stuck) {
        look->stuck = true;
        snprintf(dog.text, sizeof dog.text, "%s for %.1f s", what, (double)s->silent / 1e9);
    }
    if (!stuck && warn != 0 && s->silent >= warn && s->silent >= 2 * s->told) {
        s->told = s->silent;
        bps_warn(LOG, "%s for %.1f s", what, (double)s->silent / 1e9);
    }
}

struct calls_of {
    pid_t thread;
    char *text;
    size_t n;
};

static void find_calls(void *arg, pid_t thread, const struct bps_plugin_calls *calls)
{
    const struct calls_of *of = arg;
    if (thread == of->thread) {
        bps_plugin_call_text(calls, of->text, of->n);
    }
}

static void describe_loop(const struct bps_loop_look *one, char *what, size_t n)
{
    char thread[120], text[400] = "", file[400];
    name_thread(one->thread, thread, sizeof thread);
    bps_plugin_calls_each(find_calls, &(struct calls_of){one->thread, text, sizeof text});
    if (text[0] == '\0') {
        file_of(one->in, file, sizeof file);
        snprintf(text, sizeof text, "%s%.380s", file[0] != '\0' ? "a callback in " : "", file);
    }
    snprintf(what, n, "%s has not returned to its event loop%s%s,", thread, text[0] != '\0' ? " from " : "", text);
}

/* Under the lock of all loops, where nothing else is to be locked: so it is judged later. */
static void note_loop(void *arg, const struct bps_loop_look *one)
{
    struct look *look = arg;
    if (one->asked > 0 && look->loops < THREADS) {
        look->loop[look->loops++] = *one;
    }
}

static void look_at_loop(struct look *look, const struct bps_loop_look *one)
{
    char what[600];
    struct suspect *s = watchdog_find(one->loop);
    if (s == NULL) {
        return;
    }
    s->seen = true;
    s->silent += look->passed;
    uint64_t limit = look->limits.loop, warn = least(look->limits.warn, limit / 2);
    if (s->silent >= least(warn, limit)) {
        describe_loop(one, what, sizeof what);
        watchdog_judge(look, s, warn, limit, what);
    }
}

static bool drives(const struct look *look, pid_t thread)
{
    uint32_t i = 0;
    while (i < look->loops && look->loop[i].thread != thread) {
        i++;
    }
    return i < look->loops;
}

static void look_at_calls(void *arg, pid_t id, const struct bps_plugin_calls *calls)
{
    struct look *look = arg;
    char thread[120], text[400], what[600];
    uint64_t changes = atomic_load_explicit(&calls->changes, memory_order_acquire);
    bool in_call = atomic_load_explicit(&calls->latest, memory_order_relaxed) != NULL;
    struct suspect *s = in_call && !drives(look, id) ? watchdog_find(calls) : NULL;
    if (s == NULL) {
        return;
    }
    s->seen = true;
    if (s->mark != changes) {
        *s = (struct suspect){.what = calls, .mark = changes, .seen = true};
        return;
    }
    s->silent += look->passed;
    uint64_t warn = look->limits.warn, limit = look->limits.call;
    if (s->silent >= least(warn, limit) && bps_plugin_call_text(calls, text, sizeof text)) {
        name_thread(id, thread, sizeof thread);
        snprintf(what, sizeof what, "%s has not returned from %s,", thread, text);
        watchdog_judge(look, s, warn, limit, what);
    }
}

/* What has come back since is forgotten. */
static void sweep(void)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        if (!dog.suspect[i].seen) {
            dog.suspect[i].what = NULL;
        }
        dog.suspect[i].seen = false;
    }
}

/* Whether somebody can end what goes on here in another way than by the end of the process. */
static bool watchdog_tell_users(void)
{
    const struct bps_watchdog_user *user;
    bool told = false;
    LIST_FOREACH(user, &dog.users, entry) {
        if (user->stuck != NULL) {
            user->stuck(user->arg, dog.text);
            told = true;
        }
    }
    return told;
}

static void act(const struct look *look)
{
    if (!look->stuck) {
        dog.stuck = 0;
        return;
    }
    bool told = dog.stuck == 0 && watchdog_tell_users();
    if (told) {
        bps_error(LOG, "%s; giving up", dog.text);
    } else if (dog.stuck == 0 || dog.stuck > BPS_WATCHDOG_GRACE) {
        bps_error(LOG, "%s; ending the process", dog.text);
        _exit(EXIT_FAILURE);
    }
    dog.stuck += look->passed;
}

static void watchdog_look_around(uint64_t passed)
{
    struct look look = {.limits = limits(), .passed = passed};
    bps_loops_look(note_loop, &look);
    for (uint32_t i = 0; i < look.loops; i++) {
        look_at_loop(&look, &look.loop[i]);
    }
    bps_plugin_calls_each(look_at_calls, &look);
    sweep();
    act(&look);
}

/* ---- the thread ---- */

static uint64_t pause_between(void)
{
    struct bps_watchdog_limits all = limits();
    uint64_t shortest = least(least(all.warn, all.loop), all.call) / 8;
    return shortest == 0 || shortest > LONGEST ? LONGEST : shortest < SHORTEST ? SHORTEST : shortest;
}

static void *watch(void *arg)
{
    pthread_mutex_lock(&dog.lock);
    while (dog.running && dog.begun == (uintptr_t)arg) {
        uint64_t before = bps_now(), pause = pause_between();
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (time_t)(pause / BPS_S);
        until.tv_nsec += (long)(pause % BPS_S);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&dog.changed, &dog.lock, &until);
        uint64_t passed = bps_now() - before;
        watchdog_look_around(passed < 2 * pause ? passed : 2 * pause);
    }
    pthread_mutex_unlock(&dog.lock);
    return NULL;
}

bps_status bps_watchdog_begin(struct bps_watchdog_user *user, struct bps_report *report)
{
    bps_status status = BPS_OK;
    pthread_mutex_lock(&dog.lock);
    LIST_INSERT_HEAD(&dog.users, user, entry);
    if (!dog.running) {
        dog.begun++;
        status = bps_thread_start(&dog.thread, "bps-watchdog", watch, (void *)dog.begun, report);
        dog.running = status == BPS_OK;
    }
    if (status != BPS_OK) {
        LIST_REMOVE(user, entry);
        user->entry.le_prev = NULL;
    }
    pthread_cond_broadcast(&dog.changed); /* the limits may be shorter now */
    pthread_mutex_unlock(&dog.lock);
    return status;
}

void bps_watchdog_end(struct bps_watchdog_user *user)
{
    if (user->entry.le_prev == NULL) {
        return;
    }
    pthread_mutex_lock(&dog.lock);
    LIST_REMOVE(user, entry);
    user->entry.le_prev = NULL;
    bool last = LIST_EMPTY(&dog.users) && dog.running;
    if (last) {
        dog.running = false;
        pthread_cond_broadcast(&dog.changed);
    }
    pthread_t thread = dog.thread;
    pthread_mutex_unlock(&dog.lock);
    if (last) {
        pthread_join(thread, NULL);
    }
}
