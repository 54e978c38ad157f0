/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_value.c - keys that keep a value: it is set by a broadcast, each push is added, and whoever pushed gets what it
 * is then. Three workers; a tensor has two slices, unless a test says otherwise.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "base/rows.h"
#include "sum/round.h"
#include "sum/value.h"
#include "sum_rig.h"

#define PARTITION 16384u
#define SLICE     1024u
#define SLICES    2u
#define WORKERS   3u
#define ROW       768u /* of a table of two rows: the second one is cut by the slices */
#define TABLE     (2 * ROW)

static struct bps_sum *sum;

static struct heard {
    uint32_t results, failures, stalls;
    bps_status status;
    char text[BPS_TEXT_LIMIT + 1];
    float first, last; /* elements of the last result; -1: it had no data */
    uint32_t bytes;    /* of it */
} heard[WORKERS];

static struct bps_sum_slice *kept; /* not delivered yet */
static bool keep;

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    struct heard *h = &heard[rank];
    h->results++;
    h->first = h->last = -1.0f;
    if (bps_sum_wants_data(slice, rank) && slice->payload_bytes > 0) {
        const char *end = (const char *)slice->payload + slice->payload_bytes;
        memcpy(&h->first, slice->payload, sizeof h->first);
        memcpy(&h->last, end - sizeof h->last, sizeof h->last);
        h->bytes = slice->payload_bytes;
    }
    if (keep) {
        kept = slice;
    } else {
        bps_sum_delivered(slice);
    }
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    heard[rank].stalls += notice->kind == BPS_NOTICE_STALLED;
    heard[rank].status = notice->status;
    ck_assert_uint_eq(notice->id.kind, BPS_KEY_VALUE);
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static const struct bps_sum_events events = {.finished = rig_finished, .result = on_result, .notice = on_notice};

static void start_with(int64_t staleness)
{
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .only = BPS_SUM_ALL,
                                          .ops = {[BPS_KEY_VALUE] = &bps_value_ops},
                                          .reducer = rig_reducer,
                                          .staleness = staleness,
                                          .events = &events};
    memset(heard, 0, sizeof heard);
    keep = false;
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void start(void)
{
    rig_open();
    start_with(-1);
}

/* Answers wait for those who are more than so many pushes behind. */
static void restart_with(int64_t staleness)
{
    bps_sum_free(sum);
    start_with(staleness);
}

static void stop(void)
{
    bps_sum_free(sum);
    rig_close();
}

static struct bps_header of(uint32_t round, uint8_t op)
{
    struct bps_header h = rig_header(1, round, BPS_FLOAT32, op, (uint64_t)SLICES * SLICE);
    h.flags = BPS_FLAG_KEEPS;
    return h;
}

static bps_status push_slice(uint32_t rank, struct bps_header h, uint32_t index, float value)
{
    float data[SLICE / sizeof(float)];
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        data[i] = value;
    }
    h.offset = index * SLICE;
    h.length = SLICE;
    return rig_push(sum, rank, &h, data);
}

static void push(uint32_t rank, uint32_t round, float value)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        ck_assert_int_eq(push_slice(rank, of(round, BPS_SUM), i, value), BPS_OK);
    }
}

static void broadcast(uint32_t root, uint32_t round, float value)
{
    struct bps_header h = of(round, BPS_WIRE_BROADCAST);
    h.root = root;
    for (uint32_t i = 0; i < SLICES; i++) {
        ck_assert_int_eq(push_slice(root, h, i, value), BPS_OK);
    }
}

static void receive(uint32_t rank, uint32_t root, uint32_t round)
{
    struct bps_header h = of(round, BPS_WIRE_BROADCAST);
    h.root = root;
    h.flags |= BPS_FLAG_EMPTY;
    ck_assert_int_eq(rig_push(sum, rank, &h, NULL), BPS_OK);
}

static void check(uint32_t rank, uint32_t results, float value)
{
    ck_assert_uint_eq(heard[rank].results, results);
    ck_assert_float_eq(heard[rank].first, value);
    ck_assert_float_eq(heard[rank].last, value);
    ck_assert_uint_eq(heard[rank].failures, 0);
}

/* Nobody waits for anybody, and what is pushed is there for all who come later. */
START_TEST(test_pushes)
{
    broadcast(0, 0, 10);
    check(0, SLICES, -1);
    push(0, 1, 1);
    check(0, 2 * SLICES, 11);
    push(0, 2, 1);
    check(0, 3 * SLICES, 12);
    push(2, 0, 100);
    check(2, SLICES, 112);
    push(0, 3, -2);
    check(0, 4 * SLICES, 110);
    ck_assert_uint_eq(heard[1].results, 0);
}
END_TEST

