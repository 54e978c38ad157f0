/* SPDX-License-Identifier: Apache-2.0 */
/* collectives_byteps.c - a worker that makes the operations of bench/collectives. Started by `byteps run`. */
#include <byteps/collectives.h>
#include <byteps/groups.h>

#include "operations.h"

static void check(bps_status status, const struct bps_report *report)
{
    if (status < 0) {
        bench_fail("%s: %s", bps_strerror(status), report->text);
    }
}

/* The two that are older than struct bps_collective, in place and with a name, as a gradient has one. */
static void run_named(const struct bench_operation *one)
{
    struct bps_report report = {""};
    bps_handle handle;
    struct bps_push_pull request = {
        .size = sizeof request,
        .in = one->in,
        .out = one->in,
        .count = one->count,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
    char name[40];

    snprintf(name, sizeof name, "%lu", one->count);
    if (one->kind == BENCH_PUSH_PULL) {
        request.name = name; /* so that its parts have their places */
        check(bps_push_pull(&request, BPS_FOREVER, &handle, &report), &report);
    } else {
        check(bps_broadcast_async(&request, (uint32_t)one->root, &handle, &report), &report);
        check(bps_wait(handle, BPS_FOREVER, &report), &report);
    }
}

static void run_message(const struct bench_operation *one)
{
    struct bps_report report = {""};
    struct bps_collective request = {
        .size = sizeof request,
        .in = one->in,
        .out = one->out,
        .count = one->count,
        .dtype = BPS_FLOAT32,
        .root = (uint32_t)(1 - one->rank),
    };

    check(one->rank == one->root ? bps_send(&request, &report) : bps_recv(&request, &report), &report);
}

static void run_blocks(const struct bench_operation *one)
{
    static bps_status (*const call[BENCH_KINDS])(const struct bps_collective *request, struct bps_report *report) = {
        [BENCH_REDUCE] = bps_reduce,         [BENCH_REDUCE_SCATTER] = bps_reduce_scatter,
        [BENCH_ALL_GATHER] = bps_all_gather, [BENCH_GATHER] = bps_gather,
        [BENCH_SCATTER] = bps_scatter,       [BENCH_ALL_TO_ALL] = bps_all_to_all,
    };
    struct bps_report report = {""};
    struct bps_collective request = {
        .size = sizeof request,
        .in = one->in,
        .out = one->kind == BENCH_REDUCE ? one->in : one->out,
        .count = one->kind == BENCH_REDUCE ? one->count : one->block,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .root = (uint32_t)one->root,
    };

    check(call[one->kind](&request, &report), &report);
}

static void run(const struct bench_operation *one)
{
    if (one->kind == BENCH_PUSH_PULL || one->kind == BENCH_BROADCAST) {
        run_named(one);
    } else if (one->kind == BENCH_SEND) {
        run_message(one);
    } else {
        run_blocks(one);
    }
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};

    check(bps_init(NULL, &report), &report);
    bench_operations_serve(argc, argv, bps_rank(), bps_size(), run);
    check(bps_shutdown(&report), &report);
    return 0;
}
