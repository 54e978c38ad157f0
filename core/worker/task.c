/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task.c - partitions on their way through the stages.
 *
 * A task runs along its tensor's path until a stage is not done at once: the network, or the pool of threads.
 * What comes back from there calls bps_task_advance() again.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/copy.h"
#include "worker/devices.h"

static struct bps_operation *operation_of(struct bps_task *task)
{
    return &task->tensor->operation;
}

void bps_task_end(struct bps_task *task)
{
    struct bps_operation *operation = operation_of(task);
    task->state = BPS_TASK_DONE;
    if (--operation->left > 0) {
        return;
    }
    if (operation->status == BPS_WIRE_CHANGED) {
        bps_change_report(operation);
    } else {
        bps_operation_end(operation);
    }
}

/* ---- stages ---- */

bps_status bps_stage_run(struct bps_task *task, struct bps_report *report)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_path_step *step = &tensor->path.step[task->step];
    const struct bps_node *node = step->node;
    uint32_t size = (uint32_t)bps_dtype_size(tensor->path_dtype);
    const struct bps_stage_task view = {
        .partition = task->partition,
        .round = tensor->round,
        .first = (uint64_t)task->partition * (tensor->worker->partition / size),
        .count = task->bytes / size,
        .src = task->src,
        .dst = node->attr.writes != 0 ? task->dst : NULL,
    };
    bps_status status = node->ops->run(node->instance->self, step->state, &view, report);
    if (status == BPS_OK && node->attr.writes != 0) {
        task->src = task->dst;
    }
    return status;
}

/* True if the task has passed the stage of this kind, which its path has. */
static bool has_passed(const struct bps_task *task, enum bps_node_kind kind)
{
    return bps_path_find(&task->tensor->path, kind) < task->step;
}

/* The others of the group wait for a result that does not come. */
static void fail_group(struct bps_task *task, bps_status status, const char *line)
{
    struct bps_header header;
    bps_push_header(task, 0, 0, 0, &header);
    header.type = BPS_FRAME_FAILED;
    header.root = (uint32_t)-status;
    task->failed = true; /* it has heard already */
    bps_local_fail(task->tensor->worker->local, &header, line);
}

/*
 * A stage has failed: before the network that is everybody's failure,
 * after it only ours and of those we lead.
 */
void bps_task_stage_failed(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_worker *worker = tensor->worker;
    struct bps_node *node = tensor->path.step[task->step].node;
    bool grouped = bps_local_takes(tensor), own = bps_worker_alone(worker) || tensor->operation.stays;
    char line[BPS_TEXT_LIMIT];
    node->failures++;
    snprintf(line, sizeof line, "worker %u: stage %s: %s", worker->rank, node->name, text);
    if (task->grouped) { /* the other devices wait for this one */
        bps_worker_fail(tensor->worker, status, line);
        bps_operation_error(&tensor->operation, status, line);
        bps_task_end(task);
        return;
    }
    if (!has_passed(task, BPS_NODE_PUSH_PULL) && !own) {
        task->state = BPS_TASK_AWAITED; /* of all workers' reasons, the shard tells everybody the same */
        if (grouped && has_passed(task, BPS_NODE_LOCAL_REDUCE)) {
            bps_remote_poison_group(task, status, line);
        } else {
            bps_remote_poison(tensor, task->partition, tensor->operation.bytes, status, line, true);
        }
        return;
    }
    bps_operation_error(&tensor->operation, status, line);
    if (grouped && !has_passed(task, BPS_NODE_LOCAL_BROADCAST)) {
        fail_group(task, status, line);
    }
    bps_task_end(task);
}

/* Back from the pool. */
static void on_pooled(struct bps_post *post)
{
    struct bps_task *task = bps_container(post, struct bps_task, post);
    const struct bps_worker *worker = task->tensor->worker;
    char *text = task->stage_text;
    task->stage_text = NULL;
    task->state = BPS_TASK_DONE;
    if (worker->failure != BPS_OK) {
        bps_operation_error(operation_of(task), worker->failure, worker->failure_text);
        bps_task_end(task);
    } else if (task->stage_status != BPS_OK) {
        bps_task_stage_failed(task, task->stage_status,
                              text != NULL ? text : bps_strerror(task->stage_status));
    } else {
        task->step++;
        bps_task_advance(task);
    }
    free(text);
}