/* Those who come to a broadcast before its root wait; those who come after it have the value of then. */
START_TEST(test_broadcast)
{
    receive(1, 0, 0);
    ck_assert_uint_eq(heard[1].results, 0);
    bps_sum_check_stalls(sum, bps_now() + 10, 1, 0);
    ck_assert_uint_eq(heard[1].stalls, 1);
    ck_assert_ptr_nonnull(strstr(heard[1].text, "worker 0"));
    broadcast(0, 0, 3);
    check(1, SLICES, 3);
    push(0, 1, 4);
    receive(2, 0, 0);
    check(2, SLICES, 7);
    receive(1, 0, 1); /* another one: the value is not that of the first */
    ck_assert_uint_eq(heard[1].results, SLICES);
    broadcast(0, 2, 50);
    check(1, 2 * SLICES, 50);
    receive(2, 0, 1);
    check(2, 2 * SLICES, 50);
}
END_TEST

/* An answer that is still being sent does not change. */
START_TEST(test_snapshots)
{
    broadcast(0, 0, 1);
    keep = true;
    ck_assert_int_eq(push_slice(1, of(0, BPS_SUM), 0, 1), BPS_OK);
    struct bps_sum_slice *first = kept;
    ck_assert_int_eq(push_slice(2, of(0, BPS_SUM), 0, 5), BPS_OK);
    struct bps_sum_slice *second = kept;
    ck_assert_float_eq(*(const float *)first->payload, 2);
    ck_assert_float_eq(*(const float *)second->payload, 7);
    bps_sum_delivered(first);
    bps_sum_delivered(second);
    keep = false;
    push(0, 1, 0);
    ck_assert_uint_eq(heard[0].failures, 0);
}
END_TEST

START_TEST(test_average_and_scale)
{
    broadcast(0, 0, 1);
    for (uint32_t i = 0; i < SLICES; i++) {
        struct bps_header h = of(1, BPS_AVERAGE);
        h.prescale = 2.0;
        ck_assert_int_eq(push_slice(0, h, i, 3), BPS_OK);
    }
    check(0, 2 * SLICES, 3);
}
END_TEST

START_TEST(test_no_value)
{
    push(1, 0, 1);
    ck_assert_uint_eq(heard[1].failures, 1); /* not for each slice */
    ck_assert_int_eq(heard[1].status, BPS_ERR_STATE);
    ck_assert_ptr_nonnull(strstr(heard[1].text, "broadcast it first"));
    broadcast(0, 0, 1);
    push(1, 1, 1);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_float_eq(heard[1].first, 2);
}
END_TEST

/* Bytes that come in pieces, and those of a link that ends within a slice. */
START_TEST(test_pieces)
{
    struct rig_frame frame;
    static float data[SLICE / sizeof(float)];
    struct bps_header h = of(0, BPS_SUM);
    broadcast(0, 0, 1);
    h.length = SLICE;
    for (size_t i = 0; i < SLICE / sizeof(float); i++) {
        data[i] = 2;
    }
    ck_assert_int_eq(rig_begin(&frame, sum, 1, &h, data), BPS_OK);
    while (!rig_feed(&frame, 100)) {
    }
    ck_assert_float_eq(heard[1].last, 3);
    ck_assert_int_eq(rig_begin(&frame, sum, 2, &h, data), BPS_OK);
    rig_feed(&frame, 100);
    bps_sum_abandon(&frame.cursor);
    bps_sum_gone(sum, 2);
    push(0, 1, 0);
    check(0, 2 * SLICES, 1); /* of slice 1; nothing of worker 2 is in slice 0 either: */
    ck_assert_int_eq(push_slice(0, of(2, BPS_SUM), 0, 0), BPS_OK);
    ck_assert_float_eq(heard[0].first, 3);
    ck_assert_uint_eq(heard[2].results + heard[2].failures, 0);
}
END_TEST

START_TEST(test_lost_root)
{
    receive(1, 0, 0);
    bps_sum_gone(sum, 0);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_str_eq(heard[1].text, "worker 0 was lost");
    receive(2, 1, 0);
    broadcast(1, 1, 4);
    ck_assert_uint_eq(heard[2].results, SLICES);
    bps_sum_leave(sum, 1);
    push(2, 1, 1);
    check(2, 2 * SLICES, 5);
}
END_TEST

