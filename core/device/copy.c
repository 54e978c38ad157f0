/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - the stages copy_to_host, copy_to_device and reduce_on_device, and when an operation on device
 * memory begins and ends.
 */
#include "device/copy.h"

#include <stdlib.h>

#include "base/assert.h"
#include "flow/step.h"
#include "plugin/memory.h"
#include "plugin/returned.h"
#include "plugin/use.h"
#include "sum/sum.h"
#include "wire/link.h"

/*
 * Bytes under way in one direction: enough that the copy engine always has the next one, even with small
 * partitions, and little enough that an urgent one does not wait long.
 */
#define UNDER_WAY_LIMIT (8u << 20)

static const struct bps_device_ops *device_ops(const struct bps_worker *worker)
{
    return bps_device_ops(worker->device);
}

static struct bps_worker *copy_worker_of(const struct bps_operation *operation)
{
    return bps_container(operation, struct bps_tensor_entry, operation)->worker;
}

/*
 * What is computed where there is one contribution. What is only moved is copied as bytes. An average has the
 * divisor 1, and the operation does not matter.
 */
static void arithmetic(const struct bps_operation *operation, uint32_t *op, uint32_t *dtype)
{
    bool moves = !bps_sums(&operation->roles);
    *op = moves || operation->op == BPS_AVERAGE ? BPS_SUM : operation->op;
    *dtype = moves ? BPS_UINT8 : operation->request.dtype;
}

/* ---- life ---- */

bps_status bps_copy_open(struct bps_worker *worker, struct bps_report *report)
{
    bps_status status = bps_device_open(worker->conf, worker->loop, &worker->device, report);
    if (status != BPS_OK || worker->device == NULL) {
        return status;
    }
    worker->memory = calloc(1, sizeof *worker->memory);
    if (worker->memory == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_staging_init(&worker->memory->staging);
    bps_direct_init(&worker->memory->direct);
    const struct bps_device_ops *device = device_ops(worker);
    const struct bps_memory_user user = {worker->device, device->attach, device->detach};
    return bps_memory_join(&user, report);
}

void bps_copy_close(struct bps_worker *worker)
{
    bps_memory_close(worker->device);
    if (worker->memory == NULL) {
        return;
    }
    bps_staging_fini(&worker->memory->staging);
    bps_direct_fini(&worker->memory->direct);
    bps_heap_fini(&worker->memory->to_host.queue);
    bps_heap_fini(&worker->memory->to_device.queue);
    free(worker->memory);
}

/* ---- the beginning of an operation ---- */

static bps_status copy_check(const struct bps_worker *worker, const struct bps_device *device,
                             struct bps_report *report)
{
    const char *type = device->type == BPS_DEVICE_CUDA ? "CUDA" : "unknown";
    if (worker->device == NULL) {
        BPS_REPORT(report,
                   "the tensor lies in device memory (type %u, %s), but this worker uses no reducer with "
                   "devices; set worker.use = \"cuda\", or copy the tensor to the host",
                   device->type, type);
        return BPS_ERR_UNSUPPORTED;
    }
    if (device->type != device_ops(worker)->type) {
        BPS_REPORT(report, "the tensor lies in device memory of type %u (%s), but reducer '%s' has type %u",
                   device->type, type, worker->device->name, device_ops(worker)->type);
        return BPS_ERR_UNSUPPORTED;
    }
    return BPS_OK;
}

static bps_status mark(const struct bps_worker *worker, const struct bps_device *device, struct bps_mark **out,
                       struct bps_report *report)
{
    BPS_CALLING(worker->device, "mark", NULL);
    bps_status status = device_ops(worker)->mark(worker->device->self, device, out, report);
    return bps_returned_pointer(worker->device, "mark", status, "*out", *out, report);
}

static void copy_release(const struct bps_worker *worker, struct bps_mark **mark)
{
    if (*mark != NULL) {
        BPS_CALLING(worker->device, "release", NULL);
        device_ops(worker)->release(worker->device->self, *mark);
        *mark = NULL;
    }
}

static bool is_scaled(const struct bps_operation *operation)
{
    const struct bps_push_pull *request = &operation->request;
    return bps_sums(&operation->roles) && (request->prescale != 1.0 || request->postscale != 1.0);
}

bool bps_copy_may_stay(const struct bps_instance *reducer, const struct bps_graph *graph)
{
    return !bps_graph_has_plugins(graph) && bps_device_ops(reducer)->can_reduce != NULL;
}

static bool stays(const struct bps_worker *worker, const struct bps_operation *operation)
{
    const struct bps_push_pull *request = &operation->request;
    const struct bps_device_ops *device = device_ops(worker);
    uint32_t op, dtype;
    if (worker->job.size > 1 || operation->blocks.ranks > 0 || !bps_copy_may_stay(worker->device, worker->graph) ||
        !bps_brings(&operation->roles, worker->job.rank)) {
        return false;
    }
    arithmetic(operation, &op, &dtype);
    if (bps_is_integer(dtype) && is_scaled(operation)) {
        return false; /* devices do not scale integers */
    }
    return device->can_reduce(worker->device->self, request->device.index, op, dtype);
}

static bool changes(const struct bps_operation *operation)
{
    return operation->request.in != operation->request.out || is_scaled(operation);
}

static void copy_prepare(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    bool any = operation->bytes > 0;
    operation->via = any && stays(worker, operation)                ? BPS_VIA_DEVICE
                     : any && bps_direct_reaches(worker, operation) ? BPS_VIA_DIRECT
                                                                    : BPS_VIA_HOST;
    if (operation->via == BPS_VIA_DEVICE && !changes(operation)) {
        copy_release(worker, &operation->mark); /* its input is its result, whenever it is there */
    }
    if (operation->via == BPS_VIA_HOST) {
        bps_staging_reserve(tensor,
                            bps_operation_staged(operation)); /* what there is, is looked at when the tasks begin */
    }
}

static bps_status copy_begin(struct bps_operation *operation, struct bps_report *report)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    bool direct = operation->via == BPS_VIA_DIRECT;
    bool staged = direct ? !bps_direct_has_all(copy_worker_of(operation), operation) : operation->via == BPS_VIA_HOST;
    if (staged && direct) { /* of some partitions the network reaches the end only through the host */
        bps_staging_reserve(tensor, bps_operation_staged(operation));
    }
    if (staged && tensor->staging_bytes < bps_operation_staged(operation)) {
        BPS_REPORT(report, "out of host memory for %lu bytes from the device", bps_operation_staged(operation));
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

/* The input is there, and the results of the round before have left the staging memory and its tasks. */
static void begin_if_ready(struct bps_operation *operation)
{
    const struct bps_worker *worker = copy_worker_of(operation);
    if (bps_must_wait(operation)) {
        return;
    }
    bps_operation_become(operation, BPS_PHASE_PENDING);
    if (worker->failure != BPS_OK) {
        bps_operation_error(operation, worker->failure, worker->failure_text);
        bps_operation_end(operation);
    } else {
        bps_tasks_begin(operation);
    }
}

static void on_input(void *arg, bps_status status, const char *text)
{
    bps_assert(((struct bps_operation *)arg)->phase == BPS_PHASE_DEVICE);
    struct bps_operation *operation = arg;
    struct bps_worker *worker = copy_worker_of(operation);
    struct bps_report report;
    status = bps_answered(worker->device, "reached", status, &text, &report);
    copy_release(worker, &operation->mark);
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, text);
    }
    begin_if_ready(operation);
}

