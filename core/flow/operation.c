/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.c - one push_pull from the caller's view: start, poll, wait; and its end.
 *
 * A tensor has room for one operation. The state word is taken by whoever starts it and given back by whoever
 * reads the result, so that starting and waiting need neither a lock nor memory.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/report.h"
#include "base/tensor.h"
#include "flow/step.h"
#include "flow/sparse.h"
#include "flow/traced.h"

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* ---- start ---- */

/* The number of a use, which differs from all that this process has had for a long time, and from 0. */
static uint32_t new_use(void)
{
    const uint32_t numbers = UINT32_MAX / BPS_OP_USE;
    static _Atomic uint64_t uses;
    return (uint32_t)(atomic_fetch_add_explicit(&uses, 1, memory_order_relaxed) % numbers + 1) * BPS_OP_USE;
}

static bps_status operation_check_request(const struct bps_worker *worker, const struct bps_push_pull *r,
                                          const struct bps_call *call, struct bps_report *report)
{
    uint32_t op = call->op;
    bps_status status = bps_names_check_form(&worker->names, r->dtype, r->count, r->ndim, r->shape, report);
    if (status != BPS_OK) {
        return status;
    }
    if (op >= BPS_WIRE_OPS) {
        BPS_REPORT(report, "%u is not a known operation", r->op);
        return BPS_ERR_INVALID;
    }
    bool sums = op < BPS_OPS;
    if (r->rows != NULL) {
        status = bps_sparse_check(worker, r, op, report);
    } else if (r->count > 0 && (r->out == NULL || (r->in == NULL && sums)) && !bps_call_has_blocks(call)) {
        BPS_REPORT(report, "in or out is NULL");
        status = BPS_ERR_INVALID;
    }
    if (status != BPS_OK) {
        return status;
    }
    bool scaled = (r->prescale != 1.0 || r->postscale != 1.0) && sums;
    if (scaled && (r->dtype == BPS_BOOL || !isfinite(r->prescale) || !isfinite(r->postscale))) {
        BPS_REPORT(report, "the scale factors %g and %g cannot be used: %s", r->prescale, r->postscale,
                   r->dtype == BPS_BOOL ? "bool cannot be scaled" : "they must be finite");
        return BPS_ERR_INVALID;
    }
    if (op == BPS_AVERAGE && r->dtype == BPS_BOOL) {
        BPS_REPORT(report, "bool has no average; use sum (or), product (and), min or max");
        return BPS_ERR_UNSUPPORTED;
    }
    return r->device.type != BPS_DEVICE_HOST ? worker->memory_ops->check(worker, &r->device, report) : BPS_OK;
}

/* What it may have been at before. */
static bool may_become(enum bps_phase before, enum bps_phase phase)
{
    static const uint8_t allowed[] = {
        [BPS_PHASE_OFF] = 0xff,
        [BPS_PHASE_PENDING] = 1 << BPS_PHASE_OFF | 1 << BPS_PHASE_DEVICE | 1 << BPS_PHASE_REPORTED |
                              1 << BPS_PHASE_CHANGING, /* without memory for the tasks that are refused */
        [BPS_PHASE_DEVICE] = 1 << BPS_PHASE_PENDING,
        [BPS_PHASE_REPORTED] = 1 << BPS_PHASE_ASKING | 1 << BPS_PHASE_RUNNING | 1 << BPS_PHASE_CHANGING,
        [BPS_PHASE_ASKING] = 1 << BPS_PHASE_RUNNING,
        [BPS_PHASE_RUNNING] = 1 << BPS_PHASE_PENDING | 1 << BPS_PHASE_ASKING,
        [BPS_PHASE_CHANGING] = 1 << BPS_PHASE_RUNNING,
    };
    return (allowed[phase] >> before & 1) != 0;
}

void bps_operation_become(struct bps_operation *operation, enum bps_phase phase)
{
    bps_assert(may_become(operation->phase, phase));
    operation->phase = phase;
}

