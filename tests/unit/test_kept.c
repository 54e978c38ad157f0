/* SPDX-License-Identifier: Apache-2.0 */
/* test_kept.c - what a worker keeps of results and failures, for the heirs of a shard that is lost. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "shards/kept.h"

#define GRID   20004u
#define SLICES 16u
#define SHARD  1u

static struct bps_kept_store store;
static struct bps_tensor_entry tensor;
static struct bps_task task;
static struct bps_view view;

static void setup(void)
{
    bps_kept_init(&store, NULL);
    bps_pool_init(&store.pool, NULL, NULL, NULL); /* no transport is told */
    memset(&tensor, 0, sizeof tensor);
    view = (struct bps_view){.before = NULL};
    atomic_init(&view.holders, 1);
    tensor.id = 5;
    tensor.operation.view = &view;
    task = (struct bps_task){.tensor = &tensor, .partition = 2};
}

static void teardown(void)
{
    bps_kept_fini(&store);
    ck_assert_uint_eq(atomic_load(&view.holders), 1);
}

/* A round of so many bytes of the partition. */
static struct bps_kept *begin(uint32_t round, uint32_t bytes)
{
    tensor.round = round;
    task.whole = 3 * (uint64_t)bytes;
    task.bytes = bytes;
    struct bps_kept *kept = bps_kept_begin(&store, &task, SHARD, GRID);
    ck_assert_ptr_nonnull(kept);
    ck_assert_ptr_eq(kept, bps_kept_find(&store, tensor.id, task.partition));
    return kept;
}

/* Slice i has come, of these bytes, all of this value. */
static void comes(struct bps_kept *kept, uint32_t i, uint32_t bytes, uint8_t value)
{
    static uint8_t other[GRID];
    bool lands = value % 2 != 0; /* first in a block that is in the cache, to be copied to where it belongs as well */
    if (bytes > 0) {
        memset(lands ? bps_kept_land(&store, kept, i, bytes) : bps_kept_place(&store, kept, i, bytes), value, bytes);
    }
    kept->now.slice[i].bytes = bytes;
    if (bytes > 0 && lands) {
        bps_kept_landed(&store, kept, i, value % 4 == 1 ? other : NULL);
        ck_assert(value % 4 != 1 || (other[0] == value && other[bytes - 1] == value));
        ck_assert_ptr_null(kept->now.slice[i].landing);
    }
    bps_kept_whole(&store, kept, i, value);
}

static void expect_kept(const struct bps_kept *kept, uint32_t round, uint32_t i, uint32_t bytes, uint8_t value)
{
    const struct bps_kept_slice *slice = bps_kept_slice(kept, SHARD, round, i * GRID);
    ck_assert_ptr_nonnull(slice);
    ck_assert_uint_eq(slice->bytes, bytes);
    ck_assert_uint_eq(slice->flags, value);
    for (uint32_t k = 0; k < bytes; k++) {
        ck_assert_uint_eq(((const uint8_t *)slice->data)[k], value);
    }
}

static void expect_none(const struct bps_kept *kept, uint32_t round, uint32_t i)
{
    ck_assert_ptr_null(bps_kept_slice(kept, SHARD, round, i * GRID));
}

/* A round is kept until something of the next one comes, whichever slice that is. */
START_TEST(test_two_rounds)
{
    struct bps_kept *kept = begin(0, 3 * GRID);
    expect_none(kept, 0, 0);
    for (uint32_t i = 0; i < 3; i++) {
        comes(kept, 2 - i, GRID, (uint8_t)(2 - i));
        expect_none(kept, 0, 3);
        expect_none(kept, 1, 2 - i);
    }
    ck_assert_ptr_eq(begin(1, 3 * GRID), kept);
    for (uint32_t i = 0; i < 3; i++) {
        expect_kept(kept, 0, i, GRID, (uint8_t)i);
        expect_none(kept, 1, i);
    }
    ck_assert_uint_eq(kept->last.whole, 3);
    if (_i < 3) {
        comes(kept, (uint32_t)_i, GRID, 77);
    } else {
        bps_kept_place(&store, kept, 1, GRID); /* its bytes are on their way */
    }
    for (uint32_t i = 0; i < 3; i++) {
        expect_none(kept, 0, i);
        if (i == (uint32_t)_i) {
            expect_kept(kept, 1, i, GRID, 77);
        } else {
            expect_none(kept, 1, i);
        }
    }
    ck_assert_uint_eq(kept->last.whole, 0);
}
END_TEST

