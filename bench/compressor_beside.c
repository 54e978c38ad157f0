/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_beside.c - `byteps plugin bench` of a compressor: beside that of ours which codes the same elements to
 * nearly as many bytes, as one that sends a thirtieth does other work than one that sends half.
 */
#include <math.h>
#include <string.h>

#include "base/loop.h"
#include "bench/beside.h"
#include "bench/compressor.h"
#include "tools/normal.h"

static const char *const ours[] = {"block", "cast", "dithering", "lossless", "onebit", "randomk", "topk"};

enum { SAMPLE = 1 << 14 }; /* elements */

/* ---- figures ---- */

static bps_status measure_step(void *side, const void *arg, double *out, struct bps_report *report)
{
    (void)report;
    *out = bps_bench_coding_measure(side, *(const enum bps_bench_coding_step *)arg);
    return BPS_OK;
}

static bps_status measure_share(void *side, const void *arg, double *out, struct bps_report *report)
{
    const struct bps_bench_coding *coding = side;
    (void)arg;
    (void)report;
    *out = (double)coding->coded_bytes / (double)coding->bytes;
    return BPS_OK;
}

static bps_status measure_error(void *side, const void *arg, double *out, struct bps_report *report)
{
    (void)arg;
    (void)report;
    *out = bps_bench_coding_error(side);
    return BPS_OK;
}

/* ---- with buffers ---- */

/* Buffers of normally distributed elements, coded once. */
static bps_status open_coding(const struct bps_instance *compressor, size_t count, struct bps_bench_coding *out,
                              struct bps_report *report)
{
    const struct bps_compressor_ops *ops = compressor->ops;
    const struct bps_random random = {.shared = 1, .own = 2};
    *out = (struct bps_bench_coding){.ops = ops, .self = compressor->self};
    if (ops->bound(compressor->self, BPS_FLOAT32, 1) == 0) {
        BPS_REPORT(report, "compressor %s does not code float32, which is what is measured",
                   compressor->loaded->plugin->name);
        return BPS_ERR_UNSUPPORTED;
    }
    if (!bps_bench_coding_open(out, count)) {
        return BPS_ERR_NOMEM;
    }
    bps_normal(out->src, count, 1);
    out->coded_bytes = ops->encode(out->self, BPS_FLOAT32, out->src, count, &random, out->coded);
    if (ops->decode(out->self, BPS_FLOAT32, out->coded, out->coded_bytes, out->dst, count) != BPS_OK) {
        BPS_REPORT(report, "compressor %s refuses to decode what it has coded: see 'byteps plugin check'",
                   compressor->loaded->plugin->name);
        return BPS_ERR_PLUGIN;
    }
    return BPS_OK;
}

static bps_status measure_all(const struct bps_bench_beside *beside, struct bps_bench_coding *coding,
                              struct bps_report *report)
{
    static const enum bps_bench_coding_step steps[] = {BPS_BENCH_ENCODE, BPS_BENCH_DECODE, BPS_BENCH_DECODE_ADD};
    const struct bps_bench_figure figures[] = {
        {"coded, of the bytes", 0, BPS_BENCH_SHARE, measure_share, {NULL, NULL}, NULL},
        {"error, relative", 0, BPS_BENCH_SHARE, measure_error, {NULL, NULL}, NULL},
        {"encode", 0, BPS_BENCH_RATE, measure_step, {NULL, NULL}, &steps[0]},
        {"decode", 0, BPS_BENCH_RATE, measure_step, {NULL, NULL}, &steps[1]},
        {"decode_add", 0, BPS_BENCH_RATE, measure_step, {NULL, NULL}, &steps[2]},
    };
    bps_status status = BPS_OK;
    for (size_t i = 0; i < sizeof figures / sizeof *figures && status == BPS_OK; i++) {
        struct bps_bench_figure figure = figures[i];
        figure.bytes = coding[0].bytes;
        figure.side[0] = &coding[0];
        figure.side[1] = &coding[1];
        status = bps_bench_in_turn(beside, &figure, report);
    }
    return status;
}

