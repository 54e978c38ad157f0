/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement.c - shares by formula and by bandwidth, placement by them, unnamed tensors, who serves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "conf/conf.h"
#include "node/unnamed.h"
#include "scheduler/placement.h"
#include "scheduler/share.h"
#include "wire/frame.h"

#define HOSTS 64u
#define MIB   ((uint64_t)1 << 20)

static bool close_to(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* n hosts with workers, on each of which is a server if `near`, and k with servers only. */
static uint32_t hosts(struct bps_share *host, uint32_t n, uint32_t k, bool near)
{
    for (uint32_t i = 0; i < n + k; i++) {
        host[i] = (struct bps_share){.senders = i < n, .serves = i >= n || near, .bandwidth = 1};
    }
    return n + k;
}

/* ---- shares ---- */

START_TEST(test_formula)
{
    for (uint32_t n = 2; n <= 16; n++) {
        for (uint32_t k = 0; k <= n; k++) {
            struct bps_share host[HOSTS];
            double d = (double)n * n + (double)k * n - 2.0 * k;
            uint32_t all = hosts(host, n, k, true);
            bps_share_set(host, all);
            for (uint32_t i = 0; i < all; i++) {
                ck_assert(close_to(host[i].share, i < n ? (n - k) / d : 2 * (n - 1) / d));
            }
            ck_assert(close_to(bps_share_time(host, all), 2.0 * n * (n - 1) / d));
        }
    }
}
END_TEST

START_TEST(test_beyond_the_formula)
{
    struct bps_share host[HOSTS];
    uint32_t all = hosts(host, 3, 7, true); /* more servers than workers: they take it all */
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 0) && close_to(host[9].share, 1.0 / 7) && close_to(bps_share_time(host, all), 1));
    all = hosts(host, 4, 2, false);
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 0) && close_to(host[4].share, 0.5) && close_to(bps_share_time(host, all), 2));
    all = hosts(host, 1, 0, true); /* nothing crosses the network */
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 1) && close_to(bps_share_time(host, all), 0));
    all = hosts(host, 1, 2, true);
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 1) && close_to(host[1].share, 0) && close_to(bps_share_time(host, all), 0));
    all = hosts(host, 1, 2, false);
    bps_share_set(host, all);
    ck_assert(close_to(host[1].share, 0.5) && close_to(bps_share_time(host, all), 1));
    all = hosts(host, 3, 0, true); /* only the first serves */
    host[1].serves = host[2].serves = false;
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 1) && close_to(host[1].share, 0) && close_to(bps_share_time(host, all), 2));
}
END_TEST

START_TEST(test_uneven_senders)
{
    struct bps_share host[HOSTS];
    uint32_t all = hosts(host, 2, 0, true); /* most is on the first: the rest goes there */
    host[0].senders = 3;
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 1) && close_to(bps_share_time(host, all), 1));
    /* The first has half of all: it costs nothing there, but gives them time. */
    all = hosts(host, 3, 0, true);
    host[0].senders = 2;
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 0) && close_to(host[1].share, 0.5) && close_to(bps_share_time(host, all), 2));
    all = hosts(host, 4, 0, true); /* as many everywhere: as if they were summed first */
    for (uint32_t i = 0; i < all; i++) {
        host[i].senders = 5;
    }
    bps_share_set(host, all);
    ck_assert(close_to(host[0].share, 0.25) && close_to(bps_share_time(host, all), 5 * 1.5));
}
END_TEST

/*
 * No transfer of share from one host to another may shorten the whole:
 * for random links and numbers of workers.
 */
START_TEST(test_shares_by_bandwidth_are_best)
{
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct bps_share host[HOSTS];
        uint32_t n = 1 + (uint32_t)rand() % 6, all = hosts(host, n, (uint32_t)rand() % 5, true);
        double sum = 0;
        for (uint32_t i = 0; i < all; i++) {
            host[i].bandwidth = (1 + rand() % 40) / 10.0;
            host[i].senders *= 1 + (rand() % 3 == 0 ? (uint32_t)rand() % 4 : 0);
            host[i].serves = host[i].serves && (i == all - 1 || rand() % 4 > 0);
        }
        bps_share_set(host, all);
        for (uint32_t i = 0; i < all; i++) {
            ck_assert(host[i].share >= 0 && host[i].share <= 1 + 1e-9 &&
                      (host[i].serves || close_to(host[i].share, 0)));
            sum += host[i].share;
        }
        ck_assert(close_to(sum, 1));
        double best = bps_share_time(host, all);
        for (uint32_t from = 0; from < all; from++) {
            for (uint32_t to = 0; to < all; to++) {
                struct bps_share other[HOSTS];
                memcpy(other, host, sizeof other);
                double moved = host[from].share / 3;
                other[from].share -= moved;
                other[to].share += host[to].serves ? moved : 0;
                ck_assert(!host[to].serves || bps_share_time(other, all) >= best - 1e-9);
            }
        }
    }
}
END_TEST