/* The blocks of a round are those of the next but one, or of the next: no more are had, however long it goes. */
START_TEST(test_blocks_are_used_again)
{
    uint64_t bytes = 0;
    for (uint32_t round = 0; round < 50; round++) {
        struct bps_kept *kept = begin(round, SLICES * GRID);
        for (uint32_t i = 0; i < SLICES; i++) {
            comes(kept, (i * 5 + round) % SLICES, GRID, (uint8_t)(round + i));
        }
        for (uint32_t i = 0; i < SLICES; i++) {
            expect_kept(kept, round, (i * 5 + round) % SLICES, GRID, (uint8_t)(round + i));
        }
        bytes = round == 1 ? store.pool.bytes : bytes;
        ck_assert(round < 2 || store.pool.bytes == bytes);
    }
}
END_TEST

/* Slices grow and shrink, as what is coded does; and there are more or fewer of them, or none with bytes. */
START_TEST(test_sizes_change)
{
    static const uint32_t sizes[] = {1, 7, 0, 16, 2, 1, 16, 0, 3};
    const uint32_t n = sizeof sizes / sizeof *sizes;
    for (uint32_t round = 0; round < 6 * n; round++) {
        uint32_t size = sizes[round * (1 + (uint32_t)_i) % n] * GRID;
        struct bps_kept *kept = begin(round, size);
        uint32_t slices = size > 0 ? size / GRID : 1;
        ck_assert_uint_eq(kept->now.slices, slices);
        ck_assert_uint_eq(kept->now.size, size);
        ck_assert_uint_eq(kept->now.bytes, 3 * (uint64_t)size);
        for (uint32_t i = 0; i < slices; i++) {
            expect_none(kept, round, i);
            uint32_t bytes = size > 0 ? 1 + (round * 377 + i * 91) % GRID : 0;
            comes(kept, i, bytes, (uint8_t)(round * 3 + i));
            expect_kept(kept, round, i, bytes, (uint8_t)(round * 3 + i));
        }
        expect_none(kept, round, slices);
        ck_assert_uint_eq(kept->now.whole, slices);
    }
}
END_TEST

/* A round that does not come to its end leaves the one before, unless something of it has come. */
START_TEST(test_a_round_that_fails)
{
    struct bps_kept *kept = begin(0, 2 * GRID);
    comes(kept, 0, GRID, 1);
    comes(kept, 1, GRID, 2);
    begin(1, 2 * GRID); /* nothing comes */
    begin(2, 2 * GRID);
    expect_kept(kept, 0, 0, GRID, 1);
    expect_kept(kept, 0, 1, GRID, 2);
    comes(kept, 1, GRID, 3); /* a part */
    expect_none(kept, 0, 0);
    expect_kept(kept, 2, 1, GRID, 3);
    begin(3, 2 * GRID);
    expect_none(kept, 2, 1); /* others know nothing that this worker would have */
    ck_assert_uint_eq(kept->last.whole + kept->now.whole, 0);
    comes(kept, 0, GRID, 4);
    comes(kept, 1, GRID, 5);
    begin(4, 2 * GRID);
    expect_kept(kept, 3, 0, GRID, 4);
}
END_TEST

/* A receiver of a broadcast asks for all of it once more. */
START_TEST(test_again)
{
    struct bps_kept *kept = begin(0, 3 * GRID);
    comes(kept, 0, GRID, 1);
    comes(kept, 2, GRID, 1);
    bps_kept_again(kept);
    for (uint32_t i = 0; i < 3; i++) {
        expect_none(kept, 0, i);
        comes(kept, i, GRID - i, 2);
    }
    for (uint32_t i = 0; i < 3; i++) {
        expect_kept(kept, 0, i, GRID - i, 2);
    }
}
END_TEST

/* ---- failures ---- */

static void fails(uint32_t round, const char *text)
{
    const struct bps_header poison = {
        .type = BPS_FRAME_POISON, .tensor = tensor.id, .partition = task.partition, .round = round};
    ck_assert_int_eq(bps_kept_fail(&store, &view, SHARD, &poison, text), BPS_OK);
}

