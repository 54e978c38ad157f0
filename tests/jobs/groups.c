/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c - a worker that makes operations in process groups, sends messages, and checks what it gets.
 *
 *     groups all           each operation in groups of many kinds, at the same time; messages in any order of tags
 *     groups many N        makes N small groups, uses and frees them
 *     groups opened        the last and the first worker open groups by a number
 *     groups threads       four threads, each with a group of its own
 *     groups differ        what is refused, and who is told
 *     groups endless       sums in a group of the first two workers until something fails
 *     groups local         makes operations in a group of the workers of this host, and has them send to each other
 */
#include <byteps/groups.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s: %s\n", __LINE__, #condition, report.text);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define FINE(call) REQUIRE((call) == BPS_OK)

static _Thread_local struct bps_report report;
static uint32_t rank, size;

/* A process group, and what it is expected to be. */
struct group {
    uint32_t id, n, own, *rank; /* own: the place of this worker, or n */
};

static struct group make(const uint32_t *ranks, uint32_t n)
{
    struct group group = {.n = n, .own = n, .rank = calloc(n, sizeof *group.rank)};
    uint32_t own, all;
    REQUIRE(group.rank != NULL);
    for (uint32_t i = 0; i < n; i++) {
        group.rank[i] = ranks[i];
        group.own = ranks[i] == rank ? i : group.own;
    }
    FINE(bps_group_new(ranks, n, &group.id, &report));
    FINE(bps_group_place(group.id, &own, &all, &report));
    REQUIRE(all == n && own == (group.own < n ? group.own : UINT32_MAX));
    return group;
}

static struct bps_collective request(const struct group *group, const void *in, void *out, uint64_t count)
{
    return (struct bps_collective){.size = sizeof(struct bps_collective),
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .dtype = BPS_INT32,
                                   .group = group->id};
}

/* What a worker brings: it tells the sender, and where in the tensor it is. */
static int32_t element(uint32_t of, uint64_t i)
{
    return (int32_t)(of * 100000 + i % 1000);
}

static int32_t *filled(uint64_t n)
{
    int32_t *data = malloc(n * sizeof *data + 1);
    REQUIRE(data != NULL);
    for (uint64_t i = 0; i < n; i++) {
        data[i] = element(rank, i);
    }
    return data;
}

static int32_t *empty(uint64_t n)
{
    int32_t *data = malloc(n * sizeof *data + 1);
    REQUIRE(data != NULL);
    memset(data, 0xff, n * sizeof *data);
    return data;
}

static void expect(const int32_t *data, uint32_t of, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        REQUIRE(data[i] == element(of, first + i));
    }
}

static void expect_sum(const struct group *group, const int32_t *data, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        int32_t sum = 0;
        for (uint32_t p = 0; p < group->n; p++) {
            sum += element(group->rank[p], first + i);
        }
        REQUIRE(data[i] == sum);
    }
}

/* ---- each operation ---- */

/* Those in which all have the same of everything. */
static void equal(const struct group *group, uint64_t n)
{
    uint32_t root = (uint32_t)n % group->n;
    int32_t *in = filled(n), *out = empty(n);
    struct bps_push_pull sum = {.size = sizeof sum,
                                .in = in,
                                .out = out,
                                .count = n,
                                .dtype = BPS_INT32,
                                .op = BPS_SUM,
                                .prescale = 1.0,
                                .postscale = 1.0,
                                .group = group->id};
    FINE(bps_push_pull(&sum, BPS_FOREVER, NULL, &report));
    expect_sum(group, out, 0, n);
    bps_handle handle;
    FINE(bps_broadcast_async(&sum, root, &handle, &report));
    FINE(bps_wait(handle, BPS_FOREVER, &report));
    expect(out, group->rank[root], 0, n);
    struct bps_collective reduce = request(group, in, out, n);
    reduce.root = root;
    FINE(bps_reduce(&reduce, &report));
    if (group->own == root) {
        expect_sum(group, out, 0, n);
    }
    FINE(bps_group_barrier(group->id, &report));
    free(in);
    free(out);
}

