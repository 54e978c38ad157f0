/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes.c - a worker that checks every bit of every operation, for jobs of any shape.
 *
 * All values are such that the result is exact whatever the order of summation and however it is divided
 * among hosts. Each tensor passes twice, all of them at once, begun in another order on each worker.
 *
 *   shapes FOLDER      an empty folder, the same one for all workers; used to see that a barrier holds them
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define ROUNDS 2
#define LARGE  (800u * 1024u + 13u)
#define CASES  (sizeof tensors / sizeof tensors[0])
#define CASTED 70001u

static int rank, size;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "worker %d: ", rank);                                                                      \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct tensor {
    uint32_t op, dtype, count;
};

static const struct tensor tensors[] = {
    {BPS_SUM, BPS_INT32, LARGE},       {BPS_SUM, BPS_FLOAT32, 0},
    {BPS_SUM, BPS_FLOAT32, 1},         {BPS_SUM, BPS_FLOAT32, 4097},
    {BPS_SUM, BPS_FLOAT32, LARGE},     {BPS_SUM, BPS_FLOAT64, 65536},
    {BPS_SUM, BPS_UINT8, 99999},       {BPS_SUM, BPS_INT64, 7},
    {BPS_SUM, BPS_INT64, 50000},       {BPS_SUM, BPS_INT16, 33333},
    {BPS_AVERAGE, BPS_FLOAT32, 1},     {BPS_AVERAGE, BPS_FLOAT32, 100001},
    {BPS_AVERAGE, BPS_FLOAT64, 2047},  {BPS_AVERAGE, BPS_INT32, 3},
    {BPS_AVERAGE, BPS_INT32, 30000},   {BPS_MIN, BPS_FLOAT32, 20001},
    {BPS_MIN, BPS_INT32, 40000},       {BPS_MAX, BPS_FLOAT64, 20001},
    {BPS_MAX, BPS_INT16, 5},           {BPS_PRODUCT, BPS_INT64, 10000},
    {BPS_PRODUCT, BPS_FLOAT32, 10000}, {BPS_SUM, BPS_FLOAT16, 70001},
    {BPS_SUM, BPS_BFLOAT16, 30001},    {BPS_MAX, BPS_FLOAT16, 17},
    {BPS_SUM, BPS_INT8, 12345},        {BPS_MIN, BPS_INT8, 999},
    {BPS_MIN, BPS_BFLOAT16, 4096},     {BPS_SUM, BPS_FLOAT8_E4M3FN, 40001},
    {BPS_MAX, BPS_FLOAT8_E5M2, 3001},  {BPS_AVERAGE, BPS_INT8, 5000},
    {BPS_AVERAGE, BPS_INT16, 70001},
};

/* ---- what goes in and what must come out ---- */

/* Averages of floats are exact, and integers do not hold the sum that theirs is made of. */
static int64_t factor_of(const struct tensor *t)
{
    if (t->op != BPS_AVERAGE) {
        return 1;
    }
    switch (t->dtype) {
    case BPS_INT8:
        return 1;
    case BPS_INT16:
        return 300;
    case BPS_INT32:
        return 20000000;
    default:
        return size;
    }
}

/* Element i of worker r: a small whole number, times the factor. */
static int64_t value_of(const struct tensor *t, int r, uint32_t i, int round)
{
    uint32_t x = (i * 2654435761u + (uint32_t)(r + 1) * 40503u + (uint32_t)round * 977u + t->op) >> 7;
    if (t->op == BPS_PRODUCT) {
        return 1 + x % 2;
    }
    bool narrow = t->dtype == BPS_FLOAT16 || t->dtype == BPS_BFLOAT16; /* few digits */
    bool narrower = t->dtype == BPS_FLOAT8_E4M3FN || t->dtype == BPS_FLOAT8_E5M2;
    int64_t v = narrower ? (int64_t)(x % 3) - 1 : narrow ? (int64_t)(x % 9) - 4 : (int64_t)(x % 201) - 100;
    return v * factor_of(t);
}

