/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_value_heir.c - a shard that keeps a value is lost, and its heir has it from the workers: the newest answer of
 * each slice, and each push once. Three workers, a tensor of two slices.
 */
#include <endian.h>
#include <string.h>

#include "base/clock.h"
#include "base/rows.h"
#include "checks.h"
#include "sum/round.h"
#include "sum/value.h"
#include "sum_rig.h"

#define PARTITION 16384u
#define SLICE     1024u
#define SLICES    2u
#define WORKERS   3u
#define TAIL      (12 + 8 * WORKERS)
#define ROW       512u
#define VIEW      2u /* in which the first shard is lost */

static struct bps_sum *sum;

static struct heard {
    uint32_t results, failures;
    bps_status status;
    char text[BPS_TEXT_LIMIT + 1];
    char answer[SLICES][SLICE + TAIL]; /* the newest; zeros: none */
    uint32_t wanted[SLICES];           /* how often */
    uint64_t torn[SLICES];             /* the version of which a row has come since; 0: none has */
} heard[WORKERS];

static uint32_t view;  /* that workers know of when they push */
static bool is_silent; /* what is answered does not come */

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    ck_assert(bps_sum_wants_data(slice, rank));
    if (!is_silent && slice->payload_bytes < SLICE) {
        const char *tail = (const char *)slice->payload + slice->payload_bytes - TAIL;
        heard[rank].results++;
        memcpy(&heard[rank].torn[slice->index], tail, sizeof heard[rank].torn[0]);
    } else if (!is_silent) {
        ck_assert_uint_eq(slice->payload_bytes, SLICE + TAIL);
        heard[rank].results++;
        heard[rank].torn[slice->index] = 0;
        memcpy(heard[rank].answer[slice->index], slice->payload, slice->payload_bytes);
    }
    bps_sum_delivered(slice);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].failures += notice->kind == BPS_NOTICE_FAILED;
    heard[rank].status = notice->status;
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static void on_want(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    ck_assert_uint_eq(slice->id.kind, BPS_KEY_VALUE);
    heard[rank].wanted[slice->offset / SLICE]++;
}

static void start_with(int64_t staleness)
{
    static const struct bps_sum_events events = {
        .finished = rig_finished, .result = on_result, .want = on_want, .notice = on_notice};
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = PARTITION,
                                          .slice = SLICE,
                                          .only = BPS_SUM_ALL,
                                          .elastic = true,
                                          .ops = {[BPS_KEY_VALUE] = &bps_value_ops},
                                          .reducer = rig_reducer,
                                          .staleness = staleness,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void start(void)
{
    rig_open();
    memset(heard, 0, sizeof heard);
    view = 0;
    is_silent = false;
    start_with(-1);
}

static void stop(void)
{
    bps_sum_free(sum);
    rig_close();
}

/* The shard is lost; this is its heir, and another one's after that. */
static void lose(int64_t staleness)
{
    bps_sum_free(sum);
    start_with(staleness);
    view = view == 0 ? VIEW : view + 1;
    is_silent = false;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        heard[rank].results = heard[rank].failures = 0;
        memset(heard[rank].wanted, 0, sizeof heard[rank].wanted);
    }
}

static struct bps_header of(uint32_t round, uint8_t op)
{
    struct bps_header h = rig_header(1, round, BPS_FLOAT32, op, (uint64_t)SLICES * SLICE);
    h.flags = BPS_FLAG_KEEPS | BPS_FLAG_COUNTS;
    h.view = view;
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

static struct bps_header cast(uint32_t root, uint32_t round)
{
    struct bps_header h = of(round, BPS_WIRE_BROADCAST);
    h.root = root;
    return h;
}

static void broadcast(uint32_t root, uint32_t round, float value)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        ck_assert_int_eq(push_slice(root, cast(root, round), i, value), BPS_OK);
    }
}

static void receive(uint32_t rank, uint32_t root, uint32_t round)
{
    struct bps_header h = cast(root, round);
    h.flags |= BPS_FLAG_EMPTY;
    ck_assert_int_eq(rig_push(sum, rank, &h, NULL), BPS_OK);
}

