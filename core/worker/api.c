/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.c - the functions of byteps.h: one job per process, found by every thread, stopped in forked children.
 *
 * Each call counts itself among the users of the job, so that shutdown can wait until the last one has gone.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/elastic.h>
#include <byteps/framework.h>
#include <byteps/groups.h>

#include "base/log.h"
#include "base/report.h"
#include "base/sized.h"
#include "coded/coded.h"
#include "conf/layer.h"
#include "flow/flow.h"
#include "group/local.h"
#include "plugin/memory.h"
#include "trace/trace.h"
#include "worker/api.h"
#include "worker/at_exit.h"
#include "worker/meet.h"
#include "worker/metrics.h"
#include "worker/options.h"
#include "worker/outcome.h"
#include "worker/worker.h"

/* How long what is to be kept of a job waits for the operations in flight: as long as leaving does. */
#define DRAIN_STEP_US 1000u
#define DRAIN_STEPS   5000u

/* Guards beginning and ending a job, and what is remembered while it is suspended. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static struct bps_conf *conf;
static int32_t place = -1;          /* this worker's rank in the job, or what it had before a reform */
static struct bps_hosting *hosting; /* of the job's scheduler; NULL: another process does */
static struct remembered {
    struct bps_declaration declaration; /* with a name, a shape and a coding that are owned */
    void *state;                        /* what coding has left; owned */
    size_t state_bytes;
} *suspended;
static size_t suspended_count;

static struct bps_worker *_Atomic current;
static _Atomic uint32_t users;
static _Atomic bool alive; /* there is a job, or it begins, or ends */
static _Atomic bool forked;

static bps_status no_job(struct bps_report *report)
{
    BPS_REPORT(report, "%s",
               atomic_load(&forked) ? "this is a forked child of a byteps process; only its parent is in the job"
                                    : "BytePS has not been initialized; call init first");
    return BPS_ERR_STATE;
}

/* What every function of byteps.h with a report returns. */
static bps_status told(bps_status status, struct bps_report *report)
{
    if (status < 0 && report != NULL) {
        bps_make_printable(report->text);
    }
    return status;
}

/* The job, counted as used until api_release(); NULL and a report if there is none. */
static struct bps_worker *acquire(struct bps_report *report)
{
    atomic_fetch_add(&users, 1);
    struct bps_worker *worker = atomic_load(&current);
    if (worker == NULL || atomic_load_explicit(&forked, memory_order_relaxed)) {
        atomic_fetch_sub(&users, 1);
        no_job(report);
        return NULL;
    }
    return worker;
}

static void api_release(void)
{
    atomic_fetch_sub(&users, 1);
}

struct bps_worker *bps_api_acquire(struct bps_report *report)
{
    return acquire(report);
}

void bps_api_release(void)
{
    api_release();
}

/* ---- fork ---- */

static void api_in_child(void)
{
    bool job = atomic_load(&alive);
    bps_memory_in_child(job);
    bps_outcomes_in_child();
    bps_loops_close_after_fork(); /* a scheduler's and a server's, too */
    bps_meet_in_child();
    if (job) {
        atomic_store(&forked, true);
    } else {
        /* Threads that were about to find out that there is no job, or to begin one, are not here. */
        atomic_store(&users, 0);
        pthread_mutex_init(&life, NULL);
    }
}

/* Before any thread can begin a job: a fork that is under way does not call what is registered meanwhile. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, api_in_child);
}

/* ---- life ---- */

static void api_forget(void)
{
    for (size_t i = 0; i < suspended_count; i++) {
        free((char *)(uintptr_t)suspended[i].declaration.name);
        free((char *)(uintptr_t)suspended[i].declaration.coding);
        free((int64_t *)(uintptr_t)suspended[i].declaration.shape);
        free(suspended[i].state);
    }
    free(suspended);
    suspended = NULL;
    suspended_count = 0;
}

