/* SPDX-License-Identifier: Apache-2.0 */
/*
 * way.c - which steps take a partition: chosen once, when the path of its tensor is made.
 *
 * For each node of the path the first step takes it that says so. What none takes is left out, and so is what lies
 * behind a step that ends with the result of all, up to the node that would hand it out.
 */
#include <stdlib.h>

#include "flow/step.h"

#include "base/assert.h"

#define ALIGNED 16u

const struct bps_step_ops *bps_step_for(const struct bps_tensor_entry *tensor, uint32_t partition,
                                        enum bps_node_kind kind)
{
    const struct bps_step_ops *const *steps = tensor->worker->steps[kind];
    while (*steps != NULL && (*steps)->probe != NULL && !(*steps)->probe(tensor, partition)) {
        steps++;
    }
    return *steps;
}

bool bps_step_serves(const struct bps_tensor_entry *tensor, enum bps_node_kind kind)
{
    return bps_step_for(tensor, 0, kind) != NULL;
}

static void way_choose(const struct bps_task *task, const struct bps_path *path, struct bps_way *way)
{
    bps_assert(path->length > 0);
    for (uint32_t i = 0; i < path->length; i++) {
        const struct bps_path_step *on = &path->step[i];
        const struct bps_step_ops *ops = bps_step_for(task->tensor, task->partition, on->node->kind);
        if (ops == NULL) {
            continue;
        }
        way->step[way->length++] = (struct bps_way_step){.ops = ops, .on = on};
        if (ops->until != BPS_NODE_PLUGIN) {
            i = bps_path_find(path, ops->until);
        }
    }
}

static size_t context_bytes(const struct bps_task *task, const struct bps_step_ops *ops)
{
    size_t bytes = ops->context + (ops->more != NULL ? ops->more(task) : 0);
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* One block for the contexts of all steps, which is the first one's. */
static bps_status way_allocate(const struct bps_task *task, struct bps_way *way)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < way->length; i++) {
        bytes += context_bytes(task, way->step[i].ops);
    }
    char *context = calloc(1, bytes + 1);
    for (uint32_t i = 0; context != NULL && i < way->length; i++) {
        way->step[i].context = context;
        context += context_bytes(task, way->step[i].ops);
    }
    return context != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

struct bps_way *bps_way_new(const struct bps_task *task, const struct bps_path *path)
{
    struct bps_way *way = calloc(1, sizeof *way + (path->length + 1) * sizeof way->step[0]);
    if (way != NULL) {
        way_choose(task, path, way);
    }
    if (way != NULL && way->length > 0 && way_allocate(task, way) != BPS_OK) {
        free(way);
        return NULL;
    }
    return way;
}

void bps_way_free(struct bps_way *way)
{
    if (way != NULL) {
        free(way->step[0].context);
    }
    free(way);
}

bool bps_way_has(const struct bps_way *way, enum bps_node_kind kind)
{
    for (uint32_t i = 0; i < way->length; i++) {
        if (way->step[i].on->node->kind == kind) {
            return true;
        }
    }
    return false;
}

void *bps_way_context(const struct bps_way *way, const struct bps_step_ops *ops)
{
    for (uint32_t i = 0; i < way->length; i++) {
        if (way->step[i].ops == ops) {
            return way->step[i].context;
        }
    }
    return NULL;
}
