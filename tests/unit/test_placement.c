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
    struct bps_share host[HOSTS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t all = hosts(host, cases[i].hosts, cases[i].others, false);
        ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_AUTO, host, all, cases[i].servers), cases[i].expected);
    }
    ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_ALL, host, hosts(host, 1, 0, false), 0), BPS_COLOCATED_ALL);
    /* As many others, but on slower links: what the workers' hosts can do besides relieves them. */
    uint32_t all = hosts(host, 4, 4, false);
    for (uint32_t i = 4; i < all; i++) {
        host[i].bandwidth = 0.25;
    }
    ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_AUTO, host, all, 4), BPS_COLOCATED_HOSTS);
    for (uint32_t i = 4; i < all; i++) {
        host[i].bandwidth = 4; /* on faster ones fewer are enough */
    }
    ck_assert_uint_eq(bps_share_colocated(BPS_COLOCATED_AUTO, host, 5, 1), BPS_COLOCATED_NONE);
}
END_TEST

/* ---- placement ---- */

/* Shards of `servers` members with these shares, so many each. */
static struct bps_book book_of(const double *share, uint32_t servers, uint32_t each)
{
    struct bps_book book = {.members = servers, .shards = servers * each};
    book.shard = calloc(book.shards, sizeof *book.shard);
    for (uint32_t i = 0; i < book.shards; i++) {
        book.shard[i].member = i / each;
        book.shard[i].weight = bps_share_weight(share[i / each], each);
    }
    ck_assert(bps_book_weigh(&book));
    return book;
}

/* A placement over the shards of a book, with tensors that are placed at once, the largest first. */
struct placed {
    struct bps_placement placement;
    struct bps_layout layout[300];
    uint64_t bytes[300];
    uint32_t tensors;
};

static int descending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

static void check_layout(const struct placed *p, const struct bps_layout *layout, uint64_t bytes, uint64_t most,
                         bool whole)
{
    uint64_t all = 0;
    ck_assert_uint_ge(layout->n, 1);
    for (uint32_t i = 0; i < layout->n; i++) {
        const struct bps_layout_part *part = &layout->part[i];
        ck_assert(bps_is_partition(bytes, most, i, part->bytes));
        ck_assert_uint_gt(p->placement.shard[part->shard].weight, 0);
        ck_assert(i + 1 == layout->n || part->bytes % (whole ? most : 64) == 0);
        all += part->bytes;
        for (uint32_t g = 0; g < p->placement.sizes; g++) {
            ck_assert_uint_lt(layout->lead[i * p->placement.sizes + g], p->placement.group[g].leaders);
        }
    }
    ck_assert_uint_eq(all, bytes);
}

static void place(struct placed *p, const struct bps_book *book, uint64_t most, bool whole)
{
    ck_assert_int_eq(bps_placement_init(&p->placement, book), BPS_OK);
    qsort(p->bytes, p->tensors, sizeof *p->bytes, descending);
    for (uint32_t i = 0; i < p->tensors; i++) {
        bps_placement_expect(&p->placement, p->bytes[i]);
    }
    for (uint32_t i = 0; i < p->tensors; i++) {
        ck_assert_int_eq(bps_placement_add(&p->placement, p->bytes[i], most, whole, &p->layout[i]), BPS_OK);
        check_layout(p, &p->layout[i], p->bytes[i], most, whole);
    }
}

static void take_away(struct placed *p)
{
    for (uint32_t i = 0; i < p->tensors; i++) {
        bps_placement_remove(&p->placement, &p->layout[i]);
        bps_layout_fini(&p->layout[i]);
    }
    for (uint32_t i = 0; i < p->placement.servers; i++) {
        ck_assert_uint_eq(p->placement.server[i].load, 0);
    }
    ck_assert_uint_eq(p->placement.expected, 0);
    bps_placement_fini(&p->placement);
}

/* Bytes of a tensor, or of all, that a server sums. */
static uint64_t bytes_on(const struct placed *p, uint32_t tensor, uint32_t server)
{
    const struct bps_layout *layout = &p->layout[tensor];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->n; i++) {
        uint32_t shard = layout->part[i].shard;
        bool there = p->placement.first[server] <= shard && shard < p->placement.first[server + 1];
        bytes += there ? layout->part[i].bytes : 0;
    }
    return bytes;
}

