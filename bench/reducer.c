/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer.c - `byteps bench reducer`: the kernels of the configured reducer on one thread.
 *
 * A rate counts the bytes that a kernel reads and writes. Beside it stands how near it comes, in the same rounds, to
 * a plain loop that moves the same bytes: as many streams of the same widths, with hardly any arithmetic. 1.00 is the
 * memory's limit, or that of the cache in which the buffers lie.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>
#include <byteps/reducer.h>

#include "base/clock.h"
#include "base/loop.h"
#include "plugin/use.h"
#include "bench/bench.h"
#include "bench/plain.h"
#include "bench/reducer.h"
#include "tools/plan.h"

#define NAME        BPS_BENCH_NAME
#define ROUND_BYTES (64u << 20) /* small buffers are gone through again and again */

const char *const bps_bench_sums_names[BPS_BENCH_SUMS_STEPS] = {"copy", "fold", "reduce", "reduce4", "finish"};

/* The width of an accumulator's element, in those of a source. */
static size_t widening(const struct bps_bench_sums *m)
{
    return bps_dtype_size(m->kernels.accumulator) / bps_dtype_size(m->dtype);
}

static void run_kernel(const struct bps_bench_sums *m, enum bps_bench_sums_step step)
{
    const void *const sources[2] = {m->a, m->b};
    const void *const in_place[4] = {m->dst, m->a, m->b, m->acc};
    switch (step) {
    case BPS_BENCH_FOLD:
        m->kernels.fold(m->kernels.context, m->acc, m->a, m->count, 1);
        break;
    case BPS_BENCH_REDUCE:
        m->kernels.reduce(m->kernels.context, m->dst, sources, NULL, 2, m->count, 1, 1);
        break;
    case BPS_BENCH_REDUCE_MANY:
        m->kernels.reduce(m->kernels.context, m->dst, in_place, NULL, 4, m->count, 1, 1);
        break;
    case BPS_BENCH_FINISH:
        m->kernels.finish(m->kernels.context, m->dst, m->acc, m->count, 1, 1);
        break;
    default:
        memcpy(m->dst, m->a, m->bytes);
    }
}

static void run_plain(const struct bps_bench_sums *m, enum bps_bench_sums_step step)
{
    switch (step) {
    case BPS_BENCH_FOLD:
        bps_plain_fold(m->acc, m->a, m->bytes, widening(m));
        break;
    case BPS_BENCH_REDUCE:
        bps_plain_reduce(m->dst, m->a, m->b, m->bytes);
        break;
    case BPS_BENCH_REDUCE_MANY:
        bps_plain_reduce_many(m->dst, m->a, m->b, m->acc, m->bytes);
        break;
    case BPS_BENCH_FINISH:
        bps_plain_finish(m->dst, m->acc, m->bytes, widening(m));
        break;
    default:
        memcpy(m->dst, m->a, m->bytes);
    }
}

/* Bytes read and written. */
static double traffic(const struct bps_bench_sums *m, enum bps_bench_sums_step step)
{
    double source = (double)m->bytes, accumulator = source * (double)widening(m);
    const double bytes[BPS_BENCH_SUMS_STEPS] = {
        [BPS_BENCH_SUMS_COPY] = 2 * source,        [BPS_BENCH_FOLD] = source + 2 * accumulator,
        [BPS_BENCH_REDUCE] = 3 * source,           [BPS_BENCH_REDUCE_MANY] = 5 * source,
        [BPS_BENCH_FINISH] = accumulator + source,
    };
    return bytes[step];
}

/* Bytes per second. The first time does not count: so what ran before leaves no trace in the caches. */
static double measure(const struct bps_bench_sums *m, enum bps_bench_sums_step step,
                      void (*run)(const struct bps_bench_sums *m, enum bps_bench_sums_step step))
{
    size_t repeats = m->bytes < ROUND_BYTES ? ROUND_BYTES / m->bytes : 1;
    run(m, step);
    uint64_t begin = bps_now();
    for (size_t i = 0; i < repeats; i++) {
        run(m, step);
    }
    return traffic(m, step) * (double)repeats / ((double)(bps_now() - begin) * 1e-9);
}

