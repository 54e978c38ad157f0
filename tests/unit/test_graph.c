/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph.c - graphs that cannot be built, and paths. (Graphs with stages run in tests/plugins.) */
#include <string.h>

#include "checks.h"
#include "graph/graph.h"

static const struct bps_tensor_info tensor = {
    .name = "Gradient.fc1.weight", .dtype = BPS_FLOAT32, .op = BPS_AVERAGE, .count = 16384, .partitions = 1};

#define X16 "xxxxxxxxxxxxxxxx"
#define X64 X16 X16 X16 X16

static const struct {
    const char *set, *error;
} graphs[] = {
    {"worker.graph=()", "worker.graph has 0 stages push_pull; expected exactly one"},
    {"worker.graph=({stage=\"push_pull\";},{stage=\"push_pull\";})",
     "worker.graph has 2 stages push_pull; expected exactly one"},
    {"worker.graph=({stage=\"push_pull\"; when=\"bytes > 3\";})",
     "stage push_pull cannot have a condition: every tensor passes it"},
    {"worker.graph=({stage=\"local_reduce\"; when=\"bytes > 3\";},{stage=\"push_pull\";},"
     "{stage=\"local_broadcast\";})",
     "stage local_reduce cannot have a condition: every tensor passes it"},
    {"worker.graph=({stage=\"local_reduce\";},{stage=\"push_pull\";})",
     "has 1 stages local_reduce and 0 local_broadcast; expected none, or local_reduce once before push_pull"},
    {"worker.graph=({stage=\"push_pull\";},{stage=\"local_broadcast\";})",
     "has 0 stages local_reduce and 1 local_broadcast; expected none, or local_reduce once before push_pull"},
    {"worker.graph=({stage=\"local_reduce\";},{stage=\"local_reduce\";},{stage=\"push_pull\";},"
     "{stage=\"local_broadcast\";},{stage=\"local_broadcast\";})",
     "has 2 stages local_reduce and 2 local_broadcast; expected none, or local_reduce once before push_pull"},
    {"worker.graph=({stage=\"local_broadcast\";},{stage=\"push_pull\";},{stage=\"local_reduce\";})",
     "has 1 stages local_reduce and 1 local_broadcast, in the wrong order; expected none, or"},
    {"worker.graph=({stage=\"push_pull\";},{stage=\"local_reduce\";},{stage=\"local_broadcast\";})",
     "has 1 stages local_reduce and 1 local_broadcast, in the wrong order; expected none, or"},
    {"worker.graph=({stage=\"local_reduce\";},{stage=\"local_broadcast\";},{stage=\"push_pull\";})",
     "has 1 stages local_reduce and 1 local_broadcast, in the wrong order; expected none, or"},
    {"worker.graph=({stage=\"local_reduce\";},{stage=\"local_broadcast\";})",
     "worker.graph has 0 stages push_pull; expected exactly one"},
    {"worker.graph=({stage=\"push_pull\"; usee=\"net\";})",
     "--set: worker.graph[0].usee: stage push_pull does not take it; expected stage, use, mode and when"},
    {"worker.graph=({stage=\"local_reduce\";},{stage=\"push_pull\";},"
     "{stage=\"local_broadcast\"; use=\"local\";})",
     "--set: worker.graph[2].use: stage local_broadcast does not take it; expected stage"},
    {"worker.graph=({stage=\"local_reduce\"; use=\"locla\";},{stage=\"push_pull\";},"
     "{stage=\"local_broadcast\";})",
     "--set: worker.graph[0].use = \"locla\": transports has no such member; did you mean \"local\"?"},
    {"worker.graph=({stage=\"clip\"; when=\"bytes > 3 and\";},{stage=\"push_pull\";})",
     "--set: stage clip: when = \"bytes > 3 and\": found nothing after 'and'; expected not, ( or a field: bytes,"},
    {"worker.graph=({stage=\"clip\"; when=\"name == 'a' or name == '" X64 X64 "' or name == '" X64 X64
     "'\";},{stage=\"push_pull\";})",
     "stage clip: when = \"name == 'a' or name == 'xxxxxxxxxxxxxxxx...\" has 295 characters; expected at most 255"},
};

