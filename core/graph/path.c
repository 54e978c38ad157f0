/* SPDX-License-Identifier: Apache-2.0 */
/* path.c - which stages one tensor passes. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "plugin/returned.h"

/* BPS_OK: the tensor passes this stage. BPS_AGAIN: it goes around it. */
static bps_status passes(struct bps_node *node, const struct bps_tensor_info *tensor, bool broadcast, void **state,
                         struct bps_report *report)
{
    struct bps_report reason = {""};
    if (node->instance == NULL) {
        return node->kind == BPS_NODE_COMPRESS ? BPS_AGAIN : BPS_OK;
    }
    if (broadcast || (node->attr.ops & BPS_OP_BIT(tensor->op)) == 0 || !bps_condition_holds(&node->condition, tensor)) {
        return BPS_AGAIN;
    }
    if ((node->attr.dtypes & BPS_DTYPE_BIT(tensor->dtype)) == 0) {
        BPS_REPORT(report, "stage %s cannot take %s; give it a condition, such as when = \"dtype == float32\"",
                   node->name, bps_dtype_name(tensor->dtype));
        return BPS_ERR_UNSUPPORTED;
    }
    BPS_CALLING(node->instance, "bind", tensor->name);
    bps_status returned = node->ops->bind(node->instance->self, tensor, state, &reason);
    bps_status status = bps_returned(node->instance, "bind", BPS_AGAIN, returned, report);
    if (status < 0 && status == returned) {
        BPS_REPORT(report, "stage %s: %s", node->name, reason.text[0] != '\0' ? reason.text : bps_strerror(status));
    }
    return status;
}

static void append(struct bps_path *path, struct bps_node *node, void *state)
{
    path->step[path->length++] = (struct bps_path_step){node, state};
}

bps_status bps_path_new(struct bps_graph *graph, const struct bps_tensor_info *tensor, bool broadcast,
                        struct bps_path *out, struct bps_report *report)
{
    struct bps_path path = {0, calloc(graph->nodes + 2, sizeof *path.step), strdup(tensor->name)};
    bps_status status = path.step == NULL || path.name == NULL ? BPS_ERR_NOMEM : BPS_OK;
    struct bps_tensor_info info = *tensor;
    bool copied = tensor->memory == BPS_MEMORY_DEVICE; /* as all stages take host memory */
    info.name = path.name;
    if (status == BPS_OK && copied) {
        append(&path, &graph->to_host, NULL);
    }
    for (uint32_t i = 0; status >= 0 && i < graph->nodes; i++) {
        void *state = NULL;
        status = passes(&graph->node[i], &info, broadcast, &state, report);
        if (status == BPS_OK) {
            append(&path, &graph->node[i], state);
        }
    }
    if (status < 0) {
        bps_path_fini(&path);
        return status;
    }
    if (copied) {
        append(&path, &graph->to_device, NULL);
    }
    *out = path;
    return BPS_OK;
}

/* Of nodes that are built in. */
static bps_status path_make(struct bps_node *const *node, uint32_t n, const char *name, struct bps_path *out)
{
    struct bps_path path = {0, calloc(n, sizeof *path.step), strdup(name)};
    if (path.step == NULL || path.name == NULL) {
        bps_path_fini(&path);
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        append(&path, node[i], NULL);
    }
    *out = path;
    return BPS_OK;
}

bps_status bps_path_new_on_device(struct bps_graph *graph, const char *tensor, struct bps_path *out)
{
    struct bps_node *const node[] = {&graph->on_device};
    return path_make(node, 1, tensor, out);
}

bps_status bps_path_new_among_devices(struct bps_graph *graph, struct bps_path *out)
{
    struct bps_node *const node[] = {&graph->reduce, &graph->to_host, &graph->node[graph->push_pull], &graph->to_device,
                                     &graph->broadcast};
    return path_make(node, sizeof node / sizeof node[0], "", out);
}

uint32_t bps_path_find(const struct bps_path *path, enum bps_node_kind kind)
{
    uint32_t i = 0;
    while (i < path->length && path->step[i].node->kind != kind) {
        i++;
    }
    return i;
}

void bps_path_fini(struct bps_path *path)
{
    for (uint32_t i = 0; i < path->length; i++) {
        const struct bps_path_step *step = &path->step[i];
        if (step->node->instance != NULL) {
            BPS_CALLING(step->node->instance, "unbind", NULL);
            step->node->ops->unbind(step->node->instance->self, step->state);
        }
    }
    free(path->step);
    free(path->name);
    *path = (struct bps_path){0, NULL, NULL};
}
