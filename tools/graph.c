/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - `byteps graph`: the stages that the configuration wires together, for people and programs. */
#include "device/copy.h"
#include "device_group/devices.h"
#include "flow/step.h"
#include "graph/graph.h"
#include "group/local.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <byteps/reducer.h>

#include "base/log.h"
#include "base/text.h"
#include "node/transport.h"
#include "plugin/ask.h"
#include "plugin/use.h"
#include "tools/cmd.h"
#include "tools/info.h"
#include "tools/plan.h"
#include "worker/worker.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps graph [--explain | --dot | --json] [--model MODEL] [OPTIONS]\n"
    "\n"
    "Builds the stage graph of the configuration, as a worker and a server would, and\n"
    "prints it.\n"
    "\n"
    "      --explain          show which plugin each stage uses and what was\n"
    "                         negotiated\n"
    "      --dot              print it in the language of graphviz\n"
    "      --json             print JSON\n" BPS_PLAN_HELP
    "                         with --explain or --json: what each server would get\n"
    "                         of the model\n"
    BPS_CMD_CONF_HELP
    "      --help             print this\n";
/* clang-format on */

/* Everything that a worker and a server open, and nothing of the network. */
struct drawing {
    struct bps_loop *loop;
    struct bps_graph *graph;
    struct bps_instance *net, *reducer, *device;       /* device: NULL if there is none */
    char transport[256], summation[256], devices[256]; /* what the instances say of themselves */
    bool among_devices;                                /* those of a host sum among themselves, */
    char groups[256];                                  /* by this; or why they do not */
    char local[512], same_host[512]; /* how workers of a host meet, and reach its servers; or why not */
    char types[128];                 /* of which sums of a host cross the network */
    char direct[160];                /* what of a device needs no copy, as the network reaches it; or why not */
};

/* "sum average", or "all" */
static void mask_text(uint32_t mask, uint32_t n, const char *(*name)(uint32_t), char *text, size_t room)
{
    struct bps_text out = bps_text_in(text, room);
    if ((mask & ((1u << n) - 1)) == (1u << n) - 1) {
        bps_text_add(&out, "all");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if ((mask >> i & 1) != 0) {
            bps_text_add(&out, "%s%s", out.length > 0 ? " " : "", name(i));
        }
    }
}

static void describe_local(const struct bps_conf *conf, struct drawing *d)
{
    char text[512];
    mask_text(bps_local_types(conf), BPS_DTYPES, bps_dtype_name, d->types, sizeof d->types);
    bps_transport_text_local(conf, d->loop, text, sizeof text);
    snprintf(d->same_host, sizeof d->same_host, "%s", conf->server.local ? text : "none: server.local = false");
    snprintf(d->local, sizeof d->local, "%s",
             conf->worker.hierarchy == BPS_HIERARCHY_OFF ? "none: worker.hierarchy = off" : text);
}

static void describe_groups(const struct bps_conf *conf, struct drawing *d)
{
    struct bps_report report = {""};
    char text[128];
    const char *obstacle = bps_devices_obstacle(conf, d->device, 1, text, sizeof text, &report);
    d->among_devices = obstacle == NULL;
    if (obstacle != NULL) {
        snprintf(d->groups, sizeof d->groups, "none: %.200s", obstacle);
    } else {
        snprintf(d->groups, sizeof d->groups, "%s, where each worker has its own device", text);
    }
}

static void describe_direct(struct drawing *d)
{
    uint32_t least;
    const char *obstacle = bps_direct_obstacle(d->device, d->net, d->graph, &least);
    if (obstacle != NULL) {
        snprintf(d->direct, sizeof d->direct, "no: %s", obstacle);
    } else {
        snprintf(d->direct, sizeof d->direct,
                 "transport %s reads and writes slices of %u bytes and more on the device, if it can", d->net->name,
                 least);
    }
}

static bps_status open_drawing(const struct bps_conf *conf, struct drawing *d, struct bps_report *report)
{
    d->loop = bps_loop_new();
    bps_status status = d->loop == NULL ? BPS_ERR_IO : bps_graph_new(conf, d->loop, &d->graph, report);
    if (status == BPS_OK) {
        status = bps_transport_open(conf, d->loop, &d->net, report);
    }
    if (status == BPS_OK) {
        status = bps_reducer_open(conf, d->loop, &d->reducer, report);
    }
    if (status == BPS_OK) {
        status = bps_device_open(conf, d->loop, &d->device, report);
    }
    if (status == BPS_OK) {
        bps_ask_describe(d->net, d->transport, sizeof d->transport);
        bps_ask_describe(d->reducer, d->summation, sizeof d->summation);
        describe_local(conf, d);
    }
    if (status == BPS_OK && d->device != NULL) {
        bps_ask_describe(d->device, d->devices, sizeof d->devices);
        describe_groups(conf, d);
        describe_direct(d);
    }
    return status;
}

