/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.c - a worker that makes each collective operation of collectives.h and checks what it gets.
 *
 *     collectives all               of several sizes, even and uneven, in place, of all types, many at once
 *     collectives differ WHAT       rank 1 asks for another WHAT than the others: kind, type, root, op, count or uneven
 */
#include <byteps/collectives.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100000u

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s: %s\n", __LINE__, #condition, report.text);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define FINE(call) REQUIRE((call) == BPS_OK)

static struct bps_report report;
static uint32_t rank, size;

/* An element of what a rank brings: a small integer, so that sums of floating point are exact. */
static double element(uint32_t of, uint64_t i)
{
    return (double)(of + i % 7);
}

static double sum(uint64_t i)
{
    double all = 0;
    for (uint32_t of = 0; of < size; of++) {
        all += element(of, i);
    }
    return all;
}

static float *filled(uint64_t n)
{
    float *data = malloc(n * sizeof *data + 1);
    REQUIRE(data != NULL);
    for (uint64_t i = 0; i < n; i++) {
        data[i] = (float)element(rank, i);
    }
    return data;
}

static float *empty(uint64_t n)
{
    float *data = malloc(n * sizeof *data + 1);
    REQUIRE(data != NULL);
    memset(data, 0xff, n * sizeof *data);
    return data;
}

/* The elements of a block are those of its sender from `first` on. */
static void expect(const float *data, uint32_t of, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        REQUIRE(data[i] == (float)element(of, first + i));
    }
}

static void expect_sum(const float *data, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        REQUIRE(data[i] == (float)sum(first + i));
    }
}

static struct bps_collective request(const void *in, void *out, uint64_t count)
{
    return (struct bps_collective){
        .size = sizeof(struct bps_collective), .in = in, .out = out, .count = count, .dtype = BPS_FLOAT32};
}

/* ---- blocks of one size ---- */

static void even(uint64_t n)
{
    float *in = filled(n * size), *out = empty(n * size);
    struct bps_collective r = request(in, out, n);
    r.root = size - 1;
    FINE(bps_reduce(&r, &report));
    if (rank == r.root) {
        expect_sum(out, 0, n);
    }
    FINE(bps_reduce_scatter(&r, &report));
    expect_sum(out, rank * n, n);
    FINE(bps_all_gather(&r, &report));
    for (uint32_t of = 0; of < size; of++) {
        expect(out + of * n, of, 0, n);
    }
    memset(out, 0xff, n * size * sizeof *out);
    FINE(bps_gather(&r, &report));
    for (uint32_t of = 0; of < size && rank == r.root; of++) {
        expect(out + of * n, of, 0, n);
    }
    FINE(bps_scatter(&r, &report));
    expect(out, r.root, rank * n, n);
    FINE(bps_all_to_all(&r, &report));
    for (uint32_t of = 0; of < size; of++) {
        expect(out + of * n, of, rank * n, n);
    }
    expect(in, rank, 0, n * size);
    free(in);
    free(out);
}

/* ---- blocks of many sizes: rank a sends b so many elements; some are empty ---- */

static uint64_t between(uint32_t a, uint32_t b)
{
    return (a * 3 + b * 5) % 4 * 1111;
}