/* The sum in a job of one worker: the scales alone. */
static bps_status sum_alone(struct bps_task *task, struct bps_report *report)
{
    const struct bps_operation *operation = operation_of(task);
    const struct bps_worker *worker = task->tensor->worker;
    const struct bps_reducer_ops *reducer = worker->reducer->ops;
    struct bps_kernels kernels;
    if (operation->op == BPS_WIRE_BROADCAST) {
        if (operation->root != 0) {
            BPS_REPORT(report, "root %u is not a worker of this job (0..0)", operation->root);
            return BPS_ERR_INVALID;
        }
        if (task->src != task->dst && task->bytes > 0) {
            memcpy(task->dst, task->src, task->bytes);
        }
        return BPS_OK;
    }
    uint32_t op = operation->op == BPS_AVERAGE ? BPS_SUM : operation->op;
    uint32_t dtype = operation->request.dtype;
    bps_status status = reducer->kernels(worker->reducer->self, op, dtype, &kernels);
    if (status != BPS_OK) {
        BPS_REPORT(report, "the reducer '%s' has no %s of %s", worker->reducer->name, bps_op_name(op),
                   bps_dtype_name(dtype));
        return status;
    }
    const void *src = task->src;
    double scale = operation->request.prescale;
    kernels.reduce(task->dst, &src, scale != 1.0 ? &scale : NULL, 1, task->bytes / bps_dtype_size(dtype),
                   operation->request.postscale, 1);
    return BPS_OK;
}

/* push_pull: hands the task to its shard, or sums here. True: the task goes on at once. */
static bool cross(struct bps_task *task)
{
    struct bps_report report;
    if (!bps_worker_alone(task->tensor->worker)) {
        bps_remote_push(task);
        return false;
    }
    bps_status status = sum_alone(task, &report);
    if (status != BPS_OK) {
        bps_operation_error(operation_of(task), status, report.text);
        bps_task_end(task);
        return false;
    }
    task->src = task->dst;
    return true;
}

