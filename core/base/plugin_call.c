/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_call.c - see plugin_call.h. */
#include "base/plugin_call.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define DEPTH 8u

struct thread {
    struct bps_plugin_calls calls; /* first */
    LIST_ENTRY(thread) entry;
    pid_t id;
    uint64_t began[DEPTH]; /* of the timed calls that it is in, from the outermost on */
    uint32_t depth;
    bool has_status; /* of the innermost */
    int status;
};

_Thread_local struct bps_plugin_calls *bps_plugin_calls_here;
/* The same, and also while calls are timed. A handler of a signal reads it: that must not need memory. */
static _Thread_local struct thread *thread_here __attribute__((tls_model("initial-exec")));
static atomic_bool timing;
static struct thread spare;                                       /* of threads for which there is no memory */
static pthread_mutex_t threads_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static LIST_HEAD(, thread) threads = LIST_HEAD_INITIALIZER(threads);
static pthread_key_t leaving; /* takes a thread that ends off the list */

static void lock_threads(void)
{
    pthread_mutex_lock(&threads_mutex);
}

static void unlock_threads(void)
{
    pthread_mutex_unlock(&threads_mutex);
}

static void plugin_call_leave(void *arg)
{
    struct thread *thread = arg;
    lock_threads();
    LIST_REMOVE(thread, entry);
    unlock_threads();
    bps_plugin_calls_here = NULL;
    thread_here = NULL;
    free(thread);
}

/* Of the threads of the parent, a child has only the calling one. */
static void plugin_call_in_child(void)
{
    struct thread *here = thread_here;
    LIST_INIT(&threads);
    if (here != NULL) {
        here->id = gettid();
        LIST_INSERT_HEAD(&threads, here, entry);
    }
    unlock_threads();
}

__attribute__((constructor)) static void plugin_call_prepare(void)
{
    pthread_key_create(&leaving, plugin_call_leave);
    pthread_atfork(lock_threads, unlock_threads, plugin_call_in_child);
}

static struct thread *make_thread(void)
{
    struct thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        return &spare;
    }
    thread->id = gettid();
    lock_threads();
    LIST_INSERT_HEAD(&threads, thread, entry);
    unlock_threads();
    pthread_setspecific(leaving, thread);
    return thread_here = thread;
}

uintptr_t bps_plugin_calls_first(const struct bps_plugin_names *names)
{
    struct thread *thread = thread_here != NULL ? thread_here : make_thread();
    bool times = atomic_load_explicit(&timing, memory_order_relaxed);
    if (!times && thread != &spare) {
        bps_plugin_calls_here = &thread->calls;
    }
    if (times && thread != &spare && names->timed && thread->depth < DEPTH) {
        thread->began[thread->depth++] = bps_now();
        thread->has_status = false;
        return (uintptr_t)&thread->calls | 1;
    }
    return (uintptr_t)&thread->calls;
}

void bps_plugin_calls_each(void (*fn)(void *arg, pid_t thread, const struct bps_plugin_calls *calls), void *arg)
{
    struct thread *thread;
    lock_threads();
    LIST_FOREACH(thread, &threads, entry) {
        fn(arg, thread->id, &thread->calls);
    }
    unlock_threads();
}

/* ---- words ---- */

/* As of strlcat, which a handler of a signal may not call; so for all. */
static void plugin_call_add(char *text, size_t n, const char *more)
{
    size_t at = strlen(text);
    while (at + 1 < n && *more != '\0') {
        text[at++] = *more++;
    }
    text[at] = '\0';
}

static void plugin_call_describe(const struct bps_plugin_call *call, char *text, size_t n)
{
    text[0] = '\0';
    plugin_call_add(text, n, "plugin ");
    plugin_call_add(text, n, call->names->plugin);
    if (call->names->instance[0] != '\0') {
        plugin_call_add(text, n, " (");
        plugin_call_add(text, n, call->names->instance);
        plugin_call_add(text, n, ")");
    }
    plugin_call_add(text, n, ", ");
    plugin_call_add(text, n, call->callback);
    if (call->tensor != NULL) {
        plugin_call_add(text, n, ", of tensor '");
        plugin_call_add(text, n, call->tensor);
        plugin_call_add(text, n, "'");
    }
}

bool bps_plugin_call_text(const struct bps_plugin_calls *calls, char *text, size_t n)
{
    uint64_t changes = atomic_load_explicit(&calls->changes, memory_order_acquire);
    const struct bps_plugin_call *latest = atomic_load_explicit(&calls->latest, memory_order_acquire);
    text[0] = '\0';
    if (latest == NULL) {
        return false;
    }
    const struct bps_plugin_call call = *latest; /* on the stack of a thread that may be just leaving it */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&calls->changes, memory_order_relaxed) != changes) {
        return false;
    }
    plugin_call_describe(&call, text, n);
    return true;
}

/* ---- calls that are timed ---- */

void bps_plugin_calls_time(bool wanted)
{
    atomic_store_explicit(&timing, wanted, memory_order_relaxed);
    bps_plugin_calls_here = wanted ? NULL : bps_plugin_calls_here;
}

void bps_plugin_call_status(int status)
{
    if (thread_here != NULL) {
        thread_here->has_status = true;
        thread_here->status = status;
    }
}

void bps_plugin_call_timed(struct bps_plugin_call *call)
{
    struct thread *thread = thread_here;
    uint64_t took = bps_now() - thread->began[--thread->depth];
    uint32_t level = call->names->level;
    char text[600], status[40] = "";
    call->calls = &thread->calls;
    if (thread->has_status) {
        snprintf(status, sizeof status, ", returned %d", thread->status);
    }
    thread->has_status = false;
    if (BPS_LOG_INFO <= (level != 0 ? level : bps_log_level())) {
        plugin_call_describe(call, text, sizeof text);
        bps_log_write(BPS_LOG_INFO, "calls", "%s: %.3f us%s", text, (double)took / 1e3, status);
    }
}

/* ---- the last words of a process ---- */

static const struct {
    int number;
    const char *name;
} fatal[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}};

#define FATAL (sizeof fatal / sizeof fatal[0])

static struct sigaction before[FATAL]; /* what the process had done */

/* Once: what this thread says is the cause, and an exit() that follows is not. */
static void say(const char *what)
{
    static atomic_bool said;
    char text[600], line[700] = "byteps: ";
    if (thread_here == NULL || !bps_plugin_call_text(&thread_here->calls, text, sizeof text) ||
        atomic_exchange(&said, true)) {
        return;
    }
    plugin_call_add(line, sizeof line - 1, what);
    plugin_call_add(line, sizeof line - 1, " in ");
    plugin_call_add(line, sizeof line - 1, text);
    plugin_call_add(line, sizeof line, "\n");
    ssize_t n = write(STDERR_FILENO, line, strlen(line));
    (void)n;
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    size_t i = 0;
    while (fatal[i].number != number) {
        i++;
    }
    say(fatal[i].name);
    if (before[i].sa_flags & SA_SIGINFO) {
        before[i].sa_sigaction(number, info, context);
    } else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN) {
        before[i].sa_handler(number);
    } else {
        sigaction(number, &before[i], NULL); /* a fault happens again when we return */
        if (info->si_code <= 0 || number == SIGABRT) {
            raise(number);
        }
    }
}

static void on_exit_in_call(void)
{
    say("exit()");
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    for (size_t i = 0; i < FATAL; i++) {
        sigaction(fatal[i].number, &action, &before[i]);
    }
    atexit(on_exit_in_call);
}

void bps_plugin_calls_last_words(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}