static bps_status measure_size(const struct bps_bench_beside *beside, size_t count,
                               struct bps_instance *const *compressors, struct bps_report *report)
{
    struct bps_bench_coding coding[BPS_BENCH_SIDES];
    bps_status status = BPS_OK;
    memset(coding, 0, sizeof coding);
    for (size_t i = 0; i < BPS_BENCH_SIDES && status == BPS_OK; i++) {
        status = open_coding(compressors[i], count, &coding[i], report);
    }
    if (status == BPS_OK) {
        status = measure_all(beside, coding, report);
    }
    bps_bench_coding_close(&coding[BPS_BENCH_REFERENCE]);
    bps_bench_coding_close(&coding[BPS_BENCH_MEASURED]);
    return status;
}

/* ---- which one of ours ---- */

static bps_status share_of(const struct bps_instance *compressor, double *out, struct bps_report *report)
{
    struct bps_bench_coding coding;
    bps_status status = open_coding(compressor, SAMPLE, &coding, report);
    *out = status == BPS_OK ? (double)coding.coded_bytes / (double)coding.bytes : 0;
    bps_bench_coding_close(&coding);
    return status;
}

/* Opens the nearest one by the ratio of coded bytes. One that does not work here is passed over. */
static bps_status open_nearest(struct bps_bench_beside *beside, struct bps_loop *loop, double share,
                               struct bps_instance **out, struct bps_report *report)
{
    double nearest = INFINITY;
    const char *found = NULL;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        struct bps_instance *other = NULL;
        double its = 0;
        beside->name[BPS_BENCH_REFERENCE] = ours[i];
        if (strcmp(ours[i], beside->name[BPS_BENCH_MEASURED]) != 0 &&
            bps_bench_beside_open(beside, BPS_BENCH_REFERENCE, loop, &other, report) == BPS_OK &&
            share_of(other, &its, report) == BPS_OK && fabs(log(its / share)) < nearest) {
            nearest = fabs(log(its / share));
            found = ours[i];
        }
        bps_instance_close(other);
    }
    if (found == NULL) {
        BPS_REPORT(report, "there is no compressor of BytePS to compare with; 'byteps plugin list' shows what is "
                           "installed");
        return BPS_ERR_UNSUPPORTED;
    }
    beside->name[BPS_BENCH_REFERENCE] = found;
    return bps_bench_beside_open(beside, BPS_BENCH_REFERENCE, loop, out, report);
}

bps_status bps_bench_compressor_beside(struct bps_bench_beside *beside, struct bps_report *report)
{
    struct bps_instance *compressors[BPS_BENCH_SIDES] = {NULL, NULL};
    struct bps_loop *loop = bps_loop_new();
    double share = 0;
    bps_status status = loop != NULL ? BPS_OK : BPS_ERR_NOMEM;
    if (status == BPS_OK) {
        status = bps_bench_beside_open(beside, BPS_BENCH_MEASURED, loop, &compressors[BPS_BENCH_MEASURED], report);
    }
    if (status == BPS_OK) {
        status = share_of(compressors[BPS_BENCH_MEASURED], &share, report);
    }
    if (status == BPS_OK) {
        status = open_nearest(beside, loop, share, &compressors[BPS_BENCH_REFERENCE], report);
    }
    if (status == BPS_OK) {
        bps_bench_beside_head(beside);
    }
    for (uint32_t i = 0; i < beside->request->loads && status == BPS_OK; i++) {
        status = measure_size(beside, beside->request->load[i].elements, compressors, report);
    }
    bps_instance_close(compressors[BPS_BENCH_REFERENCE]);
    bps_instance_close(compressors[BPS_BENCH_MEASURED]);
    bps_loop_free(loop);
    return status;
}
