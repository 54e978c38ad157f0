/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sum.c - the summation engine with the reducer cpu: random arrivals, odd ones out, poison, leaving,
 * rounds that overlap, stalls, and frames that no working peer sends.
 *
 * Values are small whole numbers, so that sums are exact whatever the order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/sum_frames.h"
#include "sum/round.h"
#include "wire/link.h"

#define WORKERS_LIMIT 70u
#define PARTITION     4096u
#define SLICE         1024u

static struct bps_conf *conf;
static struct bps_loop *loop;
static struct bps_instance *reducer;
static struct bps_sum *sum;
static uint32_t workers;
static bool uneven; /* every second worker has twice the prescale */

/* What the engine has said to each worker. */
static struct heard {
    uint32_t results, failures, stalls;
    char text[BPS_TEXT_LIMIT + 1];
    uint64_t bytes; /* of the last failure's header */
    uint8_t data[4 * PARTITION];
} heard[WORKERS_LIMIT];

/* Slices that are to be delivered; delivered later, as by a slow network. */
static struct delivery {
    struct bps_sum_slice *slice;
    uint32_t rank;
} *deliveries;
static size_t delivery_count, delivery_room;

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    if (delivery_count == delivery_room) {
        delivery_room = delivery_room * 2 + 64;
        deliveries = realloc(deliveries, delivery_room * sizeof *deliveries);
    }
    deliveries[delivery_count++] = (struct delivery){slice, rank};
}

