/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task.c - partitions on their way, and who has them.
 *
 * A task runs along its way until a step is not done at once. Whatever has it then calls bps_task_done(), which only
 * notes that: the task goes on, or ends, when whoever called has returned to the loop. So no step is begun, and no
 * operation ends, within a call that something else has not finished.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "flow/sparse.h"
#include "flow/step.h"
#include "flow/traced.h"
#include "wire/link.h"

static struct bps_operation *operation_of(struct bps_task *task)
{
    return &task->tensor->operation;
}

bool bps_tensor_speaks_for(const struct bps_tensor_entry *tensor, uint32_t rank)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_book_member *member = worker->view->book.member;
    return rank == worker->job.rank ||
           (!tensor->blocks && bps_step_serves(tensor, BPS_NODE_LOCAL_REDUCE) && rank < worker->job.size &&
            member[rank].group == member[worker->job.rank].group);
}

/* ---- the end ---- */

/* So many tasks of the operation have ended. */
static void count_ended(struct bps_operation *operation, uint32_t n)
{
    bps_assert(operation->left >= n);
    operation->left -= n;
    if (operation->left > 0) {
        return;
    }
    if (operation->status == BPS_WIRE_CHANGED) {
        bps_change_report(operation);
    } else {
        bps_operation_end(operation);
    }
}

static void task_end(struct bps_task *task)
{
    task->state = BPS_TASK_IDLE;
    if (task->way != NULL && task->step < task->way->length) {
        bps_traced_stage(task, true); /* it has failed there */
    }
    count_ended(operation_of(task), 1);
}

static void task_end_with(struct bps_task *task, bps_status status, const char *text)
{
    bps_operation_error(operation_of(task), status, text);
    task_end(task);
}

/* ---- refusals ---- */

bool bps_tensor_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer)
{
    const struct bps_step_ops *first = bps_step_for(tensor, partition, BPS_NODE_LOCAL_REDUCE);
    if (first == NULL) {
        first = bps_step_for(tensor, partition, BPS_NODE_PUSH_PULL);
    }
    return first->refuse != NULL && first->refuse(tensor, partition, bytes, status, text, answer);
}

/*
 * Tells those whom the task would have met from here on. True: they end the round for all, and this worker's task
 * waits for their words, so that of all workers' reasons everybody hears the same.
 */
static bool task_refuse(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    for (uint32_t i = task->step; i < task->way->length; i++) {
        const struct bps_step_ops *step = task->way->step[i].ops;
        if (step->refuse != NULL) {
            task->refused = true;
            task->state = BPS_TASK_WAITING;
            return step->refuse(tensor, task->partition, tensor->operation.bytes, status, text, true);
        }
    }
    return false;
}

/* A step of this worker alone has failed: before others have its contribution, that is everybody's failure. */
static void fail_step(struct bps_task *task, bps_status status, const char *text)
{
    bps_assert(!bps_task_step(task)->crosses && status != BPS_OK);
    const struct bps_worker *worker = task->tensor->worker;
    struct bps_node *node = bps_task_on(task)->node;
    char line[BPS_TEXT_LIMIT];
    node->failures++;
    snprintf(line, sizeof line, "worker %u: stage %s: %s", worker->job.rank, node->name, text);
    if (!task_refuse(task, status, line)) {
        task_end_with(task, status, line);
    }
}

/* ---- along the path ---- */

/* What others have sent lies in its place. Who has brought what all get has the result. */
static void use_result(struct bps_task *task)
{
    bool has = bps_has(&task->roles, task->tensor->worker->job.rank);
    if (has && task->src != task->dst && task->bytes > 0) {
        memcpy(task->dst, task->src, task->bytes);
    }
    task->src = task->dst;
}

/* The step of the task is behind it. */
static inline void leave_step(struct bps_task *task)
{
    bps_assert(task->step < task->way->length);
    if (bps_task_step(task)->crosses) {
        use_result(task);
    }
    bps_traced_stage(task, true);
    task->step++;
}