/* What its declaration has asked for; owned. NULL: nothing, or no memory. */
static char *choice_of(const struct bps_tensor_entry *tensor)
{
    return tensor->named.words == NULL ? NULL : strdup(tensor->named.choice != NULL ? tensor->named.choice->text : "");
}

/* Takes name, form and state of a tensor, whose worker has left, away from it. */
static struct remembered api_take(struct bps_tensor_entry *tensor)
{
    const struct bps_form form = tensor->named.form;
    const size_t size = bps_dtype_size(form.dtype);
    const struct remembered taken = {
        .declaration = {.size = sizeof taken.declaration,
                        .name = tensor->named.name,
                        .dtype = form.dtype,
                        .count = size > 0 ? form.bytes / size : 0,
                        .ndim = form.ndim,
                        .shape = form.shape,
                        .coding = choice_of(tensor),
                        .mode = tensor->named.mode},
        .state = tensor->saved,
        .state_bytes = tensor->saved_bytes,
    };
    tensor->named.form.shape = NULL;
    tensor->named.name = NULL;
    tensor->saved = NULL;
    return taken;
}

/* Keeps the names and sizes of the worker's tensors in the order of their declaration. */
static bps_status remember(struct bps_worker *worker)
{
    uint32_t n = atomic_load(&worker->names.count);
    api_forget();
    suspended = calloc(n, sizeof *suspended);
    if (suspended == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (bps_tensor slot = 1; slot < n; slot++) {
        struct bps_tensor_entry *tensor = bps_tensor_at(worker, slot);
        if (!tensor->named.unnamed) {
            suspended[suspended_count++] = api_take(tensor);
        }
    }
    return BPS_OK;
}

static bps_status load_conf(const struct bps_init_options *options, struct bps_report *report)
{
    bps_status status = bps_options_load(options, NULL, &conf, report);
    if (status == BPS_OK && conf->cluster.role != BPS_ROLE_WORKER) {
        BPS_REPORT(report, "cluster.role is not worker; start servers by `byteps server` and schedulers by "
                           "`byteps scheduler`");
        return BPS_ERR_CONF;
    }
    return status;
}

/*
 * Frees a worker that has left (NULL: there is none) and the configuration. The job fails for the others with `why`;
 * NULL: it goes on, and a scheduler that is hosted here as long as it does.
 */
static void api_finish(struct bps_worker *worker, const char *why)
{
    if (worker != NULL) {
        bps_worker_free(worker);
    }
    bps_hosting_end(hosting, why);
    hosting = NULL;
    bps_meet_end();
    bps_conf_free(conf);
    conf = NULL;
    place = -1;
    atomic_store(&alive, false);
}

static void warn(void *arg, const char *text)
{
    (void)arg;
    bps_warn("conf", "%s", text);
}

/* What is wrong with the variables of the original, once and by one process for all. */
static void warn_of_variables(const struct bps_worker *worker)
{
    static bool warned;
    if (worker->job.rank == 0 && !warned) {
        warned = true;
        bps_environment_notes(warn, NULL);
    }
}

/* The tensors of a job that was suspended. */
static bps_status declare_suspended(struct bps_worker *worker, struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (size_t i = 0; i < suspended_count && status == BPS_OK; i++) {
        struct remembered *r = &suspended[i];
        bps_tensor slot;
        status = bps_worker_declare(worker, &r->declaration, 1, &slot, report);
        if (status == BPS_OK) {
            pthread_mutex_lock(&worker->names.lock);
            bps_tensor_replace_state(bps_tensor_at(worker, slot), r->state, r->state_bytes);
            pthread_mutex_unlock(&worker->names.lock);
            r->state = NULL;
        }
    }
    return status;
}

/* The configuration and the way to the scheduler are known. */
static bps_status join_job(struct bps_worker **out, struct bps_report *report)
{
    bps_status status;
    *out = NULL;
    do {
        report->text[0] = '\0';
        status = bps_worker_new(conf, &place, out, report);
    } while (status == BPS_ERR_MEMBERSHIP);
    return status == BPS_OK ? declare_suspended(*out, report) : status;
}

bps_status bps_init(const struct bps_init_options *options, struct bps_report *report)
{
    struct bps_worker *worker = NULL;
    struct bps_report own = {""}, *why = report != NULL ? report : &own;
    bps_status status = BPS_OK;
    if (atomic_load(&forked)) {
        return no_job(report);
    }
    pthread_mutex_lock(&life);
    if (atomic_load(&current) == NULL) {
        atomic_store(&alive, true);
        bps_halt_loops_at_exit();
        why->text[0] = '\0';
        status = load_conf(options, why);
        if (status == BPS_OK) {
            status = bps_meet(conf, &hosting, why);
        }
        if (status == BPS_OK) {
            status = join_job(&worker, why);
        }
        if (status == BPS_OK) {
            atomic_store(&current, worker);
            warn_of_variables(worker);
        } else {
            api_finish(worker, why->text[0] != '\0' ? why->text : bps_strerror(status));
        }
    }
    pthread_mutex_unlock(&life);
    return told(status, report);
}

/* What coding has left of the tensors, as bytes that outlive the job. */
static void save_states(struct bps_worker *worker)
{
    pthread_mutex_lock(&worker->names.lock); /* who declares now has ended before, or is refused */
    atomic_store(&worker->closing, true);
    pthread_mutex_unlock(&worker->names.lock);
    for (uint32_t i = 0; i < DRAIN_STEPS && atomic_load(&worker->in_flight) > 0; i++) {
        usleep(DRAIN_STEP_US);
    }
    for (bps_tensor slot = 1; slot < atomic_load(&worker->names.count); slot++) {
        struct bps_tensor_entry *tensor = bps_tensor_at(worker, slot);
        struct bps_writer state;
        bps_writer_init(&state);
        if (!tensor->named.unnamed && tensor->named.coding != NULL && bps_state_save(tensor, &state, NULL) == BPS_OK) {
            bps_tensor_replace_state(tensor, state.data, state.size);
        } else {
            bps_writer_fini(&state);
        }
    }
}

/* The worker leaves its job, and nobody uses it any more. The operations in flight end before this. */
static bps_status let_worker_go(struct bps_worker *worker, bool keep_names, bool reform, struct bps_report *report)
{
    if (keep_names) {
        save_states(worker);
    }
    bps_status status = bps_worker_leave(worker, reform, report);
    bps_outcomes_begin();
    atomic_store(&current, NULL);
    while (atomic_load(&users) > 0) {
        usleep(100); /* a call that began before is about to return */
    }
    bps_outcomes_end(worker);
    if (keep_names) {
        bps_status kept = remember(worker);
        return status == BPS_OK ? kept : status;
    }
    api_forget();
    return status;
}

/* Ends the job, so that nobody sleeps in it any more. */
static bps_status api_end_job(bool keep_names, struct bps_report *report)
{
    if (atomic_load(&forked)) {
        return no_job(report);
    }
    pthread_mutex_lock(&life);
    struct bps_worker *worker = atomic_load(&current);
    if (worker == NULL) {
        pthread_mutex_unlock(&life);
        return no_job(report);
    }
    bps_resume_loops();
    bps_status status = let_worker_go(worker, keep_names, false, report);
    api_finish(worker, NULL);
    bps_log_set_identity("");
    pthread_mutex_unlock(&life);
    return told(status, report);
}

bps_status bps_shutdown(struct bps_report *report)
{
    return api_end_job(false, report);
}

bps_status bps_suspend(struct bps_report *report)
{
    return api_end_job(true, report);
}

/* ---- members that come and go ---- */

/* With the lock of `life`. */
static bps_status reform_job(struct bps_worker *worker, struct bps_report *why)
{
    bps_status status = let_worker_go(worker, true, true, why);
    bps_worker_free(worker);
    worker = NULL;
    if (status == BPS_OK) {
        status = join_job(&worker, why);
    }
    if (status == BPS_OK) {
        atomic_store(&current, worker);
    } else {
        api_finish(worker, why->text[0] != '\0' ? why->text : bps_strerror(status));
    }
    return status;
}

bps_status bps_reform(struct bps_report *report)
{
    struct bps_report own = {""}, *why = report != NULL ? report : &own;
    if (atomic_load(&forked)) {
        return no_job(report);
    }
    pthread_mutex_lock(&life);
    struct bps_worker *worker = atomic_load(&current);
    bps_status status;
    if (worker == NULL) {
        status = no_job(report);
    } else if (worker->conf->cluster.min_workers == 0) {
        status = bps_fail(why, BPS_ERR_UNSUPPORTED, "the job is not elastic: set cluster.min_workers for all members");
    } else if (bps_worker_alone(worker)) {
        status = BPS_OK;
    } else {
        status = reform_job(worker, why);
    }
    pthread_mutex_unlock(&life);
    return told(status, report);
}

int bps_members_wait(void)
{
    struct bps_worker *worker = acquire(NULL);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    uint32_t waiting = atomic_load_explicit(&worker->newcomers, memory_order_relaxed);
    api_release();
    return (int)waiting;
}

/* ---- who am I ---- */

/* All of this is fixed while a job exists. False: there is none. */
static bool who_am_i(struct bps_job_info *job)
{
    const struct bps_worker *worker = acquire(NULL);
    if (worker == NULL) {
        return false;
    }
    *job = worker->job;
    api_release();
    return true;
}

#define DEFINE_NUMBER(function, member)                                                                                \
    int function(void)                                                                                                 \
    {                                                                                                                  \
        struct bps_job_info job;                                                                                       \
        return who_am_i(&job) ? (int)job.member : BPS_ERR_STATE;                                                       \
    }
DEFINE_NUMBER(bps_rank, rank)
DEFINE_NUMBER(bps_size, size)
DEFINE_NUMBER(bps_local_rank, local_rank)
DEFINE_NUMBER(bps_local_size, local_size)
DEFINE_NUMBER(bps_cross_rank, cross_rank)
DEFINE_NUMBER(bps_cross_size, cross_size)
DEFINE_NUMBER(bps_is_homogeneous, homogeneous)

int bps_group_size(void)
{
    struct bps_worker *worker = acquire(NULL);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    uint32_t size = bps_local_has_peers(worker->local) ? worker->local->size : 1;
    api_release();
    return (int)size;
}

int bps_is_forked(void)
{
    return atomic_load(&forked);
}

void bps_step(void)
{
    if (bps_trace_is_on()) {
        bps_trace_step();
    }
}

bps_status bps_conf(const char *key, char *buf, size_t n)
{
    struct bps_worker *worker = acquire(NULL);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    const struct bps_conf_node *node = key != NULL ? bps_conf_find(worker->conf, key) : NULL;
    if (node != NULL && node->text != NULL && n > 0) {
        snprintf(buf, n, "%s", node->text);
    }
    api_release();
    return node != NULL && node->text != NULL && n > 0 ? BPS_OK : BPS_ERR_INVALID;
}

/* ---- tensors ---- */

bps_status bps_declare(const struct bps_declaration *declarations, size_t n, bps_tensor *out, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = bps_worker_declare(worker, declarations, n, out, report);
    api_release();
    return told(status, report);
}

/* Takes the operation of a named tensor: nothing of it is in flight then. The lock is held. */
static bps_status claim(struct bps_tensor_entry *tensor, struct bps_report *report)
{
    if (!bps_operation_claim(&tensor->operation)) {
        BPS_REPORT(report, "tensor '%s' is in flight; wait for it first", tensor->named.name);
        return BPS_ERR_BUSY;
    }
    return BPS_OK;
}

bps_status bps_save_feedback(const char *name, void **state, size_t *bytes, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    struct bps_tensor_entry *tensor;
    struct bps_writer w;
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_writer_init(&w);
    pthread_mutex_lock(&worker->names.lock);
    tensor = bps_tensor_known(worker, name);
    bps_status status = tensor != NULL ? claim(tensor, report) : BPS_OK;
    pthread_mutex_unlock(&worker->names.lock);
    if (status == BPS_OK && tensor != NULL) {
        status = bps_state_save(tensor, &w, report);
        bps_operation_unclaim(&tensor->operation);
    }
    api_release();
    if (status != BPS_OK) {
        bps_writer_fini(&w);
        return told(status, report);
    }
    *state = w.data;
    *bytes = w.size;
    return BPS_OK;
}

bps_status bps_load_feedback(const char *name, const void *state, size_t bytes, struct bps_report *report)
{
    bps_status status = bytes > 0 ? bps_state_check(state, bytes, report) : BPS_OK;
    struct bps_worker *worker = status == BPS_OK ? acquire(report) : NULL;
    if (worker == NULL) {
        return status != BPS_OK ? status : BPS_ERR_STATE;
    }
    void *copy = bytes > 0 ? malloc(bytes) : NULL;
    pthread_mutex_lock(&worker->names.lock);
    struct bps_tensor_entry *tensor = copy != NULL || bytes == 0 ? bps_tensor_named(worker, name, report) : NULL;
    status = tensor != NULL ? claim(tensor, report) : BPS_ERR_NOMEM;
    pthread_mutex_unlock(&worker->names.lock);
    if (status == BPS_OK) {
        if (bytes > 0) {
            memcpy(copy, state, bytes);
        }
        bps_tensor_replace_state(tensor, copy, bytes);
        bps_operation_unclaim(&tensor->operation);
    } else {
        free(copy);
    }
    api_release();
    return told(status, report);
}

bps_status bps_forget(const char *const *names, size_t n, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    for (size_t i = 0; i < n; i++) {
        bps_worker_forget(worker, names[i]);
    }
    api_release();
    return BPS_OK;
}

uint64_t bps_pushed_bytes(void)
{
    return bps_operation_pushed();
}

uint64_t bps_coded_bytes(uint64_t *plain)
{
    uint64_t before, coded = bps_coding_total(&before);
    if (plain != NULL) {
        *plain = before;
    }
    return coded;
}

bps_status bps_lateness(uint32_t rank, struct bps_worker_lateness *out, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    struct bps_worker_lateness own = {.size = sizeof own};
    bps_status status = bps_metrics_lateness(worker, rank, &own, report);
    api_release();
    if (status == BPS_OK) {
        status = BPS_SIZED_OUT(bps_worker_lateness, out, &own, report);
    }
    return told(status, report);
}

static inline bps_status api_start(const struct bps_push_pull *request, const struct bps_call *call, bps_handle *out,
                                   struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = bps_operation_start(worker, request, call, out, report);
    api_release();
    return told(status, report);
}

static inline bps_status api_run(const struct bps_push_pull *request, const struct bps_call *call, uint64_t timeout_ns,
                                 bps_handle *out, struct bps_report *report)
{
    bps_handle spare;
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_rounds_wait(worker);
    bps_status status = bps_operation_run(worker, request, call, timeout_ns, out != NULL ? out : &spare, report);
    bps_rounds_go_on(worker);
    api_release();
    return told(status, report);
}

/* The members of its process group take part in a call, which has it already if it is a message. */
static bps_status find_group(struct bps_worker *worker, const struct bps_push_pull *r, struct bps_call *call,
                             struct bps_report *report)
{
    bps_status status = call->group == NULL ? bps_process_group_use(worker, r->group, &call->group, report) : BPS_OK;
    const struct bps_process_group *group = call->group;
    if (call->blocks != NULL) {
        call->blocks->ranks = group != NULL ? group->n : worker->job.size;
        call->blocks->own = group != NULL ? group->own : worker->job.rank;
    }
    if (status != BPS_OK || group == NULL) {
        return status;
    }
    if (r->name != NULL || r->tensor != 0 || r->rows != NULL) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED, "an operation of a process group takes no name and no rows");
    }
    if (group->own == UINT32_MAX) {
        return bps_fail(report, BPS_ERR_INVALID, "worker %u is not a member of process group %u", worker->job.rank,
                        group->id);
    }
    return BPS_OK;
}