START_TEST(test_auto)
{
    static const struct {
        uint32_t hosts, others, servers, expected;
    } cases[] = {
        {1, 0, 0, BPS_COLOCATED_FIRST}, {1, 0, 2, BPS_COLOCATED_NONE},  {1, 1, 1, BPS_COLOCATED_NONE},
        {2, 0, 0, BPS_COLOCATED_HOSTS}, {4, 2, 2, BPS_COLOCATED_HOSTS}, {4, 3, 6, BPS_COLOCATED_HOSTS},
        {4, 4, 4, BPS_COLOCATED_NONE},  {4, 9, 9, BPS_COLOCATED_NONE},  {4, 0, 4, BPS_COLOCATED_HOSTS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_AUTO, cases[i].hosts, cases[i].others, cases[i].servers),
                          cases[i].expected);
    }
    ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_ALL, 1, 0, 0), BPS_COLOCATED_ALL);
}
END_TEST

/* ---- placement ---- */

/* Shards of `servers` members with these shares, so many each. */
static struct bps_book book_of(const double *share, uint32_t servers, uint32_t each)
{
    struct bps_book book = {.members = servers, .workers = 1, .shards = servers * each};
    book.shard = calloc(book.shards, sizeof *book.shard);
    for (uint32_t i = 0; i < book.shards; i++) {
        book.shard[i].member = i / each;
        book.shard[i].weight = bps_share_weight(share[i / each], each);
    }
    ck_assert(bps_book_weigh(&book));
    return book;
}

START_TEST(test_one_each)
{
    static const double half[] = {0.5, 0.5};
    struct bps_book book = book_of(half, 2, 2);
    struct bps_placement placement;
    uint16_t shard[8];
    ck_assert_int_eq(bps_placement_init_shards(&placement, &book), BPS_OK);
    bps_placement_add(&placement, 20 * MIB, 4 * MIB, shard); /* server by server, and there shard by shard */
    static const uint16_t expected[] = {0, 2, 1, 3, 0};
    ck_assert_int_eq(memcmp(shard, expected, sizeof expected), 0);
    bps_placement_add(&placement, 1000, 4 * MIB, shard); /* where there is less */
    ck_assert_uint_eq(shard[0], 2);
    bps_placement_add(&placement, 0, 4 * MIB, shard);
    ck_assert_uint_eq(shard[0], 3);
    bps_placement_fini(&placement);
    bps_book_fini(&book);
}
END_TEST

START_TEST(test_equal_places)
{
    struct bps_placement placement;
    uint16_t place[4];
    ck_assert_int_eq(bps_placement_init(&placement, 3), BPS_OK);
    bps_placement_add(&placement, 16 * MIB, 4 * MIB, place);
    static const uint16_t expected[] = {0, 1, 2, 0};
    ck_assert_int_eq(memcmp(place, expected, sizeof expected), 0);
    bps_placement_fini(&placement);
}
END_TEST

