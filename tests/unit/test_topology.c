/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topology.c - sets of cores, machines of several shapes (topologies/NAME), and what is placed where on
 * them.
 *
 * A shape is a file of lines "PATH: TEXT", which become the files of a directory as the kernel's /sys is one.
 */
#include <check.h>
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/affinity.h"

/* ---- machines ---- */

static char root[64];
static struct bps_topology machine;

static void make_directories(char *path)
{
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        ck_assert_msg(mkdir(path, 0755) == 0 || errno == EEXIST, "%s: %s", path, strerror(errno));
        *slash = '/';
    }
}

static void build(const char *shape)
{
    char path[640], line[512];
    const char *source = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/tests/unit/topologies/%s", source != NULL ? source : ".", shape);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    snprintf(root, sizeof root, "/tmp/byteps-machine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (line[0] != '#' && colon != NULL) {
            *colon = '\0';
            snprintf(path, sizeof path, "%s/%s", root, line);
            make_directories(path);
            FILE *out = fopen(path, "w");
            ck_assert_msg(out != NULL, "%s: %s", path, strerror(errno));
            fputs(colon + 2, out);
            ck_assert_int_eq(fclose(out), 0);
        }
    }
    fclose(file);
}

static void demolish(void)
{
    char command[128];
    snprintf(command, sizeof command, "/bin/rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static void enter(const char *shape)
{
    struct bps_report report = {""};
    build(shape);
    ck_assert_msg(bps_topology_read(root, &machine, &report) == BPS_OK, "%s: %s", shape, report.text);
}

static void leave(void)
{
    bps_topology_fini(&machine);
    demolish();
}

static struct bps_cpus cores(const char *text)
{
    struct bps_cpus cpus;
    ck_assert_int_eq(bps_cpus_parse(text, &cpus, NULL), BPS_OK);
    return cpus;
}

static void expect_cores(const struct bps_cpus *cpus, const char *expected)
{
    char text[256];
    bps_cpus_format(cpus, text, sizeof text);
    ck_assert_str_eq(text, expected);
}

static struct bps_place place(const char *allowed, int nic, unsigned rank, unsigned size)
{
    return (struct bps_place){.topology = &machine,
                              .cpus = allowed != NULL ? cores(allowed) : machine.online,
                              .numa = true,
                              .nic = nic,
                              .rank = rank,
                              .size = size};
}

static void expect_affinity(const struct bps_affinity *affinity, const char *expected, int node)
{
    expect_cores(&affinity->cpus, expected);
    ck_assert_int_eq(affinity->node, node);
}

static void expect_worker(const char *allowed, int nic, unsigned rank, unsigned size, const char *expected,
                          int node)
{
    struct bps_place here = place(allowed, nic, rank, size);
    struct bps_affinity affinity;
    bps_affinity_worker(&here, &affinity);
    expect_affinity(&affinity, expected, node);
}

static void expect_process(const char *allowed, unsigned rank, unsigned size, unsigned quota,
                           const char *expected)
{
    struct bps_place here = place(allowed, -1, rank, size);
    struct bps_affinity affinity;
    bps_affinity_process(&here, quota, &affinity);
    expect_cores(&affinity.cpus, expected);
}

static void expect_shard(const char *allowed, int nic, unsigned index, unsigned count, const char *expected,
                         int node)
{
    struct bps_place here = place(allowed, nic, 0, 1);
    struct bps_affinity affinity;
    bps_affinity_shard(&here, index, count, &affinity);
    expect_affinity(&affinity, expected, node);
}

/* ---- sets ---- */

START_TEST(lists_are_read_and_written)
{
    static const char *const same[] = {"0", "0-3", "0-3,8", "1,3,5", "63-65", "8191"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct bps_cpus cpus = cores(same[i]);
        expect_cores(&cpus, same[i]);
    }
    struct bps_cpus cpus = cores(" 3 , 0-1,2 ,7-7\n");
    expect_cores(&cpus, "0-3,7");
    ck_assert_uint_eq(bps_cpus_count(&cpus), 5);
    cpus = cores("");
    ck_assert(bps_cpus_empty(&cpus));
    expect_cores(&cpus, "none");
    char small[6];
    cpus = cores("10-20,30");
    bps_cpus_format(&cpus, small, sizeof small);
    ck_assert_str_eq(small, "10-20");
}
END_TEST

START_TEST(wrong_lists_are_refused)
{
    static const char *const wrong[] = {"x",   "0-",    "-1",  "3-1",  "0,,1",   "0,",
                                        ",0",  "0-3;4", "0 1", "8192", "0-8192", "99999999999999999999",
                                        "0x1", "0-1-2", "1.5", "0-3,x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct bps_cpus cpus = cores("5");
        struct bps_report report = {""};
        ck_assert_msg(bps_cpus_parse(wrong[i], &cpus, &report) == BPS_ERR_CONF, "'%s' was taken", wrong[i]);
        ck_assert_msg(strstr(report.text, "expected numbers below 8192 and ranges") != NULL, "%s",
                      report.text);
        expect_cores(&cpus, "5");
    }
}
END_TEST

START_TEST(several_lists_in_one_text)
{
    struct bps_cpus cpus;
    struct bps_report report = {""};
    ck_assert_uint_eq(bps_cpus_lists(""), 0);
    ck_assert_uint_eq(bps_cpus_lists("0-3"), 1);
    ck_assert_uint_eq(bps_cpus_lists("1,4-5:7-11"), 2);
    ck_assert_int_eq(bps_cpus_list("1,4-5:7-11", 1, &cpus, &report), BPS_OK);
    expect_cores(&cpus, "7-11");
    ck_assert_int_eq(bps_cpus_list("0::1", 1, &cpus, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, "list 1 of cores is empty; expected such as \"0-3,8\"");
    expect_cores(&cpus, "7-11");
}
END_TEST

/* ---- reading ---- */

START_TEST(machines_are_read)
{
    enter("two_sockets");
    ck_assert_uint_eq(machine.nodes, 2);
    ck_assert_uint_eq(bps_topology_places(&machine), 2);
    expect_cores(&machine.node[0].cpus, "0-11,24-35");
    ck_assert_uint_eq(machine.node[1].memory, 64ull << 30);
    ck_assert_uint_eq(machine.node[0].distance[1], 21);
    struct bps_cpus threads;
    bps_topology_siblings(&machine, 3, &threads);
    expect_cores(&threads, "3,27");
    leave();
}
END_TEST

START_TEST(offline_cores_and_gaps_in_the_numbers)
{
    enter("offline");
    ck_assert_uint_eq(machine.nodes, 2);
    ck_assert_uint_eq(machine.node[1].id, 8);
    expect_cores(&machine.node[0].cpus, "0-2,4,7");
    ck_assert_int_eq(bps_topology_interface_node(&machine, "eth0"), 1);
    expect_worker(NULL, -1, 0, 2, "0-2,4,7", 0);
    expect_worker(NULL, -1, 1, 2, "8-15", 1);
    leave();
}
END_TEST

START_TEST(machines_without_numa_are_one_node)
{
    enter("no_numa");
    ck_assert_uint_eq(machine.nodes, 1);
    expect_cores(&machine.node[0].cpus, "0-3");
    ck_assert_uint_gt(machine.node[0].memory, 0);
    leave();
}
END_TEST

START_TEST(nonsense_is_refused)
{
    struct bps_report report = {""};
    build("broken");
    ck_assert_int_eq(bps_topology_read(root, &machine, &report), BPS_ERR_IO);
    ck_assert_msg(strstr(report.text, "node0/cpulist: not a list of cores at '0-x") != NULL, "%s",
                  report.text);
    ck_assert_int_eq(bps_topology_flat(root, &machine), BPS_OK);
    ck_assert_uint_eq(bps_topology_places(&machine), 1);
    expect_cores(&machine.node[0].cpus, "0-3");
    leave();
    ck_assert_int_eq(bps_topology_read("/nowhere", &machine, &report), BPS_OK);
    ck_assert_uint_eq(machine.nodes, 1);
    ck_assert(!bps_cpus_empty(&machine.node[0].cpus));
    bps_topology_fini(&machine);
}
END_TEST

START_TEST(interfaces_have_nodes)
{
    static const struct {
        const char *name;
        int node;
    } rows[] = {{"eth0", 1}, {"eth1", -1}, {"bond0", 1}, {"bond0.7", 1},
                {"lo", -1},  {"none", -1}, {"", -1},     {"../net/eth0", -1}};
    enter("two_sockets");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int node = bps_topology_interface_node(&machine, rows[i].name);
        ck_assert_msg(node == rows[i].node, "%s: %d", rows[i].name, node);
    }
    static const char *const addresses[] = {"127.0.0.1", "[::1]",     "",           "nonsense",
                                            "[",         "192.0.2.1", "/run/socket"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        ck_assert_int_eq(bps_topology_address_node(&machine, addresses[i]), -1);
    }
    leave();
}
END_TEST

START_TEST(this_machine_is_read)
{
    struct bps_cpus allowed;
    ck_assert_int_eq(bps_topology_read(BPS_SYSFS, &machine, NULL), BPS_OK);
    bps_cpus_allowed(&allowed);
    ck_assert(!bps_cpus_empty(&allowed));
    bps_cpus_without(&allowed, &machine.online, &allowed);
    ck_assert(bps_cpus_empty(&allowed));
    bps_topology_fini(&machine);
}
END_TEST

/* ---- places ---- */

START_TEST(one_node_changes_nothing)
{
    static const char *const shapes[] = {"one_node", "one_place", "no_numa"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char all[64];
        enter(shapes[i]);
        ck_assert_uint_eq(bps_topology_places(&machine), 1);
        bps_cpus_format(&machine.online, all, sizeof all);
        expect_worker(NULL, 0, 0, 1, all, -1);
        expect_worker(NULL, -1, 1, 2, all, -1);
        expect_worker("1-2", -1, 1, 2, "1-2", -1);
        expect_process(NULL, 1, 2, 0, all);
        expect_process(NULL, 1, 2, 1, all);
        expect_shard(NULL, 0, 1, 2, all, -1);
        leave();
    }
}
END_TEST

START_TEST(workers_share_the_nodes)
{
    const char *first = "0-11,24-35", *second = "12-23,36-47";
    enter("two_sockets");
    expect_worker(NULL, 1, 0, 1, second, 1); /* alone: near the card */
    expect_worker(NULL, -1, 0, 1, "0-47", -1);
    expect_worker(NULL, 1, 0, 2, first, 0);
    expect_worker(NULL, 1, 1, 2, second, 1);
    for (unsigned rank = 0; rank < 8; rank++) {
        expect_worker(NULL, -1, rank, 8, rank < 4 ? first : second, rank < 4 ? 0 : 1);
    }
    expect_worker("0-15", 1, 0, 1, "12-15", 1); /* what the process may not use is not used */
    expect_worker("0-3", 1, 0, 1, "0-3", 0);    /* it is bound to a node already */
    expect_worker("0-3", 1, 3, 4, "0-3", 0);
    expect_worker("100", 1, 3, 4, "100", -1); /* cores of no node */
    leave();
    enter("sub_numa");
    expect_worker(NULL, 2, 0, 1, "8-11", 2);
    expect_worker(NULL, 2, 2, 4, "8-11", 2);
    expect_worker(NULL, 2, 1, 2, "12-15", 3);
    expect_worker("0-3,12-15", -1, 1, 2, "12-15", 3);
    leave();
}
END_TEST

START_TEST(memory_comes_from_the_nearest_node_that_has_some)
{
    enter("memory_only");
    ck_assert_uint_eq(machine.nodes, 3);
    ck_assert_uint_eq(bps_topology_places(&machine), 2);
    expect_worker(NULL, -1, 0, 2, "0-3", 0);
    expect_worker(NULL, -1, 1, 2, "4-7", 2);
    expect_worker(NULL, 2, 0, 1, "0-7", -1); /* the card's node has no cores */
    expect_shard(NULL, 2, 0, 4, "4-7", 2);   /* but one is near it */
    leave();
}
END_TEST

START_TEST(processes_get_whole_cores)
{
    enter("two_sockets");
    expect_process(NULL, 0, 1, 0, "0-47");
    expect_process(NULL, 0, 4, 0, "0-5,24-29");
    expect_process(NULL, 1, 4, 0, "6-11,30-35");
    expect_process(NULL, 2, 4, 0, "12-17,36-41");
    expect_process(NULL, 3, 4, 0, "18-23,42-47");
    expect_process(NULL, 1, 4, 2, "6-7,30-31");
    expect_process(NULL, 1, 4, 8, "0-1,6-11,24-25,30-35"); /* more than its share: from the front again */
    expect_process(NULL, 1, 4, 99, "0-11,24-35");
    expect_process("0-11", 1, 3, 0, "4-7"); /* on one node, without second threads */
    expect_process("0", 1, 3, 0, "0");
    leave();
}
END_TEST

START_TEST(more_processes_than_cores_share_them)
{
    struct bps_cpus all;
    bps_cpus_clear(&all);
    enter("sub_numa");
    for (unsigned rank = 0; rank < 40; rank++) {
        struct bps_place here = place(NULL, -1, rank, 40);
        struct bps_affinity affinity;
        bps_affinity_process(&here, 0, &affinity);
        ck_assert_uint_eq(bps_cpus_count(&affinity.cpus), 1);
        bps_cpus_or(&all, &affinity.cpus, &all);
    }
    expect_cores(&all, "0-15");
    leave();
}
END_TEST

/* Every share of every size is on one node, and together they use every core. */
START_TEST(shares_are_whole)
{
    static const char *const shapes[] = {"two_sockets", "sub_numa", "memory_only", "offline"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        enter(shapes[i]);
        for (unsigned size = 2; size <= 17; size++) {
            struct bps_cpus all;
            bps_cpus_clear(&all);
            for (unsigned rank = 0; rank < size; rank++) {
                struct bps_place here = place(NULL, -1, rank, size);
                struct bps_affinity process, threads;
                bps_affinity_process(&here, 0, &process);
                bps_affinity_worker(&here, &threads);
                bps_cpus_or(&all, &process.cpus, &all);
                bps_cpus_without(&process.cpus, &threads.cpus, &process.cpus);
                ck_assert(bps_cpus_empty(&process.cpus));
            }
            ck_assert_msg(bps_cpus_equal(&all, &machine.online) || size < bps_topology_places(&machine),
                          "%s: %u processes leave cores unused", shapes[i], size);
        }
        leave();
    }
}
END_TEST

START_TEST(shards_fill_the_nodes_near_the_card)
{
    enter("sub_numa");
    static const char *const order[] = {"8-11", "8-11", "12-15", "12-15", "0-3", "0-3", "4-7", "4-7", "8-11"};
    static const int nodes[] = {2, 2, 3, 3, 0, 0, 1, 1, 2};
    for (unsigned i = 0; i < 9; i++) {
        expect_shard(NULL, 2, i, 9, order[i], nodes[i]);
    }
    expect_shard("0-9", 2, 0, 4, "8-9", 2);
    expect_shard("0-9", 2, 1, 4, "0-3", 0);
    expect_shard("0-3", 2, 1, 4, "0-3", 0);
    for (unsigned i = 0; i < 4; i++) { /* without a card they are spread */
        expect_shard(NULL, -1, i, 4, i == 0 ? "0-3" : i == 1 ? "4-7" : i == 2 ? "8-11" : "12-15", (int)i);
    }
    leave();
}
END_TEST

START_TEST(nothing_by_node_where_it_is_off)
{
    enter("two_sockets");
    struct bps_place here = place("0-40", 1, 1, 2);
    struct bps_affinity affinity;
    here.numa = false;
    bps_affinity_worker(&here, &affinity);
    expect_affinity(&affinity, "0-40", -1);
    bps_affinity_process(&here, 3, &affinity);
    expect_affinity(&affinity, "0-40", -1);
    bps_affinity_shard(&here, 1, 2, &affinity);
    expect_affinity(&affinity, "0-40", -1);
    leave();
}
END_TEST

/* ---- application ---- */

START_TEST(the_calling_thread_is_bound)
{
    struct bps_report report = {""};
    struct bps_affinity affinity = {.node = 0};
    struct bps_cpus before, now;
    ck_assert_int_eq(bps_topology_read(BPS_SYSFS, &machine, NULL), BPS_OK);
    bps_cpus_allowed(&before);
    bps_cpus_add(&affinity.cpus, bps_cpus_next(&before, 0));
    ck_assert_int_eq(bps_affinity_apply(&affinity, &machine, &report), BPS_OK);
    bps_cpus_allowed(&now);
    ck_assert(bps_cpus_equal(&now, &affinity.cpus));
    int policy = -1;
    if (numa_available() >= 0 && get_mempolicy(&policy, NULL, 0, NULL, 0) == 0) {
        bool refused = set_mempolicy(MPOL_DEFAULT, NULL, 0) != 0; /* as in some containers */
        ck_assert_msg(policy == MPOL_PREFERRED || refused, "policy %d", policy);
    }
    bps_cpus_clear(&affinity.cpus);
    bps_cpus_add(&affinity.cpus, BPS_CPUS_LIMIT - 1);
    ck_assert_int_eq(bps_affinity_apply(&affinity, &machine, &report), BPS_ERR_IO);
    ck_assert_str_eq(report.text, "cannot bind a thread to the cores 8191: Invalid argument");
    bps_topology_fini(&machine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *sets = tcase_create("sets"), *reading = tcase_create("reading"), *places = tcase_create("places");
    tcase_add_test(sets, lists_are_read_and_written);
    tcase_add_test(sets, wrong_lists_are_refused);
    tcase_add_test(sets, several_lists_in_one_text);
    tcase_add_test(reading, machines_are_read);
    tcase_add_test(reading, offline_cores_and_gaps_in_the_numbers);
    tcase_add_test(reading, machines_without_numa_are_one_node);
    tcase_add_test(reading, nonsense_is_refused);
    tcase_add_test(reading, interfaces_have_nodes);
    tcase_add_test(reading, this_machine_is_read);
    tcase_add_test(places, one_node_changes_nothing);
    tcase_add_test(places, workers_share_the_nodes);
    tcase_add_test(places, memory_comes_from_the_nearest_node_that_has_some);
    tcase_add_test(places, processes_get_whole_cores);
    tcase_add_test(places, more_processes_than_cores_share_them);
    tcase_add_test(places, shares_are_whole);
    tcase_add_test(places, shards_fill_the_nodes_near_the_card);
    tcase_add_test(places, nothing_by_node_where_it_is_off);
    tcase_add_test(places, the_calling_thread_is_bound);
    suite_add_tcase(suite, sets);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, places);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