static int64_t expected(const struct tensor *t, uint32_t i, int round)
{
    int64_t result = value_of(t, 0, i, round);
    for (int r = 1; r < size; r++) {
        int64_t v = value_of(t, r, i, round);
        result = t->op == BPS_PRODUCT ? result * v
                 : t->op == BPS_MIN   ? (v < result ? v : result)
                 : t->op == BPS_MAX   ? (v > result ? v : result)
                                      : result + v;
    }
    if (t->op == BPS_AVERAGE) { /* rounded towards minus infinity */
        int64_t down = result < 0 && result % size != 0;
        result = result / size - down;
    }
    return result;
}

/* The upper half of a float, which is all there is of a value with few digits. */
static uint16_t bfloat16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Exact for zero and for what has few digits and is neither tiny nor huge. */
static uint16_t float16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)(value == 0 ? sign : sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

/* E4M3 has a part of float16's exponents and fractions; E5M2 is its upper half. */
static uint8_t float8_of(uint32_t dtype, float value)
{
    uint32_t half = float16_of(value), magnitude = half >> 7 & 0xff;
    return (uint8_t)(dtype == BPS_FLOAT8_E5M2 || value == 0 ? half >> 8 : (half >> 8 & 0x80) | (magnitude - (8 << 3)));
}

static void store(void *data, const struct tensor *t, uint32_t i, int64_t value)
{
    double fraction = (double)value / (t->op == BPS_PRODUCT ? 1 : 8); /* exact: a power of two */
    switch (t->dtype) {
    case BPS_FLOAT32:
        ((float *)data)[i] = (float)fraction;
        break;
    case BPS_FLOAT64:
        ((double *)data)[i] = fraction;
        break;
    case BPS_FLOAT16:
        ((uint16_t *)data)[i] = float16_of((float)fraction);
        break;
    case BPS_BFLOAT16:
        ((uint16_t *)data)[i] = bfloat16_of((float)fraction);
        break;
    case BPS_FLOAT8_E4M3FN:
    case BPS_FLOAT8_E5M2:
        ((uint8_t *)data)[i] = float8_of(t->dtype, (float)fraction);
        break;
    case BPS_INT64:
        ((int64_t *)data)[i] = value;
        break;
    case BPS_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case BPS_INT16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value; /* int8, too; sums wrap */
    }
}

static void *memory_of(size_t bytes)
{
    void *data = malloc(bytes + 1);
    CHECK(data != NULL, "out of memory");
    return data;
}

/* ---- operations ---- */

static struct bps_push_pull request_of(const char *name, const void *in, void *out, const struct tensor *t)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .name = name,
        .in = in,
        .out = out,
        .count = t->count,
        .dtype = t->dtype,
        .op = t->op,
        .prescale = 1,
        .postscale = 1,
    };
}

static void finish(bps_handle handle, const char *what)
{
    struct bps_report report = {""};
    bps_status status = bps_wait(handle, BPS_FOREVER, &report);
    CHECK(status == BPS_OK, "%s: %s", what, report.text);
}

/* The same bits; an average of floats may be rounded, as it is the product of the sum and 1 / size. */
static bool is_same(const struct tensor *t, const void *got, const void *want)
{
    float f, wf;
    double d, wd;
    if (t->op == BPS_AVERAGE && t->dtype == BPS_FLOAT32) {
        memcpy(&f, got, sizeof f);
        memcpy(&wf, want, sizeof wf);
        return fabsf(f - wf) <= fabsf(wf) * 2 * FLT_EPSILON;
    }
    if (t->op == BPS_AVERAGE && t->dtype == BPS_FLOAT64) {
        memcpy(&d, got, sizeof d);
        memcpy(&wd, want, sizeof wd);
        return fabs(d - wd) <= fabs(wd) * 2 * DBL_EPSILON;
    }
    return memcmp(got, want, bps_dtype_size(t->dtype)) == 0;
}

