/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - building and checking the chain of stages. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/report.h"

#define ALL_TYPES ((1u << BPS_DTYPES) - 1)
#define ALL_OPS   ((1u << BPS_OPS) - 1)

static const char *const builtin_names[] = {
    [BPS_NODE_LOCAL_REDUCE] = "local_reduce",
    [BPS_NODE_COMPRESS] = "compress",
    [BPS_NODE_PUSH_PULL] = "push_pull",
    [BPS_NODE_LOCAL_BROADCAST] = "local_broadcast",
    [BPS_NODE_COPY_TO_HOST] = "copy_to_host",
    [BPS_NODE_COPY_TO_DEVICE] = "copy_to_device",
    [BPS_NODE_DEVICE_BROADCAST] = "device_broadcast",
    [BPS_NODE_REDUCE_ON_DEVICE] = "reduce_on_device",
    [BPS_NODE_DEVICE_REDUCE] = "device_reduce",
};

/* Built-in stages carry host memory as it is; reducers can sum nothing else. */
static const struct bps_stage_attr builtin_attr = {
    .ops = ALL_OPS,
    .dtypes = ALL_TYPES,
    .memory = BPS_MEMORY_HOST,
    .executor = BPS_EXECUTOR_IO,
    .writes = 1,
    .takes = "plain",
    .gives = "plain",
};

static const char *scalar(const struct bps_conf_node *group, const char *name)
{
    const struct bps_conf_node *node = bps_conf_member(group, name);
    return node != NULL ? node->text : NULL;
}

enum bps_node_kind bps_node_kind_of(const char *stage)
{
    for (enum bps_node_kind kind = BPS_NODE_LOCAL_REDUCE; kind <= BPS_NODE_LOCAL_BROADCAST; kind++) {
        if (strcmp(stage, builtin_names[kind]) == 0) {
            return kind;
        }
    }
    return BPS_NODE_PLUGIN;
}

static bps_status open_stage(struct bps_node *node, const struct bps_conf_node *entry, uint32_t index,
                             struct bps_loop *loop, struct bps_report *report)
{
    char path[64];
    snprintf(path, sizeof path, "worker.graph[%u]", index);
    bps_status status =
        bps_instance_open(BPS_KIND_STAGE, node->name, node->name, entry, path, loop, &node->instance, report);
    if (status == BPS_OK) {
        node->ops = node->instance->ops;
        node->attr = node->instance->attr.stage;
        node->kind = node->ops->run_all != NULL ? BPS_NODE_PLUGIN_ROUND : BPS_NODE_PLUGIN;
    }
    return status;
}

/* A built-in stage has no options; what else stands in its group is a mistake. */
static bps_status check_members(const struct bps_node *node, const struct bps_conf_node *entry, uint32_t index,
                                struct bps_report *report)
{
    for (uint32_t i = 0; i < entry->count; i++) {
        const char *name = entry->children[i]->name;
        bool uses = node->kind != BPS_NODE_LOCAL_BROADCAST && strcmp(name, "use") == 0;
        bool mode = node->kind == BPS_NODE_PUSH_PULL && strcmp(name, "mode") == 0;
        if (!uses && !mode && strcmp(name, "stage") != 0 && strcmp(name, "when") != 0) {
            BPS_REPORT(report, "%s: worker.graph[%u].%.200s: stage %s does not take it; expected %s",
                       entry->children[i]->origin, index, name, node->name,
                       node->kind == BPS_NODE_COMPRESS          ? "stage, use and when"
                       : node->kind == BPS_NODE_PUSH_PULL       ? "stage, use, mode and when"
                       : node->kind != BPS_NODE_LOCAL_BROADCAST ? "stage and use"
                                                                : "stage");
            return BPS_ERR_CONF;
        }
    }
    return BPS_OK;
}

