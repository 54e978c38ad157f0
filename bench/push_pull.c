/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push_pull.c - a worker of `byteps bench push_pull`.
 *
 * All tensors of a load are started as the backward pass of a model does, the last one first and the first
 * one as the most urgent, and then waited for. A round is as many of these iterations as take a while; its
 * time is that of the slowest worker. Before each round all workers copy the same bytes at the same time,
 * which is what the memory allows at that moment: the ratio of the two can be compared between machines and
 * days.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "tools/plan.h"

#define NAME             BPS_BENCH_NAME
#define ROUND_SECONDS    0.1
#define ITERATIONS_LIMIT 100000

struct result {
    uint64_t iterations;               /* of a round */
    struct bps_bench_spread seconds;   /* for one iteration */
    struct bps_bench_spread copy;      /* for a copy of the same bytes */
    double ratio;                      /* median of the ratios within a round */
    struct bps_bench_processors spent; /* on this host, during push_pull */
};

struct bench {
    const struct bps_bench_request *request;
    const struct bps_bench_load *load;
    uint32_t dtype;
    size_t width, bytes; /* of an element, of all */
    uint64_t *count;     /* of each tensor */
    bps_tensor *tensor;
    bps_handle *handle;
    uint8_t *memory, *copy;
    struct bps_report report;
};

/* ---- among the workers ---- */

/* *value becomes the largest of all workers'. */
static bps_status largest(struct bench *b, double *value)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .in = value,
        .out = value,
        .count = 1,
        .dtype = BPS_FLOAT64,
        .op = BPS_MAX,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;
    return bps_push_pull(&request, BPS_FOREVER, &handle, &b->report);
}

static bps_status declare(struct bench *b)
{
    uint32_t n = b->load->tensors;
    struct bps_declaration *declarations = bps_cmd_alloc(n, sizeof *declarations);
    char **names = bps_cmd_alloc(n, sizeof *names);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = bps_cmd_print("bench %s %s %u", b->load->name, bps_dtype_name(b->dtype), i);
        declarations[i] = (struct bps_declaration){
            .size = sizeof *declarations, .name = names[i], .count = b->count[i], .dtype = b->dtype};
    }
    bps_status status = bps_declare(declarations, n, b->tensor, &b->report);
    for (uint32_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
    free(declarations);
    return status;
}

/* ---- what is measured ---- */

static bps_status copy_all(struct bench *b)
{
    memcpy(b->copy, b->memory, b->bytes);
    __asm__ volatile("" : : "r"(b->copy) : "memory"); /* nobody reads it; it is copied all the same */
    return BPS_OK;
}

static struct bps_push_pull tensor_request(const struct bench *b, uint32_t i, void *at)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .tensor = b->tensor[i],
        .in = at,
        .out = at,
        .count = b->count[i],
        .dtype = b->dtype,
        .op = BPS_AVERAGE,
        .priority = -(int32_t)i,
        .prescale = 1,
        .postscale = 1,
    };
}

static bps_status push_pull_all(struct bench *b)
{
    uint32_t n = b->load->tensors, started = n;
    uint8_t *at = b->memory + b->bytes;
    bps_status status = BPS_OK;
    if (n == 1) {
        const struct bps_push_pull one = tensor_request(b, 0, b->memory);
        return bps_push_pull(&one, BPS_FOREVER, &b->handle[0], &b->report);
    }
    while (started > 0 && status == BPS_OK) {
        at -= b->count[started - 1] * b->width;
        const struct bps_push_pull each = tensor_request(b, started - 1, at);
        status = bps_push_pull_async(&each, &b->handle[started - 1], &b->report);
        started -= status == BPS_OK;
    }
    for (uint32_t i = started; i < n; i++) {
        bps_status ended = bps_wait(b->handle[i], BPS_FOREVER, status == BPS_OK ? &b->report : NULL);
        status = status == BPS_OK ? ended : status;
    }
    return status;
}

/* Seconds that the slowest worker takes for one of `n` calls, which all begin together. */
static bps_status time_calls(struct bench *b, bps_status (*call)(struct bench *b), uint64_t n, double *out)
{
    bps_status status = bps_barrier(&b->report);
    uint64_t begin = bps_now();
    for (uint64_t i = 0; i < n && status == BPS_OK; i++) {
        status = call(b);
    }
    *out = (double)(bps_now() - begin) * 1e-9 / (double)n;
    return status == BPS_OK ? largest(b, out) : status;
}

/* ---- elements: positive numbers that are normal in each type ---- */

#define HALF_SHIFT  13u
#define HALF_BIAS   (112u << 23) /* between the exponents of float32 and float16 */
#define BRAIN_SHIFT 16u

static void write_element(const struct bench *b, uint64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (b->dtype == BPS_FLOAT32) {
        ((float *)b->memory)[i] = value;
    } else {
        ((uint16_t *)b->memory)[i] =
            (uint16_t)(b->dtype == BPS_FLOAT16 ? (bits - HALF_BIAS) >> HALF_SHIFT : bits >> BRAIN_SHIFT);
    }
}