static void on_finished(void *owner, struct bps_sum_slice *slice)
{
    (void)owner;
    bps_frame_result(slice, 1, 0);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    heard[rank].stalls += notice->kind == BPS_NOTICE_STALLED;
    heard[rank].bytes = notice->bytes;
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static const struct bps_sum_events events = {.finished = on_finished, .result = on_result, .notice = on_notice};

static void deliver_one(size_t i)
{
    struct delivery d = deliveries[i];
    struct bps_header header;
    deliveries[i] = deliveries[--delivery_count];
    ck_assert_int_eq(bps_header_decode(d.slice->header, &header), BPS_OK);
    if (!(header.op == BPS_WIRE_BROADCAST && header.root == d.rank) && d.slice->bytes > 0) {
        memcpy(heard[d.rank].data + header.partition * PARTITION + header.offset, d.slice->block.data, d.slice->bytes);
    }
    heard[d.rank].results++;
    bps_sum_delivered(d.slice);
}

static void deliver_all(void)
{
    while (delivery_count > 0) {
        deliver_one((size_t)rand() % delivery_count);
    }
}

static uint64_t held; /* see struct bps_sum_config */

static void start(uint32_t n, bool rank_order)
{
    const struct bps_sum_config config = {.workers = n,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .only = BPS_SUM_ALL,
                                          .rank_order = rank_order,
                                          .held = held,
                                          .reducer = reducer,
                                          .events = &events};
    workers = n;
    uneven = false;
    memset(heard, 0, sizeof heard);
    delivery_count = 0;
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void setup(void)
{
    struct bps_report report = {""};
    static const char *const settings[] = {"cluster.workers=1"};
    ck_assert_msg(bps_conf_load(NULL, settings, 1, &conf, &report) == BPS_OK, "%s", report.text);
    loop = bps_loop_new();
    ck_assert_msg(bps_instance_open(BPS_KIND_REDUCER, "cpu", "sum", NULL, "reducers.sum", loop, &reducer, &report) ==
                      BPS_OK,
                  "%s", report.text);
    srand(17);
}

static void teardown(void)
{
    bps_sum_free(sum);
    sum = NULL;
    bps_instance_close(reducer);
    bps_loop_free(loop);
    bps_conf_free(conf);
    free(deliveries);
    deliveries = NULL;
    delivery_count = delivery_room = 0;
}

/* ---- a contribution on its way ---- */

struct sending {
    struct bps_header header; /* of the tensor; length and offset of the slice */
    const uint8_t *data;      /* of the whole tensor */
    uint32_t rank, at;        /* bytes of the slice that were taken */
    bool open;
    struct bps_sum_cursor cursor, opened;
    uint8_t *block; /* that a transport fetches it to; NULL: it comes as through a socket */
};

static struct bps_header tensor_header(uint32_t id, uint32_t round, uint8_t dtype, uint8_t op, uint64_t bytes)
{
    return (struct bps_header){.type = BPS_FRAME_PUSH,
                               .dtype = dtype,
                               .op = op,
                               .epoch = 1,
                               .tensor = id,
                               .bytes = bytes,
                               .size = bps_partition_bytes(bytes, PARTITION, 0),
                               .round = round,
                               .prescale = 1.0,
                               .postscale = 1.0};
}

static void begin_slice(struct sending *s, uint32_t partition, uint32_t slice)
{
    uint32_t bytes = bps_partition_bytes(s->header.bytes, PARTITION, partition);
    s->header.partition = partition;
    s->header.size = bytes;
    s->header.offset = slice * SLICE;
    s->header.length = bps_partition_bytes(bytes, SLICE, slice);
    s->at = 0;
    s->block = NULL;
    ck_assert_int_eq(bps_frame_push(sum, s->rank, &s->header, &s->cursor), BPS_OK);
    s->open = s->header.length > 0;
}

static const uint8_t *slice_data(const struct sending *s)
{
    return s->data + s->header.partition * PARTITION + s->header.offset;
}

static void open_slice(struct sending *s)
{
    s->block = bps_sum_open(&s->cursor, &s->opened);
    ck_assert_ptr_nonnull(s->block);
    ck_assert_ptr_null(s->cursor.round);
}

/* All of it has come. */
static void place_slice(struct sending *s)
{
    memcpy(s->block, slice_data(s), s->header.length);
    s->open = false;
    bps_sum_placed(&s->opened);
}

/*
 * Gives the engine a few more bytes, as a socket would: into its place,
 * or from ours. True: the slice is done.
 */
static bool feed(struct sending *s, uint32_t most)
{
    const uint8_t *data = slice_data(s) + s->at;
    uint32_t n = s->header.length - s->at, room = 0;
    n = n < most ? n : most;
    uint8_t *place = bps_sum_place(&s->cursor.sink, s->at, &room);
    if (place != NULL) {
        n = n < room ? n : room;
        memcpy(place, data, n);
        data = place;
    }
    uint32_t taken = bps_sum_take(&s->cursor.sink, s->at, data, n);
    ck_assert_uint_le(taken, n);
    ck_assert_uint_gt(taken + BPS_SINK_GRAIN, n);
    s->at += taken;
    s->open = s->at < s->header.length;
    return !s->open;
}

/* All workers push all slices, in random pieces or as a whole, at random times. */
static void push_all(uint32_t id, uint32_t round, uint8_t dtype, uint8_t op, uint64_t bytes, uint8_t *const *data,
                     double prescale, double postscale)
{
    uint32_t partitions = bps_partitions(bytes, PARTITION);
    uint32_t total = 0, *next = calloc(workers, sizeof *next);
    struct sending *s = calloc(workers, sizeof *s);
    for (uint32_t p = 0; p < partitions; p++) {
        total += bps_partitions(bps_partition_bytes(bytes, PARTITION, p), SLICE);
    }
    for (uint32_t r = 0; r < workers; r++) {
        s[r].header = tensor_header(id, round, dtype, op, bytes);
        s[r].header.prescale = uneven && r % 2 != 0 ? 2 * prescale : prescale;
        s[r].header.postscale = postscale;
        s[r].data = data[r];
        s[r].rank = r;
    }
    for (uint32_t left = workers; left > 0;) {
        uint32_t r = (uint32_t)rand() % workers;
        if (s[r].open && s[r].block != NULL) {
            place_slice(&s[r]);
        } else if (s[r].open) {
            feed(&s[r], 1 + (uint32_t)rand() % 700);
        } else if (next[r] < total) {
            begin_slice(&s[r], next[r] / (PARTITION / SLICE), next[r] % (PARTITION / SLICE));
            if (s[r].open && rand() % 2 == 0) {
                open_slice(&s[r]);
            }
            next[r]++;
        } else if (next[r] == total) {
            next[r]++;
            left--;
        }
        if (delivery_count > 0 && rand() % 3 == 0) {
            deliver_one((size_t)rand() % delivery_count);
        }
    }
    deliver_all();
    free(next);
    free(s);
}

static uint8_t **random_data(uint64_t count, uint8_t dtype)
{
    uint8_t **data = calloc(workers, sizeof *data);
    for (uint32_t r = 0; r < workers; r++) {
        data[r] = calloc(count + 1, 8);
        for (uint64_t i = 0; i < count; i++) {
            int v = rand() % 5;
            if (dtype == BPS_FLOAT32) {
                ((float *)data[r])[i] = (float)v;
            } else if (dtype == BPS_FLOAT16) {
                static const uint16_t half[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
                ((uint16_t *)data[r])[i] = half[v];
            } else {
                ((int64_t *)data[r])[i] = v;
            }
        }
    }
    return data;
}

static void free_data(uint8_t **data)
{
    for (uint32_t r = 0; r < workers; r++) {
        free(data[r]);
    }
    free(data);
}

static double value(const uint8_t *data, uint64_t i, uint8_t dtype)
{
    if (dtype == BPS_FLOAT32) {
        return (double)((const float *)data)[i];
    }
    if (dtype == BPS_INT64) {
        return (double)((const int64_t *)data)[i];
    }
    uint16_t h;
    memcpy(&h, data + 2 * i, 2);
    return h == 0 ? 0 : ldexp(1024 + h % 1024, h / 1024 - 25); /* positive, and not tiny */
}

static void check_sums(uint64_t count, uint8_t dtype, uint8_t *const *data, double factor)
{
    for (uint64_t i = 0; i < count; i++) {
        double expected = 0;
        for (uint32_t r = 0; r < workers; r++) {
            expected += value(data[r], i, dtype) * (uneven && r % 2 != 0 ? 2 : 1);
        }
        for (uint32_t r = 0; r < workers; r++) {
            ck_assert_double_eq(value(heard[r].data, i, dtype), expected * factor);
        }
    }
}

/* ---- tests ---- */

START_TEST(test_random_arrivals)
{
    static const uint8_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT16, BPS_INT64};
    bool rank_order = (_i & 1) != 0;
    uint8_t dtype = dtypes[_i / 2 % 3];
    uint32_t n = _i < 6 ? 1 : _i < 12 ? 2 : _i < 18 ? 5 : WORKERS_LIMIT;
    uint64_t size = bps_dtype_size(dtype),
             counts[] = {0, 1, 3, SLICE / size, SLICE / size + 1, 3 * PARTITION / size + 5};
    start(n, rank_order);
    for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (uint32_t round = 0; round < 3; round++) {
            uint8_t **data = random_data(counts[c], dtype);
            memset(heard, 0, sizeof heard);
            push_all(c + 1, round, dtype, BPS_SUM, counts[c] * size, data, 1.0, 1.0);
            check_sums(counts[c], dtype, data, 1.0);
            free_data(data);
        }
    }
}
END_TEST

/* In float32 2^15 + 2^-10 is 2^15: only in the order of ranks is the sum 2^-10. */
START_TEST(test_few_halves_are_summed_in_the_order_of_ranks)
{
    static const uint16_t values[] = {0x7800, 0xf800, 0x1400}; /* 2^15, -2^15, 2^-10 */
    static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    start(3, false);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t r = orders[_i][i];
        struct sending s = {.data = (const uint8_t *)&values[r], .rank = r};
        s.header = tensor_header(1, 0, BPS_FLOAT16, BPS_SUM, sizeof *values);
        begin_slice(&s, 0, 0);
        feed(&s, sizeof *values);
    }
    deliver_all();
    for (uint32_t r = 0; r < 3; r++) {
        ck_assert_mem_eq(heard[r].data, &values[2], sizeof *values);
    }
}
END_TEST

