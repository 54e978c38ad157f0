/* SPDX-License-Identifier: Apache-2.0 */
/*
 * every_kind.c - one of three workers of a job that has a plugin of every kind, those of examples/: says "ok", or what
 * is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <byteps/byteps.h>

#define COUNT 20000

static float numbers[COUNT];
static int64_t integers[COUNT];

static void check(bps_status status, const char *what, const struct bps_report *report)
{
    if (status != BPS_OK) {
        printf("%s: %s\n", what, report->text);
        exit(EXIT_FAILURE);
    }
}

static void push_pull(const char *name, void *values, uint32_t dtype, uint32_t op)
{
    struct bps_report report = {""};
    const struct bps_push_pull request = {
        .size = sizeof request,
        .name = name,
        .in = values,
        .out = values,
        .count = COUNT,
        .dtype = dtype,
        .op = op,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;

    check(bps_push_pull_async(&request, &handle, &report), name, &report);
    check(bps_wait(handle, BPS_FOREVER, &report), name, &report);
}

static void sum(const char *name, float pushed)
{
    for (size_t i = 0; i < COUNT; i++) {
        numbers[i] = pushed;
    }
    push_pull(name, numbers, BPS_FLOAT32, BPS_SUM);
}

static size_t wrong(const char *name, float pushed, float expected)
{
    size_t n = 0;

    sum(name, pushed);
    for (size_t i = 0; i < COUNT; i++) {
        n += numbers[i] != expected;
    }
    printf("%s: %zu are wrong, the first is %.9g\n", name, n, (double)numbers[0]);
    return n;
}

/* Powers of two, drawn such that the mean is kept. */
static size_t wrong_coded(const char *name, float pushed, double expected)
{
    size_t n = 0;
    double all = 0;
    int exponent;

    sum(name, pushed);
    for (size_t i = 0; i < COUNT; i++) {
        n += frexpf(numbers[i], &exponent) != 0.5f;
        all += (double)numbers[i];
    }
    n += fabs(all / COUNT - expected) > 0.02 * expected;
    printf("%s: %zu are wrong, the mean is %g\n", name, n, all / COUNT);
    return n;
}

/* What the reducer of the example has not. */
static size_t wrong_integers(const char *name, int64_t pushed, int64_t expected)
{
    size_t n = 0;

    for (size_t i = 0; i < COUNT; i++) {
        integers[i] = pushed;
    }
    push_pull(name, integers, BPS_INT64, BPS_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        n += integers[i] != expected;
    }
    return n;
}

int main(void)
{
    static const float apart[] = {1e8f, 1, -1e8f};
    struct bps_report report = {""};
    size_t n = 0;

    check(bps_init(NULL, &report), "init", &report);
    n += wrong("kept", apart[bps_rank() % 3], 1);
    n += wrong("clipped", 1e9f, 6e8f);
    n += wrong_coded("coded", 3, 9);
    n += wrong_integers("integers", bps_rank(), 2);
    bps_shutdown(NULL);
    printf("%s\n", n == 0 ? "ok" : "wrong");
    return n == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
