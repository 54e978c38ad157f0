/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor.c - `byteps bench compressor`: how fast compressors code on one thread, how much they
 * save, and what that costs in precision.
 *
 * A rate counts the bytes of elements, whatever they become. Beside it stands the rate of memcpy() of as many
 * in the same rounds. What does not keep what the interface promises is not measured (compressor_check.c).
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>
#include <byteps/compressor.h>

#include "base/clock.h"
#include "base/loop.h"
#include "bench/bench.h"
#include "bench/compressor.h"
#include "bench/compressor_check.h"
#include "tools/normal.h"
#include "tools/plan.h"
#include "conf/option.h"
#include "conf/tree.h"
#include "plugin/instance.h"

#define NAME        BPS_BENCH_NAME
#define ROUND_BYTES (64u << 20) /* small buffers are gone through again and again */

static const char *const step_names[BPS_BENCH_CODING_STEPS] = {"copy", "encode", "decode", "decode_add"};

struct row {
    double rate[BPS_BENCH_CODING_STEPS];  /* medians */
    double ratio[BPS_BENCH_CODING_STEPS]; /* median of the rate over that of the copy in the same round */
    double error;                         /* |decoded - src| / |src|, as vectors */
};

/* ---- measuring ---- */

/* Nothing is refused: that was checked before. */
static void run(struct bps_bench_coding *m, enum bps_bench_coding_step step)
{
    static const struct bps_random random = {.shared = 1, .own = 2};
    switch (step) {
    case BPS_BENCH_ENCODE:
        m->coded_bytes = m->ops->encode(m->self, BPS_FLOAT32, m->src, m->count, &random, m->coded);
        break;
    case BPS_BENCH_DECODE:
        m->ops->decode(m->self, BPS_FLOAT32, m->coded, m->coded_bytes, m->dst, m->count);
        break;
    case BPS_BENCH_DECODE_ADD:
        m->ops->decode_add(m->self, BPS_FLOAT32, m->coded, m->coded_bytes, m->dst, m->count);
        break;
    default:
        memcpy(m->dst, m->src, m->bytes);
    }
}

/* The first time does not count: so what ran before leaves no trace in the caches. */
double bps_bench_coding_measure(struct bps_bench_coding *m, enum bps_bench_coding_step step)
{
    size_t repeats = m->bytes < ROUND_BYTES ? ROUND_BYTES / m->bytes : 1;
    run(m, step);
    uint64_t begin = bps_now();
    for (size_t i = 0; i < repeats; i++) {
        run(m, step);
    }
    return (double)(m->bytes * repeats) / ((double)(bps_now() - begin) * 1e-9);
}

double bps_bench_coding_error(struct bps_bench_coding *m)
{
    run(m, BPS_BENCH_DECODE);
    double difference = 0, all = 0;
    for (size_t i = 0; i < m->count; i++) {
        double x = m->src[i], d = m->dst[i] - x;
        difference += d * d;
        all += x * x;
    }
    return all > 0 ? sqrt(difference / all) : 0;
}

static void measure_row(struct bps_bench_coding *m, size_t rounds, struct row *out)
{
    double *rates = bps_cmd_alloc(BPS_BENCH_CODING_STEPS * rounds, sizeof *rates);
    double *ratios = bps_cmd_alloc(BPS_BENCH_CODING_STEPS * rounds, sizeof *ratios);
    for (size_t i = 0; i < rounds; i++) {
        for (enum bps_bench_coding_step step = BPS_BENCH_CODING_COPY; step < BPS_BENCH_CODING_STEPS; step++) {
            rates[step * rounds + i] = bps_bench_coding_measure(m, step);
            ratios[step * rounds + i] = rates[step * rounds + i] / rates[i];
        }
    }
    for (enum bps_bench_coding_step step = BPS_BENCH_CODING_COPY; step < BPS_BENCH_CODING_STEPS; step++) {
        out->rate[step] = bps_bench_spread(rates + step * rounds, rounds).median;
        out->ratio[step] = bps_bench_spread(ratios + step * rounds, rounds).median;
    }
    out->error = bps_bench_coding_error(m);
    free(rates);
    free(ratios);
}

/* ---- output ---- */

static void print_head(const struct bps_bench_request *request, const struct bps_instance *compressor)
{
    char about[200] = "";
    ((const struct bps_compressor_ops *)compressor->ops)->describe(compressor->self, about, sizeof about);
    printf("compressor %s: plugin %s%s%s; float32 on one thread, %ld rounds\n"
           "bytes of elements per second, and how many times as many as memcpy() copies in the same rounds;\n"
           "coded: bytes to those of the elements; error: of normally distributed elements, relative\n\n",
           compressor->name, compressor->loaded->plugin->name, about[0] != '\0' ? ", " : "", about,
           (long)request->rounds);
    printf("%-10s%8s%8s%12s", "size", "coded", "error", "memcpy");
    for (enum bps_bench_coding_step step = BPS_BENCH_ENCODE; step < BPS_BENCH_CODING_STEPS; step++) {
        printf("%18s", step_names[step]);
    }
    putchar('\n');
}