static void blocks(const struct group *group, uint64_t n)
{
    uint32_t root = (uint32_t)n % group->n, own = group->own;
    int32_t *one = filled(n), *all = empty(n * group->n), *many = filled(n * group->n), *out = empty(n);
    struct bps_collective gather = request(group, one, all, n), scatter = request(group, many, out, n);
    struct bps_collective exchange = request(group, many, all, n);
    FINE(bps_all_gather(&gather, &report));
    for (uint32_t p = 0; p < group->n; p++) {
        expect(all + p * n, group->rank[p], 0, n);
    }
    memset(all, 0, n * group->n * sizeof *all);
    gather.root = scatter.root = root;
    FINE(bps_gather(&gather, &report));
    for (uint32_t p = 0; p < group->n && own == root; p++) {
        expect(all + p * n, group->rank[p], 0, n);
    }
    FINE(bps_scatter(&scatter, &report));
    expect(out, group->rank[root], own * n, n);
    FINE(bps_reduce_scatter(&scatter, &report));
    expect_sum(group, out, own * n, n);
    FINE(bps_all_to_all(&exchange, &report));
    for (uint32_t p = 0; p < group->n; p++) {
        expect(all + p * n, group->rank[p], own * n, n);
    }
    free(one);
    free(all);
    free(many);
    free(out);
}

/* Blocks whose sizes tell their sender and their receiver. */
static void uneven(const struct group *group)
{
    uint64_t in_counts[16], out_counts[16], in = 0, out = 0;
    for (uint32_t p = 0; p < group->n; p++) {
        in_counts[p] = 7 * group->own + 3 * p;
        out_counts[p] = 7 * p + 3 * group->own;
        in += in_counts[p];
        out += out_counts[p];
    }
    int32_t *from = filled(in), *to = empty(out);
    struct bps_collective exchange = request(group, from, to, 0);
    exchange.in_counts = in_counts;
    exchange.out_counts = out_counts;
    FINE(bps_all_to_all(&exchange, &report));
    const int32_t *at = to;
    for (uint32_t p = 0; p < group->n; p++) {
        uint64_t first = 0; /* where the block of the sender for this worker begins */
        for (uint32_t q = 0; q < group->own; q++) {
            first += 7 * p + 3 * q;
        }
        expect(at, group->rank[p], first, out_counts[p]);
        at += out_counts[p];
    }
    free(from);
    free(to);
}

static void use(const struct group *group)
{
    const uint64_t sizes[] = {0, 1, 1000, 70000};
    for (uint32_t i = 0; i < 4 && group->own < group->n; i++) {
        equal(group, sizes[i]);
        blocks(group, sizes[i]);
    }
    if (group->own < group->n) {
        uneven(group);
    }
}

/* ---- messages ---- */

/* Each sends to the next one: large and small ones, and two tags, received in another order than they were sent in. */
static void ring(const struct group *group)
{
    uint32_t n = group->n, next = (group->own + 1) % n, last = (group->own + n - 1) % n;
    const uint64_t sizes[] = {0, 3, 200000, 100};
    bps_handle sent[8], got[8];
    int32_t *in[8], *out[8];
    for (uint32_t i = 0; i < 8 && n > 1; i++) { /* tag 0 and 5 by turns */
        uint64_t count = sizes[i / 2];
        in[i] = filled(count);
        struct bps_collective send = request(group, in[i], NULL, count);
        send.root = next;
        send.tag = i % 2 * 5;
        FINE(bps_send_async(&send, &sent[i], &report));
    }
    for (uint32_t k = 0; k < 8 && n > 1; k++) { /* all of tag 5 before all of tag 0 */
        uint32_t i = k < 4 ? 2 * k + 1 : 2 * (k - 4);
        uint64_t count = sizes[i / 2];
        out[i] = empty(count);
        struct bps_collective recv = request(group, NULL, out[i], count);
        recv.root = last;
        recv.tag = i % 2 * 5;
        FINE(bps_recv_async(&recv, &got[i], &report));
    }
    for (uint32_t i = 0; i < 8 && n > 1; i++) {
        FINE(bps_wait(got[i], BPS_FOREVER, &report));
        FINE(bps_wait(sent[i], BPS_FOREVER, &report));
        expect(out[i], group->rank[last], 0, sizes[i / 2]);
        free(in[i]);
        free(out[i]);
    }
}

