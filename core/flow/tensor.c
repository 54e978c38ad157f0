/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - what a worker keeps of a tensor beside its name: where it is placed, its partitions, and their ways. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "flow/step.h"

static void on_tensor_taken(struct bps_named *named, bool fresh)
{
    struct bps_tensor_entry *tensor = (struct bps_tensor_entry *)named;
    if (fresh) {
        tensor->worker = bps_container(named->names, struct bps_worker, names);
        tensor->job.dtype = BPS_DTYPES;
        tensor->path_op = BPS_WIRE_OPS;
    }
    tensor->id = tensor->round = tensor->first_round = tensor->kept_from = 0;
    bps_tensor_replace_state(tensor, NULL, 0);
    free(tensor->value);
    tensor->value = NULL;
    bps_form_fini(&tensor->job);
    tensor->renamed = !fresh;
}

static void tensor_fini(struct bps_named *named)
{
    struct bps_tensor_entry *tensor = (struct bps_tensor_entry *)named;
    bps_tensor_strip(tensor);
    tensor->worker->memory_ops->release(tensor->worker, &tensor->operation.mark);
    free(tensor->operation.text);
    bps_form_fini(&tensor->job);
    free(tensor->saved);
    free(tensor->value);
}

const struct bps_named_ops bps_tensor_ops = {
    .bytes = sizeof(struct bps_tensor_entry), .taken = on_tensor_taken, .fini = tensor_fini};

struct bps_tensor_entry *bps_tensor_unnamed(struct bps_worker *worker, bool barrier)
{
    uint32_t number;
    struct bps_named *named = bps_names_next(&worker->names, barrier, &number);
    struct bps_tensor_entry *tensor = (struct bps_tensor_entry *)named;
    if (tensor != NULL) {
        tensor->id = (barrier ? BPS_ID_BARRIER : BPS_ID_UNNAMED) | (number & BPS_ID_NUMBER);
    }
    return tensor;
}

struct bps_tensor_entry *bps_tensor_of(const struct bps_worker *worker, uint32_t id)
{
    struct bps_tensor_entry *tensor;
    HASH_FIND(by_id, worker->ids, &id, sizeof id, tensor);
    return tensor;
}

void bps_tensor_replace_state(struct bps_tensor_entry *tensor, void *saved, size_t bytes)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_feedback_fini(&tensor->task[i].feedback);
    }
    free(tensor->saved);
    tensor->saved = saved;
    tensor->saved_bytes = bytes;
}

static void free_ways(struct bps_tensor_entry *tensor)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        struct bps_task *task = &tensor->task[i];
        bps_way_free(task->own);
        bps_way_free(task->other);
        task->own = task->other = NULL;
        task->way = NULL;
    }
}

void bps_tensor_forget_path(struct bps_tensor_entry *tensor)
{
    free_ways(tensor);
    if (tensor->path_op != BPS_WIRE_OPS) {
        bps_path_fini(&tensor->path);
        tensor->path_op = BPS_WIRE_OPS;
    }
}

uint32_t bps_tensor_partitions(const struct bps_tensor_entry *tensor, uint64_t bytes)
{
    if (tensor->operation.blocks.ranks > 0) {
        return 1; /* by which all agree */
    }
    return tensor->placed.n > 0 ? tensor->placed.n : bps_partitions(bytes, bps_tensor_cut(tensor, bytes));
}

uint32_t bps_tensor_size(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t partition)
{
    bps_assert(tensor->placed.n == 0 || partition < tensor->placed.n);
    return tensor->placed.n > 0 ? tensor->placed.partition[partition].bytes
                                : bps_partition_bytes(bytes, bps_tensor_cut(tensor, bytes), partition);
}

static int task_compare(const void *number, const void *task)
{
    uint32_t left = *(const uint32_t *)number, right = ((const struct bps_task *)task)->partition;
    return left < right ? -1 : left > right;
}

struct bps_task *bps_tensor_task(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    if (!tensor->blocks) {
        return partition < tensor->tasks ? &tensor->task[partition] : NULL;
    }
    return tensor->tasks == 0 ? NULL
                              : bsearch(&partition, tensor->task, tensor->tasks, sizeof *tensor->task, task_compare);
}

