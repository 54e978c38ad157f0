/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.c - a worker for `make check`:  sum PUSHED:EXPECTED [PUSHED:EXPECTED]...
 *
 * All workers push a tensor of the first number of each pair, and each must get the second one in all its elements.
 * Further forms of a pair: with "1,2:3" the first worker pushes 1, the second one 2, and so on from the front again;
 * with "3~6" elements may differ, and their mean must be within 5% of 6.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <byteps/byteps.h>

#define COUNT 5000

/* The result is in values. */
static bps_status push_pull(const char *name, float *values, struct bps_report *report)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .name = name,
        .in = values,
        .out = values,
        .count = COUNT,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;
    bps_status status = bps_push_pull_async(&request, &handle, report);

    return status == BPS_OK ? bps_wait(handle, BPS_FOREVER, report) : status;
}

/* What this worker pushes; *rest is what follows the numbers: ":EXPECTED", or "~EXPECTED". */
static float pushed_of(const char *pair, char **rest)
{
    int n = 0, rank = bps_rank();
    float all[16];

    do {
        all[n % 16] = strtof(n == 0 ? pair : *rest + 1, rest);
        n++;
    } while (**rest == ',' && n < 16);
    return all[rank % n];
}

/* The number of elements that are not as expected, or all of them. */
static size_t count_wrong(const char *pair, const float *values, float expected, bool mean)
{
    size_t wrong = 0;
    double sum = 0;

    for (size_t i = 0; i < COUNT; i++) {
        sum += (double)values[i];
        if (!mean && values[i] != expected && wrong++ == 0) {
            printf("%s: element %zu is %.9g\n", pair, i, (double)values[i]);
        }
    }
    if (mean && !(fabs(sum / COUNT - (double)expected) <= 0.05 * fabs((double)expected))) {
        printf("%s: the mean is %.9g\n", pair, sum / COUNT);
        return COUNT;
    }
    return wrong;
}

/* The same, of what was pushed. The pair is the tensor's name as well. */
static size_t check(const char *pair)
{
    static float values[COUNT];
    struct bps_report report = {""};
    char *rest;
    float pushed = pushed_of(pair, &rest), expected = *rest != '\0' ? strtof(rest + 1, NULL) : pushed;

    for (size_t i = 0; i < COUNT; i++) {
        values[i] = pushed;
    }
    if (push_pull(pair, values, &report) != BPS_OK) {
        printf("%s: %s\n", pair, report.text);
        return COUNT;
    }
    return count_wrong(pair, values, expected, *rest == '~');
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    size_t wrong = 0;

    if (bps_init(NULL, &report) != BPS_OK) {
        printf("%s\n", report.text);
        return EXIT_FAILURE;
    }
    for (int i = 1; i < argc; i++) {
        wrong += check(argv[i]);
    }
    bps_shutdown(NULL);
    printf("%d tensors: %s\n", argc - 1, wrong == 0 ? "ok" : "wrong");
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
