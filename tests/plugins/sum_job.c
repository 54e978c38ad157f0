/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_job.c - a worker for tests of plugins in a job:  sum_job VALUES [VALUES]...
 *
 * Each argument is the tensor of one rank, as numbers separated by blanks. It sums them as float32 and prints
 * the result, "sum: 2 -2 1", or "error: TEXT"; exit status 1 then. Instead of numbers, "kill" ends the rank by SIGKILL
 * after half a second.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define COUNT_MAX 64

static size_t parse(const char *text, float *values)
{
    size_t count = 0;
    char *end;

    for (; count < COUNT_MAX; count++, text = end) {
        values[count] = strtof(text, &end);
        if (end == text) {
            break;
        }
    }
    return count;
}

static bps_status sum(float *values, size_t count, struct bps_report *report)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .name = "values",
        .in = values,
        .out = values,
        .count = count,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;
    bps_status status = bps_push_pull_async(&request, &handle, report);

    return status == BPS_OK ? bps_wait(handle, BPS_FOREVER, report) : status;
}

static int fail(const struct bps_report *report)
{
    printf("error: %s\n", report->text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    float values[COUNT_MAX];
    bps_status status;
    size_t count;

    if (bps_init(NULL, &report) != BPS_OK) {
        return fail(&report);
    }
    if (bps_rank() + 1 >= argc) {
        fprintf(stderr, "usage: sum_job VALUES [VALUES]...: one for each rank\n");
        return EXIT_FAILURE;
    }
    if (strcmp(argv[bps_rank() + 1], "kill") == 0) {
        usleep(500000);
        raise(SIGKILL);
    }
    count = parse(argv[bps_rank() + 1], values);
    status = sum(values, count, &report);
    bps_shutdown(NULL);
    if (status != BPS_OK) {
        return fail(&report);
    }
    printf("sum:");
    for (size_t i = 0; i < count; i++) {
        printf(" %g", (double)values[i]);
    }
    printf("\n");
    return EXIT_SUCCESS;
}