static bps_status read_condition(struct bps_node *node, const char *when, struct bps_report *report)
{
    struct bps_report reason = {""};
    if (strlen(when) >= sizeof node->when) {
        BPS_REPORT(report, "%s: stage %s: when = \"%.40s...\" has %zu characters; expected at most %zu", node->origin,
                   node->name, when, strlen(when), sizeof node->when - 1);
        return BPS_ERR_CONF;
    }
    snprintf(node->when, sizeof node->when, "%s", when);
    if (bps_condition_parse(when, &node->condition, &reason) != BPS_OK) {
        BPS_REPORT(report, "%s: stage %s: when = \"%s\": %s", node->origin, node->name, when, reason.text);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

/* A stage compress, with the compressor that it names. */
static bps_status open_coding(struct bps_node *node, const struct bps_conf *conf, const struct bps_conf_node *entry,
                              struct bps_codings *codings, struct bps_report *report)
{
    const struct bps_conf_node *use = bps_conf_member(entry, "use");
    char path[128];
    if (use != NULL && use->kind == BPS_CONF_LIST && use->count == 1) {
        use = use->children[0];
    }
    if (use == NULL || use->kind != BPS_CONF_SCALAR) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: stage compress names %s; expected use = \"NAME\", one member of compressors",
                        entry->origin, use == NULL ? "no compressor" : "several compressors");
    }
    if (bps_condition_asks_op(&node->condition)) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: stage compress: when = \"%s\": a tensor is coded the same way in all operations, so the "
                        "condition cannot use op; sums and averages are coded, all others never",
                        entry->origin, node->when);
    }
    const struct bps_conf_node *all = bps_conf_find(conf, "compressors"), *group = bps_conf_member(all, use->text);
    bool none = all == NULL || all->kind != BPS_CONF_GROUP || all->count == 0;
    bool automatic = group == NULL && strcmp(use->text, "auto") == 0 && !none;
    if (automatic) {
        group = all->children[0];
    }
    if (group == NULL) {
        return bps_fail(report, BPS_ERR_CONF, "%s: stage compress: compressors has no member %.100s", entry->origin,
                        use->text);
    }
    snprintf(path, sizeof path, "compressors.%.100s", group->name);
    return bps_codings_of_group(codings, group, path, automatic, &node->coding, report);
}

/* How push_pull meets the others, and for which tensors. */
static bps_status read_mode(struct bps_node *node, const struct bps_conf_node *entry, struct bps_report *report)
{
    const char *mode = scalar(entry, "mode"), *when = scalar(entry, "when");
    bool async = mode != NULL && strcmp(mode, "async") == 0;
    if (mode != NULL && !async && strcmp(mode, "sync") != 0) {
        return bps_fail(report, BPS_ERR_CONF, "%s: stage push_pull: mode = \"%.40s\"; expected sync or async",
                        entry->origin, mode);
    }
    if (when != NULL && !async) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: stage push_pull cannot have a condition: every tensor passes it; with mode = \"async\" it "
                        "says which tensors are in that mode",
                        entry->origin);
    }
    if (async && bps_condition_asks_op(&node->condition)) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: stage push_pull: when = \"%s\": a tensor has the same mode in all operations, so the "
                        "condition cannot use op",
                        entry->origin, node->when);
    }
    node->keeps = async;
    return BPS_OK;
}

static bps_status build_node(struct bps_graph *graph, const struct bps_conf *conf, const struct bps_conf_node *entry,
                             uint32_t index, struct bps_loop *loop, struct bps_report *report)
{
    struct bps_node *node = &graph->node[index];
    const char *stage = scalar(entry, "stage"), *when = scalar(entry, "when");
    node->origin = entry->origin;
    if (stage == NULL) {
        BPS_REPORT(report, "%s: worker.graph[%u] has no stage; expected stage = \"push_pull\" or a plugin's name",
                   entry->origin, index);
        return BPS_ERR_CONF;
    }
    snprintf(node->name, sizeof node->name, "%s", stage);
    if (when != NULL && read_condition(node, when, report) != BPS_OK) {
        return BPS_ERR_CONF;
    }
    node->kind = bps_node_kind_of(stage);
    if (node->kind == BPS_NODE_PLUGIN) {
        return open_stage(node, entry, index, loop, report);
    }
    node->attr = builtin_attr;
    if (node->kind == BPS_NODE_COMPRESS) {
        node->attr.ops = BPS_OP_BIT(BPS_SUM) | BPS_OP_BIT(BPS_AVERAGE);
        node->attr.dtypes = BPS_DTYPE_BIT(BPS_FLOAT16) | BPS_DTYPE_BIT(BPS_BFLOAT16) | BPS_DTYPE_BIT(BPS_FLOAT32) |
                            BPS_DTYPE_BIT(BPS_FLOAT64);
        bps_status status = check_members(node, entry, index, report);
        return status == BPS_OK ? open_coding(node, conf, entry, &graph->codings, report) : status;
    }
    if (node->kind == BPS_NODE_PUSH_PULL) {
        bps_status status = read_mode(node, entry, report);
        return status == BPS_OK ? check_members(node, entry, index, report) : status;
    }
    if (when != NULL) {
        BPS_REPORT(report, "%s: stage %s cannot have a condition: every tensor passes it", entry->origin, stage);
        return BPS_ERR_CONF;
    }
    return check_members(node, entry, index, report);
}

static void build_device_node(struct bps_node *node, enum bps_node_kind kind, uint32_t memory)
{
    node->kind = kind;
    node->origin = "for tensors in device memory";
    node->attr = builtin_attr;
    node->attr.memory = memory;
    snprintf(node->name, sizeof node->name, "%s", builtin_names[kind]);
}