START_TEST(test_scales)
{
    bool rank_order = _i != 0;
    start(4, rank_order);
    uint8_t **data = random_data(3000, BPS_FLOAT32);
    push_all(1, 0, BPS_FLOAT32, BPS_AVERAGE, 12000, data, 1.0, 1.0);
    check_sums(3000, BPS_FLOAT32, data, 0.25);
    push_all(2, 0, BPS_FLOAT32, BPS_SUM, 12000, data, 0.5, 4.0);
    check_sums(3000, BPS_FLOAT32, data, 2.0);
    uneven = true;
    for (uint32_t round = 1; round < 5; round++) {
        push_all(1, round, BPS_FLOAT32, BPS_AVERAGE, 12000, data, 1.0, 2.0);
        check_sums(3000, BPS_FLOAT32, data, 0.5);
        push_all(2, round, BPS_FLOAT32, BPS_SUM, 12000, data, 0.5, 1.0);
        check_sums(3000, BPS_FLOAT32, data, 0.5);
    }
    free_data(data);
}
END_TEST

/* The mean is a number of the type; the sum is none. */
START_TEST(test_averages_of_large_numbers)
{
    static const uint32_t numbers[] = {2, 3, 4, WORKERS_LIMIT};
    enum { COUNT = PARTITION / 4 + 77 };
    start(numbers[_i / 2], _i % 2 != 0);
    uint8_t **data = random_data(COUNT, BPS_FLOAT32);
    for (uint32_t r = 0; r < workers; r++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            ((float *)data[r])[i] = ldexpf(i % 2 == 0 ? 1.5f : -1.25f, 127);
        }
    }
    push_all(1, 0, BPS_FLOAT32, BPS_AVERAGE, COUNT * sizeof(float), data, 1.0, 1.0);
    for (uint32_t r = 0; r < workers; r++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            double got = value(heard[r].data, i, BPS_FLOAT32), expected = value(data[r], i, BPS_FLOAT32);
            ck_assert_double_eq_tol(got / expected, 1.0, 1e-5);
        }
    }
    free_data(data);
}
END_TEST

