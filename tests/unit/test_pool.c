/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c - the pool of an engine: transports hear of the memory that its blocks lie in. */

#include "checks.h"
#include "sum/pool.h"

static struct bps_region attached;

static void on_attach(void *owner, const struct bps_region *region)
{
    ck_assert_ptr_eq(owner, &attached);
    ck_assert_uint_eq(attached.bytes, 0);
    attached = *region;
}

static void on_detach(void *owner, const struct bps_region *region)
{
    ck_assert_ptr_eq(owner, &attached);
    ck_assert_ptr_eq(region->memory, attached.memory);
    attached.bytes = 0;
}

START_TEST(test_regions)
{
    struct bps_pool pool;
    bps_pool_init(&pool, on_attach, on_detach, &attached);
    ck_assert_ptr_nonnull(bps_pool_get(&pool, 300));
    ck_assert_uint_eq(attached.bytes, 0); /* too small to be worth it */
    const char *block = bps_pool_get(&pool, 64 << 10), *memory = attached.memory;
    ck_assert_uint_eq((uintptr_t)memory % 4096, 0);
    ck_assert(block >= memory && block + (64 << 10) <= memory + attached.bytes);
    bps_pool_fini(&pool);
    ck_assert_uint_eq(attached.bytes, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tests = tcase_create("pool");
    tcase_add_test(tests, test_regions);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