START_TEST(test_poison)
{
    struct bps_header h = of(0, BPS_SUM);
    h.type = BPS_FRAME_POISON;
    h.root = (uint32_t)-BPS_ERR_FAILED;
    h.flags |= BPS_FLAG_ANSWER;
    ck_assert_int_eq(bps_frame_poison(sum, 1, &h, "worker 1: no"), BPS_OK);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_str_eq(heard[1].text, "worker 1: no");
    broadcast(0, 0, 1);
    push(1, 1, 1);
    ck_assert_float_eq(heard[1].first, 2);
}
END_TEST

/* All get the same, which is the sum of all. */
START_TEST(test_in_step)
{
    restart_with(0);
    broadcast(0, 0, 10);
    receive(1, 0, 0);
    receive(2, 0, 0);
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            for (uint32_t other = 0; other < WORKERS; other++) {
                ck_assert_uint_eq(heard[other].results, round * SLICES);
            }
            push(rank, round, 1.0f + (float)rank);
        }
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            check(rank, (round + 1) * SLICES, 10.0f + (float)(6 * round));
        }
    }
}
END_TEST

START_TEST(test_staleness)
{
    restart_with(2);
    broadcast(0, 0, 0);
    push(0, 1, 1);
    push(0, 2, 1);
    check(0, 3 * SLICES, 2);
    push(0, 3, 1); /* 3 ahead */
    ck_assert_uint_eq(heard[0].results, 3 * SLICES);
    bps_sum_check_stalls(sum, bps_now() + 10, 1, 0);
    ck_assert_uint_eq(heard[0].stalls, 1);
    ck_assert_ptr_nonnull(strstr(heard[0].text, "worker 1"));
    push(1, 0, 10);
    ck_assert_uint_eq(heard[0].results, 3 * SLICES);
    check(1, SLICES, 13);
    bps_sum_leave(sum, 2); /* nobody waits for it any more */
    check(0, 4 * SLICES, 13);
    push(0, 4, 1);
    push(0, 5, 1);
    ck_assert_uint_eq(heard[0].results, 4 * SLICES);
    bps_sum_gone(sum, 1);
    check(0, 6 * SLICES, 15);
}
END_TEST

static const struct {
    const char *what;
    uint32_t offset, length, size;
    uint8_t op, dtype;
    double postscale;
    uint8_t flags;
} bad[] = {
    {"between slices", 4, SLICE, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 1, 0},
    {"short", 0, SLICE - 4, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 1, 0},
    {"behind the end", SLICES *SLICE, SLICE, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 1, 0},
    {"another operation", 0, SLICE, SLICES *SLICE, BPS_MAX, BPS_FLOAT32, 1, 0},
    {"another type", 0, SLICE, SLICES *SLICE, BPS_SUM, BPS_INT32, 1, 0},
    {"another size", 0, SLICE, SLICE, BPS_SUM, BPS_FLOAT32, 1, 0},
    {"a postscale", 0, SLICE, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 2, 0},
    {"for a group", 0, SLICE, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 1, BPS_FLAG_GROUP},
    {"empty", 0, 0, SLICES *SLICE, BPS_SUM, BPS_FLOAT32, 1, BPS_FLAG_EMPTY},
};

START_TEST(test_nonsense)
{
    broadcast(0, 0, 1);
    struct bps_header h = of(0, bad[_i].op);
    h.offset = bad[_i].offset;
    h.length = bad[_i].length;
    h.size = bad[_i].size;
    h.bytes = bad[_i].size;
    h.dtype = bad[_i].dtype;
    h.postscale = bad[_i].postscale;
    h.flags |= bad[_i].flags;
    ck_assert_msg(rig_push(sum, 1, &h, NULL) == BPS_ERR_PROTOCOL, "%s", bad[_i].what);
    push(0, 1, 1);
    check(0, 2 * SLICES, 2);
}
END_TEST