static void close_drawing(struct drawing *d)
{
    bps_graph_free(d->graph);
    bps_instance_close(d->device);
    bps_instance_close(d->reducer);
    bps_instance_close(d->net);
    bps_loop_free(d->loop);
}

static void print_stages(const struct drawing *d)
{
    for (uint32_t i = 0; i < d->graph->nodes; i++) {
        const struct bps_node *node = &d->graph->node[i];
        printf(" -> %s", node->name);
        if (node->kind == BPS_NODE_PUSH_PULL) {
            printf("(%s)", d->net->name);
        }
        if (node->coding != NULL) {
            printf("(%s)", node->coding->compressor->loaded->plugin->name);
        }
        if (node->when[0] != '\0') {
            printf("[%s]", node->when);
        }
    }
}

/* True if tensors on a device can stay there when there is no other worker. */
static bool stays_on_device(const struct drawing *d)
{
    return d->device != NULL && bps_copy_may_stay(d->device, d->graph);
}

static void print_line(const struct drawing *d)
{
    printf("worker: tensor");
    print_stages(d);
    printf(" -> result\n");
    if (d->device != NULL) {
        printf("worker: tensor on a device -> %s(%s)", d->graph->to_host.name, d->device->name);
        print_stages(d);
        printf(" -> %s(%s) -> result\n", d->graph->to_device.name, d->device->name);
    }
    if (stays_on_device(d)) {
        printf("worker: tensor on a device, in a job of one worker -> %s(%s) -> result\n", d->graph->on_device.name,
               d->device->name);
    }
    printf("server: receive -> sum(%s) -> reply\n", d->reducer->name);
}

/* Between workers and servers. */
static void print_transports(const struct drawing *d)
{
    printf("    transport  %s: plugin %s, %s\n", d->net->name, d->net->loaded->plugin->name, d->transport);
    printf("    same host  %s\n", d->same_host);
}

static void explain_builtin(const struct drawing *d, const struct bps_node *node)
{
    if (node->kind == BPS_NODE_PUSH_PULL) {
        print_transports(d);
    } else if (node->kind == BPS_NODE_LOCAL_REDUCE) {
        printf("    does       sums among the workers of this host\n");
        printf("    transport  %s\n", d->local);
        printf("    hosts      where there are several, it sums what has a name, of the types %s; the rest "
               "each worker "
               "pushes itself\n",
               d->types);
        if (d->device != NULL) {
            printf("    devices    %s\n", d->groups);
        }
    } else if (node->kind == BPS_NODE_COMPRESS) {
        printf("    does       sets how sums and averages of a tensor are coded on the network, in push_pull\n");
        printf("    coding     %s\n", node->coding->text);
        if (node->coding->automatic) {
            printf("    auto       rounds are coded where that saves time, as rank 0 measures while the job runs\n");
        }
        printf("    slices     of %u bytes of float32, which are at most %zu when coded\n",
               bps_coding_slice(node->coding, BPS_FLOAT32),
               bps_coding_bound(node->coding, false, BPS_FLOAT32, node->coding->narrow));
    } else if (node->kind == BPS_NODE_LOCAL_BROADCAST) {
        printf("    does       gives the result to the workers of this host\n");
    } else if (node->kind == BPS_NODE_DEVICE_REDUCE || node->kind == BPS_NODE_DEVICE_BROADCAST) {
        printf("    does       instead of %s, where all workers of this host have the tensor on their devices\n",
               node->kind == BPS_NODE_DEVICE_REDUCE ? "local_reduce" : "local_broadcast");
        printf("    devices    %s\n", d->groups);
    } else {
        printf("    does       %s\n",
               node->kind == BPS_NODE_REDUCE_ON_DEVICE
                   ? "in a job of one worker, instead of all others: scales tensors that lie on a device there"
                   : "copies tensors that lie on a device, the most urgent first; all others go around it");
        printf("    reducer    %s: plugin %s, %s\n", d->device->name, d->device->loaded->plugin->name, d->devices);
        if (node->kind != BPS_NODE_REDUCE_ON_DEVICE) {
            printf("    in place   %s\n", d->direct);
        }
    }
}

/* As each partition of a tensor finds its own, when the tensor is pushed in this form for the first time. */
static void explain_ways(const struct bps_node *node)
{
    const char *label = "ways";
    const struct bps_step_ops *const *step = bps_worker_steps(node->kind, false);
    for (; step != NULL && *step != NULL; step++) {
        printf("    %-10s %s: %s\n", label, (*step)->name, (*step)->takes);
        label = "";
    }
}

