/* SPDX-License-Identifier: Apache-2.0 */
/* reducer_beside.c - `byteps plugin bench` of a reducer: sums by its kernels and by those of cpu. */
#include <stdio.h>

#include "base/loop.h"
#include "bench/beside.h"
#include "bench/reducer.h"

static bps_status measure_kernel(void *side, const void *arg, double *out, struct bps_report *report)
{
    (void)report;
    *out = bps_bench_sums_measure(side, *(const enum bps_bench_sums_step *)arg);
    return BPS_OK;
}

static bps_status measure_type(const struct bps_bench_beside *beside, struct bps_bench_sums *sums,
                               struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (enum bps_bench_sums_step step = BPS_BENCH_FOLD; step < BPS_BENCH_SUMS_STEPS && status == BPS_OK; step++) {
        char name[40];
        snprintf(name, sizeof name, "%s %s", bps_bench_sums_names[step], bps_dtype_name(sums[0].dtype));
        const struct bps_bench_figure figure = {name,           sums[0].bytes,        BPS_BENCH_RATE,
                                                measure_kernel, {&sums[0], &sums[1]}, &step};
        status = bps_bench_in_turn(beside, &figure, report);
    }
    return status;
}

/* Whether both have kernels for a type, which are in `sums` then. */
static bool both_sum(struct bps_bench_sums *sums, struct bps_instance *const *reducers, uint32_t dtype)
{
    bool both = true;
    for (size_t i = 0; i < BPS_BENCH_SIDES; i++) {
        sums[i].dtype = dtype;
        both = bps_bench_sums_of(&sums[i], reducers[i]) && both;
    }
    return both;
}

/* The types that most gradients have; where it sums neither, the first one that it does. */
static bps_status measure_types(const struct bps_bench_beside *beside, struct bps_bench_sums *sums,
                                struct bps_instance *const *reducers, struct bps_report *report)
{
    const uint32_t usual = BPS_DTYPE_BIT(BPS_FLOAT32) | BPS_DTYPE_BIT(BPS_BFLOAT16);
    uint32_t has = 0, wanted;
    bps_status status = BPS_OK;
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        has |= both_sum(sums, reducers, dtype) ? BPS_DTYPE_BIT(dtype) : 0;
    }
    if (has == 0) {
        BPS_REPORT(report, "reducer %s sums no type that cpu sums", beside->name[BPS_BENCH_MEASURED]);
        return BPS_ERR_UNSUPPORTED;
    }
    wanted = (has & usual) != 0 ? has & usual : has & -has;
    for (uint32_t dtype = 0; dtype < BPS_DTYPES && status == BPS_OK; dtype++) {
        if ((wanted & BPS_DTYPE_BIT(dtype)) != 0 && both_sum(sums, reducers, dtype)) {
            bps_bench_sums_fill(&sums[0]);
            bps_bench_sums_fill(&sums[1]);
            status = measure_type(beside, sums, report);
        }
    }
    return status;
}

static bps_status measure_size(const struct bps_bench_beside *beside, size_t bytes,
                               struct bps_instance *const *reducers, struct bps_report *report)
{
    struct bps_bench_sums sums[BPS_BENCH_SIDES] = {{.bytes = 0}, {.bytes = 0}};
    bool first = bps_bench_sums_open(&sums[0], bytes), second = bps_bench_sums_open(&sums[1], bytes);
    bps_status status = BPS_ERR_NOMEM;
    if (first && second) {
        status = measure_types(beside, sums, reducers, report);
    }
    bps_bench_sums_close(&sums[0]);
    bps_bench_sums_close(&sums[1]);
    return status;
}

bps_status bps_bench_reducer_beside(struct bps_bench_beside *beside, struct bps_report *report)
{
    struct bps_instance *reducers[BPS_BENCH_SIDES] = {NULL, NULL};
    struct bps_loop *loop = bps_loop_new();
    bps_status status = loop != NULL ? BPS_OK : BPS_ERR_NOMEM;
    for (size_t i = 0; i < BPS_BENCH_SIDES && status == BPS_OK; i++) {
        status = bps_bench_beside_open(beside, i, loop, &reducers[i], report);
    }
    if (status == BPS_OK) {
        bps_bench_beside_head(beside);
    }
    for (uint32_t i = 0; i < beside->request->loads && status == BPS_OK; i++) {
        status = measure_size(beside, beside->request->load[i].elements * sizeof(float), reducers, report);
    }
    bps_instance_close(reducers[BPS_BENCH_REFERENCE]);
    bps_instance_close(reducers[BPS_BENCH_MEASURED]);
    bps_loop_free(loop);
    return status;
}
