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
#define TABLE   (48u << 10) /* bytes of a partition of another tensor, in which rows are summed in several chunks */

/* ---- as bytes ---- */

/* Rows of which each element is their number and a part of it; `limit` is how many there may be. */
static uint32_t packed_of(void *to, const uint32_t *index, uint32_t count, uint32_t limit, float part)
{
    char *place = bps_rows_begin(to, count, limit);
    for (uint32_t i = 0; i < WIDTH * count; i++) {
        const float x = (float)index[i / WIDTH] + part;
        bps_rows_name(to, count, limit, i / WIDTH, index[i / WIDTH]);
        memcpy(place + 4 * i, &x, sizeof x);
    }
    return (uint32_t)(bps_rows_before(count, limit) + (size_t)count * ROW);
}

static uint32_t packed(void *to, const uint32_t *index, uint32_t count, float part)
{
    return packed_of(to, index, count, ROWS, part);
}

/* A list, bits, and all; numbered, marked, and written in the other ways that there are. */
START_TEST(test_read)
{
    static const uint32_t counts[] = {0, 2, 5, 7, 129, 130}, before[] = {8, 8 + 8, 8 + 24, 8 + 24, 8 + 24, 8};
    _Alignas(8) char bytes[2000], again[2000];
    const uint32_t count = counts[_i], limit = 130;
    uint32_t index[130];
    int64_t row[130], number[130];
    for (uint32_t i = 0; i < count; i++) {
        index[i] = count < 7 ? 20 * i : i + (i > 0 && count < 130);
        row[i] = 1000 + index[i];
    }
    struct bps_row_list list;
    uint64_t bits[3] = {0};
    uint32_t n = packed_of(bytes, index, count, limit, 0.5f);
    ck_assert_uint_eq(n, before[_i] + count * ROW);
    ck_assert_uint_le(n, bps_rows_room(count, limit, ROW));
    ck_assert(bps_rows_read(bytes, n, limit * ROW - 1, ROW, &list));
    ck_assert_uint_eq(list.count, count);
    ck_assert_ptr_eq(list.data, bytes + before[_i]);
    bps_rows_number(&list, 1000, number);
    ck_assert(count == 0 || memcmp(number, row, count * sizeof row[0]) == 0);
    bps_rows_mark(&list, limit, bits);
    ck_assert_ptr_eq(bps_rows_write(again, count, limit, bits), again + before[_i]);
    ck_assert_mem_eq(again, bytes, before[_i]);
    bps_rows_name_all(bps_rows_begin(again, count, limit) - before[_i], count, limit, row, 1000);
    ck_assert_mem_eq(again, bytes, before[_i]);
}
END_TEST

