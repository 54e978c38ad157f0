/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - which steps are recorded, the names of what is, and when the timeline is written. */
#include "trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/report.h"
#include "base/thread.h"
#include "trace/clock.h"
#include "trace/ring.h"
#include "trace/timeline.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define LOG    "trace"
#define LABELS 64u
#define PATHS  4096

struct name {
    uint32_t id;
    UT_hash_handle hh;
    char text[];
};

atomic_bool bps_trace_on;

static struct {
    pthread_mutex_t lock; /* of names, labels and the thread */
    char file[PATHS];
    uint32_t users; /* members in this process */
    pid_t process;
    uint64_t since; /* ns; what is older is of an earlier job of this process */
    bool identified;
    char role[16], host[256];
    struct bps_trace_member member;
    struct name *names;
    char *label[LABELS];
    uint16_t labels;
    bool writing; /* there is a thread that does, or has done so */
    pthread_t writer;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t first, last; /* steps */
static _Atomic uint32_t highest;     /* step, from 0 */
static _Atomic uint32_t steps_ended; /* as far as we were told */
static atomic_bool passed;           /* all steps that are recorded have been */

/* ---- steps ---- */

void bps_trace_step(void)
{
    atomic_fetch_add_explicit(&steps_ended, 1, memory_order_relaxed);
}

/* By the numbers of operations: the highest that any tensor has had. */
static uint32_t count_step(uint32_t n)
{
    uint32_t step = atomic_load_explicit(&highest, memory_order_relaxed);
    while (n > step && !atomic_compare_exchange_weak(&highest, &step, n)) {
    }
    return n > step ? n : step;
}

uint32_t bps_trace_steps_ended(void)
{
    return atomic_load_explicit(&steps_ended, memory_order_relaxed);
}

uint32_t bps_trace_begin(uint32_t ended, uint32_t n)
{
    uint32_t step = ended > 0 ? ended : count_step(n);
    if (step > atomic_load_explicit(&last, memory_order_relaxed)) {
        if (!atomic_exchange(&passed, true)) {
            bps_trace_write_soon();
        }
        return 0;
    }
    return step >= atomic_load_explicit(&first, memory_order_relaxed) ? step + 1 : 0;
}

void bps_trace_note(const struct bps_trace_record *record)
{
    bps_ring_put(record);
}

/* ---- names ---- */

uint16_t bps_trace_label(const char *text)
{
    uint16_t i = 0;
    pthread_mutex_lock(&trace.lock);
    while (i < trace.labels && strcmp(trace.label[i], text) != 0) {
        i++;
    }
    if (i == trace.labels) {
        char *copy = i < LABELS ? strdup(text) : NULL;
        if (copy != NULL) {
            bps_make_printable(copy);
            trace.label[trace.labels++] = copy;
        } else {
            i = 0;
        }
    }
    pthread_mutex_unlock(&trace.lock);
    return i;
}

void bps_trace_name(uint32_t tensor, const char *text)
{
    struct name *name;
    pthread_mutex_lock(&trace.lock);
    HASH_FIND(hh, trace.names, &tensor, sizeof tensor, name);
    if (name == NULL && (name = calloc(1, sizeof *name + strlen(text) + 1)) != NULL) {
        name->id = tensor;
        strcpy(name->text, text);
        bps_make_printable(name->text);
        HASH_ADD(hh, trace.names, id, sizeof tensor, name);
        if (name->hh.tbl == NULL) {
            free(name);
        }
    }
    pthread_mutex_unlock(&trace.lock);
}

void bps_trace_identify(const struct bps_trace_member *member)
{
    pthread_mutex_lock(&trace.lock);
    if (trace.identified && trace.member.job == member->job) {
        pthread_mutex_unlock(&trace.lock); /* a further member of the same process */
        return;
    }
    snprintf(trace.role, sizeof trace.role, "%s", member->role);
    snprintf(trace.host, sizeof trace.host, "%s", member->host);
    bps_make_printable(trace.host);
    trace.member = *member;
    trace.member.role = trace.role;
    trace.member.host = trace.host;
    trace.since = trace.identified ? bps_now() : trace.since; /* another job, of the same server */
    trace.identified = true;
    pthread_mutex_unlock(&trace.lock);
}

/* ---- the file ---- */

/* Neither names nor labels go while there is a timeline to be made. */
static const char *name_of(uint32_t id)
{
    const struct name *name;
    pthread_mutex_lock(&trace.lock);
    HASH_FIND(hh, trace.names, &id, sizeof id, name);
    pthread_mutex_unlock(&trace.lock);
    return name != NULL ? name->text : NULL;
}

static const char *trace_text_of(uint16_t label)
{
    pthread_mutex_lock(&trace.lock);
    const char *text = label < trace.labels ? trace.label[label] : "";
    pthread_mutex_unlock(&trace.lock);
    return text;
}

static void each_name(void (*fn)(void *arg, uint32_t id, const char *name), void *arg)
{
    pthread_mutex_lock(&trace.lock);
    for (const struct name *name = trace.names; name != NULL; name = name->hh.next) {
        fn(arg, name->id, name->text);
    }
    pthread_mutex_unlock(&trace.lock);
}

/* trace.json of worker 3 is trace.worker-3.json, and DIR/ is DIR/worker-3.json. */
static void own_path(char *path, size_t n)
{
    const char *slash = strrchr(trace.file, '/'), *base = slash != NULL ? slash + 1 : trace.file;
    const char *dot = strrchr(base, '.');
    size_t stem = dot != NULL && dot != base ? (size_t)(dot - trace.file) : strlen(trace.file);
    snprintf(path, n, "%.*s%s%s-%" PRIu32 "%s", (int)stem, trace.file, *base != '\0' ? "." : "", trace.role,
             trace.member.rank, trace.file[stem] != '\0' ? trace.file + stem : ".json");
}

static bool print_to(const char *path, const struct bps_trace_spans *spans, uint64_t lost)
{
    const struct bps_trace_words words = {&trace.member, name_of, trace_text_of, each_name, lost};
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    bps_trace_print(file, spans, &words);
    bool good = ferror(file) == 0;
    return fclose(file) == 0 && good;
}

/* Nobody ever sees half a file. */
static void write_spans(const struct bps_trace_spans *spans, uint64_t lost)
{
    char path[PATHS + 64], part[PATHS + 80];
    own_path(path, sizeof path);
    snprintf(part, sizeof part, "%s.part", path);
    if (!print_to(part, spans, lost) || rename(part, path) != 0) {
        bps_error(LOG, "cannot write the timeline %s: %s", path, strerror(errno));
        unlink(part);
    } else {
        bps_info(LOG, "the timeline is in %s", path);
    }
}

static void write_records(void)
{
    struct bps_trace_spans spans = {0};
    uint64_t lost;
    size_t n, from = 0;
    struct bps_trace_record *all = bps_ring_all(&n, &lost);
    while (from < n && all[from].at < trace.since) {
        from++;
    }
    if (all != NULL && bps_trace_pair(all + from, n - from, bps_now(), &spans) == BPS_OK) {
        write_spans(&spans, lost);
    } else if (all != NULL) {
        bps_error(LOG, "out of memory for the timeline");
    }
    bps_trace_spans_free(&spans);
    free(all);
}

static void *write_apart(void *arg)
{
    (void)arg;
    write_records();
    return NULL;
}

void bps_trace_write_soon(void)
{
    struct bps_report report;
    pthread_mutex_lock(&trace.lock);
    if (trace.identified && !trace.writing) {
        trace.writing = bps_thread_start(&trace.writer, "bps-trace", write_apart, NULL, &report) == BPS_OK;
    }
    pthread_mutex_unlock(&trace.lock);
}

void bps_trace_close(void)
{
    pthread_mutex_lock(&trace.lock);
    bool over = --trace.users == 0, writing = trace.writing;
    pthread_mutex_unlock(&trace.lock);
    if (!over || !bps_trace_is_on() || trace.process != getpid()) {
        return;
    }
    if (writing) {
        pthread_join(trace.writer, NULL);
    }
    if (trace.identified) {
        write_records();
    }
    atomic_store(&bps_trace_on, false);
    trace.writing = trace.identified = false;
}

/* A process that ends without leaving its job has failed: that is when its timeline is wanted most. */
static void on_exit_in_job(void)
{
    if (bps_trace_is_on() && trace.identified && trace.process == getpid()) {
        write_records();
    }
}

static void watch_exit(void)
{
    atexit(on_exit_in_job);
}

/* ---- opening ---- */

static void forget_names(void)
{
    struct name *name, *next;
    HASH_ITER(hh, trace.names, name, next) {
        HASH_DEL(trace.names, name);
        free(name);
    }
}

/* The folder of the file, which is made if it is not there. */
static bps_status check_folder(const char *file, struct bps_report *report)
{
    char folder[PATHS] = "./";
    for (const char *slash = strchr(file, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - file + 1), file);
        mkdir(folder, 0777); /* or it is there; else access() fails */
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return bps_fail(report, BPS_ERR_CONF, "trace.file = %s: the timeline cannot be written to %s: %s", file, folder,
                        strerror(errno));
    }
    return BPS_OK;
}

bps_status bps_trace_open(const char *file, uint64_t from, uint64_t to, struct bps_report *report)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bps_status status = file[0] != '\0' ? check_folder(file, report) : BPS_OK;
    if (status != BPS_OK) {
        return status;
    }
    pthread_once(&once, watch_exit);
    pthread_mutex_lock(&trace.lock);
    if (trace.users++ > 0) {
        pthread_mutex_unlock(&trace.lock);
        return BPS_OK;
    }
    snprintf(trace.file, sizeof trace.file, "%s", file);
    trace.process = getpid();
    trace.since = bps_now();
    forget_names();
    bps_trace_clock_forget();
    atomic_store(&first, from);
    atomic_store(&last, to);
    atomic_store(&highest, 0);
    atomic_store(&steps_ended, 0);
    atomic_store(&passed, false);
    atomic_store(&bps_trace_on, file[0] != '\0');
    pthread_mutex_unlock(&trace.lock);
    return BPS_OK;
}
