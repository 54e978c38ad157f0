/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_path.c - when a TCP connection goes on with another congestion control, by made-up figures of the kernel:
 * this program has a getsockopt() and a setsockopt() of its own.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "../../transports/tcp/tcp.h" /* what decides has no other interface */
#include "checks.h"

#define MS     1000u     /* us, as the kernel counts */
#define PERIOD 20000000u /* ns, between two looks */
#define SOCKET 77

static struct tcp_info kernel;
static bool kernel_tells;
static unsigned looks, changes;
static char changed_to[32];
static uint64_t now;
static struct bps_host host;
static struct tcp tcp;
static struct bps_channel channel;

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict length)
{
    looks++;
    if (!kernel_tells || fd != SOCKET || level != IPPROTO_TCP || name != TCP_INFO) {
        errno = EINVAL;
        return -1;
    }
    *length = *length < sizeof kernel ? *length : (socklen_t)sizeof kernel;
    memcpy(value, &kernel, *length);
    return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    ck_assert(fd == SOCKET && level == IPPROTO_TCP && name == TCP_CONGESTION && length < sizeof changed_to);
    memcpy(changed_to, value, length);
    changed_to[length] = '\0';
    changes++;
    return 0;
}

static uint64_t tell_now(void)
{
    return now;
}

/* A connection over a path so long, in us. */
static void begin(uint32_t fastest)
{
    memset(&channel, 0, sizeof channel);
    host = (struct bps_host){.now = tell_now};
    tcp = (struct tcp){.host = &host, .other_congestion = "bbr"};
    channel.tcp = &tcp;
    channel.fd = SOCKET;
    kernel = (struct tcp_info){.tcpi_min_rtt = fastest, .tcpi_rtt = fastest};
    kernel_tells = true;
    looks = changes = 0;
    now = 1000000000;
}

/* So many segments are lost while a round trip takes so long; whether another congestion control is in force then. */
static bool lose(uint32_t segments, uint32_t trip)
{
    kernel.tcpi_total_retrans += segments;
    kernel.tcpi_rtt = trip;
    now += PERIOD;
    tcp_path_look(&channel);
    return changes > 0;
}

START_TEST(test_on_a_long_path_the_first_loss_with_a_short_queue_counts)
{
    begin(10 * MS);
    ck_assert(!lose(0, 10 * MS));
    ck_assert(lose(1, 11 * MS));
    ck_assert_str_eq(changed_to, "bbr");
}
END_TEST

START_TEST(test_on_a_short_path_the_second_one_does)
{
    begin(200);
    ck_assert(!lose(1, 200));
    ck_assert(!lose(0, 200));
    ck_assert(lose(1, 200));
}
END_TEST

static const struct {
    uint32_t fastest, trip;
    bool changes;
} queues[] = {
    {10 * MS, 15 * MS - 1, true}, {10 * MS, 15 * MS, false},  {10 * MS, 80 * MS, false}, {150 * MS, 224 * MS, true},
    {150 * MS, 226 * MS, false},  {500, 749, true},           {500, 750, false},         {499, 700, false},
    {100, 5 * MS, false},         {150 * MS, 150 * MS, true},
};

START_TEST(test_it_is_a_queue_of_half_the_trip_that_covers_a_loss)
{
    begin(queues[_i].fastest);
    ck_assert_int_eq(lose(3, queues[_i].trip), queues[_i].changes);
}
END_TEST

START_TEST(test_losses_with_long_queues_weigh_against_others)
{
    begin(10 * MS);
    for (int i = 0; i < 3; i++) {
        ck_assert(!lose(1, 30 * MS));
    }
    ck_assert(!lose(1, 10 * MS)); /* -1 */
    ck_assert(!lose(1, 10 * MS));
    ck_assert(lose(1, 10 * MS));
}
END_TEST

START_TEST(test_long_queues_of_long_ago_do_not_count_for_ever)
{
    unsigned losses = 1;
    begin(10 * MS);
    for (int i = 0; i < 10000; i++) {
        ck_assert(!lose(1, 30 * MS));
    }
    while (!lose(1, 10 * MS)) {
        losses++;
    }
    ck_assert_uint_eq(losses, 5);
}
END_TEST