/* Every server has its share, but for partitions that cannot be cut; so has every shard of a server. */
START_TEST(test_within_a_partition)
{
    srand(3);
    for (int round = 0; round < 200; round++) {
        double share[8], sum = 0;
        uint32_t servers = 1 + (uint32_t)rand() % 8, each = 1 + (uint32_t)rand() % 3;
        for (uint32_t i = 0; i < servers; i++) {
            share[i] = i > 0 && rand() % 5 == 0 ? 0 : 1 + rand() % 20;
            sum += share[i];
        }
        for (uint32_t i = 0; i < servers; i++) {
            share[i] /= sum;
        }
        struct bps_book book = book_of(share, servers, each);
        struct bps_placement p;
        uint64_t all = 0, largest = 0;
        uint16_t shard[64];
        ck_assert_int_eq(bps_placement_init_shards(&p, &book), BPS_OK);
        for (int i = 0; i < 300; i++) {
            uint64_t bytes = (uint64_t)rand() % (rand() % 4 == 0 ? 8 * MIB : 4096);
            bps_placement_add(&p, bytes, MIB, shard);
            all += bytes + 1024 * bps_partitions(bytes, MIB);
            bytes = bytes < MIB ? bytes : MIB;
            largest = bytes + 1024 > largest ? bytes + 1024 : largest;
        }
        for (uint32_t i = 0; i < servers; i++) {
            double wanted = share[i] * (double)all, slack = 1e-6 * (double)all;
            ck_assert(share[i] > 0 || p.server[i].load == 0);
            /* When it got its last partition, no other one would have been better off with it. */
            ck_assert((double)p.server[i].load <= wanted + share[i] * (servers - 1) * (double)largest + slack);
            ck_assert((double)p.server[i].load >= wanted - (double)largest * (servers - 1) - slack);
            for (uint32_t s = i * each; s < (i + 1) * each; s++) {
                ck_assert_uint_le(p.load[s], p.server[i].load / each + largest);
            }
        }
        bps_placement_fini(&p);
        bps_book_fini(&book);
    }
}
END_TEST

/* What is placed stays, and the same sequence is placed the same way. */
START_TEST(test_stable)
{
    static const double share[] = {0.1, 0.2, 0.3, 0.4};
    struct bps_book book = book_of(share, 4, 2);
    uint16_t first[500][8], again[500][8];
    memset(first, 0, sizeof first);
    memset(again, 0, sizeof again);
    for (int pass = 0; pass < 2; pass++) {
        struct bps_placement p;
        ck_assert_int_eq(bps_placement_init_shards(&p, &book), BPS_OK);
        for (uint64_t i = 0; i < 500; i++) {
            bps_placement_add(&p, i * 7919 % (8 * MIB), MIB, pass == 0 ? first[i] : again[i]);
        }
        bps_placement_fini(&p);
    }
    ck_assert_int_eq(memcmp(first, again, sizeof first), 0);
    bps_book_fini(&book);
}
END_TEST

START_TEST(test_unnamed)
{
    static const double share[] = {0.1, 0, 0.3, 0.6};
    struct bps_book book = book_of(share, 4, 2);
    for (uint32_t start = 0; start < 5; start++) { /* any hundred in a row, by ids and by partitions */
        uint32_t count[2][4] = {{0}};
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t id = BPS_ID_UNNAMED | (start * 4321);
            count[0][bps_unnamed_shard(&book, id + i, 0) / 2]++;
            count[1][bps_unnamed_shard(&book, id, i) / 2]++;
        }
        for (int i = 0; i < 2; i++) {
            for (int s = 0; s < 4; s++) {
                ck_assert_int_le(abs((int)count[i][s] - (int)lround(100 * share[s])), 3);
            }
            ck_assert_uint_eq(count[i][1], 0);
        }
    }
    bps_book_fini(&book);
}
END_TEST

START_TEST(test_weights_that_make_no_sense)
{
    struct bps_book_shard shard[2] = {{0}};
    struct bps_book book = {.shards = 2, .shard = shard};
    ck_assert(!bps_book_weigh(&book));
    shard[0].weight = shard[1].weight = UINT32_MAX;
    ck_assert(!bps_book_weigh(&book));
    shard[1].weight = 0;
    ck_assert(bps_book_weigh(&book));
    ck_assert_uint_eq(bps_unnamed_shard(&book, 12345, 6), 0);
    ck_assert_uint_eq(bps_share_weight(0, 3), 0);
    ck_assert_uint_eq(bps_share_weight(1e-8, 256), 1); /* little, but not nothing */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tests = tcase_create("placement");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, test_formula);
    tcase_add_test(tests, test_beyond_the_formula);
    tcase_add_test(tests, test_uneven_senders);
    tcase_add_test(tests, test_shares_by_bandwidth_are_best);
    tcase_add_test(tests, test_auto);
    tcase_add_test(tests, test_one_each);
    tcase_add_test(tests, test_equal_places);
    tcase_add_test(tests, test_within_a_partition);
    tcase_add_test(tests, test_stable);
    tcase_add_test(tests, test_unnamed);
    tcase_add_test(tests, test_weights_that_make_no_sense);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
