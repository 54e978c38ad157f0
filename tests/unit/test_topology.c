/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topology.c - sets of cores, machines of several shapes (topologies/NAME), and what is placed where on
 * them.
 *
 * A shape is a file of lines "PATH: TEXT", which become the files of a directory as the kernel's /sys is one:
 * hwloc reads it as it reads a real one.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checks.h"
#include "base/affinity.h"

/* ---- machines ---- */

static char root[64], sysfs[72];
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
    snprintf(sysfs, sizeof sysfs, "%s/sys", root);
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (line[0] != '#' && colon != NULL) {
            *colon = '\0';
            snprintf(path, sizeof path, "%s/%s", sysfs, line);
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
    ck_assert_msg(bps_topology_load(sysfs, &machine, &report) == BPS_OK, "%s: %s", shape, report.text);
}

static void leave(void)
{
    bps_topology_fini(&machine);
    demolish();
}

static hwloc_cpuset_t cores(const char *text)
{
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    ck_assert_int_eq(bps_cpus_list(text, 0, cpus, NULL), BPS_OK);
    return cpus;
}

static void expect_cores(hwloc_const_cpuset_t cpus, const char *expected)
{
    char text[256];
    bps_cpus_format(cpus, text, sizeof text);
    ck_assert_str_eq(text, expected);
}

static hwloc_const_cpuset_t online(void)
{
    return hwloc_topology_get_topology_cpuset(machine.machine);
}

static hwloc_obj_t node(int id)
{
    return id < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(machine.machine, (unsigned)id);
}

static struct bps_pin all(const char *allowed)
{
    return (struct bps_pin){.cpus = allowed != NULL ? cores(allowed) : hwloc_bitmap_dup(online())};
}

static void expect_pin(struct bps_pin *pin, const char *expected, int memory)
{
    expect_cores(pin->cpus, expected);
    ck_assert_ptr_eq(pin->memory, node(memory));
    ck_assert_int_eq(pin->bound, memory >= 0);
    hwloc_bitmap_free(pin->cpus);
}

static void expect_worker(const char *allowed, int nic, unsigned rank, unsigned size, const char *expected, int memory)
{
    struct bps_pin pin = all(allowed);
    machine.nic = node(nic);
    bps_affinity_worker(&machine, rank, size, &pin);
    expect_pin(&pin, expected, memory);
}

static void expect_process(const char *allowed, unsigned rank, unsigned size, unsigned quota, const char *expected)
{
    struct bps_pin pin = all(allowed);
    bps_affinity_process(&machine, rank, size, quota, &pin);
    expect_cores(pin.cpus, expected);
    hwloc_bitmap_free(pin.cpus);
}

static void expect_shard(const char *allowed, int nic, unsigned index, unsigned count, const char *expected, int memory)
{
    struct bps_pin pin = all(allowed);
    machine.nic = node(nic);
    bps_affinity_shard(&machine, index, count, &pin);
    expect_pin(&pin, expected, memory);
}

/* ---- sets ---- */

START_TEST(lists_are_read_and_written)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {{"0", "0"},
                {"0-3", "0-3"},
                {"0-3,8", "0-3,8"},
                {"1,3,5", "1,3,5"},
                {"63-65", "63-65"},
                {"8191", "8191"},
                {" 3 , 0-1,2 ,7-7\n", "0-3,7"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hwloc_cpuset_t cpus = cores(rows[i].text);
        expect_cores(cpus, rows[i].expected);
        hwloc_bitmap_free(cpus);
    }
    char small[6];
    hwloc_cpuset_t cpus = cores("10-20,30");
    bps_cpus_format(cpus, small, sizeof small);
    ck_assert_str_eq(small, "10-20");
    hwloc_bitmap_zero(cpus);
    expect_cores(cpus, "none");
    hwloc_bitmap_free(cpus);
}
END_TEST

START_TEST(wrong_lists_are_refused)
{
    static const char *const wrong[] = {"x",   "0-",    "-1",  "3-1",  "0,,1",   "0,",
                                        ",0",  "0-3;4", "0 1", "8192", "0-8192", "99999999999999999999",
                                        "0x1", "0-1-2", "1.5", "0-3,x"};
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct bps_report report = {""};
        ck_assert_msg(bps_cpus_list(wrong[i], 0, cpus, &report) == BPS_ERR_CONF, "'%s' was taken", wrong[i]);
        ck_assert_msg(strstr(report.text, "expected numbers below 8192 and ranges") != NULL, "%s", report.text);
    }
    hwloc_bitmap_free(cpus);
}
END_TEST

