/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_roles.c - roles and sets of ranks; and that the engine sums by them alone: operations that are not in its table,
 * each a row here, among some of the workers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/loop.h"
#include "checks.h"
#include "sum/round.h"

#define WORKERS 3u
#define COUNT   700u /* elements of a block: several slices */
#define BYTES   ((uint32_t)(COUNT * sizeof(float)))
#define SLICE   1024u
#define FIRST   0u
#define SECOND  2u /* and worker 1 does not take part */

static struct bps_loop *loop;
static struct bps_instance *reducer;
static struct bps_ranks some;
static struct bps_sum *sum;

/* What each worker has got. */
static struct got {
    uint32_t slices, failures;
    float data[COUNT];
} got[WORKERS];

static bool is_even(const void *arg, uint32_t rank)
{
    (void)arg;
    return rank % 2 == 0;
}

static const struct bps_ranks *ranks_of(void *owner, const struct bps_round_id *id)
{
    (void)owner;
    return id->tensor == 1 ? &some : NULL;
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    got[rank].slices++;
    if (bps_sum_wants_data(slice, rank)) {
        memcpy((char *)got[rank].data + slice->offset, slice->payload, slice->bytes);
    }
    bps_sum_delivered(slice);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    got[rank].failures += notice->kind == BPS_NOTICE_FAILED;
}

static const struct bps_sum_events events = {.result = on_result, .notice = on_notice};

static void setup(void)
{
    struct bps_report report = {""};
    loop = bps_loop_new();
    ck_assert_msg(bps_instance_open(BPS_KIND_REDUCER, "cpu", "sum", NULL, "reducers.sum", loop, &reducer, &report) ==
                      BPS_OK,
                  "%s", report.text);
    ck_assert_int_eq(bps_ranks_init(&some, WORKERS, is_even, NULL), BPS_OK);
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = 4096,
                                          .slice = SLICE,
                                          .only = BPS_SUM_ALL,
                                          .ranks = ranks_of,
                                          .reducer = reducer,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
    memset(got, 0, sizeof got);
}

static void teardown(void)
{
    bps_sum_free(sum);
    bps_ranks_fini(&some);
    bps_instance_close(reducer);
    bps_loop_free(loop);
}

static struct bps_contribution contribution(uint8_t kind, uint32_t op, uint32_t block)
{
    return (struct bps_contribution){.id = {.tensor = 1, .partition = block, .round = 0},
                                     .spec = {.bytes = BYTES,
                                              .roles = bps_kind_roles(&bps_kinds[kind], SECOND, block, WORKERS),
                                              .dtype = BPS_FLOAT32,
                                              .op = (uint8_t)op,
                                              .kind = kind,
                                              .postscale = 1.0},
                                     .prescale = 1.0,
                                     .size = BYTES};
}

/* A worker takes part in a partition: it brings this value in each element, or asks for what others bring. */
static void take_part(uint32_t rank, struct bps_contribution c, float value)
{
    struct bps_sum_cursor cursor;
    float data[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        data[i] = value;
    }
    if (!bps_brings(&c.spec.roles, rank)) {
        c.empty = true;
        ck_assert_int_eq(bps_sum_push(sum, rank, &c, &cursor), BPS_OK);
        return;
    }
    for (c.offset = 0; c.offset < BYTES; c.offset += SLICE) {
        c.length = BYTES - c.offset < SLICE ? BYTES - c.offset : SLICE;
        ck_assert_int_eq(bps_sum_push(sum, rank, &c, &cursor), BPS_OK);
        ck_assert_uint_eq(bps_sum_take(&cursor.sink, 0, (char *)data + c.offset, c.length), c.length);
    }
}

static void check_got(uint32_t rank, uint32_t partitions, float value)
{
    ck_assert_uint_eq(got[rank].slices, partitions * ((BYTES + SLICE - 1) / SLICE));
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert_float_eq(got[rank].data[i], value);
    }
}