static uint64_t all_on(const struct placed *p, uint32_t server)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->tensors; i++) {
        bytes += bytes_on(p, i, server);
    }
    return bytes;
}

static uint32_t partitions_of(const struct placed *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->tensors; i++) {
        n += p->layout[i].n;
    }
    return n;
}

/* A large tensor is spread over all shards of all servers, a small one is not cut. */
START_TEST(test_one_tensor)
{
    static const double half[] = {0.5, 0.5};
    static const uint16_t shards[] = {0, 0, 1, 1, 2, 2, 3, 3};
    struct bps_book book = book_of(half, 2, 2);
    struct placed p = {.tensors = 3, .bytes = {20 * MIB, 1000, 0}};
    place(&p, &book, 4 * MIB, false);
    ck_assert_uint_eq(p.layout[0].n, 8);
    for (uint32_t i = 0; i < 8; i++) { /* each has a quarter, of partitions of at most 4 MiB */
        ck_assert_uint_eq(p.layout[0].part[i].bytes, i % 2 == 0 ? 4 * MIB : MIB);
        ck_assert_uint_eq(p.layout[0].part[i].shard, shards[i]);
    }
    ck_assert_uint_eq(p.layout[1].n, 1);
    ck_assert_uint_eq(p.layout[2].n, 1);
    ck_assert(p.layout[1].part[0].shard / 2 != p.layout[2].part[0].shard / 2); /* where there is less */
    take_away(&p);
    bps_book_fini(&book);
}
END_TEST

/* Groups of two sizes: the larger ones cut, and all leaders have about the same to do. */
START_TEST(test_leaders)
{
    static const double one[] = {1};
    struct bps_book_member member[6] = {{.group = 0}, {.group = 0}, {.group = 0},
                                        {.group = 0}, {.group = 4}, {.group = 4}};
    struct bps_book book = book_of(one, 1, 1);
    struct placed p = {.tensors = 41, .bytes = {4 * MIB}};
    book.workers = 6;
    book.member = member;
    for (uint32_t i = 1; i < p.tensors; i++) {
        p.bytes[i] = 1 + i * 1000;
    }
    place(&p, &book, 4 * MIB, false);
    ck_assert_uint_eq(p.placement.sizes, 2);
    ck_assert_uint_eq(p.layout[0].n, 4); /* of four, each leads a part */
    for (uint32_t i = 1; i < p.tensors; i++) {
        ck_assert_uint_eq(p.layout[i].n, 1);
    }
    for (uint32_t g = 0; g < 2; g++) {
        const struct bps_group_bins *group = &p.placement.group[g];
        ck_assert_uint_eq(group->size, g == 0 ? 4 : 2);
        ck_assert_uint_eq(bps_placement_group(&p.placement, group->size), g);
        ck_assert_uint_eq(group->leaders, group->size);
        for (uint32_t i = 1; i < group->leaders; i++) {
            ck_assert_uint_le(group->leader[i].load, group->leader[0].load + group->leader[0].load / 10);
            ck_assert_uint_ge(group->leader[i].load, group->leader[0].load - group->leader[0].load / 10);
        }
    }
    take_away(&p);
    book.member = NULL;
    bps_book_fini(&book);
}
END_TEST

/* A coded tensor has whole partitions, wherever they are. */
START_TEST(test_whole_partitions)
{
    static const double share[] = {0.1, 0.2, 0.3, 0.4};
    struct bps_book book = book_of(share, 4, 2);
    struct placed p = {.tensors = 20};
    for (uint32_t i = 0; i < p.tensors; i++) {
        p.bytes[i] = i * (700 << 10) + 64 * i;
    }
    place(&p, &book, MIB, true);
    for (uint32_t i = 0; i < p.tensors; i++) {
        ck_assert_uint_eq(p.layout[i].n, bps_partitions(p.bytes[i], MIB));
    }
    for (uint32_t s = 0; s < 4; s++) {
        double wanted = share[s] * (double)(p.placement.expected);
        ck_assert(fabs((double)p.placement.server[s].load - wanted) < 1.1 * MIB);
    }
    take_away(&p);
    bps_book_fini(&book);
}
END_TEST