static void compare(const struct tensor *t, const void *data, int round)
{
    size_t bytes = bps_dtype_size(t->dtype);
    char *want = memory_of(t->count * bytes);
    for (uint32_t i = 0; i < t->count; i++) {
        store(want, t, i, expected(t, i, round));
        CHECK(is_same(t, (const char *)data + i * bytes, want + i * bytes),
              "%s of %u %s, round %d: element %u is wrong", bps_op_name(t->op), t->count, bps_dtype_name(t->dtype),
              round, i);
    }
    free(want);
}

/* Every second tensor in place. */
static void push_all(int round)
{
    void *in[CASES], *out[CASES];
    bps_handle handle[CASES];
    char name[64];
    for (size_t n = 0; n < CASES; n++) {
        size_t which = (n + (size_t)rank * 5) % CASES;
        const struct tensor *t = &tensors[which];
        size_t bytes = t->count * bps_dtype_size(t->dtype);
        in[which] = memory_of(bytes);
        out[which] = which % 2 == 0 ? in[which] : memory_of(bytes);
        for (uint32_t i = 0; i < t->count; i++) {
            store(in[which], t, i, value_of(t, rank, i, round));
        }
        snprintf(name, sizeof name, "tensor %zu", which);
        const struct bps_push_pull request = request_of(name, in[which], out[which], t);
        struct bps_report report = {""};
        bps_status status = bps_push_pull_async(&request, &handle[which], &report);
        CHECK(status == BPS_OK, "%s: %s", name, report.text);
    }
    for (size_t n = 0; n < CASES; n++) {
        finish(handle[n], "push_pull");
        compare(&tensors[n], out[n], round);
        if (out[n] != in[n]) {
            free(out[n]);
        }
        free(in[n]);
    }
}

/* Any bit pattern, NaNs among them, must come from each root as it is. */
static void cast_all(void)
{
    const struct tensor t = {.op = BPS_SUM, .dtype = BPS_FLOAT32, .count = CASTED};
    uint32_t *data = memory_of(CASTED * sizeof *data);
    for (int root = 0; root < size; root++) {
        char name[64];
        struct bps_report report = {""};
        bps_handle handle;
        for (uint32_t i = 0; i < CASTED; i++) {
            data[i] = rank == root ? (i + 1) * 2246822519u * (uint32_t)(root + 1) : ~0u;
        }
        snprintf(name, sizeof name, "from %d", root);
        const struct bps_push_pull request = request_of(name, data, data, &t);
        bps_status status = bps_broadcast_async(&request, (uint32_t)root, &handle, &report);
        CHECK(status == BPS_OK, "%s: %s", name, report.text);
        finish(handle, name);
        for (uint32_t i = 0; i < CASTED; i++) {
            CHECK(data[i] == (i + 1) * 2246822519u * (uint32_t)(root + 1), "broadcast %s: element %u is wrong", name,
                  i);
        }
    }
    free(data);
}

/* The last one to come leaves its mark late; nobody may be through before. */
static void barriers(const char *folder)
{
    for (int late = 0; late < size; late++) {
        char path[4096];
        struct bps_report report = {""};
        usleep(rank == late ? 20000 : 0);
        snprintf(path, sizeof path, "%s/%d.%d", folder, late, rank);
        FILE *mark = fopen(path, "w");
        CHECK(mark != NULL, "cannot write '%s'", path);
        fclose(mark);
        CHECK(bps_barrier(&report) == BPS_OK, "barrier: %s", report.text);
        for (int r = 0; r < size; r++) {
            snprintf(path, sizeof path, "%s/%d.%d", folder, late, r);
            CHECK(access(path, F_OK) == 0, "barrier %d did not wait for worker %d", late, r);
        }
    }
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    CHECK(argc == 2, "usage: shapes FOLDER");
    CHECK(bps_init(NULL, &report) == BPS_OK, "%s", report.text);
    rank = bps_rank();
    size = bps_size();
    for (int round = 0; round < ROUNDS; round++) {
        push_all(round);
    }
    cast_all();
    barriers(argv[1]);
    printf("%d of %d, here %d of %d\n", rank, size, bps_local_rank(), bps_local_size());
    CHECK(bps_shutdown(&report) == BPS_OK, "%s", report.text);
    return 0;
}