/* Begins the steps that follow. True: none is left, or the job has failed. */
static bool task_advance(struct bps_task *task)
{
    const struct bps_worker *worker = task->tensor->worker;
    bps_assert(task->state == BPS_TASK_IDLE);
    while (task->step < task->way->length) {
        if (worker->failure != BPS_OK) { /* perhaps while the tasks before this one began */
            bps_operation_error(operation_of(task), worker->failure, worker->failure_text);
            return true;
        }
        const struct bps_step_ops *step = bps_task_step(task);
        struct bps_node *node = bps_task_on(task)->node;
        node->tasks++;
        node->bytes += task->bytes;
        task->state = step->crosses ? BPS_TASK_WAITING : BPS_TASK_WORKING;
        bps_traced_stage(task, false);
        if (!step->start(task)) {
            return false;
        }
        leave_step(task);
        task->state = BPS_TASK_IDLE;
    }
    return true;
}

void bps_task_done(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_worker *worker = task->tensor->worker;
    bps_assert(task->state == BPS_TASK_WORKING || task->state == BPS_TASK_WAITING);
    task->state = BPS_TASK_READY;
    task->status = status;
    if (status != BPS_OK) {
        task->text = strdup(text);
    }
    STAILQ_INSERT_TAIL(&worker->ready, task, ready);
    bps_loop_ask_end(worker->loop);
}

static void take_up(struct bps_task *task)
{
    bps_assert(task->state == BPS_TASK_READY);
    const struct bps_worker *worker = task->tensor->worker;
    char *text = task->text;
    const char *words = text != NULL ? text : "out of memory";
    task->text = NULL;
    task->state = BPS_TASK_IDLE;
    if (worker->failure != BPS_OK) {
        task_end_with(task, worker->failure, worker->failure_text);
    } else if (task->failed) {
        task_end(task); /* its operation has the words */
    } else if (task->status == BPS_OK) {
        leave_step(task);
        if (task_advance(task)) {
            task_end(task);
        }
    } else if (task->refused || bps_task_step(task)->crosses) {
        task_end_with(task, task->status, words);
    } else {
        fail_step(task, task->status, words);
    }
    free(text);
}

void bps_flow_now(struct bps_worker *worker)
{
    struct bps_task *task;
    if (worker->going_on) {
        return;
    }
    worker->going_on = true;
    bps_check(bps_worker_check(worker));
    while ((task = STAILQ_FIRST(&worker->ready)) != NULL) {
        STAILQ_REMOVE_HEAD(&worker->ready, ready);
        bps_check(bps_operation_check(operation_of(task)));
        take_up(task);
    }
    worker->going_on = false;
}

/* What has ended wakes whoever waits only now. */
static void on_end_of_turn(void *arg)
{
    struct bps_worker *worker = arg;
    bps_flow_now(worker);
    bps_operation_wake(worker);
}

void bps_flow_init(struct bps_worker *worker)
{
    STAILQ_INIT(&worker->ready);
    bps_loop_at_end(worker->loop, on_end_of_turn, worker);
}

void bps_task_cancel(struct bps_task *task)
{
    bps_assert(task->state == BPS_TASK_WAITING && !task->failed);
    task->failed = true;
    if (task->refused || bps_task_step(task)->cancel == NULL) {
        bps_task_done(task, BPS_OK, NULL);
    } else {
        bps_task_step(task)->cancel(task);
    }
}

void bps_tasks_abort(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        struct bps_task *task = &tensor->task[i];
        if (task->state == BPS_TASK_IDLE || task->state == BPS_TASK_READY) {
            continue;
        }
        if (!task->refused && bps_task_step(task)->abandon != NULL) {
            bps_task_step(task)->abandon(task);
        } else if (task->state == BPS_TASK_WAITING) {
            bps_task_done(task, BPS_OK, NULL);
        }
    }
}

/* Whom a task waits for that was refused, or the step that has it. */
static const struct bps_step_ops *awaited_step(const struct bps_task *task)
{
    return task->refused ? bps_step_for(task->tensor, task->partition, BPS_NODE_LOCAL_REDUCE) : bps_task_step(task);
}

void bps_tasks_left(struct bps_worker *worker, uint32_t rank)
{
    struct bps_operation *operation;
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
        for (uint32_t i = 0; bps_has_begun(operation) && i < tensor->tasks; i++) {
            struct bps_task *task = &tensor->task[i];
            const struct bps_step_ops *step = task->state == BPS_TASK_WAITING ? awaited_step(task) : NULL;
            if (step != NULL && step->left != NULL) {
                step->left(task, rank);
            }
        }
    }
}

/* ---- beginning ---- */

