/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c - the pool of an engine: transports hear of the memory that its blocks lie in. */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* The signal by which a process ends that touches this byte; 0: none. */
static int signal_of(volatile char *byte)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *byte = 1;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

START_TEST(test_guarded)
{
    static const size_t sizes[] = {1, 12, 255, 4096, 4100, 100000};
    struct bps_pool pool;
    bps_pools_guard(true);
    bps_pool_init(&pool, on_attach, on_detach, &attached);
    bps_pools_guard(false);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = bps_pool_get(&pool, sizes[i]), *other = bps_pool_get(&pool, sizes[i]);
        memset(block, 1, sizes[i]);
        memset(other, 2, sizes[i]);
        ck_assert_int_eq(signal_of(block + sizes[i]), SIGSEGV);
        ck_assert_int_eq(signal_of(block + sizes[i] - 1), 0);
        ck_assert_int_eq(block[0], 1);
        bps_pool_put(&pool, block, sizes[i]);
        ck_assert_int_eq(signal_of(block), SIGSEGV);
        ck_assert_int_eq(other[sizes[i] - 1], 2);
    }
    ck_assert_uint_eq(attached.bytes, 0);
    bps_pool_fini(&pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tests = tcase_create("pool");
    tcase_add_test(tests, test_regions);
    tcase_add_test(tests, test_guarded);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
