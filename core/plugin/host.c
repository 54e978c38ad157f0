/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - the services of the core for one instance of a plugin.
 */
#include "plugin/host.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"

struct counter {
    STAILQ_ENTRY(counter) next;
    uint64_t value;
    char *name;
    char *help;
};

#define BEYOND 32
typedef uintptr_t (*service)(void);

struct host {
    struct bps_host table;  /* first: the plugin passes its address back */
    service beyond[BEYOND]; /* behind the table: where a plugin finds services that only a later minor has */
    STAILQ_HEAD(, counter) counters;
    struct bps_loop *loop;
    uint32_t level;      /* of its lines; 0: that of the process */
    char component[160]; /* that its lines begin with */
    uint64_t spill;      /* takes the counts of a counter for which there was no memory */
    char instance[];
};

static struct host *plugin_host_host_of(const struct bps_host *table)
{
    return (struct host *)table;
}

/* ---- log, time, memory -------------------------------------------------------------------------------- */

static bool host_logs(const struct bps_host *table, uint32_t level)
{
    const struct host *host = plugin_host_host_of(table);
    return level <= (host->level != 0 ? host->level : bps_log_level());
}

static void host_log(const struct bps_host *table, uint32_t level, const char *format, ...)
{
    char line[1024];
    va_list args;

    const struct host *host = plugin_host_host_of(table);
    if (!host_logs(table, level)) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    bps_log_write(level, host->component, "%s", line);
}

static void *host_alloc(const struct bps_host *table, size_t bytes, size_t align)
{
    void *memory;

    (void)table;
    return posix_memalign(&memory, align, bytes ? bytes : 1) == 0 ? memory : NULL;
}

static void host_release(const struct bps_host *table, void *memory)
{
    (void)table;
    free(memory);
}

/* ---- event loop --------------------------------------------------------------------------------------- */

static struct bps_watch *host_watch(const struct bps_host *table, int fd, bps_watch_fn fn, void *arg)
{
    struct bps_loop *loop = plugin_host_host_of(table)->loop;
    return loop ? bps_loop_watch(loop, fd, fn, arg) : NULL;
}

static void host_unwatch(const struct bps_host *table, struct bps_watch *watch)
{
    bps_loop_unwatch(plugin_host_host_of(table)->loop, watch);
}

static struct bps_timer *host_timer(const struct bps_host *table, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                    void *arg)
{
    struct bps_loop *loop = plugin_host_host_of(table)->loop;
    return loop ? bps_loop_timer(loop, delay_ns, period_ns, fn, arg) : NULL;
}

static void host_cancel(const struct bps_host *table, struct bps_timer *timer)
{
    bps_loop_cancel(plugin_host_host_of(table)->loop, timer);
}

static void host_defer(const struct bps_host *table, bps_call_fn fn, void *arg)
{
    struct bps_loop *loop = plugin_host_host_of(table)->loop;

    if (loop) {
        bps_loop_defer_for(loop, table, fn, arg);
    } else {
        bps_error(table->instance, "the plugin defers a call, but this instance has no event loop");
    }
}

static void host_undefer(const struct bps_host *table, bps_call_fn fn, void *arg)
{
    struct bps_loop *loop = plugin_host_host_of(table)->loop;
    if (loop != NULL) {
        bps_loop_undefer(loop, table, fn, arg);
    }
}

static struct bps_poller *host_poller(const struct bps_host *table, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                      void *arg)
{
    struct bps_loop *loop = plugin_host_host_of(table)->loop;

    return loop ? bps_loop_poller(loop, poll, arm, arg) : NULL;
}

static void host_unpoll(const struct bps_host *table, struct bps_poller *poller)
{
    if (poller) {
        bps_loop_unpoll(plugin_host_host_of(table)->loop, poller);
    }
}

/* ---- counters ----------------------------------------------------------------------------------------- */

static void free_counter(struct counter *counter)
{
    free(counter->name);
    free(counter->help);
    free(counter);
}

static uint64_t *host_counter(const struct bps_host *table, const char *name, const char *help)
{
    struct host *host = plugin_host_host_of(table);
    struct counter *counter;

    STAILQ_FOREACH(counter, &host->counters, next) {
        if (strcmp(counter->name, name) == 0) {
            return &counter->value;
        }
    }
    counter = calloc(1, sizeof *counter);
    if (!counter) {
        return &host->spill;
    }
    counter->name = strdup(name);
    counter->help = strdup(help ? help : "");
    if (!counter->name || !counter->help) {
        free_counter(counter);
        return &host->spill;
    }
    STAILQ_INSERT_TAIL(&host->counters, counter, next);
    return &counter->value;
}

void bps_host_counters(const struct bps_host *table,
                       void (*fn)(void *arg, const char *name, const char *help, uint64_t value), void *arg)
{
    const struct counter *counter;

    STAILQ_FOREACH(counter, &plugin_host_host_of(table)->counters, next) {
        fn(arg, counter->name, counter->help, counter->value);
    }
}

/* Called by a plugin that was built for a later minor and has not looked at abi_minor. NULL and 0 are no surprise. */
static uintptr_t no_such_service(void)
{
    bps_error("plugins",
              "a plugin calls a service that this BytePS, with ABI %u.%u, does not have; the call returns 0. "
              "Install a newer BytePS, or have the plugin look at host->abi_minor first",
              BPS_ABI_MAJOR, BPS_ABI_MINOR);
    return 0;
}

/* ---- life --------------------------------------------------------------------------------------------- */

struct bps_host *bps_host_new(const char *instance, struct bps_loop *loop)
{
    size_t bytes = strlen(instance) + 1;
    struct host *host = calloc(1, sizeof *host + bytes);

    if (!host) {
        return NULL;
    }
    memcpy(host->instance, instance, bytes);
    snprintf(host->component, sizeof host->component, "%s", instance);
    host->loop = loop;
    for (unsigned i = 0; i < BEYOND; i++) {
        host->beyond[i] = no_such_service;
    }
    STAILQ_INIT(&host->counters);
    host->table = (struct bps_host){
        .size = sizeof host->table,
        .instance = host->instance,
        .log = host_log,
        .now = bps_now,
        .alloc = host_alloc,
        .release = host_release,
        .watch = host_watch,
        .unwatch = host_unwatch,
        .timer = host_timer,
        .cancel = host_cancel,
        .defer = host_defer,
        .poller = host_poller,
        .unpoll = host_unpoll,
        .counter = host_counter,
        .undefer = host_undefer,
        .logs = host_logs,
        .dtype_size = bps_dtype_size,
        .dtype_name = bps_dtype_name,
        .op_name = bps_op_name,
        .status_text = bps_strerror,
        .abi_minor = BPS_ABI_MINOR,
    };
    return &host->table;
}

void bps_host_log_as(struct bps_host *table, const struct bps_plugin_names *names)
{
    struct host *host = plugin_host_host_of(table);
    host->level = names->level;
    snprintf(host->component, sizeof host->component, "%s (%s)", table->instance, names->plugin);
}

void bps_host_free(struct bps_host *table)
{
    if (!table) {
        return;
    }
    struct host *host = plugin_host_host_of(table);
    struct counter *counter;

    if (host->loop) {
        bps_loop_forget(host->loop, table);
    }
    while ((counter = STAILQ_FIRST(&host->counters)) != NULL) {
        STAILQ_REMOVE_HEAD(&host->counters, next);
        free_counter(counter);
    }
    free(host);
}