/* [core] Where unnamed tensors in flight are found: those of a group have their own numbers. */
static struct bps_tensor_entry **ids_of(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return operation->group != NULL ? &operation->group->ids : &tensor->worker->ids;
}

static void operation_arrive(struct bps_post *post)
{
    struct bps_operation *operation = (struct bps_operation *)post;
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    bps_operation_become(operation, BPS_PHASE_PENDING);
    operation->waited = operation->held = 0;
    operation->told = false;
    if (tensor->named.unnamed) {
        struct bps_tensor_entry **ids = ids_of(operation);
        HASH_ADD(by_id, *ids, id, sizeof tensor->id, tensor);
    }
    TAILQ_INSERT_TAIL(&worker->operations, operation, entry);
    if (tensor->named.unnamed && tensor->by_id.tbl == NULL) { /* nothing that the others send would find it */
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    if (worker->failure != BPS_OK) {
        bps_operation_error(operation, worker->failure, worker->failure_text);
        bps_operation_end(operation);
    } else if (worker->phase >= BPS_WORKER_DRAINING) {
        bps_operation_error(operation, BPS_ERR_STATE, "the worker is shutting down");
        bps_operation_end(operation);
    } else if (tensor->id != 0) {
        bps_tasks_begin(operation);
    } else {
        bps_declare_later(tensor);
    }
}

bool bps_operation_claim(struct bps_operation *operation)
{
    uint32_t use = new_use(), before = atomic_load(&operation->state);
    if ((before & BPS_OP_PHASE) != BPS_OP_FREE ||
        !atomic_compare_exchange_strong(&operation->state, &before, use | BPS_OP_RUNNING)) {
        return false;
    }
    operation->use = use;
    return true;
}

/* Nothing of a tensor is in flight any more: gives its operation back. Returns the state word from before. */
static uint32_t operation_release(struct bps_tensor_entry *tensor)
{
    struct bps_operation *operation = &tensor->operation;
    bool unnamed = tensor->named.unnamed; /* another thread may use, or forget, a named one at once */
    uint32_t before = atomic_exchange(&operation->state, operation->use | BPS_OP_FREE);
    if (unnamed) {
        bps_names_put(&tensor->named);
    } else if (atomic_load(&tensor->unwanted)) {
        bps_forget_unwanted(tensor);
    }
    return before;
}

/* A named tensor, or a declared one. The lock is held. */
static bps_status find_named(struct bps_worker *worker, const struct bps_push_pull *r, struct bps_tensor_entry **out,
                             struct bps_report *report)
{
    if (r->tensor != 0) {
        *out = bps_tensor_at(worker, r->tensor);
        if (*out == NULL || (*out)->named.unnamed) {
            BPS_REPORT(report, "%u is not a declared tensor", r->tensor);
            return BPS_ERR_INVALID;
        }
        return BPS_OK;
    }
    if (bps_names_check(r->name, report) != BPS_OK) {
        return BPS_ERR_INVALID;
    }
    *out = bps_tensor_named(worker, r->name, report);
    return *out == NULL ? BPS_ERR_NOMEM : BPS_OK;
}

/* Finds the request's tensor, and takes its operation before another thread can forget it. */
static bps_status take_named(struct bps_worker *worker, const struct bps_push_pull *r, struct bps_tensor_entry **out,
                             struct bps_report *report)
{
    pthread_mutex_lock(&worker->names.lock);
    bps_status status = find_named(worker, r, out, report);
    if (status == BPS_OK && !bps_operation_claim(&(*out)->operation)) {
        BPS_REPORT(report, "tensor '%s' is already in flight on this worker; wait for it, or use another name",
                   (*out)->named.name);
        status = BPS_ERR_BUSY;
    }
    pthread_mutex_unlock(&worker->names.lock);
    return status;
}

static bps_status take_tensor(struct bps_worker *worker, const struct bps_push_pull *r, const struct bps_call *call,
                              struct bps_tensor_entry **out, struct bps_report *report)
{
    if (r->tensor != 0 || r->name != NULL) {
        return take_named(worker, r, out, report);
    }
    *out = call->group != NULL ? bps_process_group_tensor(call->group, call->tag)
                               : bps_tensor_unnamed(worker, call->barrier);
    return *out != NULL && bps_operation_claim(&(*out)->operation) ? BPS_OK : BPS_ERR_NOMEM;
}

void bps_operation_unclaim(struct bps_operation *operation)
{
    operation_release(bps_container(operation, struct bps_tensor_entry, operation));
}

static atomic_uint_least64_t pushed; /* bytes of all push_pulls that were started in this process */

uint64_t bps_operation_pushed(void)
{
    return atomic_load_explicit(&pushed, memory_order_relaxed);
}

/* Of an operation of blocks those by which all agree: its root is one of those who contribute. */
static inline struct bps_roles roles_of(const struct bps_call *call)
{
    if (call->kind == BPS_KIND_PUSH_PULL) {
        return (struct bps_roles){BPS_EVERYBODY, BPS_EVERYBODY};
    }
    const struct bps_kind *kind = &bps_kinds[call->kind];
    bool roots = kind->from == BPS_PARTY_ROOT || kind->to == BPS_PARTY_ROOT;
    uint32_t root = roots ? bps_process_group_rank(call->group, call->root) : BPS_EVERYBODY;
    return bps_call_has_blocks(call) ? (struct bps_roles){BPS_EVERYBODY, root}
                                     : (struct bps_roles){root, BPS_EVERYBODY};
}

/* Fills in the operation of the request's tensor, ready to be posted. */
static bps_status operation_prepare(struct bps_worker *worker, const struct bps_push_pull *request,
                                    const struct bps_call *call, struct bps_operation **out, struct bps_report *report)
{
    struct bps_tensor_entry *tensor;
    struct bps_mark *mark = NULL;
    bool on_device = request->device.type != BPS_DEVICE_HOST && request->count > 0;
    bps_status status = operation_check_request(worker, request, call, report);
    if (status == BPS_OK && atomic_load(&worker->closing)) {
        BPS_REPORT(report, "the worker is shutting down");
        status = BPS_ERR_STATE;
    }
    if (status == BPS_OK && on_device) {
        status = worker->memory_ops->mark(worker, &request->device, &mark, report);
    }
    if (status == BPS_OK) {
        status = take_tensor(worker, request, call, &tensor, report);
    }
    if (status != BPS_OK) {
        worker->memory_ops->release(worker, &mark);
        return status;
    }
    struct bps_operation *operation = &tensor->operation;
    if (bps_named_reform(&tensor->named, request) != BPS_OK || bps_sparse_begin(request) != BPS_OK ||
        (bps_call_has_blocks(call) && bps_blocks_init(&operation->blocks, call, request->dtype) != BPS_OK)) {
        worker->memory_ops->release(worker, &mark);
        operation_release(tensor);
        return BPS_ERR_NOMEM;
    }
    operation->mark = mark;
    operation->request = *request;
    operation->op = call->op;
    operation->kind = call->kind;
    operation->root = call->root;
    if (call->group != NULL) {
        operation->group = bps_process_group_again(call->group);
    }
    operation->roles = roles_of(call);
    operation->bytes = request->count * bps_element_size(request->dtype);
    operation->status = BPS_OK;
    operation->started = bps_trace_is_on() ? bps_now() : 0;
    operation->steps = bps_trace_steps_ended();
    operation->trace.step = 0;
    operation->blamed = UINT32_MAX;
    operation->post.fn = operation_arrive;
    operation->via = BPS_VIA_HOST;
    if (bps_is_on_device(operation)) {
        worker->memory_ops->prepare(operation);
    }
    if (call->kind == BPS_KIND_PUSH_PULL) {
        atomic_fetch_add_explicit(&pushed, bps_sparse_bytes(operation), memory_order_relaxed);
    }
    operation->request.shape = NULL; /* the caller's; the tensor's form has a copy */
    *out = operation;
    return BPS_OK;
}

/* Of an operation that is prepared; once it is posted it may be over, and its memory another one's. */
static bps_handle handle_of(const struct bps_operation *operation)
{
    return (bps_handle)operation->use << 32 | bps_container(operation, struct bps_tensor_entry, operation)->named.slot;
}

/*
 * Small tensors that are waited for one by one. The thread that starts one sends it, and the thread that waits for it
 * receives the result, so that no thread has to wake another: about twice as fast. That needs an application that
 * waits at once, as it has done before; else the library's own thread has to go on meanwhile.
 */
#define SMALL   (64u << 10)   /* bytes: sending it takes no longer than waking a thread */
#define AT_ONCE (50 * BPS_US) /* from start to wait */
#define ENOUGH  8u            /* waits at once in a row */

/* Before a start: decides whether its result is going to be waited for at once. */
static void expect_wait(struct bps_promptness *prompt)
{
    bool forsaken = atomic_load_explicit(&prompt->expected, memory_order_relaxed);
    bool awaited = !forsaken && atomic_load_explicit(&prompt->waits, memory_order_relaxed) >= ENOUGH;
    if (forsaken) {
        atomic_store_explicit(&prompt->waits, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&prompt->expected, awaited, memory_order_relaxed);
    atomic_store_explicit(&prompt->started, bps_now(), memory_order_relaxed);
}

/* At a wait, with no other operation in flight. */
static void note_wait(struct bps_promptness *prompt)
{
    uint64_t since = bps_now() - atomic_load_explicit(&prompt->started, memory_order_relaxed);
    uint32_t waits = atomic_load_explicit(&prompt->waits, memory_order_relaxed);
    waits = since > AT_ONCE ? 0 : waits < ENOUGH ? waits + 1 : ENOUGH;
    atomic_store_explicit(&prompt->waits, waits, memory_order_relaxed);
    atomic_store_explicit(&prompt->expected, false, memory_order_relaxed);
}

/* Whether the loop's own thread has to go on behind a start. */
static bool is_left(void *arg)
{
    struct bps_worker *worker = arg;
    return atomic_load(&worker->in_flight) > 0 && !atomic_load_explicit(&worker->prompt.expected, memory_order_relaxed);
}

bps_status bps_operation_start(struct bps_worker *worker, const struct bps_push_pull *request,
                               const struct bps_call *call, bps_handle *out, struct bps_report *report)
{
    struct bps_operation *operation;
    bps_status status = operation_prepare(worker, request, call, &operation, report);
    if (status != BPS_OK) {
        return status;
    }
    bps_handle handle = handle_of(operation);
    bool small = request->done == NULL && operation->bytes <= SMALL;
    if (atomic_fetch_add(&worker->in_flight, 1) == 0 && small) {
        expect_wait(&worker->prompt);
        bps_loop_post_here(worker->loop, &operation->post, is_left, worker);
    } else {
        bps_loop_post(worker->loop, &operation->post);
    }
    if (out != NULL) {
        *out = handle;
    }
    return BPS_OK;
}

/* ---- end ---- */

void bps_operation_error(struct bps_operation *operation, bps_status status, const char *text)
{
    bps_assert(status != BPS_OK && text != NULL);
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    char line[sizeof((struct bps_report *)NULL)->text];
    if (operation->status != BPS_OK) {
        return;
    }
    operation->status = bps_failing(status);
    bool shown = status == BPS_ERR_MISMATCH && tensor->named.unnamed && tensor->named.form.shape != NULL;
    if (status == BPS_ERR_LOST && tensor->worker->failure != BPS_OK) {
        snprintf(line, sizeof line, "%s; tensor '%s' was in flight", text, tensor->named.name);
    } else if (shown) {
        char form[200];
        bps_form_text(&tensor->named.form, form, sizeof form);
        snprintf(line, sizeof line, "tensor '%s': %s; shape #%04x is %s", tensor->named.name, text,
                 bps_form_mark(&tensor->named.form), form);
    } else {
        snprintf(line, sizeof line, "tensor '%s': %s", tensor->named.name, text);
    }
    bps_make_printable(line);
    free(operation->text);
    operation->text = strdup(line);
}

void bps_operation_blame(struct bps_operation *operation, uint32_t partition, bps_status status, const char *text)
{
    if (partition < operation->blamed) {
        operation->status = BPS_OK;
        operation->blamed = partition;
    }
    bps_operation_error(operation, status, text);
}

/* What coding has left of the tensor moves on if the network has summed all of it, whatever came behind that. */
static void settle_feedback(struct bps_tensor_entry *tensor)
{
    bool summed = true;
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        summed &= !tensor->task[i].failed || tensor->task[i].feedback.summed;
    }
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_feedback_settle(&tensor->task[i].feedback, summed);
    }
}