static void explain_node(const struct drawing *d, const struct bps_node *node)
{
    char dtypes[256], ops[128], own[256] = "";
    mask_text(node->attr.dtypes, BPS_DTYPES, bps_dtype_name, dtypes, sizeof dtypes);
    mask_text(node->attr.ops, BPS_OPS, bps_op_name, ops, sizeof ops);
    printf("  %s\n", node->name);
    if (node->instance == NULL) {
        printf("    plugin     built in\n");
        explain_builtin(d, node);
        explain_ways(node);
    } else {
        bps_ask_describe(node->instance, own, sizeof own);
        printf("    plugin     %s %s (%s)\n", node->instance->loaded->plugin->name,
               node->instance->loaded->module->version, node->instance->loaded->path);
        if (own[0] != '\0') {
            printf("    options    %s\n", own);
        }
    }
    printf("    listed     %s\n", node->origin);
    printf("    when       %s\n", node->when[0] != '\0' ? node->when : "always");
    printf("    types      %s\n    operations %s (broadcasts and barriers pass only what is built in)\n", dtypes, ops);
    printf("    data       %s memory, takes '%s', gives '%s', %s\n",
           (node->attr.memory & BPS_MEMORY_DEVICE) == 0 ? "host"
           : (node->attr.memory & BPS_MEMORY_HOST) == 0 ? "device"
                                                        : "device and host",
           node->attr.takes, node->attr.gives, node->attr.writes != 0 ? "changes it" : "only looks");
    bool pool = node->attr.executor == BPS_EXECUTOR_CPU;
    printf("    runs on    %s\n", pool ? "the pool of threads (worker.threads)" : "the core thread");
}

static void print_explained(const struct bps_conf *conf, const struct drawing *d)
{
    char order[32];
    snprintf(order, sizeof order, "%s", conf->server.order == BPS_ORDER_RANK ? "rank" : "arrival");
    printf("worker: partitions of %lu bytes, slices of %lu bytes; the most urgent slice goes first\n",
           conf->worker.partition, conf->worker.slice);
    if (d->device != NULL) {
        explain_node(d, &d->graph->to_host);
    }
    for (uint32_t i = 0; i < d->graph->nodes; i++) {
        explain_node(d, &d->graph->node[i]);
    }
    if (d->device != NULL) {
        explain_node(d, &d->graph->to_device);
    }
    if (stays_on_device(d)) {
        explain_node(d, &d->graph->on_device);
    }
    if (d->among_devices) {
        explain_node(d, &d->graph->reduce);
        explain_node(d, &d->graph->broadcast);
    }
    printf("server: each shard is one thread with its own connections and keys\n");
    printf("  receive\n");
    print_transports(d);
    printf("  sum\n    reducer    %s: plugin %s %s, %s\n    order      of %s\n", d->reducer->name,
           d->reducer->loaded->plugin->name, d->reducer->loaded->module->version, d->summation, order);
    printf("  reply\n    data       each slice as soon as the last worker's contribution is in\n");
    printf("placement: by bytes, as the links of the hosts allow; --model MODEL shows what each server "
           "gets\n");
}

static void print_dot(const struct drawing *d)
{
    printf("digraph byteps {\n    rankdir=LR;\n    node [shape=box];\n");
    printf("    subgraph cluster_worker {\n        label=\"worker\";\n        tensor [shape=oval];\n");
    printf("        result [shape=oval];\n");
    for (uint32_t i = 0; i < d->graph->nodes; i++) {
        const struct bps_node *node = &d->graph->node[i];
        printf("        stage%u [label=\"%s\"];\n", i, node->kind == BPS_NODE_PUSH_PULL ? d->net->name : node->name);
    }
    printf("    }\n    subgraph cluster_server {\n        label=\"server\";\n");
    printf("        receive -> sum -> reply;\n        sum [label=\"sum (%s)\"];\n    }\n", d->reducer->name);
    printf("    tensor -> stage0;\n");
    for (uint32_t i = 0; i + 1 < d->graph->nodes; i++) {
        printf("    stage%u -> stage%u [label=\"%s\"];\n", i, i + 1, d->graph->node[i].attr.gives);
    }
    printf("    stage%u -> result;\n    stage%u -> receive [style=dashed];\n", d->graph->nodes - 1,
           d->graph->push_pull);
    printf("    reply -> stage%u [style=dashed];\n}\n", d->graph->push_pull);
}

