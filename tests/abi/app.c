/* SPDX-License-Identifier: Apache-2.0 */
/*
 * app.c - one of two workers, built with the headers of some version and run with this library: says "ok", or what is
 * wrong. The job has a stage that halves float32, and a coding of the tensor "coded" that keeps small numbers.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/collectives.h>
#include <byteps/plugin.h>
#include <byteps/sparse.h>
#if BPS_ABI_MINOR >= 1
#include <byteps/groups.h>
#endif

#define COUNT   1000
#define WORKERS 2

static struct bps_report report;

static void check(bool right, const char *what)
{
    if (!right) {
        printf("%s: %s\n", what, report.text);
        exit(EXIT_FAILURE);
    }
}

static struct bps_push_pull request(const char *name, void *values, uint32_t dtype, uint32_t op)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .name = name,
        .in = values,
        .out = values,
        .count = COUNT,
        .dtype = dtype,
        .op = op,
        .prescale = 1,
        .postscale = 1,
    };
}

static void run(const struct bps_push_pull *r, const char *what)
{
    bps_handle handle;
    check(bps_push_pull_async(r, &handle, &report) == BPS_OK, what);
    check(bps_wait(handle, BPS_FOREVER, &report) == BPS_OK, what);
}

static void check_declarations(void)
{
    const struct bps_declaration both[] = {
        {.size = sizeof both[0], .name = "plain", .count = COUNT, .dtype = BPS_FLOAT32},
        {.size = sizeof both[0], .name = "coded", .count = COUNT, .dtype = BPS_FLOAT32},
    };
    bps_tensor tensors[2] = {0, 0};
    check(bps_declare(both, 2, tensors, &report) == BPS_OK, "declare");
    check(tensors[0] != 0 && tensors[1] != 0 && tensors[0] != tensors[1], "the tensors");
}

static void check_sums(void)
{
    static float values[COUNT];
    static const char *const names[] = {"plain", "coded"};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < COUNT; k++) {
            values[k] = (float)(1 + bps_rank());
        }
        const struct bps_push_pull r = request(names[i], values, BPS_FLOAT32, BPS_SUM);
        run(&r, names[i]);
        for (int k = 0; k < COUNT; k++) {
            check(values[k] == 1.5f, "a sum is wrong");
        }
    }
    static int64_t integers[COUNT];
    integers[COUNT - 1] = bps_rank();
    struct bps_push_pull largest = request(NULL, integers, BPS_INT64, BPS_MAX);
    check(bps_push_pull(&largest, BPS_FOREVER, NULL, &report) == BPS_OK, "max");
    check(integers[COUNT - 1] == WORKERS - 1, "a maximum is wrong");
}

static void check_rows(void)
{
    const int64_t shape[] = {COUNT / 4, 4};
    const int64_t index[] = {7, 3 + bps_rank()};
    float values[] = {1, 1, 1, 1, 2, 2, 2, 2};
    struct bps_rows rows = {.size = sizeof rows, .count = 2, .index = index};
    struct bps_push_pull r = request("rows", values, BPS_FLOAT32, BPS_SUM);
    r.out = NULL;
    r.ndim = 2;
    r.shape = shape;
    r.rows = &rows;
    run(&r, "rows");
    check(rows.out_count == 3 && rows.out_index[2] == 7 && ((float *)rows.out)[8] == 2, "rows are wrong");
    bps_rows_free(&rows);
}

static void check_collectives(void)
{
    int32_t own = 10 + bps_rank(), all[WORKERS] = {0};
    const struct bps_collective gather = {
        .size = sizeof gather, .in = &own, .out = all, .count = 1, .dtype = BPS_INT32};
    check(bps_all_gather(&gather, &report) == BPS_OK, "all_gather");
    check(all[0] == 10 && all[1] == 11, "what all_gather has gathered is wrong");
}

#if BPS_ABI_MINOR >= 1
static void check_groups(void)
{
    static const uint32_t reversed[] = {1, 0};
    int32_t own = bps_rank(), all[WORKERS] = {0};
    struct bps_collective gather = {.size = sizeof gather, .in = &own, .out = all, .count = 1, .dtype = BPS_INT32};
    check(bps_group_new(reversed, WORKERS, &gather.group, &report) == BPS_OK, "a group");
    check(bps_all_gather(&gather, &report) == BPS_OK, "all_gather of a group");
    check(all[0] == 1 && all[1] == 0, "what a group has gathered is wrong");
}
#else
static void check_groups(void)
{
}
#endif

/* What this library does not know must not be set. */
static void check_newer(void)
{
#ifdef NEWER
    static float value;
    struct bps_push_pull r = request("newer", &value, BPS_FLOAT32, BPS_SUM);
    r.of_a_newer_minor = 1;
    check(bps_push_pull(&r, BPS_FOREVER, NULL, &report) == BPS_ERR_UNSUPPORTED, "something newer");
#endif
}

/* Of no version. */
static void check_wrong_sizes(void)
{
    static float value;
    const struct bps_declaration declaration = {.size = 0, .name = "wrong"};
    const struct bps_collective collective = {.size = sizeof collective.size};
    struct bps_push_pull r = request("wrong", &value, BPS_FLOAT32, BPS_SUM);
    r.size = 8;
    check(bps_push_pull(&r, BPS_FOREVER, NULL, &report) == BPS_ERR_INVALID, "a size of 8");
    check(strstr(report.text, "the size of struct bps_push_pull is 8") != NULL, "the text");
    check(bps_push_pull(NULL, BPS_FOREVER, NULL, &report) == BPS_ERR_INVALID, "NULL");
    check(bps_declare(&declaration, 1, NULL, &report) == BPS_ERR_INVALID, "a declaration of size 0");
    check(bps_all_gather(&collective, &report) == BPS_ERR_INVALID, "a collective of size 8");
}

/* What lies behind the struct that this program knows is its own. */
static void check_lateness(void)
{
    struct {
        struct bps_worker_lateness late;
        char behind[64];
    } out = {.late = {.size = sizeof out.late}, .behind = "mine"};
    check(bps_lateness(0, &out.late, &report) == BPS_OK, "lateness");
    check(out.late.size == sizeof out.late && out.behind[0] == 'm' && out.behind[5] == 0, "lateness is too large");
}

int main(void)
{
    const struct bps_init_options options = {.size = sizeof options};
    check(bps_init(&options, &report) == BPS_OK, "init");
    check(bps_size() == WORKERS, "the number of workers");
    check_declarations();
    check_sums();
    check_rows();
    check_collectives();
    check_groups();
    check_newer();
    check_wrong_sizes();
    check_lateness();
    check(bps_shutdown(&report) == BPS_OK, "shutdown");
    printf("ok\n");
    return EXIT_SUCCESS;
}