static void free_tasks(struct bps_tensor_entry *tensor)
{
    bps_assert(!bps_has_begun(&tensor->operation) || tensor->operation.left == 0);
    free_ways(tensor);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_feedback_fini(&tensor->task[i].feedback);
    }
    free(tensor->task);
    tensor->task = NULL;
    tensor->tasks = 0;
}

static void forget_next(struct bps_tensor_entry *tensor)
{
    free(tensor->next.partition);
    tensor->next.partition = NULL;
}

void bps_tensor_strip(struct bps_tensor_entry *tensor)
{
    free_tasks(tensor);
    free(tensor->placed.partition);
    forget_next(tensor);
    tensor->placed = (struct bps_placed){.n = 0};
    tensor->slice = 0;
    bps_tensor_forget_path(tensor);
}

/* Whether its tasks are those of a tensor of so many bytes. */
static bool has_tasks(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t n)
{
    bool same = tensor->tasks == n && tensor->path_bytes == bytes && !tensor->blocks;
    for (uint32_t i = 0; same && tensor->recut && i < n; i++) {
        same = tensor->task[i].bytes == bps_tensor_size(tensor, bytes, i);
    }
    return same;
}

bps_status bps_tensor_tasks(struct bps_tensor_entry *tensor, uint64_t bytes)
{
    uint32_t n = bps_tensor_partitions(tensor, bytes);
    uint64_t offset = 0;
    bool blocks = tensor->operation.blocks.ranks > 0, same = !blocks && has_tasks(tensor, bytes, n);
    tensor->recut = false;
    if (same) {
        return BPS_OK;
    }
    free_tasks(tensor);
    tensor->path_bytes = bytes;
    tensor->blocks = blocks;
    if (blocks) {
        return bps_blocks_tasks(tensor);
    }
    tensor->task = calloc(n, sizeof *tensor->task);
    if (tensor->task == NULL) {
        return BPS_ERR_NOMEM;
    }
    tensor->tasks = n;
    for (uint32_t i = 0; i < n; i++) {
        tensor->task[i].tensor = tensor;
        tensor->task[i].partition = i;
        tensor->task[i].bytes = bps_tensor_size(tensor, bytes, i);
        tensor->task[i].offset = tensor->task[i].in = tensor->task[i].out = tensor->task[i].staged = offset;
        tensor->task[i].whole = bytes;
        offset += tensor->task[i].bytes;
    }
    return BPS_OK;
}

void bps_tensor_place(struct bps_tensor_entry *tensor, const struct bps_placed *placed)
{
    bps_assert(placed->n > 0 && placed->partition != NULL);
    bps_tensor_forget_path(tensor); /* ways depend on the place */
    tensor->recut = true;           /* results of its last operation may still be leaving its tasks */
    free(tensor->placed.partition);
    forget_next(tensor);
    tensor->placed = *placed;
}

void bps_tensor_place_from(struct bps_tensor_entry *tensor, const struct bps_placed *placed, uint32_t round)
{
    bps_assert(placed->n > 0 && placed->partition != NULL);
    forget_next(tensor);
    tensor->next = *placed;
    tensor->next_round = round;
}

void bps_tensor_turn(struct bps_tensor_entry *tensor)
{
    if (tensor->blocks) { /* its tasks were those of another call */
        free_tasks(tensor);
        tensor->blocks = false;
    }
    if (tensor->next.partition != NULL && tensor->round >= tensor->next_round) {
        struct bps_placed next = tensor->next;
        tensor->next.partition = NULL;
        bps_tensor_place(tensor, &next);
    }
}

const struct bps_placed *bps_tensor_placed(const struct bps_tensor_entry *tensor, uint32_t round)
{
    return tensor->next.partition != NULL && round >= tensor->next_round ? &tensor->next : &tensor->placed;
}

bps_status bps_tensor_ways(struct bps_tensor_entry *tensor)
{
    for (uint32_t i = tensor->tasks; i-- > 0;) { /* the first one comes last: it stands for all */
        struct bps_task *task = &tensor->task[i];
        if (tensor->task[0].own != NULL) {
            return BPS_OK;
        }
        bps_way_free(task->own); /* of an attempt that had no memory */
        task->own = bps_way_new(task, &tensor->path);
        if (task->own == NULL) {
            return BPS_ERR_NOMEM;
        }
    }
    return BPS_OK;
}