START_TEST(test_read_of_nothing)
{
    _Alignas(8) char bytes[8];
    struct bps_row_list list;
    bps_rows_begin(bytes, 0, 0);
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
    ck_assert(!bps_rows_read(bytes, n, 2 * ROW, ROW, &list)); /* these are all: there is no list of them */
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

/* Too short or long; more bits than rows, fewer, or of rows that there are not. */
START_TEST(test_refused_bits)
{
    _Alignas(8) char bytes[400] = {0};
    struct bps_row_list list;
    const uint32_t index[] = {1, 2, 18};
    uint32_t n = packed(bytes, index, 3, 0);
    for (uint32_t k = 0; k < sizeof bytes; k++) {
        ck_assert_int_eq(bps_rows_read(bytes, k, ROWS * ROW, ROW, &list), k == n);
    }
    bytes[8] = 7;
    ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    bytes[8] = 2;
    ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    bytes[10] = 1 << 3 | 1 << 2;
    ck_assert(bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    bytes[10] = 1 << 4 | 1 << 2;
    ck_assert(!bps_rows_read(bytes, n, ROWS * ROW, ROW, &list));
    bytes[10] = 1 << 2;
    bytes[15] = 1;
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
                                          .partition = TABLE,
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
    int64_t number[4];
    bps_rows_number(&list, 0, number);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(number[i], all[i]);
    }
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

/* Some rows of a partition of TABLE bytes, in which each element is one of a few, one of them a negative zero. */
struct part {
    uint64_t bits[TABLE / 4 / 64];
    float *element; /* of all rows */
    double scale;
};

static void fill_part(struct part *part, uint32_t row, uint32_t percent, double scale)
{
    static const float few[] = {-0.0f, 0.0f, 1.0f, -1.0f, 0.5f};
    *part = (struct part){.element = calloc(TABLE, 1), .scale = scale};
    for (uint32_t i = 0; i < TABLE / row; i++) {
        if (rig_random(100) < percent) {
            part->bits[i / 64] |= 1ull << i % 64;
        }
    }
    for (uint32_t i = 0; i < TABLE / 4; i++) {
        part->element[i] = few[rig_random(5)];
    }
}

static void push_part(uint32_t rank, const struct part *part, uint32_t row)
{
    char *bytes = aligned_alloc(8, 2 * TABLE);
    uint32_t limit = TABLE / row, count = 0;
    for (uint32_t i = 0; i < limit; i++) {
        count += part->bits[i / 64] >> i % 64 & 1;
    }
    char *place = bps_rows_write(bytes, count, limit, part->bits);
    for (uint32_t i = 0; i < limit; i++) {
        if ((part->bits[i / 64] >> i % 64 & 1) != 0) {
            memcpy(place, (char *)part->element + (size_t)i * row, row);
            place += row;
        }
    }
    struct bps_header header = rig_header(1, 0, BPS_FLOAT32, BPS_SUM, TABLE);
    header.flags = BPS_FLAG_ROWS;
    header.slice = row;
    header.length = (uint32_t)(place - bytes);
    header.prescale = part->scale;
    ck_assert_int_eq(rig_push(sum, rank, &header, bytes), BPS_OK);
    free(bytes);
}

/* The sums are those of the rows that were brought, added in the order of the workers: to the bit. */
static void check_sums(const struct bps_row_list *list, const struct part *part, uint32_t row)
{
    int64_t *number = calloc(TABLE / row, sizeof *number);
    uint32_t n = 0;
    bps_rows_number(list, 0, number);
    for (uint32_t i = 0; i < TABLE / row; i++) {
        const float *sums = (const float *)(const void *)(list->data + (size_t)n * row);
        uint32_t brought = 0;
        for (uint32_t k = 0; k < row / 4; k++) {
            float want = 0;
            brought = 0;
            for (uint32_t rank = 0; rank < WORKERS; rank++) {
                if ((part[rank].bits[i / 64] >> i % 64 & 1) != 0) {
                    float x = (float)part[rank].scale * part[rank].element[(size_t)i * row / 4 + k];
                    want = brought++ > 0 ? want + x : x;
                }
            }
            ck_assert(brought == 0 || memcmp(&sums[k], &want, sizeof want) == 0);
        }
        if (brought > 0) {
            ck_assert_int_eq(number[n++], i);
        }
    }
    ck_assert_uint_eq(n, list->count);
    free(number);
}

/* Of all sizes of rows and densities, whichever way is the cheaper one. */
START_TEST(test_densities)
{
    static const uint32_t rows[] = {4, 8, 12, 16, 192, 256, 3072}, percents[] = {0, 1, 4, 30, 90, 100};
    static const double scales[] = {1.0, -2.0, 0.5};
    struct part *part = calloc(WORKERS, sizeof *part);
    uint32_t row = rows[_i / 6], percent = percents[_i % 6];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        fill_part(&part[rank], row, rank == 2 && _i % 4 == 0 ? 100 : percent, _i % 2 == 0 ? 1.0 : scales[rank]);
        push_part(rank, &part[rank], row);
    }
    struct bps_row_list list;
    ck_assert_ptr_nonnull(result[0]);
    ck_assert(bps_rows_read(result[0]->payload, result[0]->payload_bytes, TABLE, row, &list));
    check_sums(&list, part, row);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        bps_sum_delivered(result[rank]);
        free(part[rank].element);
    }
    free(part);
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
        ck_assert_str_eq(text[rank], "worker 1 sent data that is not rows");
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
    header.length = _i == 3 ? 4 : _i == 4 ? (uint32_t)bps_rows_room(ROWS + 1, ROWS + 1, ROW) : 8;
    header.offset = _i == 5 ? 64 : 0;
    ck_assert_int_eq(rig_push(sum, 0, &header, NULL), BPS_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *bytes = tcase_create("bytes"), *sums = tcase_create("sums");
    tcase_add_loop_test(bytes, test_read, 0, 6);
    tcase_add_test(bytes, test_read_of_nothing);
    tcase_add_test(bytes, test_refused);
    tcase_add_test(bytes, test_refused_bits);
    tcase_add_checked_fixture(sums, setup, teardown);
    tcase_add_loop_test(sums, test_union, 0, 2);
    tcase_add_loop_test(sums, test_densities, 0, 7 * 6);
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