bool bps_bench_sums_of(struct bps_bench_sums *m, const struct bps_instance *reducer)
{
    const struct bps_reducer_ops *ops = reducer->ops;
    BPS_ROOMY(bps_kernels) kernels = {{0}};
    bps_status status = ops->kernels(reducer->self, BPS_SUM, m->dtype, &kernels.it);
    m->kernels = kernels.it;
    m->count = m->bytes / bps_dtype_size(m->dtype);
    return status == BPS_OK;
}

void bps_bench_sums_fill(struct bps_bench_sums *m)
{
    int byte = m->dtype == BPS_BOOL ? 1 : 0x3c;
    memset(m->a, byte, m->bytes);
    memset(m->b, byte, m->bytes);
    memset(m->dst, byte, m->bytes);
    memset(m->acc, byte, m->count * bps_dtype_size(m->kernels.accumulator));
}

double bps_bench_sums_measure(const struct bps_bench_sums *m, enum bps_bench_sums_step step)
{
    return measure(m, step, run_kernel);
}

struct row {
    double rate[BPS_BENCH_SUMS_STEPS];  /* medians */
    double ratio[BPS_BENCH_SUMS_STEPS]; /* median of the rate over that of the plain loop in the same round */
};

static void measure_type(struct bps_bench_sums *m, size_t rounds, struct row *out)
{
    double *rates = bps_cmd_alloc(BPS_BENCH_SUMS_STEPS * rounds, sizeof *rates);
    double *ratios = bps_cmd_alloc(BPS_BENCH_SUMS_STEPS * rounds, sizeof *ratios);
    bps_bench_sums_fill(m);
    for (size_t i = 0; i < rounds; i++) {
        for (enum bps_bench_sums_step step = BPS_BENCH_SUMS_COPY; step < BPS_BENCH_SUMS_STEPS; step++) {
            double rate = bps_bench_sums_measure(m, step);
            rates[step * rounds + i] = rate;
            ratios[step * rounds + i] = step == BPS_BENCH_SUMS_COPY ? 1 : rate / measure(m, step, run_plain);
        }
    }
    for (enum bps_bench_sums_step step = BPS_BENCH_SUMS_COPY; step < BPS_BENCH_SUMS_STEPS; step++) {
        out->rate[step] = bps_bench_spread(rates + step * rounds, rounds).median;
        out->ratio[step] = bps_bench_spread(ratios + step * rounds, rounds).median;
    }
    free(rates);
    free(ratios);
}

/* ---- output ---- */

static void print_head(const struct bps_bench_request *request, const struct bps_instance *reducer)
{
    const struct bps_reducer_ops *ops = reducer->ops;
    char about[200] = "";
    if (ops->describe != NULL) {
        ops->describe(reducer->self, about, sizeof about);
    }
    printf("reducer %s: plugin %s%s%s; sums on one thread, %ld rounds\n"
           "bytes read and written per second, and how many times as many as a plain loop in the same "
           "rounds\n\n",
           reducer->name, reducer->loaded->plugin->name, about[0] != '\0' ? ", " : "", about, (long)request->rounds);
    printf("%-10s%-14s%12s", "size", "type", "memcpy");
    for (enum bps_bench_sums_step step = BPS_BENCH_FOLD; step < BPS_BENCH_SUMS_STEPS; step++) {
        printf("%18s", bps_bench_sums_names[step]);
    }
    putchar('\n');
}

static void print_row(const struct bps_bench_load *load, const struct bps_bench_sums *m, const struct row *row)
{
    printf("%-10s%-14s%12s", load->name, bps_dtype_name(m->dtype), bps_bytes_text(row->rate[BPS_BENCH_SUMS_COPY]));
    for (enum bps_bench_sums_step step = BPS_BENCH_FOLD; step < BPS_BENCH_SUMS_STEPS; step++) {
        printf("%12s %5.2f", bps_bytes_text(row->rate[step]), row->ratio[step]);
    }
    putchar('\n');
    fflush(stdout);
}