START_TEST(several_lists_in_one_text)
{
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    struct bps_report report = {""};
    ck_assert_uint_eq(bps_cpus_lists(""), 0);
    ck_assert_uint_eq(bps_cpus_lists("0-3"), 1);
    ck_assert_uint_eq(bps_cpus_lists("1,4-5:7-11"), 2);
    ck_assert_int_eq(bps_cpus_list("1,4-5:7-11", 1, cpus, &report), BPS_OK);
    expect_cores(cpus, "7-11");
    ck_assert_int_eq(bps_cpus_list("1,4-x:7-11", 0, cpus, &report), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, "invalid core list at '4-x'; expected") != NULL, "%s", report.text);
    ck_assert_int_eq(bps_cpus_list("0: :1", 1, cpus, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, "core list 1 is empty; expected a list such as \"0-3,8\"");
    hwloc_bitmap_free(cpus);
}
END_TEST

/* ---- reading ---- */

static unsigned nodes(void)
{
    return (unsigned)hwloc_get_nbobjs_by_type(machine.machine, HWLOC_OBJ_NUMANODE);
}

START_TEST(machines_are_read)
{
    enter("two_sockets");
    ck_assert_uint_eq(nodes(), 2);
    ck_assert_uint_eq(bps_topology_places(&machine), 2);
    expect_cores(node(0)->cpuset, "0-11,24-35");
    ck_assert_uint_eq(node(1)->attr->numanode.local_memory, 64ull << 30);
    ck_assert_uint_eq(bps_topology_distance(&machine, node(0), node(1)), 21);
    ck_assert_uint_eq(bps_topology_distance(&machine, node(1), node(1)), 10);
    leave();
}
END_TEST

START_TEST(offline_cores_and_gaps_in_the_numbers)
{
    enter("offline");
    ck_assert_uint_eq(nodes(), 2);
    expect_cores(node(0)->cpuset, "0-2,4,7");
    ck_assert_ptr_eq(bps_topology_interface_node(&machine, "eth0"), node(8));
    expect_worker(NULL, -1, 0, 2, "0-2,4,7", 0);
    expect_worker(NULL, -1, 1, 2, "8-15", 8);
    leave();
}
END_TEST

START_TEST(machines_without_numa_are_one_node)
{
    enter("no_numa");
    ck_assert_uint_eq(nodes(), 1);
    expect_cores(node(0)->cpuset, "0-3");
    leave();
}
END_TEST