static bps_status find_path(struct bps_tensor_entry *tensor, struct bps_report *report)
{
    const struct bps_operation *operation = &tensor->operation;
    bool on_device = bps_is_on_device(operation), stays = operation->via == BPS_VIA_DEVICE;
    if (tensor->path_op == operation->op && tensor->path_kind == operation->kind &&
        tensor->path_dtype == operation->request.dtype && tensor->path_on_device == on_device &&
        tensor->path_stays == stays && !tensor->renamed && tensor->path_bytes == operation->bytes &&
        tensor->path_row == bps_sparse_row(operation)) {
        return BPS_OK;
    }
    bps_tensor_forget_path(tensor);
    bool bare =
        operation->kind != BPS_KIND_PUSH_PULL || tensor->id >= BPS_ID_BARRIER || operation->request.rows != NULL;
    const struct bps_tensor_info info = {
        .name = tensor->named.name,
        .dtype = operation->request.dtype,
        .op = operation->op,
        .count = operation->request.count,
        .partitions = bps_tensor_partitions(tensor, operation->bytes),
        .memory = on_device ? BPS_MEMORY_DEVICE : BPS_MEMORY_HOST,
    };
    bps_status status = stays ? bps_path_new_on_device(tensor->worker->graph, tensor->named.name, &tensor->path)
                              : bps_path_new(tensor->worker->graph, &info, bare, &tensor->path, report);
    if (status == BPS_OK) {
        tensor->renamed = false;
        tensor->path_op = operation->op;
        tensor->path_kind = operation->kind;
        tensor->path_dtype = operation->request.dtype;
        tensor->path_row = bps_sparse_row(operation);
        tensor->path_on_device = on_device;
        tensor->path_stays = stays;
    }
    return status;
}

/* Ends an operation that cannot begin here, for everybody. */
static void refuse_operation(struct bps_operation *operation, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    uint64_t bytes = operation->blocks.ranks > 0 ? 0 : operation->bytes;
    uint32_t n = bps_tensor_partitions(tensor, operation->bytes);
    operation->via = BPS_VIA_HOST; /* the shards hear of this round */
    if (worker->hooks != NULL && operation->group == NULL) {
        worker->hooks->decline(operation);
    }
    for (uint32_t i = 0; i < n; i++) {
        bps_tensor_refuse(tensor, i, bytes, status, text, false);
    }
    bps_operation_error(operation, status, text);
    bps_operation_end(operation);
}

/* It is to begin, perhaps anew. */
static inline void task_reset(struct bps_task *task)
{
    struct bps_task_queue *ready = &task->tensor->worker->ready;
    bps_assert(task->state != BPS_TASK_WORKING);
    if (task->state == BPS_TASK_WAITING) {
        bps_task_step(task)->reset(task);
    } else if (task->state == BPS_TASK_READY) {
        STAILQ_REMOVE(ready, task, bps_task, ready);
        free(task->text);
        task->text = NULL;
    }
    task->state = BPS_TASK_IDLE;
    task->step = task->direct = 0;
    task->failed = task->refused = task->for_group = false;
    task->last = task->late = 0;
    task->status = BPS_OK;
}

/* Of an operation of blocks the first partition is the last one: where it fails at once, so must the others. */
static inline void task_start(struct bps_tensor_entry *tensor)
{
    uint32_t through = 0;
    for (uint32_t i = tensor->blocks ? 1 : 0; i < tensor->tasks; i++) {
        through += task_advance(&tensor->task[i]);
    }
    if (tensor->blocks) {
        through += task_advance(&tensor->task[0]);
    }
    count_ended(&tensor->operation, through);
}

/* Before the first of them starts. */
static inline void task_prepare(struct bps_task *task, const struct bps_way *way)
{
    const struct bps_operation *operation = operation_of(task);
    const struct bps_worker *worker = task->tensor->worker;
    const struct bps_push_pull *r = &operation->request;
    if (operation->blocks.ranks == 0) {
        task->roles = operation->roles;
    }
    bool brings = bps_brings(&task->roles, worker->job.rank);
    bool on_host = !bps_is_on_device(operation); /* else the first stage gives it a place there */
    bool whole = on_host && r->rows == NULL;     /* else its step knows what it has of it */
    task->dst = r->out != NULL && whole ? (char *)r->out + task->out : NULL;
    task->src = !brings || r->in == NULL || !whole ? task->dst : (const char *)r->in + task->in;
    task_reset(task);
    task->way = way;
}