/* Sums that the type does not hold, of as many workers as there may be. The quotient is rounded down. */
START_TEST(test_averages_of_integers)
{
    static const uint32_t numbers[] = {1, 2, 3, WORKERS_LIMIT};
    enum { COUNT = PARTITION + SLICE + 77 };
    uint32_t n = numbers[_i / 2];
    start(n, _i % 2 != 0);
    uint8_t **data = random_data(COUNT, BPS_INT64);
    int8_t expected[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        int total = 0;
        for (uint32_t r = 0; r < n; r++) {
            int8_t value = (int8_t)(i % 3 == 0 ? 127 : i % 3 == 1 ? -128 : rand());
            memcpy(&data[r][i], &value, 1);
            total += value;
        }
        expected[i] = (int8_t)floor((double)total / n);
    }
    push_all(1, 0, BPS_INT8, BPS_AVERAGE, COUNT, data, 1.0, 1.0);
    for (uint32_t r = 0; r < n; r++) {
        ck_assert_mem_eq(heard[r].data, expected, COUNT);
    }
    free_data(data);
}
END_TEST

/* A broadcast is exact for every bit pattern, and the root gets only a word that it is done. */
START_TEST(test_broadcast)
{
    uint8_t data[PARTITION + 8];
    struct sending root = {.data = data, .rank = 2};
    start(3, _i != 0);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)rand();
    }
    root.header = tensor_header(1, 0, BPS_FLOAT64, BPS_WIRE_BROADCAST, sizeof data);
    root.header.root = 2;
    for (uint32_t p = 0; p < 2; p++) {
        for (uint32_t r = 0; r < 2; r++) {
            struct bps_header empty = root.header;
            struct bps_sum_cursor cursor;
            empty.flags = BPS_FLAG_EMPTY;
            empty.partition = p;
            empty.size = p == 0 ? PARTITION : 8;
            empty.offset = empty.length = 0;
            ck_assert_int_eq(bps_frame_push(sum, r, &empty, &cursor), BPS_OK);
        }
        for (uint32_t s = 0; s < (p == 0 ? PARTITION / SLICE : 1); s++) {
            begin_slice(&root, p, s);
            while (!feed(&root, 100)) {
            }
        }
    }
    deliver_all();
    ck_assert_uint_eq(heard[2].results, PARTITION / SLICE + 1);
    ck_assert_int_eq(memcmp(heard[0].data, data, sizeof data), 0);
    ck_assert_int_eq(memcmp(heard[1].data, data, sizeof data), 0);
}
END_TEST

/* A small tensor from one worker; returns what the engine says. */
static bps_status push_small(uint32_t rank, struct bps_header header)
{
    static const uint8_t zeros[SLICE];
    struct bps_sum_cursor cursor;
    header.length = (uint32_t)header.bytes;
    bps_status status = bps_frame_push(sum, rank, &header, &cursor);
    for (uint32_t at = 0; status == BPS_OK && at < header.length;) {
        at += bps_sum_take(&cursor.sink, at, zeros, header.length - at);
    }
    return status;
}

static void check_verdict(const char *text)
{
    for (uint32_t r = 0; r < workers; r++) {
        ck_assert_uint_eq(heard[r].failures, 1);
        ck_assert_str_eq(heard[r].text, text);
        ck_assert_uint_eq(heard[r].results, 0);
    }
}

/* The next round of the same tensor works, whatever happened in the last one. */
static void check_recovers(uint32_t id, uint32_t round)
{
    memset(heard, 0, sizeof heard);
    for (uint32_t r = 0; r < workers; r++) {
        ck_assert_int_eq(push_small(r, tensor_header(id, round, BPS_FLOAT32, BPS_SUM, 400)), BPS_OK);
    }
    deliver_all();
    for (uint32_t r = 0; r < workers; r++) {
        ck_assert_uint_eq(heard[r].results, 1);
        ck_assert_uint_eq(heard[r].failures, 0);
    }
}