/* The same slice twice; another round before this one is pushed; and what belongs to rounds of all. */
START_TEST(test_order)
{
    struct bps_reader r;
    struct bps_header h = of(0, BPS_SUM);
    broadcast(0, 0, 1);
    ck_assert_int_eq(push_slice(1, h, 0, 1), BPS_OK);
    ck_assert_int_eq(push_slice(1, h, 0, 1), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push_slice(1, of(1, BPS_SUM), 0, 1), BPS_ERR_PROTOCOL);
    h.type = BPS_FRAME_HELD;
    h.slice = SLICE;
    bps_reader_init(&r, "", 0);
    ck_assert_int_eq(bps_frame_held(sum, 2, &h, &r), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_fail(sum, &h, "no"), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(push_slice(1, of(0, BPS_SUM), 1, 1), BPS_OK);
    push(1, 1, 1);
    check(1, 2 * SLICES, 3);
}
END_TEST

/* ---- rows ---- */

static struct bps_header table_of(uint32_t round, uint8_t op)
{
    struct bps_header h = rig_header(1, round, BPS_FLOAT32, op, TABLE);
    h.flags = BPS_FLAG_KEEPS;
    return h;
}

static void broadcast_table(float value)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        float data[SLICE / sizeof(float)];
        struct bps_header h = table_of(0, BPS_WIRE_BROADCAST);
        for (size_t k = 0; k < sizeof data / sizeof *data; k++) {
            data[k] = value;
        }
        h.offset = i * SLICE;
        h.length = bps_partition_bytes(TABLE, SLICE, i);
        ck_assert_int_eq(rig_push(sum, 0, &h, data), BPS_OK);
    }
}

/* Writes what is in a slice of these rows; returns how many bytes. */
static uint32_t pack_rows(uint32_t slice, const uint32_t *rows, uint32_t count, float value, char *to)
{
    const struct bps_row_cut cut = bps_row_cut(slice * SLICE, bps_partition_bytes(TABLE, SLICE, slice), ROW);
    uint32_t *index = (uint32_t *)(void *)(to + BPS_ROWS_HEAD), n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] >= slice) { /* both are in slice 0, the second one in slice 1 as well */
            index[n++] = rows[i] - slice;
        }
    }
    char *at = bps_row_parts_finish(to, n, &cut);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < bps_row_part_bytes(&cut, index[i]); k += sizeof value, at += sizeof value) {
            memcpy(at, &value, sizeof value);
        }
    }
    return (uint32_t)(at - to);
}

static struct bps_header rows_of(uint32_t round, uint32_t slice, uint32_t bytes)
{
    struct bps_header h = table_of(round, BPS_SUM);
    h.flags |= BPS_FLAG_ROWS;
    h.root = ROW;
    h.offset = slice * SLICE;
    h.length = bytes;
    return h;
}

static void push_rows(uint32_t rank, uint32_t round, const uint32_t *rows, uint32_t count, float value)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        _Alignas(8) char bytes[BPS_ROWS_HEAD + 8 + SLICE];
        struct bps_header h = rows_of(round, i, pack_rows(i, rows, count, value, bytes));
        ck_assert_int_eq(rig_push(sum, rank, &h, bytes), BPS_OK);
    }
}

static const uint32_t both[] = {0, 1};

/* What comes is what was asked for, with what all have pushed to it. */
START_TEST(test_rows)
{
    broadcast_table(10);
    push_rows(1, 0, both + 1, 1, 2);
    ck_assert_uint_eq(heard[1].results, SLICES);
    ck_assert_uint_eq(heard[1].bytes, 8 + 8 + TABLE - SLICE);
    ck_assert_float_eq(heard[1].last, 12);
    push_rows(2, 0, both, 1, 4);
    ck_assert_uint_eq(heard[2].results, SLICES);
    ck_assert_uint_eq(heard[2].bytes, 8); /* of slice 1 */
    push_rows(2, 1, both, 2, 1);
    ck_assert_float_eq(heard[2].last, 13);
    float zeros[SLICE / sizeof(float)] = {0};
    struct bps_header h = table_of(1, BPS_SUM);
    h.length = SLICE;
    ck_assert_int_eq(rig_push(sum, 0, &h, zeros), BPS_OK);
    ck_assert_float_eq(heard[0].first, 15);
    ck_assert_float_eq(heard[0].last, 13);
}
END_TEST

/* Rows are added to a version that is still being sent to somebody, and their own answer does not change. */
START_TEST(test_rows_and_snapshots)
{
    _Alignas(8) char bytes[BPS_ROWS_HEAD + 8 + SLICE];
    float zeros[SLICE / sizeof(float)] = {0};
    broadcast_table(1);
    struct bps_header h = table_of(0, BPS_SUM), r = rows_of(0, 0, pack_rows(0, both, 2, 5, bytes));
    h.length = SLICE;
    keep = true;
    ck_assert_int_eq(rig_push(sum, 1, &h, zeros), BPS_OK);
    struct bps_sum_slice *all = kept;
    ck_assert_int_eq(rig_push(sum, 2, &r, bytes), BPS_OK);
    struct bps_sum_slice *rows = kept;
    keep = false;
    h.round = 1;
    ck_assert_int_eq(rig_push(sum, 0, &h, zeros), BPS_OK);
    ck_assert_float_eq(heard[0].last, 6);
    ck_assert_float_eq(*(const float *)all->payload, 1);
    ck_assert_float_eq(*(const float *)(const void *)((const char *)rows->payload + 16), 6);
    bps_sum_delivered(all);
    bps_sum_delivered(rows);
}
END_TEST

