/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c - rows as they travel, and rounds of them in the summation engine, with the reducer cpu. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rows.h"
#include "checks.h"
#include "server/sum_frames.h"
#include "sum/round.h"
#include "sum_rig.h"

#define WIDTH   3u /* floats of a row */
#define ROW     (4 * WIDTH)
#define ROWS    20u
#define WORKERS 3u

/* ---- as bytes ---- */

/* Rows of which each element is their number and a part of it. */
static uint32_t packed(void *to, const uint32_t *index, uint32_t count, float part)
{
    memcpy((char *)to + BPS_ROWS_HEAD, index, 4 * count);
    char *place = bps_rows_finish(to, count);
    for (uint32_t i = 0; i < WIDTH * count; i++) {
        const float x = (float)index[i / WIDTH] + part;
        memcpy(place + 4 * i, &x, sizeof x);
    }
    return (uint32_t)bps_rows_bytes(count, ROW);
}

START_TEST(test_read)
{
    _Alignas(8) char bytes[400];
    struct bps_row_list list;
    const uint32_t index[] = {0, 3, 19};
    uint32_t n = packed(bytes, index, 3, 0.5f);
    ck_assert_uint_eq(n, 8 + 16 + 3 * ROW);
    ck_assert(bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    ck_assert_uint_eq(list.count, 3);
    ck_assert_mem_eq(list.index, index, sizeof index);
    ck_assert_ptr_eq(list.data, bytes + 24);
    ck_assert_uint_eq(packed(bytes, index, 0, 0), 8);
    ck_assert(bps_rows_read(bytes, 8, 0, ROW, &list));
    ck_assert_uint_eq(list.count, 0);
}
END_TEST

/* Too short or long, rows out of order, twice, or not of the partition; a head that says something else. */
START_TEST(test_refused)
{
    static const uint32_t bad[][2] = {{3, 3}, {3, 2}, {19, 20}, {20, 21}, {0, UINT32_MAX}};
    _Alignas(8) char bytes[400];
    struct bps_row_list list;
    const uint32_t index[] = {1, 2};
    uint32_t n = packed(bytes, index, 2, 0), count = UINT32_MAX;
    for (uint32_t k = 0; k < sizeof bytes; k++) {
        ck_assert_int_eq(bps_rows_read(bytes, k, ROWS * ROW, ROW, &list), k == n);
    }
    ck_assert(bps_rows_read(bytes, n, 2 * ROW + 1, ROW, &list));
    ck_assert(!bps_rows_read(bytes, n, 2 * ROW, ROW, &list)); /* there is no third one */
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        packed(bytes, bad[i], 2, 0);
        ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    }
    packed(bytes, index, 2, 0);
    bytes[4] = 1;
    ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    bytes[4] = 0;
    memcpy(bytes, &count, sizeof count);
    ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
}
END_TEST

/* ---- summed ---- */

static struct bps_sum *sum;
static struct bps_sum_slice *result[WORKERS];
static char text[WORKERS][400];

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    result[rank] = slice;
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    snprintf(text[rank], sizeof text[rank], "%s", notice->text);
}

static void setup(void)
{
    static const struct bps_sum_events events = {.finished = rig_finished, .result = on_result, .notice = on_notice};
    rig_open();
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = 4096,
                                          .slice = 64,
                                          .only = BPS_SUM_ALL,
                                          .reducer = rig_reducer,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
    memset(result, 0, sizeof result);
    memset(text, 0, sizeof text);
}

static void teardown(void)
{
    bps_sum_free(sum);
    rig_close();
}

static struct bps_header rows_header(uint8_t op, uint32_t bytes)
{
    struct bps_header header = rig_header(1, 0, BPS_FLOAT32, op, ROWS * ROW);
    header.flags = BPS_FLAG_ROWS;
    header.slice = ROW;
    header.length = bytes;
    return header;
}

static bps_status push_rows(uint32_t rank, uint8_t op, const uint32_t *index, uint32_t count, float part)
{
    _Alignas(8) char bytes[400];
    const struct bps_header header = rows_header(op, packed(bytes, index, count, part));
    return rig_push(sum, rank, &header, bytes);
}