static void await(struct bps_operation *operation)
{
    bps_assert(operation->phase == BPS_PHASE_PENDING && bps_must_wait(operation));
    struct bps_worker *worker = copy_worker_of(operation);
    struct bps_report report = {""};
    bps_operation_become(operation, BPS_PHASE_DEVICE);
    if (operation->mark == NULL) {
        return; /* the last copy that leaves begins it */
    }
    BPS_CALLING(worker->device, "await", bps_container(operation, struct bps_tensor_entry, operation)->named.name);
    bps_status status = device_ops(worker)->await(worker->device->self, operation->mark, on_input, operation, &report);
    status = bps_returned_told(worker->device, "await", status, &report);
    if (status != BPS_OK) {
        on_input(operation, status, report.text);
    }
}

/* ---- its end ---- */

static void copy_end(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    struct bps_report report = {""};
    copy_release(worker, &operation->mark); /* of one that has never begun */
    if (tensor->leaving == 0) {
        return;
    }
    BPS_CALLING(worker->device, "mark_copies", NULL);
    bps_status status = device_ops(worker)->mark_copies(worker->device->self, operation->request.device.index,
                                                        &operation->mark, &report);
    status = bps_returned_pointer(worker->device, "mark_copies", status, "*out", operation->mark, &report);
    if (status != BPS_OK) {
        bps_operation_error(operation, status, report.text);
    }
}