static json_t *row_json(const struct bps_bench_sums *m, const struct row *row)
{
    json_t *rates = json_object(), *ratios = json_object();
    for (enum bps_bench_sums_step step = BPS_BENCH_SUMS_COPY; step < BPS_BENCH_SUMS_STEPS; step++) {
        json_object_set_new(rates, bps_bench_sums_names[step], json_real(row->rate[step]));
        json_object_set_new(ratios, bps_bench_sums_names[step], json_real(row->ratio[step]));
    }
    return json_pack("{s:s, s:I, s:o, s:o}", "dtype", bps_dtype_name(m->dtype), "bytes", (json_int_t)m->bytes,
                     "bytes_per_second", rates, "ratio_to_plain_loop", ratios);
}

static int show(const struct bps_bench_request *request, const struct bps_instance *reducer, json_t *rows)
{
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:I, s:O}", "benchmark", "reducer", "version", bps_version(),
                             "reducer", reducer->name, "plugin", reducer->loaded->path, "rounds",
                             (json_int_t)request->rounds, "results", rows);
    return bps_bench_show(request, root);
}

/* ---- the whole ---- */

bool bps_bench_sums_open(struct bps_bench_sums *m, size_t bytes)
{
    m->bytes = bytes;
    m->a = malloc(bytes);
    m->b = malloc(bytes);
    m->dst = malloc(bytes);
    m->acc = malloc(4 * bytes);
    return m->a != NULL && m->b != NULL && m->dst != NULL && m->acc != NULL;
}

void bps_bench_sums_close(struct bps_bench_sums *m)
{
    free(m->a);
    free(m->b);
    free(m->dst);
    free(m->acc);
}

static int run_load(const struct bps_bench_request *request, const struct bps_bench_load *load,
                    const struct bps_instance *reducer, json_t *rows)
{
    struct bps_bench_sums m = {.bytes = 0};
    struct row row;
    int result = 0;
    if (!bps_bench_sums_open(&m, load->elements * sizeof(float))) {
        result = bps_cmd_failure(NAME, "no memory for %s", load->name);
    }
    for (m.dtype = 0; m.dtype < BPS_DTYPES && result == 0; m.dtype++) {
        if (!bps_bench_sums_of(&m, reducer)) {
            continue;
        }
        measure_type(&m, (size_t)request->rounds, &row);
        json_array_append_new(rows, row_json(&m, &row));
        if (!request->json) {
            print_row(load, &m, &row);
        }
    }
    bps_bench_sums_close(&m);
    return result;
}

static int run_loads(const struct bps_bench_request *request, const struct bps_instance *reducer)
{
    json_t *rows = json_array();
    int result = 0;
    if (!request->json) {
        print_head(request, reducer);
    }
    for (uint32_t i = 0; i < request->loads && result == 0; i++) {
        result = run_load(request, &request->load[i], reducer, rows);
    }
    if (result == 0) {
        result = show(request, reducer, rows);
    }
    json_decref(rows);
    return bps_cmd_finish(NAME, result);
}

int bps_bench_reducer(const struct bps_bench_request *request)
{
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request->conf, "scheduler");
    struct bps_report report = {""};
    struct bps_instance *reducer = NULL;
    struct bps_loop *loop = bps_loop_new();
    int result = BPS_EXIT_FAILURE;
    if (conf != NULL && loop != NULL) {
        bps_cmd_guard(conf);
        bps_status status = bps_reducer_open(conf, loop, &reducer, &report);
        result = status == BPS_OK ? run_loads(request, reducer) : bps_cmd_failure(NAME, "%s", report.text);
    }
    bps_instance_close(reducer);
    bps_loop_free(loop);
    bps_conf_free(conf);
    return result;
}