static double saved(const struct bps_bench_coding *m)
{
    return (double)m->coded_bytes / (double)m->bytes;
}

static void print_row(const struct bps_bench_load *load, const struct bps_bench_coding *m, const struct row *row)
{
    printf("%-10s%8.3f%8.3f%12s", load->name, saved(m), row->error, bps_bytes_text(row->rate[BPS_BENCH_CODING_COPY]));
    for (enum bps_bench_coding_step step = BPS_BENCH_ENCODE; step < BPS_BENCH_CODING_STEPS; step++) {
        printf("%12s %5.2f", bps_bytes_text(row->rate[step]), row->ratio[step]);
    }
    putchar('\n');
    fflush(stdout);
}

static json_t *row_json(const struct bps_instance *compressor, const struct bps_bench_coding *m, const struct row *row)
{
    json_t *rates = json_object(), *ratios = json_object();
    for (enum bps_bench_coding_step step = BPS_BENCH_CODING_COPY; step < BPS_BENCH_CODING_STEPS; step++) {
        json_object_set_new(rates, step_names[step], json_real(row->rate[step]));
        json_object_set_new(ratios, step_names[step], json_real(row->ratio[step]));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:o, s:o}", "compressor", compressor->name, "plugin",
                     compressor->loaded->path, "dtype", bps_dtype_name(BPS_FLOAT32), "bytes", (json_int_t)m->bytes,
                     "coded_bytes", (json_int_t)m->coded_bytes, "coded_share", saved(m), "relative_error", row->error,
                     "bytes_per_second", rates, "ratio_to_copy", ratios);
}

/* ---- one compressor ---- */

bool bps_bench_coding_open(struct bps_bench_coding *m, size_t count)
{
    m->count = count;
    m->bytes = count * sizeof *m->src;
    m->src = malloc(m->bytes);
    m->dst = malloc(m->bytes);
    m->coded = malloc(m->ops->bound(m->self, BPS_FLOAT32, count));
    return m->src != NULL && m->dst != NULL && m->coded != NULL;
}

void bps_bench_coding_close(struct bps_bench_coding *m)
{
    free(m->src);
    free(m->dst);
    free(m->coded);
}

/* A compressor that is measured, and the same one for every CPU if its options let choose; else NULL. */
struct pair {
    struct bps_instance *compressor, *baseline;
};

/* With all of these elements, and without the last one: so that some are too few for a vector. */
static int check(const struct pair *pair, const struct bps_bench_coding *m)
{
    const struct bps_bench_coder coder = {m->ops, m->self};
    struct bps_bench_coder baseline = {NULL, NULL};
    if (pair->baseline != NULL) {
        baseline = (struct bps_bench_coder){pair->baseline->ops, pair->baseline->self};
    }
    const char *wrong = bps_bench_check_compressor(coder, baseline, m->src, m->count);
    wrong = wrong == NULL ? bps_bench_check_compressor(coder, baseline, m->src, m->count - 1) : wrong;
    return wrong == NULL ? 0 : bps_cmd_failure(NAME, "compressor %s %s", pair->compressor->name, wrong);
}

static int run_load(const struct bps_bench_request *request, const struct bps_bench_load *load, const struct pair *pair,
                    json_t *rows)
{
    struct bps_bench_coding m = {.ops = pair->compressor->ops, .self = pair->compressor->self};
    struct row row = {.error = 0};
    int result = 0;
    if (!bps_bench_coding_open(&m, load->elements)) {
        result = bps_cmd_failure(NAME, "no memory for %s", load->name);
    } else {
        bps_normal(m.src, m.count, 1);
        result = check(pair, &m);
    }
    if (result == 0) {
        measure_row(&m, (size_t)request->rounds, &row);
        json_array_append_new(rows, row_json(pair->compressor, &m, &row));
    }
    if (result == 0 && !request->json) {
        print_row(load, &m, &row);
    }
    bps_bench_coding_close(&m);
    return result;
}

static int run_loads(const struct bps_bench_request *request, const struct pair *pair, json_t *rows)
{
    const struct bps_instance *compressor = pair->compressor;
    const struct bps_compressor_ops *ops = compressor->ops;
    int result = 0;
    if (ops->bound(compressor->self, BPS_FLOAT32, 1) == 0) {
        return bps_cmd_failure(NAME, "compressor %s does not code float32, which is what is measured",
                               compressor->name);
    }
    if (!request->json) {
        print_head(request, compressor);
    }
    for (uint32_t i = 0; i < request->loads && result == 0; i++) {
        result = run_load(request, &request->load[i], pair, rows);
    }
    return result;
}