START_TEST(test_rows_without_value)
{
    push_rows(1, 0, both, 2, 1);
    ck_assert_int_eq(heard[1].status, BPS_ERR_STATE);
    broadcast_table(1);
    push_rows(1, 1, both, 2, 1);
    ck_assert_float_eq(heard[1].last, 2);
}
END_TEST

/* Who waits for others gets what they have pushed meanwhile, and one push counts for all rows. */
START_TEST(test_rows_in_step)
{
    restart_with(0);
    broadcast_table(0);
    push_rows(0, 1, both, 2, 1);
    push_rows(1, 0, both, 1, 10);
    ck_assert_uint_eq(heard[0].results, SLICES); /* of the broadcast */
    push_rows(2, 0, both, 0, 0);
    ck_assert_uint_eq(heard[0].results, 2 * SLICES);
    ck_assert_float_eq(heard[0].last, 1);
    ck_assert_uint_eq(heard[1].results + heard[2].results, 2 * SLICES);
}
END_TEST

/* What a header cannot say ends the link, and rows that are none the round. */
START_TEST(test_no_rows)
{
    _Alignas(8) char bytes[BPS_ROWS_HEAD + 8 + SLICE];
    broadcast_table(1);
    uint32_t n = pack_rows(0, both, 2, 5, bytes);
    struct bps_header h = rows_of(0, 0, n);
    h.root = ROW - 2;
    ck_assert_int_eq(rig_push(sum, 1, &h, bytes), BPS_ERR_PROTOCOL);
    h.root = ROW - 4; /* there is no such table */
    ck_assert_int_eq(rig_push(sum, 1, &h, bytes), BPS_ERR_PROTOCOL);
    h = rows_of(0, 0, BPS_ROWS_HEAD - 1);
    ck_assert_int_eq(rig_push(sum, 1, &h, bytes), BPS_ERR_PROTOCOL);
    h = rows_of(0, 0, n + SLICE);
    ck_assert_int_eq(rig_push(sum, 1, &h, bytes), BPS_ERR_PROTOCOL);
    h = rows_of(0, 0, n);
    memset(bytes + 4, 2, 1); /* the slice would begin within an element */
    ck_assert_int_eq(rig_push(sum, 1, &h, bytes), BPS_OK);
    ck_assert_int_eq(heard[1].status, BPS_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(heard[1].text, "worker 1 sent data that is not rows"));
    push_rows(2, 0, both, 2, 1);
    ck_assert_float_eq(heard[2].last, 2);
    h = rows_of(1, 0, pack_rows(0, both, 2, 1, bytes));
    ck_assert_int_eq(rig_push(sum, 2, &h, bytes), BPS_OK);
    h = table_of(1, BPS_SUM); /* a slice of a round is rows, and the next is not */
    h.offset = SLICE;
    h.length = TABLE - SLICE;
    ck_assert_int_eq(rig_push(sum, 2, &h, bytes), BPS_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value");
    TCase *tests = tcase_create("value");
    tcase_add_checked_fixture(tests, start, stop);
    tcase_add_test(tests, test_pushes);
    tcase_add_test(tests, test_broadcast);
    tcase_add_test(tests, test_snapshots);
    tcase_add_test(tests, test_average_and_scale);
    tcase_add_test(tests, test_no_value);
    tcase_add_test(tests, test_pieces);
    tcase_add_test(tests, test_lost_root);
    tcase_add_test(tests, test_poison);
    tcase_add_test(tests, test_in_step);
    tcase_add_test(tests, test_staleness);
    tcase_add_loop_test(tests, test_nonsense, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tests, test_order);
    tcase_add_test(tests, test_rows);
    tcase_add_test(tests, test_rows_and_snapshots);
    tcase_add_test(tests, test_rows_without_value);
    tcase_add_test(tests, test_rows_in_step);
    tcase_add_test(tests, test_no_rows);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