START_TEST(one_node_of_memory_is_flat)
{
    static const struct {
        const char *shape;
        bool flat;
    } rows[] = {{"one_node", true}, {"two_sockets", false}, {"memory_only", false}, {"no_numa", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enter(rows[i].shape);
        ck_assert_msg(bps_topology_is_flat(sysfs) == rows[i].flat, "%s", rows[i].shape);
        leave();
    }
}
END_TEST

START_TEST(another_machine_is_a_directory_of_the_name_sys)
{
    struct bps_report report = {""};
    ck_assert_int_eq(bps_topology_load("/tmp/machine", &machine, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, "affinity.sysfs = \"/tmp/machine\": expected a path that ends in /sys");
    ck_assert_int_eq(bps_topology_load("/nowhere/sys", &machine, &report), BPS_OK);
    ck_assert_uint_eq(nodes(), 1);
    ck_assert(!hwloc_bitmap_iszero(node(0)->cpuset));
    bps_topology_fini(&machine);
    ck_assert_ptr_null(getenv("HWLOC_FSROOT"));
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
        ck_assert_msg(bps_topology_interface_node(&machine, rows[i].name) == node(rows[i].node), "%s", rows[i].name);
    }
    static const char *const addresses[] = {"127.0.0.1", "[::1]", "", "nonsense", "[", "192.0.2.1", "/run/socket"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        ck_assert_ptr_null(bps_topology_address_node(&machine, addresses[i]));
    }
    leave();
}
END_TEST

/* The loopback interface, which every machine has, is put on a node of another one. */
START_TEST(addresses_have_nodes)
{
    char path[128];
    enter("two_sockets");
    snprintf(path, sizeof path, "%s/class/net/lo/device/numa_node", sysfs);
    make_directories(path);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("1\n", file);
    fclose(file);
    ck_assert_ptr_eq(bps_topology_address_node(&machine, "127.0.0.1"), node(1));
    ck_assert_ptr_null(bps_topology_address_node(&machine, "127.0.0.11"));
    ck_assert_ptr_null(bps_topology_address_node(&machine, "127.0.0"));
    leave();
}
END_TEST

START_TEST(this_machine_is_read)
{
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    ck_assert_int_eq(bps_topology_load(BPS_SYSFS, &machine, NULL), BPS_OK);
    ck_assert_int_eq(hwloc_get_cpubind(machine.machine, allowed, HWLOC_CPUBIND_THREAD), 0);
    ck_assert(!hwloc_bitmap_iszero(allowed));
    ck_assert(hwloc_bitmap_isincluded(allowed, online()));
    ck_assert_uint_gt(node(0)->attr->numanode.local_memory, 0);
    hwloc_bitmap_free(allowed);
    bps_topology_fini(&machine);
}
END_TEST

/* ---- places ---- */

START_TEST(one_node_with_cores_is_one_place)
{
    static const char *const shapes[] = {"one_node", "one_place", "no_numa"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        enter(shapes[i]);
        ck_assert_uint_eq(bps_topology_places(&machine), 1);
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
    ck_assert_uint_eq(nodes(), 3);
    ck_assert_uint_eq(bps_topology_places(&machine), 2);
    expect_worker(NULL, -1, 0, 2, "0-3", 0);
    expect_worker(NULL, -1, 1, 2, "4-7", 2);
    expect_worker(NULL, 2, 0, 1, "4-7", 2); /* the card's node has no cores, */
    expect_shard(NULL, 2, 0, 4, "4-7", 2);  /* but some are near it */
    leave();
}
END_TEST

START_TEST(processes_get_whole_cores)
{
    enter("two_sockets");
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
    hwloc_cpuset_t used = hwloc_bitmap_alloc();
    enter("sub_numa");
    for (unsigned rank = 0; rank < 40; rank++) {
        struct bps_pin pin = all(NULL);
        bps_affinity_process(&machine, rank, 40, 0, &pin);
        ck_assert_int_eq(hwloc_bitmap_weight(pin.cpus), 1);
        hwloc_bitmap_or(used, used, pin.cpus);
        hwloc_bitmap_free(pin.cpus);
    }
    expect_cores(used, "0-15");
    hwloc_bitmap_free(used);
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
            hwloc_cpuset_t used = hwloc_bitmap_alloc();
            for (unsigned rank = 0; rank < size; rank++) {
                struct bps_pin process = all(NULL), threads = all(NULL);
                bps_affinity_process(&machine, rank, size, 0, &process);
                bps_affinity_worker(&machine, rank, size, &threads);
                hwloc_bitmap_or(used, used, process.cpus);
                ck_assert(hwloc_bitmap_isincluded(process.cpus, threads.cpus));
                hwloc_bitmap_free(process.cpus);
                hwloc_bitmap_free(threads.cpus);
            }
            ck_assert_msg(hwloc_bitmap_isequal(used, online()) || size < bps_topology_places(&machine),
                          "%s: %u processes leave cores unused", shapes[i], size);
            hwloc_bitmap_free(used);
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

/* ---- application ---- */

START_TEST(the_calling_thread_is_bound)
{
    struct bps_report report = {""};
    hwloc_cpuset_t now = hwloc_bitmap_alloc();
    ck_assert_int_eq(bps_topology_load(BPS_SYSFS, &machine, NULL), BPS_OK);
    struct bps_pin pin = {.cpus = hwloc_bitmap_alloc(), .memory = bps_topology_next(&machine, NULL)};
    ck_assert_int_eq(hwloc_get_cpubind(machine.machine, pin.cpus, HWLOC_CPUBIND_THREAD), 0);
    hwloc_bitmap_singlify(pin.cpus);
    ck_assert_int_eq(bps_affinity_apply(&machine, &pin, &report), BPS_OK);
    ck_assert_int_eq(hwloc_get_cpubind(machine.machine, now, HWLOC_CPUBIND_THREAD), 0);
    ck_assert(hwloc_bitmap_isequal(now, pin.cpus));
    int policy = -1;
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0ul, NULL, 0ul) == 0) {
        bool refused = syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul) != 0; /* as in some containers */
        ck_assert_msg(policy == MPOL_PREFERRED || policy == MPOL_PREFERRED_MANY || refused, "policy %d", policy);
    }
    hwloc_bitmap_only(pin.cpus, BPS_CPUS_LIMIT - 1);
    ck_assert_int_eq(bps_affinity_apply(&machine, &pin, &report), BPS_ERR_IO);
    ck_assert_str_eq(report.text, "cannot bind a thread to the cores 8191: Invalid argument");
    hwloc_bitmap_free(pin.cpus);
    hwloc_bitmap_free(now);
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
    tcase_add_test(reading, one_node_of_memory_is_flat);
    tcase_add_test(reading, another_machine_is_a_directory_of_the_name_sys);
    tcase_add_test(reading, interfaces_have_nodes);
    tcase_add_test(reading, addresses_have_nodes);
    tcase_add_test(reading, this_machine_is_read);
    tcase_add_test(places, one_node_with_cores_is_one_place);
    tcase_add_test(places, workers_share_the_nodes);
    tcase_add_test(places, memory_comes_from_the_nearest_node_that_has_some);
    tcase_add_test(places, processes_get_whole_cores);
    tcase_add_test(places, more_processes_than_cores_share_them);
    tcase_add_test(places, shares_are_whole);
    tcase_add_test(places, shards_fill_the_nodes_near_the_card);
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
