/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pmix.c - PMIx, by which the processes of Open MPI (and of srun --mpi=pmix) tell each other where they are: worker 0
 * puts the note, all of them pass a fence, then each can get it.
 *
 * The library is the launcher's, found at run time. It is begun once and ended with the process: a second beginning
 * after an end, also one by MPI_Init(), fails in releases that are in use. Structures are those of PMIx 2 to 5.
 */
#include "util/util.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY      "libpmix.so.2"
#define ALL_RANKS    (UINT32_MAX - 1) /* PMIX_RANK_WILDCARD */
#define SCOPE_GLOBAL 3                /* PMIX_GLOBAL */
#define TYPE_BOOL    1                /* PMIX_BOOL */
#define TYPE_STRING  3                /* PMIX_STRING */

struct proc {
    char nspace[256];
    uint32_t rank;
};

struct value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        char largest[64]; /* of any release */
    } data;
};

struct info {
    char key[512];
    uint32_t flags;
    struct value value;
};

typedef void (*fence_fn)(int status, void *arg);
typedef void (*value_fn)(int status, struct value *value, void *arg);

static struct {
    int (*init)(struct proc *self, struct info *info, size_t n);
    int (*finalize)(const struct info *info, size_t n);
    int (*put)(uint8_t scope, const char *key, struct value *value);
    int (*commit)(void);
    int (*fence)(const struct proc *procs, size_t nprocs, const struct info *info, size_t n, fence_fn fn, void *arg);
    int (*get)(const struct proc *proc, const char *key, const struct info *info, size_t n, value_fn fn, void *arg);
    const char *(*text)(int status);
    struct proc self;
    pid_t begun; /* the process that has; 0: none */
    char fenced[128];
} pmix;

/* What is being waited for. Answers may come when nobody waits any more: they have the number of their question. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    uintptr_t question;
    bool over;
    int status;
    char note[BPS_LAUNCHER_NOTE_BYTES];
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool recognise(void)
{
    return getenv("PMIX_RANK") != NULL && getenv("PMIX_NAMESPACE") != NULL;
}

/* ---- the library ---- */

static bps_status load(struct bps_report *report)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"PMIx_Init", &pmix.init},        {"PMIx_Finalize", &pmix.finalize}, {"PMIx_Put", &pmix.put},
                   {"PMIx_Commit", &pmix.commit},    {"PMIx_Fence_nb", &pmix.fence},    {"PMIx_Get_nb", &pmix.get},
                   {"PMIx_Error_string", &pmix.text}};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            library = NULL;
        }
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    if (library == NULL) {
        return launcher_fail(
            report, BPS_ERR_PLUGIN,
            "%s; install it (on Debian the package libpmix2), or set cluster.scheduler = \"HOST:PORT\" and "
            "run `byteps scheduler` there",
            dlerror());
    }
    return BPS_OK;
}

/* The launcher takes a process that does not say so for one that has failed. */
static void end(void)
{
    if (pmix.begun == getpid()) {
        pmix.finalize(NULL, 0);
    }
}

static bps_status begin(struct bps_report *report)
{
    pthread_condattr_t monotonic;
    bps_status status = pmix.begun != 0 ? BPS_OK : load(report);
    if (status != BPS_OK || pmix.begun != 0) {
        return status;
    }
    int code = pmix.init(&pmix.self, NULL, 0);
    if (code != 0) {
        return launcher_fail(report, BPS_ERR_IO, "PMIx_Init: %s", pmix.text(code));
    }
    pmix.begun = getpid();
    atexit(end);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&waiting.answered, &monotonic);
    return BPS_OK;
}

/* ---- waiting ---- */

static void *ask(void)
{
    pthread_mutex_lock(&waiting.lock);
    void *question = (void *)++waiting.question; // NOLINT: a number
    waiting.over = false;
    pthread_mutex_unlock(&waiting.lock);
    return question;
}