/* Finds out who takes part in a call, and what they do. */
static bps_status prepare_call(struct bps_worker *worker, const struct bps_push_pull *request, struct bps_call *call,
                               bps_complete_fn complete, struct bps_report *report)
{
    bps_status status = find_group(worker, request, call, report);
    return status == BPS_OK && complete != NULL ? complete(worker, call, report) : status;
}

bps_status bps_api_start(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                         bps_handle *out, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = prepare_call(worker, request, call, complete, report);
    if (status == BPS_OK) {
        status = api_start(request, call, out, report);
    }
    bps_process_group_leave(call->group);
    api_release();
    return status;
}

bps_status bps_api_run(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                       uint64_t timeout_ns, bps_handle *out, struct bps_report *report)
{
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = prepare_call(worker, request, call, complete, report);
    if (status == BPS_OK) {
        status = api_run(request, call, timeout_ns, out, report);
    }
    bps_process_group_leave(call->group);
    api_release();
    return status;
}

/* Before anything else of it is read: *request becomes one that this version has made, which may be *own. */
static inline bps_status know(const struct bps_push_pull **request, struct bps_push_pull *own,
                              struct bps_report *report)
{
    if (*request != NULL && (*request)->size == sizeof **request) {
        return BPS_OK;
    }
    bps_status status = BPS_SIZED(bps_push_pull, *request, own, report);
    *request = own;
    return status;
}