START_TEST(test_the_table)
{
    char text[40];
    struct bps_roles roles = bps_kind_roles(&bps_kinds[BPS_KIND_BROADCAST], 2, 5, 9);
    ck_assert(!bps_sums(&roles) && bps_brings(&roles, 2) && !bps_brings(&roles, 1));
    ck_assert(bps_gets(&roles, 1) && !bps_gets(&roles, 2));
    roles = bps_kind_roles(&bps_kinds[BPS_KIND_PUSH_PULL], 0, 0, 9);
    ck_assert(bps_sums(&roles) && bps_brings(&roles, 7) && bps_gets(&roles, 7));
    roles = bps_kind_roles(&bps_kinds[BPS_KIND_ALL_TO_ALL], 0, 9 * 4 + 7, 9);
    ck_assert(roles.from == 4 && roles.to == 7);
    ck_assert_uint_eq(bps_kind_blocks(&bps_kinds[BPS_KIND_REDUCE], 9), 1);
    ck_assert_uint_eq(bps_kind_blocks(&bps_kinds[BPS_KIND_GATHER], 9), 9);
    ck_assert_uint_eq(bps_kind_blocks(&bps_kinds[BPS_KIND_ALL_TO_ALL], 9), 81);
    bps_operation_text(BPS_KIND_REDUCE_SCATTER, BPS_MAX, text, sizeof text);
    ck_assert_str_eq(text, "reduce_scatter by max");
    bps_operation_text(BPS_KIND_PUSH_PULL, BPS_SUM, text, sizeof text);
    ck_assert_str_eq(text, "sum");
}
END_TEST

START_TEST(test_the_wire)
{
    uint8_t kind, op;
    for (uint32_t k = 0; k < BPS_KINDS; k++) {
        for (uint32_t o = 0; o < BPS_WIRE_OPS; o++) {
            bool known = k > BPS_KIND_BROADCAST || (k == BPS_KIND_BROADCAST) == (o == BPS_WIRE_BROADCAST);
            ck_assert(!known || (bps_op_read(bps_op_write(k, o), &kind, &op) && kind == k && op == o));
        }
    }
    ck_assert(!bps_op_read(BPS_WIRE_OPS, &kind, &op) && !bps_op_read(BPS_KINDS << 3, &kind, &op));
    ck_assert(!bps_op_read(BPS_KIND_BROADCAST << 3, &kind, &op) && !bps_op_read(UINT8_MAX, &kind, &op));
    const struct bps_roles all[] = {{BPS_EVERYBODY, BPS_EVERYBODY}, {BPS_EVERYBODY, 0}, {BPS_EVERYBODY, 70}};
    for (size_t i = 0; i < 3; i++) {
        struct bps_roles roles = bps_roles_read(BPS_SUM, bps_roles_write(&all[i]));
        ck_assert(roles.from == all[i].from && roles.to == all[i].to);
    }
    const struct bps_roles moved = {7, 65534}, root = {100000, BPS_EVERYBODY};
    struct bps_roles roles = bps_roles_read(BPS_WIRE_BROADCAST, bps_roles_write(&moved));
    ck_assert(roles.from == 7 && roles.to == 65534);
    roles = bps_roles_read(BPS_WIRE_BROADCAST, bps_roles_write(&root));
    ck_assert(roles.from > 65000 && roles.to == BPS_EVERYBODY); /* of no job */
}
END_TEST

START_TEST(test_sets_of_ranks)
{
    ck_assert_uint_eq(some.n, 2);
    ck_assert(some.rank[0] == FIRST && some.rank[1] == SECOND && some.slot[SECOND] == 1);
    ck_assert(bps_ranks_has(&some, FIRST) && !bps_ranks_has(&some, 1) && !bps_ranks_has(&some, WORKERS));
}
END_TEST

START_TEST(test_all_gather_over_two_of_three)
{
    for (uint32_t block = FIRST; block <= SECOND; block += SECOND) {
        const struct bps_contribution c = contribution(BPS_KIND_ALL_GATHER, BPS_WIRE_BROADCAST, block);
        take_part(FIRST, c, 10);
        take_part(SECOND, c, 20);
    }
    check_got(FIRST, 2, 20);
    check_got(SECOND, 2, 10);
    ck_assert_uint_eq(got[1].slices, 0);
}
END_TEST