START_TEST(test_odd_one_out)
{
    struct bps_header right = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400), odd = right;
    static const char *const texts[] = {
        "worker 2 pushed 50 float32 (sum), workers 0, 1 and 3 pushed 100 float32 (sum)",
        "worker 2 pushed 100 int32 (sum), workers 0, 1 and 3 pushed 100 float32 (sum)",
        "worker 2 pushed 100 float32 (average), workers 0, 1 and 3 pushed 100 float32 (sum)",
        "worker 2 pushed 100 float32 (sum, postscale 2), workers 0, 1 and 3 pushed 100 float32 (sum)",
    };
    odd.bytes = odd.size = _i % 4 == 0 ? 200 : 400;
    odd.dtype = _i % 4 == 1 ? BPS_INT32 : BPS_FLOAT32;
    odd.op = _i % 4 == 2 ? BPS_AVERAGE : BPS_SUM;
    odd.postscale = _i % 4 == 3 ? 2.0 : 1.0;
    start(4, false);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t rank = (i + (uint32_t)_i / 4) % 4; /* in any order of arrival */
        ck_assert_int_eq(push_small(rank, rank == 2 ? odd : right), BPS_OK);
    }
    check_verdict(texts[_i % 4]);
    ck_assert_uint_eq(heard[0].bytes, 400);
    check_recovers(1, 1);
}
END_TEST

START_TEST(test_wrong_root)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_WIRE_BROADCAST, 400);
    struct bps_sum_cursor cursor;
    start(2, false);
    h.root = 7;
    h.flags = BPS_FLAG_EMPTY;
    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_int_eq(bps_frame_push(sum, r, &h, &cursor), BPS_OK);
    }
    check_verdict("root 7 is not a worker of this job (0..1)");
    check_recovers(1, 1);
}
END_TEST

START_TEST(test_poison)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400), poison = h;
    poison.type = BPS_FRAME_POISON;
    poison.root = (uint32_t)-BPS_ERR_FAILED;
    start(3, _i / 3 != 0);
    for (uint32_t i = 0; i < 3; i++) {
        if (i == (uint32_t)_i % 3) { /* first, second or last */
            ck_assert_int_eq(bps_frame_poison(sum, 1, &poison, "worker 1: stage nanguard: NaN"), BPS_OK);
        } else {
            ck_assert_int_eq(push_small(i == 1 ? (uint32_t)_i % 3 : i, h), BPS_OK);
        }
    }
    ck_assert_uint_eq(heard[1].failures, 0); /* it knows */
    ck_assert_uint_eq(heard[0].failures, 1);
    ck_assert_uint_eq(heard[2].failures, 1);
    ck_assert_str_eq(heard[2].text, "worker 1: stage nanguard: NaN");
    /* A late slice of the failed round is discarded. */
    ck_assert_int_eq(push_small(0, h), BPS_OK);
    check_recovers(1, 1);
}
END_TEST

/* A worker that begins what nobody else does is stopped before it has filled this process; what is over is not held. */
START_TEST(test_what_one_worker_has_begun)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    uint32_t begun = 0, id;
    h.root = (uint32_t)-BPS_ERR_FAILED;
    held = 1 << 20;
    start(2, false);
    held = 0;
    bps_log_set_level(0);
    for (id = 0; id < 10000; id++) {
        h.tensor = BPS_ID_UNNAMED + id;
        ck_assert_int_eq(bps_frame_poison(sum, 0, &h, "worker 0: no"), BPS_OK);
        ck_assert_int_eq(bps_frame_poison(sum, 1, &h, "worker 1: no"), BPS_OK);
    }
    bps_status status = BPS_OK;
    for (; status == BPS_OK; id++) {
        h.tensor = BPS_ID_UNNAMED + id;
        status = bps_frame_poison(sum, 0, &h, "worker 0: no");
        ck_assert_uint_lt(++begun, 10000);
    }
    ck_assert_int_eq(status, BPS_ERR_PROTOCOL);
    ck_assert_uint_gt(begun, 100);
    h.tensor = BPS_ID_UNNAMED + id;
    ck_assert_int_eq(bps_frame_poison(sum, 1, &h, "worker 1: no"), BPS_OK);
}
END_TEST

/* The other workers answer for each partition that a failed tensor claims. */
START_TEST(test_absurd_claims)
{
    struct bps_header h = tensor_header(BPS_ID_UNNAMED + 1, 0, BPS_FLOAT32, BPS_SUM, 400);
    h.root = (uint32_t)-BPS_ERR_FAILED;
    start(2, false);
    h.bytes = (uint64_t)BPS_PARTITIONS_LIMIT * PARTITION + 4;
    ck_assert_int_eq(bps_frame_poison(sum, 0, &h, "no"), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push_small(0, h), BPS_ERR_PROTOCOL);
    h.bytes -= 4;
    ck_assert_int_eq(bps_frame_poison(sum, 0, &h, "no"), BPS_OK);
}
END_TEST