/* A broadcast has its own function. */
static uint32_t plain_op(const struct bps_push_pull *request)
{
    return request->op < BPS_OPS ? request->op : BPS_WIRE_OPS;
}

bps_status bps_push_pull_async(const struct bps_push_pull *request, bps_handle *out, struct bps_report *report)
{
    struct bps_push_pull own;
    bps_status status = know(&request, &own, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_call call = {.op = plain_op(request)};
    return request->group == 0 ? api_start(request, &call, out, report)
                               : bps_api_start(request, &call, NULL, out, report);
}

bps_status bps_push_pull(const struct bps_push_pull *request, uint64_t timeout_ns, bps_handle *out,
                         struct bps_report *report)
{
    struct bps_push_pull own;
    bps_status status = know(&request, &own, report);
    if (status != BPS_OK) {
        return status;
    }
    if (request->done != NULL || (out == NULL && timeout_ns != BPS_FOREVER)) {
        BPS_REPORT(report, "bps_push_pull() blocks: done must be NULL, and with a timeout out must not be");
        return BPS_ERR_INVALID;
    }
    struct bps_call call = {.op = plain_op(request)};
    return request->group == 0 ? api_run(request, &call, timeout_ns, out, report)
                               : bps_api_run(request, &call, NULL, timeout_ns, out, report);
}

/*
 * It goes as one block where each worker sums alone. What has a name, or rows, is no block. Nor is one whose root there
 * is not: as a plain one it fails for all.
 */
static bps_status complete_broadcast(const struct bps_worker *worker, struct bps_call *call, struct bps_report *report)
{
    struct bps_push_pull *r = call->blocks->request;
    bool has_root = call->root < call->blocks->ranks, fails = !has_root && call->group == NULL;
    bps_status status = r->rows == NULL && !fails ? bps_blocks_check(call, r, report) : BPS_OK;
    if (!worker->job.apart || !has_root || r->name != NULL || r->tensor != 0 || r->rows != NULL) {
        call->kind = BPS_KIND_BROADCAST;
        call->blocks = NULL;
    }
    return status;
}

bps_status bps_broadcast_async(const struct bps_push_pull *request, uint32_t root, bps_handle *out,
                               struct bps_report *report)
{
    struct bps_push_pull plain;
    bps_status status = BPS_SIZED(bps_push_pull, request, &plain, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_call_blocks block = {.in_count = plain.count, .out_count = plain.count, .request = &plain};
    struct bps_call call = {.op = BPS_WIRE_BROADCAST, .kind = BPS_KIND_BLOCK_BROADCAST, .root = root, .blocks = &block};
    plain.prescale = plain.postscale = 1.0;
    return bps_api_start(&plain, &call, complete_broadcast, out, report);
}

/* A push_pull of nothing: it ends when all workers have started it. */
static struct bps_push_pull nothing(uint32_t group, bps_done_fn done, void *arg)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .dtype = BPS_UINT8,
        .op = BPS_SUM,
        .prescale = 1.0,
        .postscale = 1.0,
        .done = done,
        .arg = arg,
        .group = group,
    };
}

