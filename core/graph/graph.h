/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - the stages that a partition of a tensor passes in a worker, built from worker.graph.
 *
 * The graph is a chain with one push_pull in it, and perhaps local_reduce before and local_broadcast after
 * it: these sum among the workers of one host, of which only one, the leader of the partition, passes what
 * lies between them. Before push_pull may stand stages compress: how tensors are coded on the network is a part of
 * push_pull, and they say which tensor how. The chain is checked when it is built (neighbours must agree on memory,
 * types and coding) and never changes afterwards. Which of its stages a tensor passes is decided once per tensor: that
 * is its path.
 * That of a tensor in device memory begins with copy_to_host and ends with copy_to_device, as all others take
 * host memory, which copy what the network does not reach on the device; or it is reduce_on_device alone, where the
 * result needs nobody else. If the devices of a host sum among themselves, another path has that sum first,
 * device_reduce, and in the end device_broadcast, by which the result comes to all of them.
 */
#ifndef BPS_GRAPH_GRAPH_H
#define BPS_GRAPH_GRAPH_H

#include "coding/coding.h"
#include "graph/condition.h"
#include "plugin/instance.h"

enum bps_node_kind {
    BPS_NODE_PLUGIN,
    BPS_NODE_PLUGIN_ROUND, /* a plugin that takes all tasks of a round at once: run_all of stage.h */
    BPS_NODE_LOCAL_REDUCE,
    BPS_NODE_COMPRESS, /* says how a tensor is coded; on no path */
    BPS_NODE_PUSH_PULL,
    BPS_NODE_LOCAL_BROADCAST,
    BPS_NODE_COPY_TO_HOST, /* these are not configured, but put into paths where they are needed */
    BPS_NODE_COPY_TO_DEVICE,
    BPS_NODE_DEVICE_REDUCE,
    BPS_NODE_DEVICE_BROADCAST,
    BPS_NODE_REDUCE_ON_DEVICE,
    BPS_NODE_KINDS,
};

struct bps_node {
    char name[64]; /* of the stage: "push_pull", "clip" */
    enum bps_node_kind kind;
    const char *origin;            /* where the configuration lists it */
    struct bps_instance *instance; /* NULL: built in */
    const struct bps_stage_ops *ops;
    struct bps_coding *coding; /* of a stage compress */
    bool keeps;                /* of push_pull: tensors for which its condition holds keep a value: mode async */
    struct bps_stage_attr attr;
    struct bps_condition condition;
    char when[256];                  /* the condition as written; "" for always */
    uint64_t tasks, bytes, failures; /* counted on the worker's core thread */
};

struct bps_graph {
    struct bps_codings codings;                    /* of its stages compress, and of what tensors ask for */
    uint32_t nodes, push_pull;                     /* number of nodes; index of the one that crosses the network */
    bool local;                                    /* it has local_reduce and local_broadcast */
    struct bps_node to_host, to_device, on_device; /* for tensors on a device, */
    struct bps_node reduce, broadcast;             /* and for those of a group */
    struct bps_node node[];
};

static inline bool bps_node_is_plugin(const struct bps_node *node)
{
    return node->kind == BPS_NODE_PLUGIN || node->kind == BPS_NODE_PLUGIN_ROUND;
}

/* What the name of a stage means. */
enum bps_node_kind bps_node_kind_of(const char *stage);

/* Builds the graph and opens its stages on the loop. */
bps_status bps_graph_new(const struct bps_conf *conf, struct bps_loop *loop, struct bps_graph **out,
                         struct bps_report *report);
void bps_graph_free(struct bps_graph *graph);
/* True if the configuration lists a plugin. */
bool bps_graph_has_plugins(const struct bps_graph *graph);
/* True if a plugin works on what lies between local_reduce and local_broadcast. */
bool bps_graph_has_plugins_between(const struct bps_graph *graph);
/* True if a plugin takes whole rounds. */
bool bps_graph_takes_rounds(const struct bps_graph *graph);
/* True if some stage runs on the pool of threads. */
bool bps_graph_needs_threads(const struct bps_graph *graph);

/* What the stages compress say about a tensor, whatever its operation: the first one counts. NULL: it is not coded. */
struct bps_coding *bps_graph_coding(const struct bps_graph *graph, const struct bps_tensor_info *tensor);

/* Whether the configuration says that servers keep a value of the tensor: mode async. */
bool bps_graph_keeps(const struct bps_graph *graph, const struct bps_tensor_info *tensor);

/* The stages that one tensor passes, in order, and their state for it. */
struct bps_path {
    uint32_t length;
    struct bps_path_step {
        struct bps_node *node;
        void *state;
    } *step;
    char *name; /* of the tensor; owned */
};

/* The index of the step of this kind; path->length: there is none. */
uint32_t bps_path_find(const struct bps_path *path, enum bps_node_kind kind);

/*
 * Decides the path of a tensor and binds its stages. A tensor that is
 * broadcast passes only the built-in ones.
 */
bps_status bps_path_new(struct bps_graph *graph, const struct bps_tensor_info *tensor, bool broadcast,
                        struct bps_path *out, struct bps_report *report);
/* The path of a tensor that stays on its device. */
bps_status bps_path_new_on_device(struct bps_graph *graph, const char *tensor, struct bps_path *out);
/* The path of all tensors that the devices of a group sum: no stage of a plugin is on it. */
bps_status bps_path_new_among_devices(struct bps_graph *graph, struct bps_path *out);
void bps_path_fini(struct bps_path *path);

#endif