/* They go when something comes of a later round: till then the heir hears of them in the order of rounds. */
START_TEST(test_failures)
{
    char text[] = "round 0";
    for (uint32_t round = 0; round < 4; round++) {
        text[6] = (char)('0' + round);
        fails(round, text);
    }
    struct bps_kept *kept = bps_kept_find(&store, 5, 2);
    ck_assert_ptr_nonnull(kept);
    ck_assert(!kept->begun && kept->failed == 4);
    uint32_t round = 0;
    const struct bps_kept_failure *failure;
    STAILQ_FOREACH(failure, &kept->failures, entry) {
        ck_assert_uint_eq(failure->poison.round, round);
        ck_assert_uint_eq(failure->shard, SHARD);
        ck_assert_uint_eq((uint32_t)(failure->text[6] - '0'), round++);
    }
    begin(4, GRID);
    comes(kept, 0, GRID, 1);
    begin(5, GRID);
    fails(5, "as well");
    begin(6, GRID);
    comes(kept, 0, GRID, 1); /* now all have ended round 5 */
    ck_assert_uint_eq(kept->failed, 0);
    ck_assert(STAILQ_EMPTY(&kept->failures));
    fails(7, "one more");
    ck_assert_uint_eq(kept->failed, 1);
}
END_TEST

/* Of very many that follow one another the last ones. */
START_TEST(test_many_failures)
{
    for (uint32_t round = 0; round < 5000; round++) {
        fails(round, "no");
    }
    const struct bps_kept *kept = bps_kept_find(&store, 5, 2);
    ck_assert_uint_eq(kept->failed, 1024);
    ck_assert_uint_eq(STAILQ_FIRST(&kept->failures)->poison.round, 5000 - 1024);
}
END_TEST

/* ---- calls without a name ---- */

static void unnamed(uint32_t kind, uint32_t number)
{
    tensor.named.unnamed = true;
    tensor.id = (kind == bps_unnamed_kind(BPS_ID_BARRIER) ? BPS_ID_BARRIER : BPS_ID_UNNAMED) | number;
    comes(begin(9, GRID), 0, GRID, (uint8_t)number);
    ck_assert_uint_eq(bps_kept_find(&store, tensor.id, 2)->now.round, 0);
}

/* They go by their numbers, also where these begin anew; named ones stay. */
START_TEST(test_release)
{
    const uint32_t first = _i == 0 ? 4 : BPS_ID_NUMBER - 4, n = 10;
    const uint32_t kind = bps_unnamed_kind(BPS_ID_UNNAMED), barrier = bps_unnamed_kind(BPS_ID_BARRIER);
    ck_assert_uint_ne(kind, barrier);
    comes(begin(0, GRID), 0, GRID, 1);
    for (uint32_t i = 0; i < n; i++) {
        unnamed(kind, (first + i) & BPS_ID_NUMBER);
        unnamed(barrier, (first + i) & BPS_ID_NUMBER);
    }
    bps_kept_release(&store, kind, first);
    for (uint32_t left = n; left > 0; left--) {
        ck_assert_uint_eq(HASH_COUNT(store.of), 1 + n + left);
        bps_kept_release(&store, kind, (first + n - left + 1) & BPS_ID_NUMBER);
        bps_kept_release(&store, kind, first); /* what is known already */
    }
    ck_assert(TAILQ_EMPTY(&store.unnamed[kind]));
    bps_kept_release(&store, barrier, (first + n + 100) & BPS_ID_NUMBER);
    ck_assert_uint_eq(HASH_COUNT(store.of), 1);
    ck_assert_ptr_nonnull(bps_kept_find(&store, 5, 2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kept");
    TCase *tests = tcase_create("kept");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_two_rounds, 0, 4);
    tcase_add_test(tests, test_blocks_are_used_again);
    tcase_add_loop_test(tests, test_sizes_change, 0, 4);
    tcase_add_test(tests, test_a_round_that_fails);
    tcase_add_test(tests, test_again);
    tcase_add_test(tests, test_failures);
    tcase_add_test(tests, test_many_failures);
    tcase_add_loop_test(tests, test_release, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