/* ---- programs ---- */

/* All, in reverse; the even ones; all but the last; each alone; the first and the last. */
static uint32_t make_some(struct group *groups)
{
    uint32_t ranks[16], n = 0, even = 0;
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = size - 1 - i;
    }
    groups[n++] = make(ranks, size);
    for (uint32_t i = 0; i < size; i += 2) {
        ranks[even++] = i;
    }
    groups[n++] = make(ranks, even);
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = i;
        groups[n++] = make(&ranks[i], 1);
    }
    groups[n++] = make(ranks, size > 1 ? size - 1 : 1);
    ranks[1] = size - 1;
    groups[n++] = make(ranks, size > 1 ? 2 : 1);
    return n;
}

/* One operation of each group in flight at the same time, begun in another order by each worker. */
static void at_once(const struct group *groups, uint32_t n)
{
    bps_handle handle[32];
    int32_t *in = filled(50000), *out[32];
    for (uint32_t k = 0; k < n; k++) {
        const struct group *group = &groups[(k + rank) % n];
        struct bps_collective gather = request(group, in, out[(k + rank) % n] = empty(50000 * group->n), 50000);
        if (group->own < group->n) {
            FINE(bps_all_gather_async(&gather, &handle[(k + rank) % n], &report));
        }
    }
    FINE(bps_barrier(&report));
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t p = 0; p < groups[k].n && groups[k].own < groups[k].n; p++) {
            FINE(bps_wait(handle[k], BPS_FOREVER, &report));
            expect(out[k] + p * 50000, groups[k].rank[p], 0, 50000);
        }
        free(out[k]);
    }
    free(in);
}

static void run_all(void)
{
    struct group groups[32];
    uint32_t n = make_some(groups);
    for (uint32_t i = 0; i < n; i++) {
        use(&groups[i]);
    }
    at_once(groups, n);
    ring(&(struct group){.n = size, .own = rank, .rank = (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7}});
    ring(&groups[0]);
    for (uint32_t i = 0; i < n; i++) {
        FINE(bps_group_free(groups[i].id, &report));
        REQUIRE(bps_group_barrier(groups[i].id, &report) == BPS_ERR_INVALID);
        free(groups[i].rank);
    }
    puts("fine");
}

/* Small ones, of which each is freed while its operation is in flight. */
static void run_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = i % size, second = (i + 1 + i / size % (size - 1)) % size, ranks[] = {first, second};
        struct group group = make(ranks, 2);
        int32_t in = element(rank, i), out[2] = {0};
        bps_handle handle;
        struct bps_collective gather = request(&group, &in, out, 1);
        if (group.own < 2) {
            FINE(bps_all_gather_async(&gather, &handle, &report));
        }
        FINE(bps_group_free(group.id, &report));
        if (group.own < 2) {
            FINE(bps_wait(handle, BPS_FOREVER, &report));
            REQUIRE(out[0] == element(first, i) && out[1] == element(second, i));
        }
        free(group.rank);
    }
    puts("fine");
}

static void *use_often(void *group)
{
    for (uint32_t i = 0; i < 20; i++) {
        equal(group, 1000 + i);
        blocks(group, 100 * i);
    }
    return NULL;
}

/* Members alone open groups of a number. */
static void run_opened(void)
{
    uint32_t id, ranks[] = {size - 1, 0};
    REQUIRE(bps_group_open(BPS_GROUP_NUMBERS, ranks, 1, &id, &report) == BPS_ERR_INVALID);
    for (uint32_t i = 0; i < 3 && (rank == 0 || rank == size - 1); i++) {
        struct group group = {.n = 2, .own = rank == 0, .rank = ranks};
        FINE(bps_group_open(5 + i, ranks, 2, &group.id, &report));
        REQUIRE(bps_group_open(5 + i, ranks, 2, &id, &report) == BPS_ERR_INVALID);
        use(&group);
        FINE(bps_group_free(group.id, &report));
    }
    FINE(bps_barrier(&report));
    puts("fine");
}