void bps_operation_wake(struct bps_worker *worker)
{
    if (worker->wake != NULL) {
        futex(worker->wake, FUTEX_WAKE, INT_MAX, NULL);
        worker->wake = NULL;
    }
}

/*
 * What a turn of the loop ends is waited for one by one: a thread that is woken at the end of the turn finds most of it
 * done, and need not sleep again. The memory of a tensor stays, whoever uses it by then.
 */
static void wake_later(struct bps_worker *worker, struct bps_operation *operation)
{
    if (worker->wake != NULL) {
        futex(&operation->state, FUTEX_WAKE, INT_MAX, NULL); /* of another thread */
        return;
    }
    worker->wake = &operation->state;
    bps_loop_ask_end(worker->loop);
}

/* One without a name is not looked for any more. */
static void note_over(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_tensor_entry **ids = ids_of(operation);
    if (operation->group == NULL) {
        struct bps_sequence *over = &tensor->worker->over[bps_unnamed_kind(tensor->id)];
        bps_sequence_add(over, (tensor->id - over->next) & BPS_ID_NUMBER); /* without memory more is kept for others */
    }
    if (tensor->by_id.tbl != NULL) {
        HASH_DELETE(by_id, *ids, tensor);
    }
    if (operation->group != NULL) {
        tensor->renamed = true; /* its path is another one without the group */
        bps_process_group_leave(operation->group);
        operation->group = NULL;
    }
}