START_TEST(test_leave)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    start(3, false);
    ck_assert_int_eq(push_small(0, h), BPS_OK);
    bps_sum_leave(sum, 2);
    ck_assert_uint_eq(heard[0].failures, 1);
    ck_assert_str_eq(heard[0].text, "worker 2 has left the job");
    ck_assert_int_eq(push_small(1, h), BPS_OK);
    ck_assert_uint_eq(heard[1].failures, 1);
    h.round = 1;
    ck_assert_int_eq(push_small(1, h), BPS_OK);
    ck_assert_uint_eq(heard[1].failures, 2);
}
END_TEST

/* A fast worker begins round n+1 while round n is still on its way to a slow one. */
START_TEST(test_overlapping_rounds)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    start(2, _i != 0);
    for (uint32_t round = 0; round < 5; round++) {
        h.round = round;
        ck_assert_int_eq(push_small(0, h), BPS_OK);
        if (round > 0) {
            deliver_all(); /* the slow one gets the last round only now */
        }
        ck_assert_int_eq(push_small(1, h), BPS_OK);
        for (size_t i = 0; i < delivery_count; i++) {
            if (deliveries[i].rank == 0) {
                deliver_one(i);
                break;
            }
        }
    }
    deliver_all();
    ck_assert_uint_eq(heard[0].results, 5);
    ck_assert_uint_eq(heard[1].results, 5);
}
END_TEST

START_TEST(test_stalls)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    start(3, false);
    ck_assert_int_eq(push_small(1, h), BPS_OK);
    uint64_t now = bps_now();
    bps_sum_check_stalls(sum, now + BPS_S, 60 * BPS_S, 0);
    ck_assert_uint_eq(heard[1].stalls, 0);
    bps_sum_check_stalls(sum, now + 61 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[1].stalls, 1);
    ck_assert_str_eq(heard[1].text, "has waited 61 s for workers 0 and 2");
    bps_sum_check_stalls(sum, now + 62 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[1].stalls, 1);
    bps_sum_check_stalls(sum, now + 101 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_str_eq(heard[1].text, "workers 0 and 2 did not contribute within 100 s (cluster.stall_timeout)");
    ck_assert_int_eq(push_small(0, h), BPS_OK);
    ck_assert_uint_eq(heard[0].failures, 1);
}
END_TEST

START_TEST(test_excuse)
{
    start(2, false);
    ck_assert_int_eq(push_small(1, tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400)), BPS_OK);
    uint64_t now = bps_now();
    bps_sum_excuse(sum, 1000 * BPS_S);
    bps_sum_check_stalls(sum, now + 1000 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[1].stalls + heard[1].failures, 0);
    bps_sum_check_stalls(sum, now + 1061 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_str_eq(heard[1].text, "has waited 61 s for worker 0");
    bps_sum_check_stalls(sum, now + 1101 * BPS_S, 60 * BPS_S, 100 * BPS_S);
    ck_assert_uint_eq(heard[1].failures, 1);
}
END_TEST

/*
 * A worker that has stopped in the middle of its push: some slices of the round are on their way to everybody
 * when the round fails, and must stay whole until they were delivered.
 */
START_TEST(test_stall_while_delivering)
{
    static const uint8_t zeros[3 * SLICE];
    struct sending s[2] = {{.rank = 0}, {.rank = 1}};
    uint8_t dtype = _i / 2 == 0 ? BPS_FLOAT32 : BPS_FLOAT16;
    start(2, _i % 2 != 0);
    for (uint32_t r = 0; r < 2; r++) {
        s[r].header = tensor_header(1, 0, dtype, BPS_SUM, 3 * SLICE);
        s[r].data = zeros;
        for (uint32_t slice = 0; slice < 3 - r; slice++) {
            begin_slice(&s[r], 0, slice);
            while (!feed(&s[r], 1000)) {
            }
        }
    }
    ck_assert_uint_eq(delivery_count, 4);
    bps_sum_check_stalls(sum, bps_now() + 101 * BPS_S, 0, 100 * BPS_S);
    ck_assert_uint_eq(heard[0].failures, 1);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_str_eq(heard[0].text, "worker 1 did not contribute within 100 s (cluster.stall_timeout)");
    deliver_one(1);
    deliver_one(0); /* with this, the first slice has reached everybody */
    s[0].header.tensor = 2;
    begin_slice(&s[0], 0, 0); /* takes memory that is free by now */
    deliver_all();
    for (uint32_t round = 1; round < 4; round++) {
        check_recovers(1, round);
    }
}
END_TEST

/*
 * Rounds that have failed wait for a slow worker; those who know of the
 * failure go on, however many there are.
 */