static void answer(int status, const char *note, void *question)
{
    pthread_mutex_lock(&waiting.lock);
    if ((uintptr_t)question == waiting.question && !waiting.over) {
        waiting.over = true;
        waiting.status = status;
        snprintf(waiting.note, sizeof waiting.note, "%s", note);
        pthread_cond_signal(&waiting.answered);
    }
    pthread_mutex_unlock(&waiting.lock);
}

static void on_fence(int status, void *question)
{
    answer(status, "", question);
}

static void on_value(int status, struct value *value, void *question)
{
    bool text = status == 0 && value != NULL && value->type == TYPE_STRING && value->data.string != NULL;
    answer(status, text ? value->data.string : "", question);
}

/* `code` is what the call has answered that asked. */
static bps_status wait_until(uint64_t until, const char *call, int code, struct bps_report *report)
{
    const struct timespec end_of_it = {.tv_sec = (time_t)(until / LAUNCHER_S), .tv_nsec = (long)(until % LAUNCHER_S)};
    int error = 0;
    if (code != 0) {
        return launcher_fail(report, BPS_ERR_IO, "%s: %s", call, pmix.text(code));
    }
    pthread_mutex_lock(&waiting.lock);
    while (!waiting.over && error == 0) {
        error = pthread_cond_timedwait(&waiting.answered, &waiting.lock, &end_of_it);
    }
    bool over = waiting.over;
    code = waiting.status;
    pthread_mutex_unlock(&waiting.lock);
    if (!over) {
        return launcher_fail(report, BPS_ERR_TIMEOUT, "not all processes of mpirun have called bps_init() yet (%s)",
                             call);
    }
    return code == 0 ? BPS_OK : launcher_fail(report, BPS_ERR_IO, "%s: %s", call, pmix.text(code));
}

/* Once for each key, whatever becomes of it: all processes pass it together. */
static bps_status pass_fence(const char *key, uint64_t until, struct bps_report *report)
{
    static const struct info collect = {.key = "pmix.collect", .value = {.type = TYPE_BOOL, .data.flag = true}};
    struct proc all = pmix.self;
    all.rank = ALL_RANKS;
    int code = 0;
    if (strcmp(pmix.fenced, key) != 0) {
        snprintf(pmix.fenced, sizeof pmix.fenced, "%s", key);
        code = pmix.fence(&all, 1, &collect, 1, on_fence, ask());
    }
    return wait_until(until, "PMIx_Fence", code, report);
}

/* ---- the place ---- */

static bps_status leave(void *instance, const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    bps_status status = begin(report);
    char *copy = strdup(note);
    struct value value = {.type = TYPE_STRING, .data.string = copy};
    if (status == BPS_OK && copy != NULL) {
        int code = pmix.put(SCOPE_GLOBAL, key, &value);
        code = code == 0 ? pmix.commit() : code;
        status = code == 0 ? pass_fence(key, until, report)
                           : launcher_fail(report, BPS_ERR_IO, "PMIx_Put: %s", pmix.text(code));
    }
    free(copy);
    return status;
}

static bps_status find(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    bps_status status = begin(report);
    if (status == BPS_OK) {
        status = pass_fence(key, until, report);
    }
    if (status == BPS_OK) {
        struct proc first = pmix.self;
        first.rank = 0;
        status = wait_until(until, "PMIx_Get", pmix.get(&first, key, NULL, 0, on_value, ask()), report);
    }
    if (status == BPS_OK) {
        pthread_mutex_lock(&waiting.lock);
        memcpy(note, waiting.note, BPS_LAUNCHER_NOTE_BYTES);
        pthread_mutex_unlock(&waiting.lock);
    }
    return status;
}

static const struct bps_launcher_ops ops = {
    .size = sizeof ops,
    .open = launcher_open_nothing,
    .close = launcher_close_nothing,
    .order = 200,
    .place = "PMIx",
    .recognise = recognise,
    .leave = leave,
    .find = find,
};

BPS_LAUNCHER_NOTE("PMIX_RANK");
BPS_PLUGIN_MODULE(BPS_KIND_LAUNCHER, "pmix", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "PMIx, of mpirun of Open MPI and srun --mpi=pmix", .ops = &ops, .format = 1);