START_TEST(test_union)
{
    static const uint32_t first[] = {2, 7}, last[] = {0, 2, 19}, all[] = {0, 2, 7, 19};
    uint8_t op = _i == 0 ? BPS_SUM : BPS_AVERAGE;
    struct bps_row_list list;
    ck_assert_int_eq(push_rows(0, op, first, 2, 0.5f), BPS_OK);
    ck_assert_int_eq(push_rows(1, op, first, 0, 0), BPS_OK);
    ck_assert_ptr_null(result[0]);
    ck_assert_int_eq(push_rows(2, op, last, 3, 1.0f), BPS_OK);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ck_assert_ptr_eq(result[rank], result[0]);
    }
    ck_assert(bps_rows_read(result[0]->payload, result[0]->payload_bytes, ROWS * ROW, ROW, &list));
    ck_assert_uint_eq(list.count, 4);
    ck_assert_mem_eq(list.index, all, sizeof all);
    for (uint32_t i = 0; i < 4 * WIDTH; i++) {
        static const float sums[] = {1.0f, 5.5f, 7.5f, 20.0f};
        float x;
        memcpy(&x, list.data + 4 * i, sizeof x);
        ck_assert_float_eq_tol(x, _i == 0 ? sums[i / WIDTH] : sums[i / WIDTH] / WORKERS, 1e-6f);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        bps_sum_delivered(result[rank]);
    }
}
END_TEST

/* Bytes of the right number that are no rows fail the round for all. */
START_TEST(test_no_rows)
{
    static const uint32_t good[] = {2, 7}, bad[] = {7, 2};
    ck_assert_int_eq(push_rows(0, BPS_SUM, good, 2, 0), BPS_OK);
    ck_assert_int_eq(push_rows(1, BPS_SUM, bad, 2, 0), BPS_OK);
    ck_assert_int_eq(push_rows(2, BPS_SUM, good, 2, 0), BPS_OK);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ck_assert_str_eq(text[rank], "worker 1 has sent what are no rows");
        ck_assert_ptr_null(result[rank]);
    }
}
END_TEST

/* One sends all of it, or other rows. */
START_TEST(test_odd_rows)
{
    static const uint32_t index[] = {2, 7};
    static const float whole[ROWS * WIDTH];
    ck_assert_int_eq(push_rows(0, BPS_SUM, index, 2, 0), BPS_OK);
    ck_assert_int_eq(push_rows(1, BPS_SUM, index, 2, 0), BPS_OK);
    struct bps_header header = rows_header(BPS_SUM, _i == 0 ? 64 : 8);
    header.flags = _i == 0 ? 0 : BPS_FLAG_ROWS;
    header.slice = _i == 0 ? 64 : 2 * ROW;
    ck_assert_int_eq(rig_push(sum, 2, &header, whole), BPS_OK);
    ck_assert_str_eq(text[2], _i == 0 ? "worker 2 pushed 60 float32 (sum), workers 0 and 1 pushed 60 float32 (sum, "
                                        "rows of 3)"
                                      : "worker 2 pushed 60 float32 (sum, rows of 6), workers 0 and 1 pushed 60 "
                                        "float32 (sum, rows of 3)");
    ck_assert_str_eq(text[0], text[2]);
}
END_TEST

/* What no worker sends: a maximum of rows, rows of half an element, that do not fill the tensor, too many bytes. */
START_TEST(test_frames_of_rows_that_nobody_sends)
{
    struct bps_header header = rows_header(_i == 0 ? BPS_MAX : BPS_SUM, 8);
    header.slice = _i == 1 ? 6 : _i == 2 ? 28 : ROW;
    header.length = _i == 3 ? 4 : _i == 4 ? (uint32_t)bps_rows_bytes(ROWS + 1, ROW) : 8;
    header.offset = _i == 5 ? 64 : 0;
    ck_assert_int_eq(rig_push(sum, 0, &header, NULL), BPS_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *bytes = tcase_create("bytes"), *sums = tcase_create("sums");
    tcase_add_test(bytes, test_read);
    tcase_add_test(bytes, test_refused);
    tcase_add_checked_fixture(sums, setup, teardown);
    tcase_add_loop_test(sums, test_union, 0, 2);
    tcase_add_test(sums, test_no_rows);
    tcase_add_loop_test(sums, test_odd_rows, 0, 2);
    tcase_add_loop_test(sums, test_frames_of_rows_that_nobody_sends, 0, 6);
    suite_add_tcase(suite, bytes);
    suite_add_tcase(suite, sums);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