static uint64_t number_of(uint32_t rank, uint32_t index)
{
    uint64_t number, torn = le64toh(heard[rank].torn[index]);
    memcpy(&number, heard[rank].answer[index] + SLICE, sizeof number);
    return torn > 0 ? torn | BPS_VALUE_TORN : le64toh(number);
}

/* Its first row of each slice. */
static void push_row(uint32_t rank, uint32_t round, float value)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        _Alignas(8) char bytes[BPS_ROWS_HEAD + 8 + ROW] = {0};
        const struct bps_row_cut cut = {.row = ROW, .bytes = SLICE};
        struct bps_header h = of(round, BPS_SUM);
        char *at = bps_row_parts_finish(bytes, 1, &cut);
        for (uint32_t k = 0; k < ROW; k += sizeof value) {
            memcpy(at + k, &value, sizeof value);
        }
        h.flags |= BPS_FLAG_ROWS;
        h.root = ROW;
        h.offset = i * SLICE;
        h.length = sizeof bytes;
        ck_assert_int_eq(rig_push(sum, rank, &h, bytes), BPS_OK);
    }
}

/* What this worker has, as it tells the heir. */
static bps_status hold_with(uint32_t rank, struct bps_header h, uint32_t broadcasts)
{
    struct bps_writer w;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_put_u32(&w, broadcasts);
    for (uint32_t i = 0; i < SLICES; i++) {
        bps_put_u64(&w, number_of(rank, i));
    }
    h.type = BPS_FRAME_HELD;
    h.slice = SLICE;
    bps_reader_init(&r, w.data, w.size);
    bps_status status = bps_frame_held(sum, rank, &h, &r);
    bps_writer_fini(&w);
    return status;
}

static void hold(uint32_t rank, uint32_t broadcasts)
{
    ck_assert_int_eq(hold_with(rank, of(0, BPS_SUM), broadcasts), BPS_OK);
}

static void told(uint32_t rank)
{
    const struct bps_header h = {.type = BPS_FRAME_HELD, .flags = BPS_FLAG_KEEPS, .view = view};
    struct bps_reader r;
    bps_reader_init(&r, "", 0);
    ck_assert_int_eq(bps_frame_held(sum, rank, &h, &r), BPS_OK);
}

static void all_tell(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        told(rank);
    }
}

static bps_status final_bytes(uint32_t rank, uint32_t index, uint32_t bytes)
{
    struct bps_reader r;
    struct bps_header h = of(0, BPS_SUM);
    h.type = BPS_FRAME_FINAL;
    h.flags = BPS_FLAG_KEEPS;
    h.offset = index * SLICE;
    bps_reader_init(&r, heard[rank].answer[index], bytes);
    return bps_frame_final(sum, rank, &h, &r);
}

/* This worker was asked for all slices, and answers. */
static void send_finals(uint32_t rank)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        ck_assert_uint_eq(heard[rank].wanted[i], 1);
        ck_assert_int_eq(final_bytes(rank, i, SLICE + TAIL), BPS_OK);
    }
}

static void check(uint32_t rank, uint32_t results, float value)
{
    ck_assert_uint_eq(heard[rank].failures, 0);
    ck_assert_uint_eq(heard[rank].results, results);
    for (uint32_t i = 0; i < SLICES && results > 0; i++) {
        float first;
        memcpy(&first, heard[rank].answer[i], sizeof first);
        ck_assert_float_eq(first, value);
    }
}

/* Set to 10 by worker 0, which others have received. */
static void begin(void)
{
    broadcast(0, 0, 10);
    receive(1, 0, 0);
    receive(2, 0, 0);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        check(rank, SLICES, 10);
    }
}

static void begin_all_hold(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        hold(rank, 1);
    }
}

static uint32_t word(uint32_t rank, uint32_t at)
{
    uint32_t number;
    memcpy(&number, heard[rank].answer[0] + SLICE + at, sizeof number);
    return le32toh(number);
}