void bps_operation_end(struct bps_operation *operation)
{
    bps_assert((atomic_load(&operation->state) & BPS_OP_PHASE) == BPS_OP_RUNNING);
    bps_assert(operation->phase != BPS_PHASE_OFF);
    bps_check(bps_operation_check(operation));
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    bool seen = bps_has_begun(operation) && operation->via != BPS_VIA_DEVICE; /* by the shards */
    bps_operation_become(operation, BPS_PHASE_OFF);
    TAILQ_REMOVE(&worker->operations, operation, entry);
    bps_view_put(operation->view);
    operation->view = NULL;
    bps_written_give(operation);
    if (operation->blocks.ranks > 0) {
        bps_blocks_fini(&operation->blocks);
    }
    if (bps_is_on_device(operation)) {
        worker->memory_ops->end(operation);
    }
    if (tensor->named.coding != NULL) {
        settle_feedback(tensor);
    }
    if (operation->request.rows != NULL && bps_sparse_end(operation) != BPS_OK) {
        bps_operation_error(operation, BPS_ERR_NOMEM, "out of memory for the rows of the result");
    }
    bps_traced_end(operation);
    bps_assert(atomic_load(&worker->in_flight) > 0);
    atomic_fetch_sub(&worker->in_flight, 1);
    if (tensor->named.unnamed) {
        note_over(operation);
    } else if (seen) {
        tensor->round++;
    }
    if (operation->request.done == NULL) {
        uint32_t before = atomic_exchange(&operation->state, operation->use | BPS_OP_DONE);
        if ((before & BPS_OP_WAITED) != 0) {
            wake_later(worker, operation);
        }
    } else {
        if (operation->mark != NULL) {
            worker->memory_ops->follow(operation);
        }
        bps_done_fn done = operation->request.done;
        void *arg = operation->request.arg;
        bps_status status = operation->status;
        char *text = operation->text;
        operation->text = NULL;
        uint32_t before = operation_release(tensor);
        if ((before & BPS_OP_WAITED) != 0) {
            wake_later(worker, operation);
        }
        done(arg, status, text != NULL ? text : bps_strerror(status));
        free(text);
    }
    worker->life->operation_ended(worker);
}

