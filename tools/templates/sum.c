/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.c - a worker for `make check`:  sum PUSHED:EXPECTED [PUSHED:EXPECTED]...
 *
 * All workers push a tensor of the first number of each pair, and each must get the second one in all its elements.
 */
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

/* The number of elements that are not as expected. The pair is the tensor's name as well. */
static size_t check(const char *pair)
{
    static float values[COUNT];
    struct bps_report report = {""};
    char *end;
    float pushed = strtof(pair, &end), expected = *end == ':' ? strtof(end + 1, NULL) : pushed;
    size_t wrong = 0;

    for (size_t i = 0; i < COUNT; i++) {
        values[i] = pushed;
    }
    if (push_pull(pair, values, &report) != BPS_OK) {
        printf("%s: %s\n", pair, report.text);
        return COUNT;
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (values[i] != expected && wrong++ == 0) {
            printf("%s: element %zu is %.9g\n", pair, i, (double)values[i]);
        }
    }
    return wrong;
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