START_TEST(test_what_only_came_late_was_not_lost)
{
    begin(10 * MS);
    kernel.tcpi_dsack_dups = 4;
    ck_assert(!lose(4, 10 * MS));
    ck_assert(lose(1, 10 * MS));
}
END_TEST

START_TEST(test_an_unknown_trip_decides_nothing)
{
    begin(UINT32_MAX);
    for (int i = 0; i < 5; i++) {
        ck_assert(!lose(1, 10 * MS));
    }
    ck_assert_uint_eq(tcp_round_trip(&channel), 0);
    kernel.tcpi_min_rtt = 10 * MS;
    ck_assert(!lose(0, 10 * MS));
    ck_assert(lose(1, 10 * MS));
}
END_TEST

START_TEST(test_it_looks_once_in_a_while)
{
    begin(10 * MS);
    lose(0, 10 * MS);
    ck_assert_uint_eq(looks, 1);
    kernel.tcpi_total_retrans = 1;
    now += PERIOD - 1;
    tcp_path_look(&channel);
    ck_assert_uint_eq(looks, 1);
    now++;
    tcp_path_look(&channel);
    ck_assert_uint_eq(looks, 2);
    ck_assert_uint_eq(changes, 1);
}
END_TEST

START_TEST(test_it_changes_once)
{
    begin(10 * MS);
    ck_assert(lose(1, 10 * MS));
    lose(1, 10 * MS);
    lose(1, 90 * MS);
    ck_assert_uint_eq(changes, 1);
    ck_assert_uint_eq(looks, 1);
}
END_TEST

START_TEST(test_without_another_one_it_does_not_look)
{
    begin(10 * MS);
    tcp.other_congestion[0] = '\0';
    ck_assert(!lose(9, 10 * MS));
    ck_assert_uint_eq(looks, 0);
}
END_TEST

START_TEST(test_a_kernel_that_tells_nothing)
{
    uint64_t bytes, busy;
    begin(10 * MS);
    kernel_tells = false;
    ck_assert(!lose(9, 10 * MS));
    ck_assert_uint_eq(tcp_round_trip(&channel), 0);
    ck_assert(!tcp_delivered(&channel, &bytes, &busy));
    kernel_tells = true;
    channel.fd = -1;
    ck_assert(!lose(9, 10 * MS));
    ck_assert_uint_eq(tcp_round_trip(&channel), 0);
}
END_TEST

START_TEST(test_what_the_core_is_told)
{
    uint64_t bytes, busy;
    begin(10 * MS);
    kernel.tcpi_rtt = 30 * MS;
    kernel.tcpi_bytes_acked = 5000000000;
    kernel.tcpi_busy_time = 7 * MS;
    ck_assert_uint_eq(tcp_round_trip(&channel), 10000000);
    ck_assert(tcp_delivered(&channel, &bytes, &busy));
    ck_assert_uint_eq(bytes, 5000000000);
    ck_assert_uint_eq(busy, 7000000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("path");
    TCase *tests = tcase_create("path");
    tcase_add_test(tests, test_on_a_long_path_the_first_loss_with_a_short_queue_counts);
    tcase_add_test(tests, test_on_a_short_path_the_second_one_does);
    tcase_add_loop_test(tests, test_it_is_a_queue_of_half_the_trip_that_covers_a_loss, 0,
                        sizeof queues / sizeof *queues);
    tcase_add_test(tests, test_losses_with_long_queues_weigh_against_others);
    tcase_add_test(tests, test_long_queues_of_long_ago_do_not_count_for_ever);
    tcase_add_test(tests, test_what_only_came_late_was_not_lost);
    tcase_add_test(tests, test_an_unknown_trip_decides_nothing);
    tcase_add_test(tests, test_it_looks_once_in_a_while);
    tcase_add_test(tests, test_it_changes_once);
    tcase_add_test(tests, test_without_another_one_it_does_not_look);
    tcase_add_test(tests, test_a_kernel_that_tells_nothing);
    tcase_add_test(tests, test_what_the_core_is_told);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