/* ---- poll and wait ---- */

static uint32_t operation_use_of(bps_handle handle)
{
    return (uint32_t)(handle >> 32);
}

/* The operation that a handle stands for; NULL if it is no handle of ours. */
static struct bps_operation *operation_find(struct bps_worker *worker, bps_handle handle)
{
    struct bps_tensor_entry *tensor = bps_tensor_at(worker, (bps_tensor)handle);
    uint32_t use = operation_use_of(handle);
    return tensor != NULL && use != 0 && use % BPS_OP_USE == 0 ? &tensor->operation : NULL;
}

/* The phase of the use that the handle stands for; BPS_OP_FREE if that is over. */
static uint32_t phase_of(struct bps_operation *operation, bps_handle handle, uint32_t *state)
{
    *state = atomic_load(&operation->state);
    return *state / BPS_OP_USE == operation_use_of(handle) / BPS_OP_USE ? *state & BPS_OP_PHASE : BPS_OP_FREE;
}

bps_status bps_operation_poll(struct bps_worker *worker, bps_handle handle)
{
    struct bps_operation *operation = operation_find(worker, handle);
    uint32_t state;
    if (operation == NULL) {
        return BPS_ERR_INVALID;
    }
    uint32_t phase = phase_of(operation, handle, &state);
    bps_status status = operation->status;
    /* Else the status may be another one's. */
    if (phase == BPS_OP_DONE && atomic_load(&operation->state) == state) {
        return status;
    }
    return phase == BPS_OP_RUNNING ? BPS_INPROGRESS : BPS_OK;
}