/* The number of the version and of the broadcast; then of each worker its next round, and its pushes. */
START_TEST(test_tail)
{
    begin();
    ck_assert_uint_eq(number_of(0, 1), 1);
    ck_assert_uint_eq(word(0, 8), 1);
    ck_assert_uint_eq(word(0, 12), 1);
    ck_assert_uint_eq(word(0, 16), 0);
    push(1, 1, 1);
    push(1, 2, 1);
    ck_assert_uint_eq(number_of(1, 1), 3);
    ck_assert_uint_eq(word(1, 12), 1);
    ck_assert_uint_eq(word(1, 20), 3);
    ck_assert_uint_eq(word(1, 24), 2);
    ck_assert_uint_eq(word(1, 28), 0);
    check(1, 3 * SLICES, 12);
}
END_TEST

/* A push to the heir waits until all have told, and who has the newest version has sent it. */
START_TEST(test_newest)
{
    begin();
    push(0, 1, 1);
    push(1, 1, 2);
    lose(-1);
    push(2, 1, 100);
    hold(0, 1);
    hold(1, 1);
    told(0);
    told(1);
    ck_assert_uint_eq(heard[1].wanted[0], 0);
    told(2); /* it has told nothing else */
    ck_assert_uint_eq(heard[0].wanted[0] + heard[0].wanted[1], 0);
    ck_assert_uint_eq(heard[2].results, 0);
    bps_sum_check_stalls(sum, bps_now() + 10, 1, 0);
    ck_assert_ptr_nonnull(strstr(heard[2].text, "worker 1"));
    send_finals(1);
    check(2, SLICES, 113);
    push(0, 2, 1);
    check(0, SLICES, 114);
}
END_TEST

/* What others' answers have in them is not added again. */
START_TEST(test_once)
{
    begin();
    is_silent = true;
    push(0, 1, 1);
    is_silent = false;
    push(1, 1, 2); /* with that of worker 0 */
    is_silent = true;
    push(1, 2, 20); /* nobody has it but the shard */
    lose(-1);
    push(0, 1, 1);
    push(1, 2, 20);
    begin_all_hold();
    all_tell();
    send_finals(1);
    check(0, SLICES, 33);
    check(1, SLICES, 33);
    push(2, 1, 0);
    check(2, SLICES, 33);
}
END_TEST

/* The root's frames of a broadcast come again, and a receiver's; what they have ended before is told later. */
START_TEST(test_broadcast_under_way)
{
    begin();
    is_silent = true;
    receive(1, 0, 1);
    broadcast(0, 1, 50);
    lose(-1);
    receive(1, 0, 1);
    receive(2, 0, 1);
    begin_all_hold();
    all_tell();
    for (uint32_t rank = 0; rank < WORKERS; rank++) { /* all have the same: the first is asked */
        ck_assert_uint_eq(heard[rank].wanted[0], rank == 0);
    }
    send_finals(0);
    ck_assert_uint_eq(heard[1].results + heard[2].results, 0);
    broadcast(0, 1, 50);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        check(rank, SLICES, 50);
    }
}
END_TEST

/* Nobody has been told of the value. */
START_TEST(test_first_broadcast)
{
    is_silent = true;
    broadcast(0, 0, 7);
    lose(-1);
    receive(1, 0, 0);
    hold(0, 0);
    hold(1, 0);
    broadcast(0, 0, 7);
    all_tell();
    check(0, SLICES, 7);
    check(1, SLICES, 7);
    receive(2, 0, 0);
    check(2, SLICES, 7);
}
END_TEST