/* The same plugin with the options of `entry`, but for the instruction set. */
static bps_status open_baseline(const struct bps_conf_node *entry, const char *path, struct bps_loop *loop,
                                struct pair *pair, struct bps_report *report)
{
    const struct bps_plugin *plugin = pair->compressor->loaded->plugin;
    struct bps_arena arena = {0};
    if (plugin->options == NULL || bps_option_find(plugin->options, "isa") == NULL) {
        return BPS_OK;
    }
    struct bps_conf_node *group = bps_tree_node(&arena, BPS_CONF_GROUP, NULL, NULL, NULL);
    struct bps_conf_node *isa = bps_tree_node(&arena, BPS_CONF_SCALAR, "isa", "baseline", NULL);
    bps_status status = BPS_ERR_NOMEM;
    BPS_REPORT(report, "%s: out of memory", path);
    if (group != NULL && isa != NULL && (entry == NULL || bps_tree_merge(&arena, group, entry)) &&
        bps_tree_put(&arena, group, "isa", isa)) {
        status = bps_instance_open(BPS_KIND_COMPRESSOR, plugin->name, pair->compressor->name, group, path, loop,
                                   &pair->baseline, report);
    }
    bps_arena_free(&arena);
    return status;
}

static bps_status open_pair(const struct bps_conf *conf, struct bps_loop *loop, const char *name, struct pair *pair,
                            struct bps_report *report)
{
    char path[128];
    const struct bps_conf_node *known = bps_conf_find(conf, "compressors");
    const struct bps_conf_node *entry = known != NULL ? bps_conf_member(known, name) : NULL;
    snprintf(path, sizeof path, "compressors.%s", name);
    bps_status status = bps_instance_open(BPS_KIND_COMPRESSOR, entry == NULL ? name : NULL, name, entry, path, loop,
                                          &pair->compressor, report);
    return status == BPS_OK ? open_baseline(entry, path, loop, pair, report) : status;
}

static int run_compressor(const struct bps_bench_request *request, const struct bps_conf *conf, struct bps_loop *loop,
                          const char *name, json_t *rows)
{
    struct pair pair = {NULL, NULL};
    struct bps_report report = {""};
    bps_status status = open_pair(conf, loop, name, &pair, &report);
    int result = status == BPS_OK ? run_loads(request, &pair, rows) : bps_cmd_failure(NAME, "%s", report.text);
    bps_instance_close(pair.baseline);
    bps_instance_close(pair.compressor);
    return result;
}

/* ---- the whole ---- */

struct names {
    const char **item;
    uint32_t count;
    char (*found)[32]; /* names of plugins */
};

static void add_plugin(void *arg, const struct bps_plugin_row *row)
{
    struct names *names = arg;
    if (row->refusal[0] != '\0') {
        return;
    }
    char(*found)[32] = bps_cmd_alloc(names->count + 1, sizeof *found);
    if (names->count > 0) {
        memcpy(found, names->found, names->count * sizeof *found);
    }
    free(names->found);
    names->found = found;
    memcpy(found[names->count++], row->name, sizeof row->name);
}

/* Those that were named; else those of the configuration; else all that are installed. */
static int choose(const struct bps_bench_request *request, const struct bps_conf *conf, struct names *out)
{
    const struct bps_conf_node *known = bps_conf_find(conf, "compressors");
    uint32_t entries = known != NULL ? known->count : 0;
    struct bps_report report = {""};
    if (request->names > 0) {
        out->count = request->names;
    } else if (entries > 0) {
        out->count = entries;
    } else if (bps_plugin_each(BPS_KIND_COMPRESSOR, add_plugin, out, &report) != BPS_OK) {
        return bps_cmd_failure(NAME, "%s", report.text);
    }
    if (out->count == 0) {
        return bps_cmd_failure(NAME, "there is no compressor; 'byteps plugin list' shows what is installed");
    }
    out->item = bps_cmd_alloc(out->count, sizeof *out->item);
    for (uint32_t i = 0; i < out->count; i++) {
        out->item[i] = request->names > 0 ? request->name[i] : entries > 0 ? known->children[i]->name : out->found[i];
    }
    return 0;
}

static int run_compressors(const struct bps_bench_request *request, const struct bps_conf *conf, struct bps_loop *loop,
                           json_t *rows)
{
    struct names names = {0};
    int result = choose(request, conf, &names);
    for (uint32_t i = 0; i < names.count && result == 0; i++) {
        if (i > 0 && !request->json) {
            putchar('\n');
        }
        result = run_compressor(request, conf, loop, names.item[i], rows);
    }
    free(names.item);
    free(names.found);
    return result;
}

int bps_bench_compressor(const struct bps_bench_request *request)
{
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request->conf, "scheduler");
    struct bps_loop *loop = bps_loop_new();
    json_t *rows = json_array();
    int result = BPS_EXIT_FAILURE;
    if (conf != NULL && loop != NULL) {
        bps_cmd_guard(conf);
        result = run_compressors(request, conf, loop, rows);
    }
    if (result == 0) {
        result =
            bps_bench_show(request, json_pack("{s:s, s:s, s:I, s:O}", "benchmark", "compressor", "version",
                                              bps_version(), "rounds", (json_int_t)request->rounds, "results", rows));
    }
    json_decref(rows);
    bps_loop_free(loop);
    bps_conf_free(conf);
    return bps_cmd_finish(NAME, result);
}