static void follow(struct bps_operation *operation)
{
    const struct bps_worker *worker = copy_worker_of(operation);
    struct bps_report report = {""};
    BPS_CALLING(worker->device, "follow", NULL);
    bps_status status =
        device_ops(worker)->follow(worker->device->self, &operation->request.device, operation->mark, &report);
    status = bps_returned_told(worker->device, "follow", status, &report);
    if (status != BPS_OK) {
        bps_operation_error(operation, status, report.text);
    }
    copy_release(worker, &operation->mark);
}

/* ---- copies ---- */

static void begin_copies(struct bps_worker *worker, struct bps_copier *copier);

/* Bytes at the end of a task that are copied; what is before them, the network reads and writes itself. */
static uint32_t staged(const struct bps_task *task)
{
    bps_assert(task->direct <= task->bytes);
    return task->bytes - task->direct;
}

static void on_host(void *arg, bps_status status, const char *text)
{
    struct bps_task *task = arg;
    struct bps_worker *worker = task->tensor->worker;
    struct bps_report report;
    status = bps_answered(worker->device, "done", status, &text, &report);
    bps_assert(worker->memory->to_host.under_way >= staged(task));
    worker->memory->to_host.under_way -= staged(task);
    task->src = task->dst;
    bps_task_done(task, status, text);
    begin_copies(worker, &worker->memory->to_host);
}

static void on_device(void *arg, bps_status status, const char *text)
{
    struct bps_task *task = arg;
    struct bps_worker *worker = task->tensor->worker;
    struct bps_report report;
    status = bps_answered(worker->device, "done", status, &text, &report);
    bps_assert(worker->memory->to_device.under_way >= staged(task));
    worker->memory->to_device.under_way -= staged(task);
    bps_task_done(task, status, text);
    begin_copies(worker, &worker->memory->to_device);
}

/* The same of a task that has not waited for it, nor has its operation. */
static void copy_on_left(void *arg, bps_status status, const char *text)
{
    const struct bps_task *task = arg;
    struct bps_tensor_entry *tensor = task->tensor;
    struct bps_worker *worker = tensor->worker;
    char line[BPS_TEXT_LIMIT];
    struct bps_report report;
    status = bps_answered(worker->device, "done", status, &text, &report);
    bps_assert(worker->memory->to_device.under_way >= staged(task));
    worker->memory->to_device.under_way -= staged(task);
    bps_assert(tensor->leaving > 0);
    tensor->leaving--;
    if (status != BPS_OK) {
        const struct bps_node *first = tensor->path.step[0].node, *copies = &worker->graph->to_device;
        const struct bps_node *stage = first->kind == BPS_NODE_REDUCE_ON_DEVICE ? first : copies;
        snprintf(line, sizeof line, "worker %u: stage %s: %s", worker->job.rank, stage->name, text);
        bps_worker_fail(worker, status, line);
    }
    if (tensor->operation.phase == BPS_PHASE_DEVICE) {
        begin_if_ready(&tensor->operation);
    }
    begin_copies(worker, &worker->memory->to_device);
}

/* Where the partition lies in the application's memory. */
static char *target(const struct bps_task *task)
{
    return (char *)task->tensor->operation.request.out + task->out;
}

/* The sum of a group lies where its result will. */
static const char *source(const struct bps_task *task)
{
    return task->for_group ? target(task) : (const char *)task->tensor->operation.request.in + task->in;
}

static void begin_copy(struct bps_worker *worker, struct bps_task *task, bool to_device)
{
    bool leaves = to_device && task->step + 1 == task->way->length;
    const struct bps_push_pull *request = &task->tensor->operation.request;
    struct bps_report report = {""};
    const struct bps_copy copy = {
        .device = request->device.index,
        .to_device = to_device,
        .to = (to_device ? target(task) : task->dst) + task->direct,
        .from = (to_device ? task->src : source(task)) + task->direct,
        .bytes = staged(task),
        .done = leaves      ? copy_on_left
                : to_device ? on_device
                            : on_host,
        .arg = task,
    };
    struct bps_copier *copier = to_device ? &worker->memory->to_device : &worker->memory->to_host;
    bps_status status = worker->failure;
    if (status == BPS_OK) {
        BPS_CALLING(worker->device, "copy", task->tensor->named.name);
        status = device_ops(worker)->copy(worker->device->self, &copy, &report);
        status = bps_returned_told(worker->device, "copy", status, &report);
    }
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text);
        return;
    }
    copier->under_way += staged(task);
    if (leaves) {
        task->tensor->leaving++;
        bps_task_done(task, BPS_OK, NULL);
    }
}