void bps_tasks_start(struct bps_operation *operation)
{
    bps_assert(operation->phase == BPS_PHASE_RUNNING);
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    operation->left = tensor->tasks;
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        task_prepare(&tensor->task[i], tensor->task[i].own);
    }
    task_start(tensor);
}

bps_status bps_tasks_start_on(struct bps_operation *operation, const struct bps_path *path)
{
    bps_assert(operation->phase == BPS_PHASE_RUNNING);
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        struct bps_task *task = &tensor->task[i];
        if (task->other == NULL && (task->other = bps_way_new(task, path)) == NULL) {
            return BPS_ERR_NOMEM;
        }
    }
    operation->left = tensor->tasks;
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        task_prepare(&tensor->task[i], tensor->task[i].other);
    }
    task_start(tensor);
    return BPS_OK;
}

void bps_tasks_refuse(struct bps_operation *operation, uint64_t bytes, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    operation->left = tensor->tasks;
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        task_reset(&tensor->task[i]);
        tensor->task[i].way = tensor->task[i].own; /* even if the last round went elsewhere */
        tensor->task[i].state = BPS_TASK_WAITING;
        tensor->task[i].refused = true;
    }
    for (uint32_t i = 0; i < tensor->tasks; i++) { /* if this worker leads one, the verdict may come at once */
        if (!bps_tensor_refuse(tensor, i, bytes, status, text, true)) {
            bps_task_done(&tensor->task[i], status, text);
        }
    }
}

/* What has no name is spread by the view that its number belongs to. An operation may begin anew. */
static void hold_view(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    struct bps_view *view = worker->view;
    if (view == NULL) { /* alone */
        return;
    }
    if (operation->group != NULL) {
        view = worker->first_view;
        tensor->renamed = true; /* calls of all workers take another path */
    } else if (tensor->named.unnamed) {
        uint32_t *next = &worker->numbers[bps_unnamed_kind(tensor->id)], number = tensor->id & BPS_ID_NUMBER;
        *next = bps_number_is_before(number, *next) ? *next : (number + 1) & BPS_ID_NUMBER;
        view = bps_view_at(view, tensor->id);
    }
    bps_view_put(operation->view);
    operation->view = bps_view_get(view);
}

void bps_tasks_begin(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    struct bps_report report;
    char text[320];
    report.text[0] = '\0'; /* not all of it: this is the way of every operation */
    if (worker->moving) {
        return; /* it begins when that is over */
    }
    hold_view(operation); /* also while it waits for a device, as others of later numbers may begin before it */
    if (bps_must_wait(operation)) {
        worker->memory_ops->await(operation);
        return;
    }
    bps_operation_become(operation, BPS_PHASE_RUNNING);
    bps_tensor_turn(tensor);
    bps_traced_begin(operation);
    bool other =
        !tensor->named.unnamed && !bps_worker_alone(worker) && !bps_form_agrees(&tensor->named.form, &tensor->job);
    bool keeps = tensor->named.form.keeps || (other && tensor->job.keeps);
    if (other && !keeps) {
        bps_change_begin(operation);
        return;
    }
    bps_status status = keeps ? bps_async_check(operation, other, &report) : BPS_OK;
    if (status != BPS_OK) { /* that is nobody else's affair */
        bps_operation_error(operation, status, report.text);
        bps_operation_end(operation);
        return;
    }
    status = bps_worker_alone(worker) ? BPS_OK : bps_written_take(operation, &report);
    if (status == BPS_OK) {
        status = find_path(tensor, &report);
    }
    if (status == BPS_OK) {
        status = bps_tensor_tasks(tensor, operation->bytes);
    }
    if (status == BPS_OK) {
        status = bps_tensor_ways(tensor);
    }
    if (status == BPS_OK && bps_is_on_device(operation)) {
        status = worker->memory_ops->begin(operation, &report);
    }
    if (status != BPS_OK) {
        snprintf(text, sizeof text, "worker %u: %.280s", worker->job.rank,
                 report.text[0] != '\0' ? report.text : bps_strerror(status));
        refuse_operation(operation, status, text);
        return;
    }
    bool asks = worker->hooks != NULL && operation->group == NULL;
    if (!asks || !worker->hooks->ask(operation)) {
        bps_tasks_start(operation);
    }
}