static void uneven(void)
{
    uint64_t same[64], sent[64], got[64], all = 0, to = 0, from = 0, before = 0;
    for (uint32_t i = 0; i < size; i++) {
        same[i] = between(i, 2);
        sent[i] = between(rank, i);
        got[i] = between(i, rank);
        before += i < rank ? same[i] : 0;
        all += same[i];
        to += sent[i];
        from += got[i];
    }
    float *in = filled(all + to), *out = empty(all + from);
    struct bps_collective r = request(in, out, same[rank]);
    r.in_counts = same;
    FINE(bps_reduce_scatter(&r, &report));
    expect_sum(out, before, same[rank]);
    r.in_counts = NULL;
    r.out_counts = same;
    FINE(bps_all_gather(&r, &report));
    uint64_t at = 0;
    for (uint32_t of = 0; of < size; at += same[of++]) {
        expect(out + at, of, 0, same[of]);
    }
    r.out_counts = rank == 0 ? same : NULL;
    memset(out, 0xff, all * sizeof *out);
    FINE(bps_gather(&r, &report));
    at = 0;
    for (uint32_t of = 0; of < size && rank == 0; at += same[of++]) {
        expect(out + at, of, 0, same[of]);
    }
    r.out_counts = NULL;
    r.in_counts = rank == 0 ? same : NULL;
    FINE(bps_scatter(&r, &report));
    expect(out, 0, before, same[rank]);
    r.in_counts = sent;
    r.out_counts = got;
    FINE(bps_all_to_all(&r, &report));
    at = 0;
    for (uint32_t of = 0; of < size; at += got[of++]) {
        uint64_t first = 0;
        for (uint32_t i = 0; i < rank; i++) {
            first += between(of, i);
        }
        expect(out + at, of, first, got[of]);
    }
    free(in);
    free(out);
}

/* ---- in and out are the same memory ---- */

static void in_place(uint64_t n)
{
    float *data = filled(n * size), *own = data + rank * n;
    struct bps_collective r = request(data, data, n);
    r.root = 0;
    FINE(bps_reduce(&r, &report));
    if (rank == 0) {
        expect_sum(data, 0, n);
    }
    free(data);
    data = filled(n * size);
    own = data + rank * n;
    r.in = data;
    r.out = own;
    FINE(bps_reduce_scatter(&r, &report));
    expect_sum(own, rank * n, n);
    for (uint64_t i = 0; i < n; i++) {
        own[i] = (float)element(rank, i);
    }
    r.in = own;
    r.out = data;
    FINE(bps_all_gather(&r, &report));
    for (uint32_t of = 0; of < size; of++) {
        expect(data + of * n, of, 0, n);
    }
    r.in = rank == 0 ? (void *)data : (void *)own;
    r.out = own;
    FINE(bps_scatter(&r, &report));
    expect(own, rank, 0, n);
    free(data);
}

/* ---- types, reductions, many at once ---- */

static void types(void)
{
    uint8_t in[64], out[64];
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        memset(in, (int)rank + 1, sizeof in);
        struct bps_collective r = {.size = sizeof r, .in = in, .out = out, .count = 1, .dtype = dtype};
        size_t bytes = bps_dtype_size(dtype);
        if (dtype == BPS_BOOL) {
            memset(in, 1, sizeof in);
        }
        FINE(bps_all_to_all(&r, &report));
        for (uint32_t of = 0; of < size; of++) {
            REQUIRE(out[of * bytes] == (dtype == BPS_BOOL ? 1 : of + 1));
        }
        r.op = BPS_MAX;
        r.root = 0;
        FINE(bps_reduce(&r, &report));
        REQUIRE(rank != 0 || out[0] == (dtype == BPS_BOOL ? 1 : size));
    }
    float value = (float)rank, result = -1;
    struct bps_collective r = request(&value, &result, 1);
    r.op = BPS_AVERAGE;
    r.prescale = 2;
    r.postscale = 3;
    FINE(bps_reduce(&r, &report));
    REQUIRE(rank != 0 || result == 3 * (float)(size - 1));
}

static void many(void)
{
    enum { N = 40, COUNT = 500 };
    bps_handle handle[N];
    float *in = filled(COUNT * size), *out[N];
    for (uint32_t i = 0; i < N; i++) {
        out[i] = empty(COUNT * size);
        struct bps_collective r = request(in, out[i], COUNT);
        r.priority = (int32_t)(i % 3);
        r.root = i % size;
        switch (i % 3) {
        case 0:
            FINE(bps_all_gather_async(&r, &handle[i], &report));
            break;
        case 1:
            FINE(bps_reduce_scatter_async(&r, &handle[i], &report));
            break;
        default:
            FINE(bps_scatter_async(&r, &handle[i], &report));
            break;
        }
    }
    for (uint32_t i = N; i-- > 0;) {
        FINE(bps_wait(handle[i], BPS_FOREVER, &report));
        if (i % 3 == 0) {
            expect(out[i] + COUNT * (size - 1), size - 1, 0, COUNT);
        } else if (i % 3 == 1) {
            expect_sum(out[i], rank * COUNT, COUNT);
        } else {
            expect(out[i], i % size, rank * COUNT, COUNT);
        }
        free(out[i]);
    }
    free(in);
}