/* Takes the placement over. */
static int print_json(const struct bps_conf *conf, const struct drawing *d, json_t *placement)
{
    json_t *stages = json_array();
    for (uint32_t i = 0; i < d->graph->nodes; i++) {
        const struct bps_node *node = &d->graph->node[i];
        char dtypes[256], ops[128];
        mask_text(node->attr.dtypes, BPS_DTYPES, bps_dtype_name, dtypes, sizeof dtypes);
        mask_text(node->attr.ops, BPS_OPS, bps_op_name, ops, sizeof ops);
        json_array_append_new(stages,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s?}", "stage", node->name,
                                        "plugin", node->instance == NULL ? "built in" : node->instance->loaded->path,
                                        "when", node->when, "dtypes", dtypes, "operations", ops, "takes",
                                        node->attr.takes, "gives", node->attr.gives, "writes", node->attr.writes != 0,
                                        "executor", node->attr.executor == BPS_EXECUTOR_CPU ? "cpu" : "io", "coding",
                                        node->coding != NULL ? node->coding->text : NULL));
    }
    json_t *root =
        json_pack("{s:{s:I, s:I, s:o}, s:{s:s, s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:s}}", "worker", "partition",
                  (json_int_t)conf->worker.partition, "slice", (json_int_t)conf->worker.slice, "graph", stages,
                  "transport", "instance", d->net->name, "plugin", d->net->loaded->path, "about", d->transport,
                  "same_host", d->same_host, "server", "reducer", d->reducer->name, "plugin", d->reducer->loaded->path,
                  "about", d->summation, "order", conf->server.order == BPS_ORDER_RANK ? "rank" : "arrival");
    if (d->device != NULL) {
        json_object_set_new(root, "device",
                            json_pack("{s:s, s:s, s:s, s:[s, s], s:s?, s:s}", "reducer", d->device->name, "plugin",
                                      d->device->loaded->path, "about", d->devices, "stages", d->graph->to_host.name,
                                      d->graph->to_device.name, "alone",
                                      stays_on_device(d) ? d->graph->on_device.name : NULL, "in_place", d->direct));
    }
    if (placement != NULL) {
        json_object_set_new(root, "placement", placement);
    }
    if (root == NULL || json_dumpf(root, stdout, JSON_INDENT(2)) != 0) {
        json_decref(root);
        return bps_cmd_failure("graph", "cannot print JSON");
    }
    putchar('\n');
    json_decref(root);
    return 0;
}

static int print_with_plan(const struct bps_conf *conf, const struct drawing *d, int form,
                           const struct bps_plan_request *request)
{
    struct bps_model model;
    struct bps_plan plan;
    int result = bps_plan_load("graph", request, conf, &model, &plan);
    if (result != 0) {
        return result;
    }
    if (form == 'j') {
        result = print_json(conf, d, bps_plan_json(&plan, &model));
    } else {
        print_explained(conf, d);
        putchar('\n');
        bps_plan_print(&plan, &model);
    }
    bps_plan_fini(&plan);
    bps_model_fini(&model);
    return result;
}

static int draw(const struct bps_conf *conf, int form, const struct bps_plan_request *request)
{
    struct drawing d = {0};
    struct bps_report report = {""};
    int result = 0;
    bps_status status = open_drawing(conf, &d, &report);
    if (status != BPS_OK) {
        result = bps_cmd_failure("graph", "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    } else if (request->model != NULL) {
        result = print_with_plan(conf, &d, form, request);
    } else if (form == 'e') {
        print_explained(conf, &d);
    } else if (form == 'd') {
        print_dot(&d);
    } else if (form == 'j') {
        result = print_json(conf, &d, NULL);
    } else {
        print_line(&d);
    }
    close_drawing(&d);
    return bps_cmd_finish("graph", result);
}

int bps_cmd_graph(int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        BPS_PLAN_OPTIONS,
        {"explain", no_argument, NULL, 'e'},
        {"dot", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bps_cmd_conf request = {0};
    struct bps_plan_request plan = {0};
    int code, form = 0;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&request, code, optarg) || bps_plan_take(&plan, code, optarg)) {
            continue;
        }
        if (code == 'h') {
            fputs(help_text, stdout);
            return bps_cmd_finish("graph", 0);
        }
        if (code == '?' || code == ':') {
            return bps_cmd_bad_option("graph", code, argv);
        }
        form = code;
    }
    if (optind < argc) {
        return bps_cmd_usage("graph", "'%s' is not expected", argv[optind]);
    }
    if (plan.model != NULL && form != 'e' && form != 'j') {
        return bps_cmd_usage("graph", "--model needs --explain or --json");
    }
    if (plan.model == NULL && plan.bandwidth != NULL) {
        return bps_cmd_usage("graph", "--bandwidth needs --model");
    }
    struct bps_conf *conf = bps_cmd_conf_load("graph", &request, "scheduler");
    bps_cmd_conf_fini(&request);
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bps_cmd_guard(conf);
    int result = draw(conf, form, &plan);
    bps_conf_free(conf);
    return result;
}