/* One slice of a round was answered before, and does not come again. */
START_TEST(test_half)
{
    begin();
    ck_assert_int_eq(push_slice(1, of(1, BPS_SUM), 0, 1), BPS_OK);
    lose(-1);
    begin_all_hold();
    all_tell();
    ck_assert_uint_eq(heard[1].wanted[0], 1);
    ck_assert_uint_eq(heard[0].wanted[1], 1);
    ck_assert_int_eq(final_bytes(1, 0, SLICE + TAIL), BPS_OK);
    ck_assert_int_eq(push_slice(1, of(1, BPS_SUM), 1, 1), BPS_OK);
    ck_assert_int_eq(final_bytes(0, 1, SLICE + TAIL), BPS_OK);
    check(1, 1, 11);
    push(1, 2, 1);
    push(1, 3, 1);
    check(1, 1 + 2 * SLICES, 13);
    ck_assert_int_eq(push_slice(1, of(4, BPS_SUM), 0, 1), BPS_OK); /* of a round that has begun here, all comes */
    ck_assert_int_eq(push_slice(1, of(5, BPS_SUM), 0, 1), BPS_ERR_PROTOCOL);
}
END_TEST

/* The heir is lost as well, before or after it has the value. */
START_TEST(test_next_heir)
{
    begin();
    push(0, 1, 1);
    lose(-1);
    push(1, 1, 2);
    begin_all_hold();
    if (_i > 0) {
        all_tell();
        send_finals(0);
        check(1, SLICES, 13);
    }
    lose(-1);
    uint32_t holder = _i > 0 ? 1 : 0;
    begin_all_hold();
    all_tell();
    push(1, 1, 2);
    send_finals(holder);
    check(1, SLICES, 13);
    push(2, 1, 4);
    check(2, SLICES, 17);
}
END_TEST

/* Who was asked is lost: another one has an older version, in which all is that it was told itself. */
START_TEST(test_lost_holder)
{
    begin();
    push(0, 1, 1);
    push(1, 1, 2);
    lose(-1);
    hold(0, 1);
    hold(1, 1);
    push(2, 1, 4);
    all_tell();
    ck_assert_uint_eq(heard[1].wanted[0], 1);
    bps_sum_gone(sum, 1);
    send_finals(0);
    check(2, SLICES, 15);
}
END_TEST

/* The last one that had it: nothing else is to be had. */
START_TEST(test_lost_for_good)
{
    begin();
    lose(-1);
    hold(0, 1);
    push(2, 1, 4);
    told(2);
    told(0);
    bps_sum_leave(sum, 1);
    ck_assert_uint_eq(heard[0].wanted[0], 1);
    bps_sum_gone(sum, 0);
    ck_assert_uint_eq(heard[2].failures, 1);
    ck_assert_int_eq(heard[2].status, BPS_ERR_STATE);
    ck_assert_ptr_nonnull(strstr(heard[2].text, "lost with a server"));
    broadcast(2, 2, 3);
    ck_assert_uint_eq(heard[2].results, SLICES);
}
END_TEST

/* After rows nobody has all of the newest version, unless somebody has pushed all since. */
START_TEST(test_rows)
{
    begin();
    push_row(0, 1, 1);
    push(1, 1, 0);
    check(1, 2 * SLICES, 11);
    lose(-1);
    hold(0, 1);
    hold(1, 1);
    push_row(2, 1, 4);
    all_tell();
    send_finals(1);
    ck_assert_uint_eq(heard[2].results, SLICES);
    ck_assert_uint_eq(heard[2].failures, 0);
    push(1, 2, 0);
    check(1, SLICES, 15);
    push_row(2, 2, 4);
    lose(-1);
    hold(1, 1);
    hold(2, 1);
    push(1, 3, 0);
    all_tell();
    ck_assert_int_eq(heard[1].status, BPS_ERR_STATE);
    ck_assert_ptr_nonnull(strstr(heard[1].text, "no remaining worker has all of it"));
    broadcast(2, 3, 3);
    push_row(1, 4, 1);
    ck_assert_uint_eq(heard[1].failures, 1);
    ck_assert_uint_eq(heard[1].results, SLICES);
}
END_TEST

/* Rows that wait for the value, and are in it already. */
START_TEST(test_rows_once)
{
    begin();
    is_silent = true;
    push_row(0, 1, 1);
    is_silent = false;
    push(1, 1, 0);
    lose(-1);
    begin_all_hold();
    push_row(0, 1, 1);
    all_tell();
    send_finals(1);
    ck_assert_uint_eq(heard[0].results, SLICES);
    push(2, 1, 0);
    check(2, SLICES, 11);
}
END_TEST