static void all(void)
{
    static const uint64_t sizes[] = {0, 1, 1000, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        even(sizes[i]);
        in_place(sizes[i]);
    }
    uneven();
    types();
    many();
}

/* ---- broadcasts without a name ---- */

static bps_status broadcast(void *data, uint64_t count)
{
    const struct bps_push_pull r = {.size = sizeof r, .in = data, .out = data, .count = count, .dtype = BPS_FLOAT32};
    bps_handle handle;
    bps_status status = bps_broadcast_async(&r, 0, &handle, &report);
    return status == BPS_OK ? bps_wait(handle, BPS_FOREVER, &report) : status;
}

static void broadcasts(void)
{
    enum { COUNT = 500000, ROUNDS = 5 };
    for (uint32_t i = 0; i < ROUNDS; i++) {
        float *data = rank == 0 ? filled(COUNT) : empty(COUNT);
        FINE(broadcast(data, COUNT));
        expect(data, 0, 0, COUNT);
        free(data);
    }
    bps_status status = broadcast(NULL, 1);
    REQUIRE(status == BPS_ERR_INVALID);
    report.text[0] = '\0';
}

/* ---- rank 1 asks for something else ---- */

static void differ(const char *what)
{
    enum { COUNT = 40000 };
    bool other = rank == 1;
    uint64_t counts[64];
    float *in = filled(2 * COUNT * size), *out = empty(2 * COUNT * size);
    struct bps_collective r = request(in, out, COUNT);
    bps_status status;
    for (uint32_t i = 0; i < size; i++) {
        counts[i] = other && i == 2 ? 10 : COUNT;
    }
    if (strcmp(what, "kind") == 0) {
        status = other ? bps_all_to_all(&r, &report) : bps_gather(&r, &report);
    } else if (strcmp(what, "push_pull") == 0) {
        const struct bps_push_pull p = {.size = sizeof p,
                                        .in = in,
                                        .out = out,
                                        .count = COUNT,
                                        .dtype = BPS_FLOAT32,
                                        .prescale = 1,
                                        .postscale = 1};
        status = other ? bps_push_pull(&p, BPS_FOREVER, NULL, &report) : bps_scatter(&r, &report);
    } else if (strcmp(what, "type") == 0) {
        r.dtype = other ? BPS_INT32 : BPS_FLOAT32;
        status = bps_all_to_all(&r, &report);
    } else if (strcmp(what, "root") == 0) {
        r.root = other;
        status = bps_scatter(&r, &report);
    } else if (strcmp(what, "op") == 0) {
        r.op = other ? BPS_MIN : BPS_SUM;
        status = bps_reduce_scatter(&r, &report);
    } else if (strcmp(what, "broadcast") == 0) {
        status = broadcast(in, other ? 10 : COUNT);
    } else if (strcmp(what, "count") == 0) {
        r.count = other ? COUNT + 1 : COUNT;
        status = bps_all_gather(&r, &report);
    } else {
        r.out_counts = counts;
        status = bps_all_gather(&r, &report);
    }
    printf("%d %s\n", status, report.text);
    report.text[0] = '\0';
    r = request(in, out, COUNT); /* the next one is as good as any */
    FINE(bps_all_to_all(&r, &report));
    expect(out, 0, rank * COUNT, COUNT);
    free(in);
    free(out);
}

int main(int arguments, char **argument)
{
    FINE(bps_init(NULL, &report));
    rank = (uint32_t)bps_rank();
    size = (uint32_t)bps_size();
    if (arguments == 3) {
        differ(argument[2]);
    } else if (strcmp(argument[1], "broadcasts") == 0) {
        broadcasts();
        puts("fine");
    } else {
        all();
        puts("fine");
    }
    FINE(bps_shutdown(&report));
    return 0;
}
