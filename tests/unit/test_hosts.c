/* SPDX-License-Identifier: Apache-2.0 */
/* test_hosts.c - the hosts of a job as --hosts names them, and as a discovery script does: a host in each line. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "tools/run.h"

static void *kept[64];
static size_t nkept;

/* That of the options frees it with them. */
void *bps_run_keep(struct bps_run_options *options, void *memory)
{
    (void)options;
    ck_assert_uint_lt(nkept, sizeof kept / sizeof *kept);
    kept[nkept++] = memory;
    return memory;
}

static void free_kept(void)
{
    while (nkept > 0) {
        free(kept[--nkept]);
    }
}

/* Words that are a host in a list as well as in a line. */
static const struct {
    const char *word, *name;
    int slots;
} good[] = {
    {"a", "a", 1},
    {"node-1.example.org:16", "node-1.example.org", 16},
    {"user@a:2", "user@a", 2},
    {"[::1]", "::1", 1},
    {"[fe80::1%eth0]:3", "fe80::1%eth0", 3},
    {"a:65536", "a", 65536},
};

static const char *const bad[] = {
    "a:0",    "a:-1",      "a:65537",  "a:99999999999999999999",
    "a:x",    "a:1x",      "a:1:2",    ":2",
    "-a",     "-oX=y:1",   "[::1",     "[]",
    "[::1]2", "[::1]:0",   "a]",       "a b",
    "a\tb",   "a slots=2", "a\033[2J", "a\177",
    "a[b",
};

START_TEST(test_good_words)
{
    struct bps_run_options o = {.nhosts = 0};
    struct bps_report why = {""};
    size_t n;
    char *line = strdup(good[_i].word);
    struct bps_run_host *hosts = bps_run_hosts_of_lines(line, &n, &why);
    ck_assert_ptr_nonnull(hosts);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(bps_run_hosts_parse(&o, "--hosts", good[_i].word), -1);
    ck_assert_uint_eq(o.nhosts, 1);
    ck_assert_str_eq(hosts->name, good[_i].name);
    ck_assert_str_eq(o.hosts->name, good[_i].name);
    ck_assert_int_eq(hosts->slots, good[_i].slots);
    ck_assert_int_eq(o.hosts->slots, good[_i].slots);
    free(hosts);
    free(line);
    free_kept();
}
END_TEST

START_TEST(test_bad_words)
{
    struct bps_run_options o = {.nhosts = 0};
    struct bps_report why = {""};
    size_t n;
    char *line = bps_cmd_print("x:2\n%s\ny", bad[_i]), *list = bps_cmd_print("x:2,%s,y", bad[_i]);
    ck_assert_ptr_null(bps_run_hosts_of_lines(line, &n, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "line 2: '"));
    ck_assert_ptr_nonnull(strstr(why.text, "is not a host; expected NAME or NAME:WORKERS"));
    ck_assert_ptr_null(strpbrk(why.text, "\t\033\177"));
    ck_assert_int_eq(bps_run_hosts_parse(&o, "--hosts", list), BPS_EXIT_USAGE);
    free(line);
    free(list);
    free_kept();
}
END_TEST

START_TEST(test_lines)
{
    struct bps_report why = {""};
    size_t n;
    char text[] = "\na:2 \r\n\n  \nb\na:1", comma[] = "a,b", none[] = "";
    struct bps_run_host *hosts = bps_run_hosts_of_lines(text, &n, &why);
    ck_assert_ptr_nonnull(hosts);
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(hosts[0].name, "a");
    ck_assert_int_eq(hosts[0].slots, 2);
    ck_assert_str_eq(hosts[1].name, "b");
    ck_assert_str_eq(hosts[2].name, "a");
    free(hosts);
    ck_assert_ptr_null(bps_run_hosts_of_lines(comma, &n, &why));
    hosts = bps_run_hosts_of_lines(none, &n, &why);
    ck_assert_ptr_nonnull(hosts);
    ck_assert_uint_eq(n, 0);
    free(hosts);
}
END_TEST

START_TEST(test_a_list)
{
    struct bps_run_options o = {.nhosts = 0};
    ck_assert_int_eq(bps_run_hosts_parse(&o, "--hosts", "a:2,b"), -1);
    ck_assert_uint_eq(o.nhosts, 2);
    ck_assert_int_eq(o.plan.machines, 2);
    ck_assert_int_eq(o.hosts[1].machine, 1);
    ck_assert_int_eq(o.hosts[0].size, 2);
    ck_assert_int_eq(bps_run_hosts_parse(&o, "--hosts", "c"), BPS_EXIT_USAGE); /* twice */
    free_kept();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hosts");
    TCase *tests = tcase_create("hosts");
    tcase_add_loop_test(tests, test_good_words, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(tests, test_bad_words, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tests, test_lines);
    tcase_add_test(tests, test_a_list);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