START_TEST(test_failed_rounds_ahead)
{
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 400);
    start(3, _i != 0);
    for (h.round = 0; h.round < 10; h.round++) {
        struct bps_header poison = h;
        poison.root = (uint32_t)-BPS_ERR_FAILED;
        ck_assert_int_eq(bps_frame_poison(sum, 0, &poison, "worker 0: stage clip: no"), BPS_OK);
        ck_assert_int_eq(push_small(1, h), BPS_OK);
        ck_assert_uint_eq(heard[1].failures, h.round + 1);
    }
    for (h.round = 0; h.round < 10; h.round++) {
        ck_assert_int_eq(push_small(2, h), BPS_OK);
        ck_assert_uint_eq(heard[2].failures, h.round + 1);
        ck_assert_str_eq(heard[2].text, "worker 0: stage clip: no");
    }
    check_recovers(1, 10);
}
END_TEST

/* Unnamed tensors are forgotten after their round, and never grow the engine. */
START_TEST(test_unnamed)
{
    start(2, false);
    for (uint32_t i = 0; i < 1000; i++) {
        struct bps_header h = tensor_header(BPS_ID_UNNAMED | i, 0, BPS_FLOAT32, BPS_SUM, 400);
        ck_assert_int_eq(push_small(0, h), BPS_OK);
        ck_assert_int_eq(push_small(1, h), BPS_OK);
        deliver_all();
    }
    ck_assert_uint_eq(heard[0].results, 1000);
}
END_TEST

START_TEST(test_frames_that_nobody_sends)
{
    const struct bps_header right = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, 2 * PARTITION);
    struct bps_sum_cursor cursor;
    struct bps_header h[24];
    start(2, false);
    for (int i = 0; i < 24; i++) {
        h[i] = right;
        h[i].length = SLICE;
    }
    h[0].dtype = BPS_DTYPES;
    h[1].op = BPS_WIRE_OPS;
    h[2].bytes = 2 * PARTITION + 1;
    h[3].partition = 2 * BPS_PARTITIONS_LIMIT;
    h[4].offset = 12;
    h[5].offset = PARTITION;
    h[6].length = SLICE - 4;
    h[7].length = SLICE + 4;
    h[8].tensor = 0;
    h[9].dtype = BPS_DTYPES;
    h[10].flags = BPS_FLAG_EMPTY;
    h[11].prescale = __builtin_nan("");
    h[12].postscale = __builtin_inf();
    h[13].op = BPS_WIRE_BROADCAST;
    h[13].root = 1; /* but worker 0 sends data */
    h[14].tensor = BPS_ID_UNNAMED;
    h[14].round = BPS_ID_NUMBER + 1;
    h[15].bytes = UINT64_MAX - 3;
    h[15].partition = UINT32_MAX;
    h[15].offset = UINT32_MAX - 1023;
    h[16].bytes = UINT64_MAX - 3; /* its number of partitions cannot be told */
    h[17].bytes = h[17].length = h[17].size = 0;
    h[17].offset = SLICE; /* nothing has no second slice */
    h[18].size = PARTITION + 4;
    h[19].bytes = PARTITION - 4; /* less than one partition of it */
    h[20].size = h[20].length = 0;
    h[21].size = h[21].length = SLICE - 1; /* half an element */
    h[22].slice = SLICE + 64;
    h[23].slice = SLICE - 64; /* less than the smallest */
    for (int i = 0; i < 24; i++) {
        ck_assert_msg(bps_frame_push(sum, 0, &h[i], &cursor) == BPS_ERR_PROTOCOL, "frame %d", i);
    }
    /* The same slice twice. */
    ck_assert_int_eq(push_small(0, tensor_header(2, 0, BPS_FLOAT32, BPS_SUM, 400)), BPS_OK);
    ck_assert_int_eq(push_small(0, tensor_header(2, 0, BPS_FLOAT32, BPS_SUM, 400)), BPS_ERR_PROTOCOL);
    /* A further slice of another tensor than the first was of. */
    struct bps_header first = tensor_header(3, 0, BPS_FLOAT32, BPS_SUM, 2 * SLICE), second = right;
    first.length = second.length = SLICE;
    second.tensor = 3;
    second.offset = 2 * SLICE;
    ck_assert_int_eq(bps_frame_push(sum, 0, &first, &cursor), BPS_OK);
    bps_sum_abandon(&cursor);
    ck_assert_int_eq(bps_frame_push(sum, 0, &second, &cursor), BPS_ERR_PROTOCOL);
    /* A slice of another partition than the first slice was of. */
    second = first;
    second.offset = SLICE;
    second.size = PARTITION;
    second.bytes = first.bytes = PARTITION;
    second.tensor = first.tensor = 4;
    ck_assert_int_eq(bps_frame_push(sum, 0, &first, &cursor), BPS_OK);
    bps_sum_abandon(&cursor);
    ck_assert_int_eq(bps_frame_push(sum, 0, &second, &cursor), BPS_ERR_PROTOCOL);
}
END_TEST

