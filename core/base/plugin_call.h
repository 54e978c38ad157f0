/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_call.h - which callback of a plugin each thread is in, for those who find it there too long (watchdog.h), and
 * for the last words of a process that ends in one.
 *
 * With log.calls, calls of the plugins that it names are logged with the time in them: the way through
 * bps_plugin_call_begin() for a thread without a record is then that of all calls, and costs nobody else anything.
 *
 * The record lies on the stack of the thread that makes the call; calls within calls form a list. Beginning and ending
 * one costs a few stores and no system call.
 */
#ifndef BPS_BASE_PLUGIN_CALL_H
#define BPS_BASE_PLUGIN_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Who is called, as messages name it: the plugin, and the instance, such as "transports.net", or "". */
struct bps_plugin_names {
    const char *plugin, *instance;
    bool timed;     /* its calls are logged */
    uint32_t level; /* of its lines of the log; 0: that of the process */
};

struct bps_plugin_call {
    const struct bps_plugin_names *names;
    const char *callback; /* "encode" */
    const char *tensor;   /* NULL: of none */
    struct bps_plugin_call *outer;
    struct bps_plugin_calls *calls; /* that it is one of */
};

/* Of a thread. */
struct bps_plugin_calls {
    _Atomic(struct bps_plugin_call *) latest; /* NULL: it is in none */
    _Atomic uint64_t changes;                 /* calls that have begun and ended: while it stays, so does `latest` */
};

/* Those of the calling thread; NULL: it has made none, or calls are timed. */
extern _Thread_local struct bps_plugin_calls *bps_plugin_calls_here
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Makes them; the last bit is set if this call is timed. */
uintptr_t bps_plugin_calls_first(const struct bps_plugin_names *names);
void bps_plugin_call_timed(struct bps_plugin_call *call);

/* Whether calls of plugins that are `timed` are logged, by this thread and those that begin later. */
void bps_plugin_calls_time(bool wanted);
/* What the timed call that this thread is in has returned. */
void bps_plugin_call_status(int status);

static inline void bps_plugin_call_begin(struct bps_plugin_call *call)
{
    struct bps_plugin_calls *calls = bps_plugin_calls_here;
    if (__builtin_expect(calls == NULL, 0)) {
        uintptr_t made = bps_plugin_calls_first(call->names);
        call->calls = (struct bps_plugin_calls *)made;
        calls = (struct bps_plugin_calls *)(made & ~(uintptr_t)1);
    } else {
        call->calls = calls;
    }
    call->outer = atomic_load_explicit(&calls->latest, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&calls->changes, memory_order_relaxed);
    atomic_store_explicit(&calls->changes, changes + 1, memory_order_relaxed);
    atomic_store_explicit(&calls->latest, call, memory_order_release);
}

static inline void bps_plugin_call_leave(const struct bps_plugin_call *call)
{
    struct bps_plugin_calls *calls = call->calls;
    uint64_t changes = atomic_load_explicit(&calls->changes, memory_order_relaxed);
    atomic_store_explicit(&calls->latest, call->outer, memory_order_relaxed);
    atomic_store_explicit(&calls->changes, changes + 1, memory_order_release);
}

static inline void bps_plugin_call_end(struct bps_plugin_call *call)
{
    if (__builtin_expect(((uintptr_t)call->calls & 1) != 0, 0)) {
        bps_plugin_call_timed(call);
    }
    bps_plugin_call_leave(call);
}

/* From here to the end of the block this thread is in a callback of a plugin. */
#define BPS_IN_PLUGIN(names_, callback_, tensor_)                                                                      \
    __attribute__((cleanup(bps_plugin_call_end))) struct bps_plugin_call plugin_call_ = {(names_), (callback_),        \
                                                                                         (tensor_), NULL, NULL};       \
    bps_plugin_call_begin(&plugin_call_)

/* The same for what takes nanoseconds and is never timed: the names are not `timed`. */
#define BPS_IN_KERNEL(names_, callback_, tensor_)                                                                      \
    __attribute__((cleanup(bps_plugin_call_leave))) struct bps_plugin_call plugin_call_ = {(names_), (callback_),      \
                                                                                           (tensor_), NULL, NULL};     \
    bps_plugin_call_begin(&plugin_call_)

/* "plugin clip (worker.graph[0]), run, of tensor 'x'". False, and no text: the thread is in none, or just leaves it. */
bool bps_plugin_call_text(const struct bps_plugin_calls *calls, char *text, size_t n);

/* Calls fn for each thread that has been in a callback; they neither begin nor end meanwhile. */
void bps_plugin_calls_each(void (*fn)(void *arg, pid_t thread, const struct bps_plugin_calls *calls), void *arg);

/*
 * From now on a process that is ended by a signal of a fault, abort() or exit() in a callback says so on standard error
 * before it goes on as it would have.
 */
void bps_plugin_calls_last_words(void);

#endif