static void run_threads(void)
{
    struct group group[4];
    pthread_t thread[4];
    uint32_t ranks[16];
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = i;
    }
    for (uint32_t i = 0; i < 4; i++) {
        group[i] = make(ranks, size);
        REQUIRE(pthread_create(&thread[i], NULL, use_often, &group[i]) == 0 || i == 99);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        free(group[i].rank);
    }
    puts("fine");
}

static void run_differ(void)
{
    uint32_t id, ranks[] = {0, 1}, other[] = {0, rank == 1 ? 2 : 1}, twice[] = {1, 1}, far[] = {0, size};
    int32_t in[10] = {0}, out[10];
    REQUIRE(bps_group_new(other, 2, &id, &report) == BPS_ERR_MISMATCH);
    printf("groups: %s\n", report.text);
    REQUIRE(bps_group_new(twice, 2, &id, &report) == BPS_ERR_INVALID);
    printf("twice: %s\n", report.text);
    REQUIRE(bps_group_new(far, 2, &id, &report) == BPS_ERR_INVALID);
    REQUIRE(bps_group_new(ranks, 0, &id, &report) == BPS_ERR_INVALID);
    struct group group = make(ranks, 2);
    struct bps_collective gather = request(&group, in, out, rank == 1 ? 4 : 5);
    if (group.own == 2) {
        REQUIRE(bps_all_gather(&gather, &report) == BPS_ERR_INVALID);
        printf("member: %s\n", report.text);
    } else {
        REQUIRE(bps_all_gather(&gather, &report) == BPS_ERR_MISMATCH);
        printf("count: %s\n", report.text);
        gather.root = 2;
        REQUIRE(bps_gather(&gather, &report) == BPS_ERR_INVALID);
        printf("root: %s\n", report.text);
        gather.root = 1 - rank;
        gather.group = 0;
        FINE(bps_group_barrier(group.id, &report));
        REQUIRE((rank == 0 ? bps_send : bps_recv)(&gather, &report) == BPS_ERR_MISMATCH);
        printf("message: %s\n", report.text);
        gather.count = 3;
        FINE((rank == 0 ? bps_send : bps_recv)(&gather, &report));
        gather.tag = BPS_TAGS;
        REQUIRE(bps_send(&gather, &report) == BPS_ERR_INVALID);
        gather.tag = 0;
        gather.root = rank;
        REQUIRE(bps_send(&gather, &report) == BPS_ERR_INVALID);
        printf("self: %s\n", report.text);
    }
    REQUIRE(bps_group_free(77, &report) == BPS_ERR_INVALID);
    FINE(bps_barrier(&report));
    puts("fine");
}

static void run_local(void)
{
    uint32_t ranks[16], n = (uint32_t)bps_local_size(), first = rank - (uint32_t)bps_local_rank();
    struct group mine = {.n = 0};
    for (uint32_t host = 0; host < size; host += n) {
        for (uint32_t i = 0; i < n; i++) {
            ranks[i] = host + i;
        }
        struct group group = make(ranks, n);
        mine = host == first ? group : mine;
    }
    for (uint32_t i = 0; i < 20; i++) {
        equal(&mine, 1000000);
        blocks(&mine, 100000);
        ring(&mine);
    }
    puts("fine");
}

static void run_endless(void)
{
    const uint32_t ranks[] = {0, 1};
    struct group group = make(ranks, 2);
    for (uint32_t i = 0;; i++) {
        if (group.own < 2) {
            equal(&group, 100000);
        } else {
            FINE(bps_barrier(&report));
        }
        if (i == 2) {
            puts("begun");
        }
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    FINE(bps_init(NULL, &report));
    rank = (uint32_t)bps_rank();
    size = (uint32_t)bps_size();
    if (argc > 1 && strcmp(argv[1], "many") == 0) {
        run_many((uint32_t)atoi(argv[2]));
    } else if (argc > 1 && strcmp(argv[1], "opened") == 0) {
        run_opened();
    } else if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        run_threads();
    } else if (argc > 1 && strcmp(argv[1], "differ") == 0) {
        run_differ();
    } else if (argc > 1 && strcmp(argv[1], "endless") == 0) {
        run_endless();
    } else if (argc > 1 && strcmp(argv[1], "local") == 0) {
        run_local();
    } else {
        run_all();
    }
    FINE(bps_shutdown(&report));
    return 0;
}