/* The sizes of a model's tensors: all small, all large, both, or one alone. */
static void random_model(struct placed *p, uint64_t least)
{
    uint64_t all = 0, most = (uint64_t)1 << (8 + rand() % 18);
    uint32_t kind = (uint32_t)rand() % 4;
    p->tensors = 0;
    while (all < least && p->tensors < 299) {
        uint64_t small = 1 + (uint64_t)rand() % (most < 4096 ? most : 4096), any = 1 + (uint64_t)rand() % most;
        p->bytes[p->tensors] = kind == 0 ? any : kind == 1 ? most : rand() % 2 == 0 ? small : any;
        all += p->bytes[p->tensors++];
    }
    if (all < least) {
        p->bytes[p->tensors++] = least - all + (uint64_t)rand() % (4 * MIB);
    }
}

/*
 * The time of the busiest link is that of the best shares, for all models of 1 MB and more, and up to 16 hosts with
 * workers and as many others; and tensors are not cut into more than it takes.
 */
START_TEST(test_any_model_and_network)
{
    srand(5 + (unsigned)_i);
    for (int round = 0; round < 250; round++) {
        struct bps_share host[HOSTS];
        double share[HOSTS];
        struct placed p;
        uint32_t n = 1 + (uint32_t)rand() % 16, all = hosts(host, n, (uint32_t)rand() % 17, true);
        bps_share_set(host, all);
        double best = bps_share_time(host, all);
        for (uint32_t i = 0; i < all; i++) {
            share[i] = host[i].share;
        }
        struct bps_book book = book_of(share, all, 1 + (uint32_t)rand() % 3);
        random_model(&p, 1000000);
        place(&p, &book, 4 * MIB, false);
        uint64_t bytes = 0;
        uint32_t limit = 0;
        for (uint32_t i = 0; i < p.tensors; i++) {
            bytes += p.bytes[i];
            limit += 1 + (uint32_t)(p.bytes[i] / BPS_SPREAD_BYTES) + (uint32_t)(p.bytes[i] / (4 * MIB));
        }
        for (uint32_t i = 0; i < all; i++) {
            host[i].share = (double)all_on(&p, i) / (double)bytes;
        }
        ck_assert_msg(bps_share_time(host, all) <= 1.02 * best + 1e-9, "round %d: %u of %u, %u tensors: %g", round, n,
                      all, p.tensors, bps_share_time(host, all) / best);
        ck_assert_msg(partitions_of(&p) <= limit + 2 * book.shards, "round %d: %u partitions, %u", round,
                      partitions_of(&p), limit);
        take_away(&p);
        bps_book_fini(&book);
    }
}
END_TEST

/* Tensors that are declared one by one are balanced, too, as soon as they are many; tiny ones are spread by number. */
START_TEST(test_one_by_one)
{
    static const double share[] = {0.1, 0.2, 0.3, 0.4};
    struct bps_book book = book_of(share, 4, 1);
    struct bps_placement p;
    struct bps_layout layout;
    uint32_t count[4] = {0};
    ck_assert_int_eq(bps_placement_init(&p, &book), BPS_OK);
    for (uint32_t i = 0; i < 4000; i++) {
        uint64_t bytes = i % 4 == 0 ? 100 : i % 40 * 4096;
        bps_placement_expect(&p, bytes);
        ck_assert_int_eq(bps_placement_add(&p, bytes, 4 * MIB, false, &layout), BPS_OK);
        bps_layout_fini(&layout);
        for (uint32_t s = 0; s < 4 && i > 1000; s++) {
            double wanted = share[s] * (double)p.expected;
            ck_assert(fabs((double)p.server[s].load - wanted) < 0.02 * wanted);
        }
    }
    bps_placement_fini(&p);
    ck_assert_int_eq(bps_placement_init(&p, &book), BPS_OK);
    for (uint32_t i = 0; i < 100000; i++) {
        bps_placement_expect(&p, 4);
        ck_assert_int_eq(bps_placement_add(&p, 4, 4 * MIB, false, &layout), BPS_OK);
        ck_assert_uint_eq(layout.n, 1);
        count[layout.part[0].shard]++;
        bps_layout_fini(&layout);
    }
    for (uint32_t s = 0; s < 4; s++) {
        ck_assert(fabs(count[s] - share[s] * 100000) < 0.02 * share[s] * 100000);
    }
    bps_placement_fini(&p);
    bps_book_fini(&book);
}
END_TEST