START_TEST(test_impossible_graphs)
{
    struct bps_conf *conf;
    struct bps_graph *graph;
    struct bps_report report = {""};
    bps_status status = bps_conf_load(NULL, &graphs[_i].set, 1, &conf, &report);
    if (status == BPS_OK) {
        status = bps_graph_new(conf, NULL, &graph, &report);
        bps_conf_free(conf);
        ck_assert_msg(strstr(report.text, graphs[_i].error) != NULL, "%s", report.text);
    }
    ck_assert_int_eq(status, BPS_ERR_CONF);
}
END_TEST

/* ---- graphs that can be built ---- */

static struct bps_graph *build(const char *set)
{
    struct bps_conf *conf;
    struct bps_graph *graph;
    struct bps_report report = {""};
    ck_assert_msg(bps_conf_load(NULL, &set, set != NULL, &conf, &report) == BPS_OK, "%s", report.text);
    ck_assert_msg(bps_graph_new(conf, NULL, &graph, &report) == BPS_OK, "%s", report.text);
    bps_conf_free(conf);
    return graph;
}

START_TEST(test_default_graph)
{
    static const enum bps_node_kind kinds[] = {BPS_NODE_LOCAL_REDUCE, BPS_NODE_PUSH_PULL, BPS_NODE_LOCAL_BROADCAST};
    struct bps_graph *graph = build(NULL);
    ck_assert_uint_eq(graph->nodes, 3);
    ck_assert_uint_eq(graph->push_pull, 1);
    ck_assert(graph->local);
    ck_assert(!bps_graph_has_plugins_between(graph));
    ck_assert(!bps_graph_needs_threads(graph));
    for (int broadcast = 0; broadcast < 2; broadcast++) {
        struct bps_path path;
        struct bps_report report = {""};
        ck_assert_int_eq(bps_path_new(graph, &tensor, broadcast != 0, &path, &report), BPS_OK);
        ck_assert_uint_eq(path.length, 3);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(path.step[i].node->kind, kinds[i]);
            ck_assert_uint_eq(bps_path_find(&path, kinds[i]), i);
        }
        bps_path_fini(&path);
    }
    bps_graph_free(graph);
}
END_TEST

START_TEST(test_graph_without_hierarchy)
{
    struct bps_path path;
    struct bps_report report = {""};
    struct bps_graph *graph = build("worker.graph=({stage=\"push_pull\";})");
    ck_assert_uint_eq(graph->nodes, 1);
    ck_assert_uint_eq(graph->push_pull, 0);
    ck_assert(!graph->local);
    ck_assert_int_eq(bps_path_new(graph, &tensor, false, &path, &report), BPS_OK);
    ck_assert_uint_eq(path.length, 1);
    ck_assert_uint_eq(bps_path_find(&path, BPS_NODE_LOCAL_REDUCE), 1);
    bps_path_fini(&path);
    bps_graph_free(graph);
}
END_TEST

START_TEST(test_path_on_a_device)
{
    struct bps_path path;
    struct bps_graph *graph = build(NULL);
    ck_assert(!bps_graph_has_plugins(graph));
    ck_assert_int_eq(bps_path_new_on_device(graph, "gradient", &path), BPS_OK);
    ck_assert_uint_eq(path.length, 1);
    ck_assert_int_eq(path.step[0].node->kind, BPS_NODE_REDUCE_ON_DEVICE);
    ck_assert_uint_eq(path.step[0].node->attr.memory, BPS_MEMORY_DEVICE);
    ck_assert_uint_eq(bps_path_find(&path, BPS_NODE_PUSH_PULL), 1);
    bps_path_fini(&path);
    bps_graph_free(graph);
}
END_TEST

START_TEST(test_names_of_stages)
{
    ck_assert_int_eq(bps_node_kind_of("local_reduce"), BPS_NODE_LOCAL_REDUCE);
    ck_assert_int_eq(bps_node_kind_of("push_pull"), BPS_NODE_PUSH_PULL);
    ck_assert_int_eq(bps_node_kind_of("local_broadcast"), BPS_NODE_LOCAL_BROADCAST);
    ck_assert_int_eq(bps_node_kind_of("clip"), BPS_NODE_PLUGIN);
    ck_assert_int_eq(bps_node_kind_of(""), BPS_NODE_PLUGIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *tests = tcase_create("graph");
    tcase_add_loop_test(tests, test_impossible_graphs, 0, sizeof graphs / sizeof *graphs);
    tcase_add_test(tests, test_default_graph);
    tcase_add_test(tests, test_graph_without_hierarchy);
    tcase_add_test(tests, test_path_on_a_device);
    tcase_add_test(tests, test_names_of_stages);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