static float read_element(const struct bench *b, uint64_t i)
{
    if (b->dtype == BPS_FLOAT32) {
        return ((const float *)b->memory)[i];
    }
    uint32_t bits = ((const uint16_t *)b->memory)[i];
    bits = b->dtype == BPS_FLOAT16 ? (bits << HALF_SHIFT) + HALF_BIAS : bits << BRAIN_SHIFT;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The average of 1 .. size, as rank r has begun with r + 1; then of equal numbers, which many roundings may
 * move. */
static bps_status check(struct bench *b)
{
    float expected = (float)(bps_size() + 1) / 2;
    for (uint64_t i = 0; i < b->bytes / b->width; i++) {
        float found = read_element(b, i);
        if (!(found > 0.99f * expected && found < 1.01f * expected)) {
            BPS_REPORT(&b->report, "element %" PRIu64 " of %s in %s is %g, not %g", i, b->load->name,
                       bps_dtype_name(b->dtype), (double)found, (double)expected);
            return BPS_ERR_FAILED;
        }
    }
    return BPS_OK;
}

static bps_status run_rounds(struct bench *b, double *copies, double *times, struct result *out)
{
    size_t rounds = (size_t)b->request->rounds;
    double *ratios = bps_cmd_alloc(rounds, sizeof *ratios);
    bps_status status = BPS_OK;
    for (size_t i = 0; i < rounds && status == BPS_OK; i++) {
        status = time_calls(b, copy_all, out->iterations, &copies[i]);
        struct bps_bench_processors before = bps_bench_processors();
        if (status == BPS_OK) {
            status = time_calls(b, push_pull_all, out->iterations, &times[i]);
        }
        struct bps_bench_processors after = bps_bench_processors();
        out->spent.all += after.all - before.all;
        out->spent.idle += after.idle - before.idle;
        ratios[i] = times[i] / copies[i];
    }
    out->copy = bps_bench_spread(copies, rounds);
    out->seconds = bps_bench_spread(times, rounds);
    out->ratio = bps_bench_spread(ratios, rounds).median;
    free(ratios);
    return status == BPS_OK ? check(b) : status;
}

static bps_status measure(struct bench *b, struct result *out)
{
    double once, *copies = bps_cmd_alloc((size_t)b->request->rounds, sizeof *copies);
    double *times = bps_cmd_alloc((size_t)b->request->rounds, sizeof *times);
    bps_status status = declare(b);
    if (status == BPS_OK) {
        status = push_pull_all(b);
    }
    for (int64_t i = 0; i < b->request->settle && status == BPS_OK; i++) {
        status = push_pull_all(b);
    }
    if (status == BPS_OK) {
        status =
            time_calls(b, push_pull_all, 2, &once); /* the same on all workers, so that they agree on what follows */
    }
    if (status == BPS_OK) {
        double n = ROUND_SECONDS / once;
        out->iterations = n < 1 ? 1 : n > ITERATIONS_LIMIT ? ITERATIONS_LIMIT : (uint64_t)n;
        status = run_rounds(b, copies, times, out);
    }
    free(copies);
    free(times);
    return status;
}

/* ---- memory ---- */

static bps_status open_load(struct bench *b)
{
    b->width = bps_dtype_size(b->dtype);
    uint64_t more = b->load->sized ? sizeof(float) / b->width : 1;
    b->bytes = b->load->elements * more * b->width;
    b->count = bps_cmd_alloc(b->load->tensors, sizeof *b->count);
    for (uint32_t i = 0; i < b->load->tensors; i++) {
        b->count[i] = b->load->count[i] * more;
    }
    b->tensor = bps_cmd_alloc(b->load->tensors, sizeof *b->tensor);
    b->handle = bps_cmd_alloc(b->load->tensors, sizeof *b->handle);
    b->memory = b->request->alloc ? bps_alloc(b->bytes) : malloc(b->bytes);
    b->copy = malloc(b->bytes);
    if (b->memory == NULL || b->copy == NULL) {
        BPS_REPORT(&b->report, "no memory for %s", b->load->name);
        return BPS_ERR_NOMEM;
    }
    for (uint64_t i = 0; i < b->bytes / b->width; i++) {
        write_element(b, i, (float)(bps_rank() + 1));
    }
    return BPS_OK;
}

static void close_load(struct bench *b)
{
    free(b->count);
    free(b->tensor);
    free(b->handle);
    free(b->copy);
    if (b->request->alloc) {
        bps_free(b->memory);
    } else {
        free(b->memory);
    }
}

/* ---- what rank 0 prints ---- */

static double algorithm_bandwidth(const struct bench *b, const struct result *r)
{
    return (double)b->bytes / r->seconds.median;
}

/* What each of n links carries each way at least, without servers: 2(n-1)/n of the bytes. */
static double bus_bandwidth(const struct bench *b, const struct result *r)
{
    double n = bps_size();
    return algorithm_bandwidth(b, r) * 2 * (n - 1) / n;
}

/* What the servers read, or whoever sums: the contributions of all workers. */
static double summed(const struct bench *b, const struct result *r)
{
    return algorithm_bandwidth(b, r) * bps_size();
}

static void print_head(const struct bps_bench_request *request)
{
    printf("push_pull in %s, %d workers, %d on this host; %" PRId64 " rounds\n"
           "algbw: bytes / median time; busbw: algbw * 2(n-1)/n for n workers, as nccl-tests has them\n"
           "summed: bytes of all workers / median time\n"
           "x copy: how many times as long as a copy of the same bytes by all workers at once\n\n",
           request->alloc ? "shared memory" : "ordinary memory", bps_size(), bps_local_size(), request->rounds);
    printf("%-12s %-9s%8s%10s%10s%10s%10s%11s%11s%11s%8s\n", "name", "type", "tensors", "bytes", "median", "fastest",
           "slowest", "algbw/s", "busbw/s", "summed/s", "x copy");
}

static void print_row(const struct bench *b, const struct result *r)
{
    printf("%-12s %-9s%8u%10s%10s%10s%10s%11s%11s%11s %7.2f\n", b->load->name, bps_dtype_name(b->dtype),
           b->load->tensors, bps_bytes_text((double)b->bytes), bps_duration_text(r->seconds.median),
           bps_duration_text(r->seconds.least), bps_duration_text(r->seconds.most),
           bps_bytes_text(algorithm_bandwidth(b, r)), bps_bytes_text(bus_bandwidth(b, r)), bps_bytes_text(summed(b, r)),
           r->ratio);
    fflush(stdout);
}

static json_t *spread_json(const struct bps_bench_spread *s)
{
    return json_pack("{s:f, s:f, s:f}", "median", s->median, "fastest", s->least, "slowest", s->most);
}

static json_t *idle_json(const struct bps_bench_processors *spent)
{
    return spent->all > 0 ? json_real(spent->idle / spent->all) : json_null();
}

static json_t *row_json(const struct bench *b, const struct result *r)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:f, s:f, s:f, s:f, s:o}", "name", b->load->name, "dtype",
                     bps_dtype_name(b->dtype), "tensors", (json_int_t)b->load->tensors, "bytes", (json_int_t)b->bytes,
                     "iterations", (json_int_t)r->iterations, "seconds", spread_json(&r->seconds), "copy_seconds",
                     spread_json(&r->copy), "algorithm_bytes_per_second", algorithm_bandwidth(b, r),
                     "bus_bytes_per_second", bus_bandwidth(b, r), "summed_bytes_per_second", summed(b, r),
                     "ratio_to_copy", r->ratio, "idle_share", idle_json(&r->spent));
}