static void begin_copies(struct bps_worker *worker, struct bps_copier *copier)
{
    while (copier->under_way < UNDER_WAY_LIMIT && copier->queue.count > 0) {
        begin_copy(worker, bps_heap_pop(&copier->queue), copier == &worker->memory->to_device);
    }
}

static void copy_enqueue(struct bps_task *task, struct bps_copier *copier)
{
    struct bps_worker *worker = task->tensor->worker;
    if (!bps_heap_push(&copier->queue, task->tensor->operation.request.priority, worker->sequence++, task, NULL)) {
        bps_task_done(task, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    begin_copies(worker, copier);
}

/* ---- the stages ---- */

/* The stage counts what it copies, and no partition of which it copies nothing. */
static void count_direct(const struct bps_task *task)
{
    struct bps_node *node = bps_task_on(task)->node;
    node->bytes -= task->direct;
    node->tasks -= task->direct == task->bytes && task->direct > 0;
}

static bool copy_to_host(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    bool brings = bps_brings(&task->roles, tensor->worker->job.rank);
    task->direct = bps_direct_bytes(task);
    task->direct_src = source(task);
    task->direct_dst = target(task);
    count_direct(task);
    if (task->direct == task->bytes && task->direct > 0) {
        return true;
    }
    task->dst = tensor->staging + task->staged;
    if (task->bytes == 0 || !brings) {
        task->src = task->dst;
        return true;
    }
    copy_enqueue(task, &tensor->worker->memory->to_host);
    return false;
}

/* Whether the result belongs to this worker, and is not there already. */
static bool changes_here(const struct bps_task *task)
{
    const struct bps_push_pull *r = &task->tensor->operation.request;
    uint32_t rank = task->tensor->worker->job.rank;
    bool gets = bps_gets(&task->roles, rank);
    bool has = bps_has(&task->roles, rank) || (task->roles.from == rank && task->roles.to == rank);
    return gets || (has && (const char *)r->in + task->in != (const char *)r->out + task->out);
}

static bool copy_to_device(struct bps_task *task)
{
    const struct bps_operation *operation = &task->tensor->operation;
    struct bps_worker *worker = task->tensor->worker;
    struct bps_report report = {""};
    if (task->bytes == 0 || !changes_here(task)) {
        return true;
    }
    count_direct(task);
    bps_status status = task->direct > 0 ? bps_direct_flush(operation, &report) : BPS_OK;
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text);
        return false;
    }
    if (staged(task) > 0) {
        copy_enqueue(task, &worker->memory->to_device);
    }
    return staged(task) == 0;
}

static bool reduce_on_device(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    const struct bps_operation *operation = &task->tensor->operation;
    const struct bps_push_pull *request = &operation->request;
    bool scaled = bps_sums(&operation->roles);
    struct bps_report report = {""};
    if (!changes(operation)) {
        return true;
    }
    struct bps_reduction reduction = {
        .device = request->device.index,
        .n = 1,
        .src = {source(task)},
        .dst = target(task),
        .scales = scaled ? &request->prescale : NULL,
        .scale = scaled ? request->postscale : 1,
        .divisor = 1,
        .done = copy_on_left,
        .arg = task,
    };
    arithmetic(operation, &reduction.op, &reduction.dtype);
    reduction.count = task->bytes / bps_dtype_size(reduction.dtype);
    BPS_CALLING(worker->device, "reduce", task->tensor->named.name);
    bps_status status = device_ops(worker)->reduce(worker->device->self, &reduction, &report);
    status = bps_returned_told(worker->device, "reduce", status, &report);
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text);
        return false;
    }
    worker->memory->to_device.under_way += task->bytes;
    task->tensor->leaving++;
    return true;
}

static const struct bps_step_ops to_host = {
    .name = "copy", .takes = "what the network does not reach on the device", .start = copy_to_host};
static const struct bps_step_ops to_device = {
    .name = "copy", .takes = "what the network does not reach on the device", .start = copy_to_device};
static const struct bps_step_ops on_the_device = {
    .name = "scale", .takes = "all, in a job of one worker", .start = reduce_on_device};

const struct bps_step_ops *const bps_copy_to_host_steps[] = {&to_host, NULL};
const struct bps_step_ops *const bps_copy_to_device_steps[] = {&to_device, NULL};
const struct bps_step_ops *const bps_reduce_on_device_steps[] = {&on_the_device, NULL};

const struct bps_device_memory_ops bps_device_memory = {
    .check = copy_check,
    .mark = mark,
    .release = copy_release,
    .prepare = copy_prepare,
    .await = await,
    .begin = copy_begin,
    .end = copy_end,
    .follow = follow,
};