bps_status bps_group_barrier_async(uint32_t group, bps_done_fn done, void *arg, bps_handle *out,
                                   struct bps_report *report)
{
    const struct bps_push_pull request = nothing(group, done, arg);
    struct bps_call call = {.op = BPS_SUM, .barrier = true};
    return bps_api_start(&request, &call, NULL, out, report);
}

bps_status bps_group_barrier(uint32_t group, struct bps_report *report)
{
    const struct bps_push_pull request = nothing(group, NULL, NULL);
    struct bps_call call = {.op = BPS_SUM, .barrier = true};
    return bps_api_run(&request, &call, NULL, BPS_FOREVER, NULL, report);
}

bps_status bps_barrier_async(bps_done_fn done, void *arg, bps_handle *out, struct bps_report *report)
{
    return bps_group_barrier_async(0, done, arg, out, report);
}

bps_status bps_barrier(struct bps_report *report)
{
    return bps_group_barrier(0, report);
}

/* A handle is of the job that there is, or of the last one that has ended. */
bps_status bps_poll(bps_handle handle)
{
    bps_status status;
    if (bps_outcomes_unread() && bps_outcome_look(handle, &status)) {
        return status;
    }
    struct bps_worker *worker = acquire(NULL);
    if (worker == NULL) {
        return bps_outcome_look(handle, &status) ? status : BPS_ERR_STATE;
    }
    status = bps_operation_poll(worker, handle);
    api_release();
    return status;
}