/* A link that ends within a slice leaves nothing behind that could be used later. */
START_TEST(test_abandoned_slice)
{
    uint8_t data[SLICE] = {0};
    struct sending s = {.data = data, .rank = 0, .header = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, SLICE)};
    start(2, false);
    begin_slice(&s, 0, 0);
    feed(&s, 100);
    bps_sum_abandon(&s.cursor);
    ck_assert_ptr_null(s.cursor.round);
    bps_sum_abandon(&s.cursor);
}
END_TEST

/* The first contribution that is whole becomes the sum where it lies, though others were opened before. */
START_TEST(test_opened)
{
    uint8_t data[2 * SLICE] = {0};
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, sizeof data);
    struct sending a = {.data = data, .rank = 0, .header = h}, b = a, other = a;
    other.rank = 1;
    start(2, _i != 0);
    begin_slice(&a, 0, 0);
    open_slice(&a);
    b.cursor = a.cursor; /* of the same link */
    begin_slice(&b, 0, 1);
    open_slice(&b);
    begin_slice(&other, 0, 1);
    open_slice(&other);
    place_slice(&b);
    place_slice(&other);
    ck_assert_uint_eq(delivery_count, 2);
    ck_assert_ptr_eq(deliveries[0].slice->payload, b.block);
    deliver_all();
    place_slice(&a);
    begin_slice(&other, 0, 0);
    feed(&other, SLICE);
    ck_assert_ptr_eq(deliveries[0].slice->payload, a.block);
    deliver_all();
    ck_assert_uint_eq(heard[0].results, 2);
}
END_TEST

/* What is fetched when its round fails, or its link ends, goes back to the pool: that does not grow. */
START_TEST(test_opened_in_vain)
{
    uint8_t data[SLICE] = {0};
    struct bps_header h = tensor_header(1, 0, BPS_FLOAT32, BPS_SUM, SLICE);
    struct sending s = {.data = data, .rank = 0};
    uint64_t bytes = 0;
    start(2, _i / 2 != 0);
    for (h.tensor = 1; h.tensor < 5000; h.tensor++) {
        struct bps_header poison = h;
        poison.type = BPS_FRAME_POISON;
        poison.root = (uint32_t)-BPS_ERR_FAILED;
        s.header = h;
        begin_slice(&s, 0, 0);
        open_slice(&s);
        ck_assert_int_eq(bps_frame_poison(sum, 1, &poison, "worker 1: no"), BPS_OK);
        if (_i % 2 == 0) {
            place_slice(&s);
        } else {
            bps_sum_abandon(&s.opened);
        }
        ck_assert_ptr_null(s.opened.round);
        ck_assert_ptr_null(s.opened.block);
        bytes = bytes == 0 ? sum->pool->bytes : bytes;
    }
    ck_assert_uint_eq(heard[0].failures, h.tensor - 1);
    ck_assert_uint_eq(sum->pool->bytes, bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sum");
    TCase *tests = tcase_create("sum");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_random_arrivals, 0, 24);
    tcase_add_loop_test(tests, test_few_halves_are_summed_in_the_order_of_ranks, 0, 6);
    tcase_add_loop_test(tests, test_scales, 0, 2);
    tcase_add_loop_test(tests, test_averages_of_integers, 0, 8);
    tcase_add_loop_test(tests, test_averages_of_large_numbers, 0, 8);
    tcase_add_loop_test(tests, test_broadcast, 0, 2);
    tcase_add_loop_test(tests, test_odd_one_out, 0, 16);
    tcase_add_test(tests, test_wrong_root);
    tcase_add_loop_test(tests, test_poison, 0, 6);
    tcase_add_test(tests, test_what_one_worker_has_begun);
    tcase_add_test(tests, test_absurd_claims);
    tcase_add_test(tests, test_leave);
    tcase_add_loop_test(tests, test_overlapping_rounds, 0, 2);
    tcase_add_test(tests, test_stalls);
    tcase_add_test(tests, test_excuse);
    tcase_add_loop_test(tests, test_stall_while_delivering, 0, 4);
    tcase_add_loop_test(tests, test_failed_rounds_ahead, 0, 2);
    tcase_add_test(tests, test_unnamed);
    tcase_add_test(tests, test_frames_that_nobody_sends);
    tcase_add_test(tests, test_abandoned_slice);
    tcase_add_loop_test(tests, test_opened, 0, 2);
    tcase_add_loop_test(tests, test_opened_in_vain, 0, 4);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