static json_t *results_json(const struct bps_bench_request *request, json_t *rows)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:b, s:O}", "benchmark", "push_pull", "version", bps_version(),
                     "workers", bps_size(), "workers_on_first_host", bps_local_size(), "rounds",
                     (json_int_t)request->rounds, "shared_memory", request->alloc, "results", rows);
}

/* ---- the whole ---- */

static bps_status run_load(struct bench *b, json_t *rows)
{
    struct result result = {0};
    bps_status status = open_load(b);
    if (status == BPS_OK) {
        status = measure(b, &result);
    }
    if (status == BPS_OK && bps_rank() == 0) {
        json_array_append_new(rows, row_json(b, &result));
        if (!b->request->json) {
            print_row(b, &result);
        }
    }
    close_load(b);
    return status;
}

static bps_status run_loads(const struct bps_bench_request *request, json_t *rows, struct bps_report *report)
{
    bps_status status = BPS_OK;
    if (bps_rank() == 0 && !request->json) {
        print_head(request);
    }
    for (uint32_t i = 0; i < request->loads * BPS_DTYPES && status == BPS_OK; i++) {
        struct bench b = {.request = request, .load = &request->load[i / BPS_DTYPES], .dtype = i % BPS_DTYPES};
        if (request->dtype[b.dtype]) {
            status = run_load(&b, rows);
            *report = b.report;
        }
    }
    return status;
}

int bps_bench_push_pull(const struct bps_bench_request *request)
{
    const struct bps_init_options options = {
        .size = sizeof options, .conf = request->conf.file, .set = request->conf.set, .nset = request->conf.nset};
    struct bps_report report = {""};
    if (bps_init(&options, &report) != BPS_OK) {
        return bps_cmd_failure(NAME, "%s", report.text);
    }
    bool first = bps_rank() == 0;
    int result = first ? bps_bench_check_plot(request) : 0; /* the others draw nothing */
    if (result != 0) {
        return result;
    }
    json_t *rows = json_array();
    bps_status status = run_loads(request, rows, &report);
    json_t *results = results_json(request, rows);
    json_decref(rows);
    if (status == BPS_OK) {
        status = bps_shutdown(&report);
    }
    if (status != BPS_OK) {
        result = bps_cmd_failure(NAME, "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    } else if (first) {
        return bps_cmd_finish(NAME, bps_bench_show(request, results));
    }
    json_decref(results);
    return result;
}