/* Reads the result and gives the tensor back. */
static bps_status operation_take(struct bps_operation *operation, struct bps_report *report)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    if (operation->mark != NULL) {
        tensor->worker->memory_ops->follow(operation);
    }
    bps_status status = operation->status;
    if (status != BPS_OK) {
        BPS_REPORT(report, "%s", operation->text != NULL ? operation->text : bps_strerror(status));
    }
    free(operation->text);
    operation->text = NULL;
    operation_release(tensor);
    return status;
}

bool bps_operation_last(struct bps_worker *worker, bps_tensor slot, bps_handle *handle, bps_status *status, char **text)
{
    struct bps_operation *operation = &bps_tensor_at(worker, slot)->operation;
    if ((atomic_load(&operation->state) & BPS_OP_PHASE) != BPS_OP_DONE) {
        return false;
    }
    if (operation->mark != NULL) {
        worker->memory_ops->follow(operation);
    }
    *handle = handle_of(operation);
    *status = operation->status;
    *text = operation->text;
    operation->text = NULL;
    return true;
}

/* Sleeps while the state word is `state`. False: the deadline has passed. */
static bool sleep_on(struct bps_operation *operation, uint32_t state, uint64_t deadline)
{
    struct timespec t, *timeout = NULL;
    if (deadline != BPS_FOREVER) {
        uint64_t now = bps_now();
        if (now >= deadline) {
            return false;
        }
        t.tv_sec = (time_t)((deadline - now) / BPS_S);
        t.tv_nsec = (long)((deadline - now) % BPS_S);
        timeout = &t;
    }
    if ((state & BPS_OP_WAITED) != 0 ||
        atomic_compare_exchange_strong(&operation->state, &state, state | BPS_OP_WAITED)) {
        futex(&operation->state, FUTEX_WAIT, state | BPS_OP_WAITED, timeout);
    }
    return true;
}

