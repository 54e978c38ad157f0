/* SPDX-License-Identifier: Apache-2.0 */
/* test_spare.c - memory that was given back serves again, and no more of it is kept than may be. */
#include <stdint.h>
#include <string.h>

#include "checks.h"
#include "wire/spare.h"

static struct bps_spare spare;

static void *take(size_t bytes)
{
    void *memory = bps_spare_take(&spare, bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % _Alignof(max_align_t), 0);
    memset(memory, 1, bytes);
    return memory;
}

START_TEST(test_serves_again)
{
    void *memory = take(1000);
    bps_spare_give(&spare, memory, 4000);
    ck_assert_uint_eq(spare.bytes, 1000);
    ck_assert_ptr_eq(take(10), memory);
    ck_assert_uint_eq(spare.bytes, 0);
    bps_spare_give(&spare, memory, 4000);
    ck_assert_ptr_eq(take(1000), memory); /* it still has room for all of it */
    bps_spare_give(&spare, memory, 4000);
    bps_spare_fini(&spare);
    ck_assert_uint_eq(spare.bytes, 0);
}
END_TEST

START_TEST(test_too_small)
{
    bps_spare_give(&spare, take(10), 4000);
    void *memory = take(1000);
    ck_assert_uint_eq(spare.bytes, 0);
    bps_spare_give(&spare, memory, 4000);
    ck_assert_uint_eq(spare.bytes, 1000);
    bps_spare_fini(&spare);
}
END_TEST

START_TEST(test_limit)
{
    void *memory[] = {take(1000), take(1000), take(1000), take(3000), take(10)};
    bps_spare_give(&spare, memory[0], 2000);
    bps_spare_give(&spare, memory[1], 2000);
    ck_assert_uint_eq(spare.bytes, 2000);
    bps_spare_give(&spare, memory[2], 2000);
    bps_spare_give(&spare, memory[3], 2000);
    bps_spare_give(&spare, memory[4], 0);
    ck_assert_uint_eq(spare.bytes, 2000);
    bps_spare_fini(&spare);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spare");
    TCase *tests = tcase_create("spare");
    tcase_add_test(tests, test_serves_again);
    tcase_add_test(tests, test_too_small);
    tcase_add_test(tests, test_limit);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