bps_status bps_wait(bps_handle handle, uint64_t timeout_ns, struct bps_report *report)
{
    bps_status status;
    if (bps_outcomes_unread() && bps_outcome_take(handle, &status, report)) {
        return status;
    }
    struct bps_worker *worker = acquire(report);
    if (worker == NULL) {
        return bps_outcome_take(handle, &status, report) ? status : BPS_ERR_STATE;
    }
    bool waits = worker->rounds != NULL && bps_operation_poll(worker, handle) == BPS_INPROGRESS;
    if (waits) {
        bps_rounds_wait(worker);
    }
    status = bps_operation_wait(worker, handle, timeout_ns, report);
    if (waits) {
        bps_rounds_go_on(worker);
    }
    api_release();
    return told(status, report);
}

/* ---- bindings ---- */

bps_status bps_binding_register(const struct bps_binding *binding, struct bps_report *report)
{
    if (binding == NULL || binding->size < BPS_LEAST(bps_binding) || binding->abi != BPS_BINDING_ABI) {
        BPS_REPORT(report,
                   "the binding '%s' was built for binding ABI %u, this is byteps %s with ABI %u; "
                   "install binding and library from the same version",
                   binding != NULL ? binding->name : "?", binding != NULL ? binding->abi : 0, bps_version(),
                   BPS_BINDING_ABI);
        return BPS_ERR_PLUGIN;
    }
    bps_debug("binding", "%s %s for %s", binding->name, binding->version, binding->framework);
    return BPS_OK;
}