static bool run_plugin(struct bps_task *task, const struct bps_node *node)
{
    struct bps_report report = {""};
    if (node->attr.executor == BPS_EXECUTOR_CPU) {
        task->state = BPS_TASK_POOLED;
        task->post.fn = on_pooled;
        bps_stage_pool_run(task->tensor->worker->pool, task);
        return false;
    }
    bps_status status = bps_stage_run(task, &report);
    if (status != BPS_OK) {
        bps_task_stage_failed(task, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return status == BPS_OK;
}

/* Runs one stage. True: the task goes on at once; else it may be over already. */
static bool run_stage(struct bps_task *task, const struct bps_node *node)
{
    switch (node->kind) {
    case BPS_NODE_LOCAL_REDUCE:
        if (task->grouped || !bps_local_takes(task->tensor)) {
            return true;
        }
        bps_local_reduce(task);
        return false;
    case BPS_NODE_PUSH_PULL:
        return cross(task);
    case BPS_NODE_LOCAL_BROADCAST:
        return task->grouped || !bps_local_takes(task->tensor) || bps_local_broadcast(task);
    case BPS_NODE_COPY_TO_HOST:
        return bps_copy_to_host(task);
    case BPS_NODE_COPY_TO_DEVICE:
        return bps_copy_to_device(task);
    case BPS_NODE_REDUCE_ON_DEVICE:
        return bps_reduce_on_device(task);
    default:
        return run_plugin(task, node);
    }
}

void bps_task_advance(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    while (task->step < tensor->path.length) {
        struct bps_node *node = tensor->path.step[task->step].node;
        node->tasks++;
        node->bytes += task->bytes;
        if (!run_stage(task, node)) {
            return;
        }
        task->step++;
    }
    bps_task_end(task);
}

/* ---- beginning ---- */

static bps_status find_path(struct bps_tensor_entry *tensor, struct bps_report *report)
{
    const struct bps_operation *operation = &tensor->operation;
    bool on_device = bps_is_on_device(operation);
    if (tensor->path_op == operation->op && tensor->path_dtype == operation->request.dtype &&
        tensor->path_on_device == on_device && tensor->path_stays == operation->stays && !tensor->renamed &&
        tensor->path_bytes == operation->bytes) {
        return BPS_OK;
    }
    if (tensor->path_op != BPS_WIRE_OPS) {
        bps_path_fini(&tensor->path);
        tensor->path_op = BPS_WIRE_OPS;
    }
    bool bare = operation->op == BPS_WIRE_BROADCAST || tensor->id >= BPS_ID_BARRIER;
    const struct bps_tensor_info info = {
        .name = tensor->name,
        .dtype = operation->request.dtype,
        .op = operation->op,
        .count = operation->request.count,
        .partitions = bps_partitions(operation->bytes, tensor->worker->partition),
        .memory = on_device ? BPS_MEMORY_DEVICE : BPS_MEMORY_HOST,
    };
    bps_status status = operation->stays
                            ? bps_path_new_on_device(tensor->worker->graph, tensor->name, &tensor->path)
                            : bps_path_new(tensor->worker->graph, &info, bare, &tensor->path, report);
    if (status == BPS_OK) {
        tensor->renamed = false;
        tensor->path_op = operation->op;
        tensor->path_dtype = operation->request.dtype;
        tensor->path_on_device = on_device;
        tensor->path_stays = operation->stays;
    }
    return status;
}

/* Ends an operation that cannot begin here, for everybody. */
static void refuse(struct bps_operation *operation, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    uint32_t n = bps_partitions(operation->bytes, worker->partition);
    operation->stays = false; /* the shards hear of this round */
    bps_devices_decline(operation);
    for (uint32_t i = 0; i < n && !bps_worker_alone(worker); i++) {
        bps_remote_poison(tensor, i, operation->bytes, status, text, false);
    }
    bps_operation_error(operation, status, text);
    bps_operation_end(operation);
}

void bps_task_reset(struct bps_task *task)
{
    uint32_t slices = bps_partitions(task->bytes, task->tensor->worker->slice);
    task->step = task->sent = task->received = task->held = task->given = task->direct = 0;
    task->failed = task->grouped = false;
    memset(task->got, 0, (slices + 63) / 64 * sizeof *task->got);
}

void bps_tasks_start(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    const struct bps_push_pull *r = &operation->request;
    bool receiver = operation->op == BPS_WIRE_BROADCAST && operation->root != worker->rank;
    bool on_host = !bps_is_on_device(operation); /* else the first stage gives it a place there */
    uint32_t n = tensor->tasks;
    operation->left = n;
    for (uint32_t i = 0; i < n; i++) {
        struct bps_task *task = &tensor->task[i];
        size_t at = (size_t)i * worker->partition;
        task->dst = r->out != NULL && on_host ? (char *)r->out + at : NULL;
        task->src = receiver || r->in == NULL || !on_host ? task->dst : (const char *)r->in + at;
        bps_task_reset(task);
    }
    /*
     * The last task that ends may end the operation, and its tensor may
     * be used again: nothing after the loop.
     */
    for (uint32_t i = 0; i < n; i++) {
        bps_task_advance(&tensor->task[i]);
    }
}

void bps_tasks_begin(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    struct bps_report report;
    char text[320];
    report.text[0] = '\0'; /* not all of it: this is the way of every operation */
    if (bps_copy_must_wait(operation)) {
        bps_copy_await(operation);
        return;
    }
    operation->begun = true;
    if (!tensor->unnamed && !bps_worker_alone(worker) && !bps_form_agrees(&tensor->form, &tensor->job)) {
        bps_change_begin(operation);
        return;
    }
    bps_status status = find_path(tensor, &report);
    if (status == BPS_OK) {
        status = bps_tensor_tasks(tensor, operation->bytes);
    }
    if (status == BPS_OK && bps_copy_is_staged(operation) && tensor->staging_bytes < operation->bytes) {
        snprintf(report.text, sizeof report.text, "no host memory for %lu bytes from the device",
                 operation->bytes);
        status = BPS_ERR_NOMEM;
    }
    if (status != BPS_OK) {
        snprintf(text, sizeof text, "worker %u: %.280s", worker->rank,
                 report.text[0] != '\0' ? report.text : bps_strerror(status));
        refuse(operation, status, text);
        return;
    }
    if (!bps_devices_ask(operation)) {
        bps_tasks_start(operation);
    }
}