/* Another server comes: it gets nothing before it has a weight, then its share of what is placed. */
START_TEST(test_one_more)
{
    static const double before[] = {1, 0}, after[] = {0.5, 0.5};
    struct bps_book book = book_of(before, 2, 2), fewer = book, equal = book_of(after, 2, 2);
    struct placed p = {.tensors = 50};
    for (uint32_t i = 0; i < 50; i++) {
        p.bytes[i] = (i + 1) * (MIB / 10);
    }
    fewer.members = 1;
    fewer.shards = 2;
    ck_assert(bps_book_weigh(&fewer));
    place(&p, &fewer, 4 * MIB, false);
    ck_assert_int_eq(bps_placement_grow(&p.placement, &book), BPS_OK);
    ck_assert_uint_eq(p.placement.servers, 2);
    bps_placement_weigh(&p.placement, &equal);
    for (uint32_t i = 0; i < 50; i++) {
        bps_placement_remove(&p.placement, &p.layout[i]);
        bps_layout_fini(&p.layout[i]);
        bps_placement_expect(&p.placement, p.bytes[i]);
        ck_assert_int_eq(bps_placement_add(&p.placement, p.bytes[i], 4 * MIB, false, &p.layout[i]), BPS_OK);
    }
    ck_assert(fabs((double)p.placement.server[1].load - 0.5 * (double)p.placement.expected) < 2.0 * MIB);
    take_away(&p);
    bps_book_fini(&equal);
    bps_book_fini(&book);
}
END_TEST

/* The same sequence is placed the same way. */
START_TEST(test_stable)
{
    static const double share[] = {0.1, 0.2, 0.3, 0.4};
    struct bps_book book = book_of(share, 4, 2);
    struct placed p[2] = {{.tensors = 200}, {.tensors = 200}};
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < 200; i++) {
            p[pass].bytes[i] = i * 79190 % (8 * MIB);
        }
        place(&p[pass], &book, MIB, false);
    }
    for (uint32_t i = 0; i < 200; i++) {
        ck_assert_uint_eq(p[0].layout[i].n, p[1].layout[i].n);
        for (uint32_t j = 0; j < p[0].layout[i].n; j++) {
            ck_assert_uint_eq(p[0].layout[i].part[j].bytes, p[1].layout[i].part[j].bytes);
            ck_assert_uint_eq(p[0].layout[i].part[j].shard, p[1].layout[i].part[j].shard);
        }
    }
    take_away(&p[0]);
    take_away(&p[1]);
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
            count[0][bps_unnamed_shard(&book, &book, id + i, 0) / 2]++;
            count[1][bps_unnamed_shard(&book, &book, id, i) / 2]++;
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

START_TEST(test_unnamed_of_equal_shards)
{
    static const double share[] = {0.25, 0.25, 0.25, 0.25};
    struct bps_book book = book_of(share, 4, 2);
    for (uint32_t id = 0; id < 70; id++) { /* a large tensor, wherever one begins to count */
        uint32_t count[8] = {0};
        for (uint32_t i = 0; i < 64; i++) {
            count[bps_unnamed_shard(&book, &book, BPS_ID_UNNAMED | id, i)]++;
        }
        for (int s = 0; s < 8; s++) {
            ck_assert_uint_eq(count[s], 8);
        }
    }
    uint32_t size = bps_unnamed_size(&book, 100 * MIB, 4 * MIB);
    ck_assert_uint_le(100 * MIB - 63 * (uint64_t)size, size);
    book.shard[3].weight = 0; /* one that is lost stays in the rows, and changes no size */
    ck_assert(bps_book_weigh(&book));
    ck_assert_uint_eq(bps_unnamed_size(&book, 100 * MIB, 4 * MIB), size);
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
    shard[1].weight = shard[0].spread = shard[1].spread = 0;
    ck_assert(bps_book_weigh(&book));
    ck_assert_uint_eq(bps_unnamed_shard(&book, &book, 12345, 6), 0);
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
    tcase_add_test(tests, test_one_tensor);
    tcase_add_test(tests, test_leaders);
    tcase_add_test(tests, test_whole_partitions);
    tcase_add_loop_test(tests, test_any_model_and_network, 0, 8);
    tcase_add_test(tests, test_one_by_one);
    tcase_add_test(tests, test_one_more);
    tcase_add_test(tests, test_stable);
    tcase_add_test(tests, test_unnamed);
    tcase_add_test(tests, test_unnamed_of_equal_shards);
    tcase_add_test(tests, test_weights_that_make_no_sense);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