/* Counts of pushes go on at the heir. */
START_TEST(test_staleness)
{
    lose(1);
    view = 0;
    begin();
    push(0, 1, 1);
    lose(1);
    begin_all_hold();
    all_tell();
    push(0, 2, 1);
    send_finals(0);
    ck_assert_uint_eq(heard[0].results, 0); /* 2 ahead */
    push(1, 1, 2);
    ck_assert_uint_eq(heard[0].results, 0);
    push(2, 1, 4);
    check(0, SLICES, 18);
    check(2, SLICES, 18);
}
END_TEST

/* A tensor that is new since the loss waits for nothing but words; one that was there waits for nothing. */
START_TEST(test_untouched)
{
    begin();
    view = VIEW;
    push(1, 1, 1);
    check(1, 2 * SLICES, 11);
    lose(-1);
    broadcast(0, 0, 3);
    ck_assert_uint_eq(heard[0].results, 0);
    all_tell();
    check(0, SLICES, 3);
}
END_TEST

/* A round that has failed while it waited is not added, and its memory is given back. */
START_TEST(test_overdue)
{
    begin();
    lose(-1);
    begin_all_hold();
    push(1, 1, 100);
    bps_sum_check_stalls(sum, bps_now() + BPS_S, 1, 1);
    ck_assert_uint_eq(heard[1].failures, 1);
    heard[1].failures = 0;
    all_tell();
    push(1, 2, 1);
    send_finals(0);
    check(1, SLICES, 11);
}
END_TEST

START_TEST(test_nonsense)
{
    struct bps_header h = of(0, BPS_SUM);
    begin();
    ck_assert_int_eq(final_bytes(0, 0, SLICE + TAIL), BPS_ERR_PROTOCOL); /* nobody has asked for it */
    lose(-1);
    ck_assert_int_eq(final_bytes(0, 0, SLICE + TAIL), BPS_ERR_PROTOCOL);
    hold(0, 1);
    ck_assert_int_eq(hold_with(0, of(0, BPS_SUM), 1), BPS_ERR_PROTOCOL); /* twice */
    h.dtype = BPS_INT32;
    ck_assert_int_eq(hold_with(1, h, 1), BPS_ERR_PROTOCOL);
    h = of(0, BPS_SUM);
    h.bytes = h.size = SLICE;
    ck_assert_int_eq(hold_with(1, h, 1), BPS_ERR_PROTOCOL);
    h = of(0, BPS_SUM);
    h.view = 0;
    ck_assert_int_eq(hold_with(1, h, 1), BPS_ERR_PROTOCOL);
    all_tell();
    ck_assert_int_eq(final_bytes(1, 0, SLICE + TAIL), BPS_ERR_PROTOCOL); /* another one was asked */
    ck_assert_int_eq(final_bytes(0, 0, SLICE), BPS_ERR_PROTOCOL);
    send_finals(0);
    ck_assert_int_eq(final_bytes(0, 0, SLICE + TAIL), BPS_ERR_PROTOCOL); /* once is enough */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value_heir");
    TCase *tests = tcase_create("value_heir");
    tcase_add_checked_fixture(tests, start, stop);
    tcase_add_test(tests, test_tail);
    tcase_add_test(tests, test_newest);
    tcase_add_test(tests, test_once);
    tcase_add_test(tests, test_broadcast_under_way);
    tcase_add_test(tests, test_first_broadcast);
    tcase_add_test(tests, test_half);
    tcase_add_loop_test(tests, test_next_heir, 0, 2);
    tcase_add_test(tests, test_lost_holder);
    tcase_add_test(tests, test_lost_for_good);
    tcase_add_test(tests, test_rows);
    tcase_add_test(tests, test_rows_once);
    tcase_add_test(tests, test_staleness);
    tcase_add_test(tests, test_untouched);
    tcase_add_test(tests, test_overdue);
    tcase_add_test(tests, test_nonsense);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