static bps_status wait_until(struct bps_worker *worker, bps_handle handle, uint64_t since, uint64_t deadline,
                             struct bps_report *report)
{
    struct bps_operation *operation = operation_find(worker, handle);
    if (operation == NULL) {
        BPS_REPORT(report, "%#lx is not a handle of this process", handle);
        return BPS_ERR_INVALID;
    }
    for (;;) {
        uint32_t state, phase = phase_of(operation, handle, &state);
        if (phase == BPS_OP_DONE &&
            atomic_compare_exchange_strong(&operation->state, &state, operation_use_of(handle) | BPS_OP_TAKEN)) {
            bps_traced_waited(operation, since);
            return operation_take(operation, report);
        }
        if (phase == BPS_OP_FREE || phase == BPS_OP_TAKEN) {
            return BPS_OK;
        }
        if (phase == BPS_OP_RUNNING && !sleep_on(operation, state, deadline)) {
            return BPS_INPROGRESS;
        }
    }
}

static uint64_t deadline_after(uint64_t ns)
{
    uint64_t now = ns != BPS_FOREVER ? bps_now() : 0;
    return ns > BPS_FOREVER - now ? BPS_FOREVER : now + ns;
}

/* ---- the thread that waits does the work ---- */

struct run {
    struct bps_worker *worker;
    struct bps_operation *operation;
    bps_handle handle;
};

static bool is_done(void *arg)
{
    const struct run *run = arg;
    uint32_t state;
    return phase_of(run->operation, run->handle, &state) != BPS_OP_RUNNING;
}

static bool is_busy(void *arg)
{
    return atomic_load(&((const struct run *)arg)->worker->in_flight) > 0;
}

bps_status bps_operation_wait(struct bps_worker *worker, bps_handle handle, uint64_t timeout_ns,
                              struct bps_report *report)
{
    struct run run = {.worker = worker, .operation = operation_find(worker, handle), .handle = handle};
    uint64_t deadline = deadline_after(timeout_ns), since = bps_traced_wait_begin(handle);
    if (run.operation != NULL && timeout_ns > 0 && atomic_load(&worker->in_flight) <= 1) {
        const struct bps_loop_wish wish = {.done = is_done, .busy = is_busy, .arg = &run};
        note_wait(&worker->prompt);
        if (!is_done(&run)) {
            bps_loop_drive(worker->loop, &wish, deadline);
        }
    }
    return wait_until(worker, handle, since, deadline, report);
}

bps_status bps_operation_run(struct bps_worker *worker, const struct bps_push_pull *request,
                             const struct bps_call *call, uint64_t timeout_ns, bps_handle *out,
                             struct bps_report *report)
{
    struct run run = {.worker = worker};
    uint64_t deadline = deadline_after(timeout_ns);
    bps_status status = operation_prepare(worker, request, call, &run.operation, report);
    if (status != BPS_OK) {
        return status;
    }
    run.handle = handle_of(run.operation);
    uint64_t since = bps_traced_wait_begin(run.handle);
    if (atomic_fetch_add(&worker->in_flight, 1) == 0) {
        const struct bps_loop_wish wish = {.done = is_done, .busy = is_busy, .arg = &run};
        bps_loop_post_quietly(worker->loop, &run.operation->post);
        bps_loop_drive(worker->loop, &wish, deadline);
    } else {
        bps_loop_post(worker->loop, &run.operation->post);
    }
    status = wait_until(worker, run.handle, since, deadline, report);
    if (status == BPS_INPROGRESS) {
        *out = run.handle;
    }
    return status;
}