START_TEST(test_reduce_scatter_gives_each_its_block)
{
    for (uint32_t block = FIRST; block <= SECOND; block += SECOND) {
        const struct bps_contribution c = contribution(BPS_KIND_REDUCE_SCATTER, BPS_AVERAGE, block);
        take_part(FIRST, c, 10 + (float)block);
        take_part(SECOND, c, 20 + (float)block);
    }
    check_got(FIRST, 2, 15); /* by two: of worker 1 there is nothing */
    check_got(SECOND, 2, 17);
}
END_TEST

START_TEST(test_reduce_gives_the_root_the_sum)
{
    const struct bps_contribution c = contribution(BPS_KIND_REDUCE, BPS_SUM, 0);
    take_part(SECOND, c, 1);
    take_part(FIRST, c, 2);
    check_got(SECOND, 1, 3);
    check_got(FIRST, 1, 0);
}
END_TEST

/* Of all workers two take part, and a third one that believes so is told. */
START_TEST(test_one_sends_to_another)
{
    struct bps_contribution c = contribution(BPS_KIND_SCATTER, BPS_WIRE_BROADCAST, 1);
    struct bps_sum_cursor cursor;
    c.id.tensor = 2;
    take_part(1, c, 0);
    struct bps_contribution stranger = c;
    stranger.empty = true;
    ck_assert_int_eq(bps_sum_push(sum, FIRST, &stranger, &cursor), BPS_OK);
    ck_assert_uint_eq(got[FIRST].failures, 1);
    take_part(SECOND, c, 5);
    check_got(1, 1, 5);
    check_got(SECOND, 1, 0);
    ck_assert_uint_eq(got[1].failures + got[SECOND].failures + got[FIRST].slices, 0);
    c.spec.roles.to = c.spec.roles.from;
    ck_assert_int_eq(bps_sum_push(sum, SECOND, &c, &cursor), BPS_ERR_PROTOCOL);
    c.spec.kind = BPS_KIND_BROADCAST; /* which all get */
    ck_assert_int_eq(bps_sum_push(sum, SECOND, &c, &cursor), BPS_ERR_PROTOCOL);
}
END_TEST

START_TEST(test_who_does_not_take_part_is_refused_and_may_leave)
{
    const struct bps_contribution c = contribution(BPS_KIND_REDUCE, BPS_SUM, 0);
    struct bps_contribution push = c;
    struct bps_sum_cursor cursor;
    push.length = SLICE;
    ck_assert_int_eq(bps_sum_push(sum, 1, &push, &cursor), BPS_ERR_PROTOCOL);
    take_part(SECOND, c, 1);
    bps_sum_leave(sum, 1);
    bps_sum_gone(sum, 1);
    take_part(FIRST, c, 2);
    check_got(SECOND, 1, 3);
    ck_assert_uint_eq(got[SECOND].failures, 0);
}
END_TEST

START_TEST(test_who_takes_part_and_is_lost_fails_the_round)
{
    take_part(SECOND, contribution(BPS_KIND_REDUCE, BPS_SUM, 0), 1);
    bps_sum_gone(sum, FIRST);
    ck_assert_uint_eq(got[SECOND].failures, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roles");
    TCase *tests = tcase_create("roles");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_the_table);
    tcase_add_test(tests, test_the_wire);
    tcase_add_test(tests, test_one_sends_to_another);
    tcase_add_test(tests, test_sets_of_ranks);
    tcase_add_test(tests, test_all_gather_over_two_of_three);
    tcase_add_test(tests, test_reduce_scatter_gives_each_its_block);
    tcase_add_test(tests, test_reduce_gives_the_root_the_sum);
    tcase_add_test(tests, test_who_does_not_take_part_is_refused_and_may_leave);
    tcase_add_test(tests, test_who_takes_part_and_is_lost_fails_the_round);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