/* ---- checking ---- */

static bps_status check_node(const struct bps_node *node, struct bps_report *report)
{
    const struct bps_stage_attr *a = &node->attr;
    if ((a->memory & BPS_MEMORY_HOST) == 0) {
        BPS_REPORT(report, "%s: stage %s takes device memory only, but no plugin here provides it", node->origin,
                   node->name);
        return BPS_ERR_CONF;
    }
    if (strcmp(a->takes, a->gives) != 0 && (node->condition.steps > 0 || a->writes == 0)) {
        BPS_REPORT(report, "%s: stage %s turns '%s' into '%s' and so cannot have a condition", node->origin, node->name,
                   a->takes, a->gives);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

static bps_status check_edge(const char *from, const char *gives, const char *to, const char *takes, const char *origin,
                             struct bps_report *report)
{
    if (strcmp(gives, takes) != 0) {
        BPS_REPORT(report, "%s: %s cannot follow %s: it takes '%s' data, but %s gives '%s'", origin, to, from, takes,
                   from, gives);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

/*
 * push_pull exactly once; local_reduce somewhere before and local_broadcast somewhere after it, or neither; compress
 * as often as one likes, directly before push_pull.
 */
static bps_status check_builtins(struct bps_graph *graph, struct bps_report *report)
{
    uint32_t count[BPS_NODE_LOCAL_BROADCAST + 1] = {0};
    const char *origin = "worker.graph";
    enum bps_node_kind last = BPS_NODE_PLUGIN;
    bool ordered = true;
    for (uint32_t i = 0; i < graph->nodes; i++) {
        const struct bps_node *node = &graph->node[i];
        origin = node->origin;
        count[node->kind]++;
        graph->push_pull = node->kind == BPS_NODE_PUSH_PULL ? i : graph->push_pull;
        if (!bps_node_is_plugin(node)) {
            ordered = ordered && node->kind >= last;
            last = node->kind;
        }
    }
    if (count[BPS_NODE_PUSH_PULL] != 1) {
        BPS_REPORT(report, "%s: worker.graph has %u stages push_pull; expected exactly one", origin,
                   count[BPS_NODE_PUSH_PULL]);
        return BPS_ERR_CONF;
    }
    uint32_t reduces = count[BPS_NODE_LOCAL_REDUCE], broadcasts = count[BPS_NODE_LOCAL_BROADCAST];
    if (reduces > 1 || reduces != broadcasts || !ordered) {
        BPS_REPORT(report,
                   "%s: worker.graph has %u stages local_reduce and %u local_broadcast%s; expected none, or "
                   "local_reduce once before push_pull and local_broadcast once after it",
                   origin, reduces, broadcasts, ordered ? "" : ", in the wrong order");
        return BPS_ERR_CONF;
    }
    graph->local = reduces == 1;
    for (uint32_t i = 0; i + 1 < graph->nodes; i++) {
        enum bps_node_kind after = graph->node[i + 1].kind;
        if (graph->node[i].kind == BPS_NODE_COMPRESS && after != BPS_NODE_COMPRESS && after != BPS_NODE_PUSH_PULL) {
            return bps_fail(report, BPS_ERR_CONF, "%s: stage compress stands before %s; expected push_pull after it",
                            graph->node[i].origin, graph->node[i + 1].name);
        }
    }
    return BPS_OK;
}

static bps_status graph_check_graph(struct bps_graph *graph, struct bps_report *report)
{
    const char *from = "the tensor", *gives = "plain", *origin = "worker.graph";
    for (uint32_t i = 0; i < graph->nodes; i++) {
        const struct bps_node *node = &graph->node[i];
        bps_status status = check_node(node, report);
        if (status == BPS_OK) {
            status = check_edge(from, gives, node->name, node->attr.takes, node->origin, report);
        }
        if (status != BPS_OK) {
            return status;
        }
        from = node->name;
        gives = node->attr.gives;
        origin = node->origin;
    }
    bps_status status = check_builtins(graph, report);
    return status != BPS_OK ? status : check_edge(from, gives, "the result", "plain", origin, report);
}

/* The leader of a partition alone passes what lies there: no worker sees a whole round. */
static bps_status check_rounds(const struct bps_graph *graph, struct bps_report *report)
{
    bool between = false;
    for (uint32_t i = 0; i < graph->nodes; i++) {
        const struct bps_node *node = &graph->node[i];
        between = (between || node->kind == BPS_NODE_LOCAL_REDUCE) && node->kind != BPS_NODE_LOCAL_BROADCAST;
        if (between && node->kind == BPS_NODE_PLUGIN_ROUND) {
            return bps_fail(report, BPS_ERR_CONF,
                            "%s: stage %s takes whole rounds, and so cannot stand between local_reduce and "
                            "local_broadcast; put it before or after both",
                            node->origin, node->name);
        }
    }
    return BPS_OK;
}

/* ---- life ---- */

bps_status bps_graph_new(const struct bps_conf *conf, struct bps_loop *loop, struct bps_graph **out,
                         struct bps_report *report)
{
    const struct bps_conf_node *list = bps_conf_find(conf, "worker.graph");
    uint32_t n = list != NULL && list->kind == BPS_CONF_LIST ? list->count : 0;
    struct bps_graph *graph = calloc(1, sizeof *graph + n * sizeof graph->node[0]);
    if (graph == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_status status = BPS_OK;
    bps_codings_init(&graph->codings, conf->worker.slice);
    build_device_node(&graph->to_host, BPS_NODE_COPY_TO_HOST, BPS_MEMORY_HOST | BPS_MEMORY_DEVICE);
    build_device_node(&graph->to_device, BPS_NODE_COPY_TO_DEVICE, BPS_MEMORY_HOST | BPS_MEMORY_DEVICE);
    build_device_node(&graph->reduce, BPS_NODE_DEVICE_REDUCE, BPS_MEMORY_DEVICE);
    build_device_node(&graph->broadcast, BPS_NODE_DEVICE_BROADCAST, BPS_MEMORY_DEVICE);
    build_device_node(&graph->on_device, BPS_NODE_REDUCE_ON_DEVICE, BPS_MEMORY_DEVICE);
    while (status == BPS_OK && graph->nodes < n) {
        uint32_t i = graph->nodes++;
        status = build_node(graph, conf, list->children[i], i, loop, report);
    }
    if (status == BPS_OK) {
        status = graph_check_graph(graph, report);
    }
    if (status == BPS_OK) {
        status = check_rounds(graph, report);
    }
    if (status != BPS_OK) {
        bps_graph_free(graph);
        return status;
    }
    *out = graph;
    return BPS_OK;
}

static void log_node(const struct bps_node *node)
{
    if (node->tasks > 0) {
        bps_debug("graph", "stage %s: %lu tasks, %lu bytes, %lu failures", node->name, node->tasks, node->bytes,
                  node->failures);
    }
}

void bps_graph_free(struct bps_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    log_node(&graph->to_host);
    for (uint32_t i = 0; i < graph->nodes; i++) {
        log_node(&graph->node[i]);
        bps_instance_close(graph->node[i].instance);
    }
    log_node(&graph->to_device);
    log_node(&graph->on_device);
    bps_codings_fini(&graph->codings);
    free(graph);
}

struct bps_coding *bps_graph_coding(const struct bps_graph *graph, const struct bps_tensor_info *tensor)
{
    for (uint32_t i = 0; i < graph->nodes; i++) {
        const struct bps_node *node = &graph->node[i];
        if (node->kind == BPS_NODE_COMPRESS && bps_condition_holds(&node->condition, tensor)) {
            return bps_coding_takes(node->coding, tensor->dtype) ? node->coding : NULL;
        }
    }
    return NULL;
}

bool bps_graph_keeps(const struct bps_graph *graph, const struct bps_tensor_info *tensor)
{
    const struct bps_node *node = &graph->node[graph->push_pull];
    return node->keeps && bps_condition_holds(&node->condition, tensor);
}

bool bps_graph_has_plugins(const struct bps_graph *graph)
{
    for (uint32_t i = 0; i < graph->nodes; i++) {
        if (bps_node_is_plugin(&graph->node[i])) {
            return true;
        }
    }
    return false;
}

bool bps_graph_has_plugins_between(const struct bps_graph *graph)
{
    bool between = false;
    for (uint32_t i = 0; i < graph->nodes; i++) {
        const struct bps_node *node = &graph->node[i];
        if (between && bps_node_is_plugin(node)) {
            return true;
        }
        between = (between || node->kind == BPS_NODE_LOCAL_REDUCE) && node->kind != BPS_NODE_LOCAL_BROADCAST;
    }
    return false;
}

bool bps_graph_takes_rounds(const struct bps_graph *graph)
{
    for (uint32_t i = 0; i < graph->nodes; i++) {
        if (graph->node[i].kind == BPS_NODE_PLUGIN_ROUND) {
            return true;
        }
    }
    return false;
}

bool bps_graph_needs_threads(const struct bps_graph *graph)
{
    for (uint32_t i = 0; i < graph->nodes; i++) {
        if (graph->node[i].attr.executor == BPS_EXECUTOR_CPU) {
            return true;
        }
    }
    return false;
}
