/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_job.c - a worker for tests of plugins in a job:  sum_job VALUES [VALUES]...
 *
 * Each argument is the tensor of one rank, as numbers separated by blanks; "2*50" is 50 times 2. It sums them as
 * float32 and prints the result, "sum: 2 -2 1", or "error: TEXT" and, if that is so, "the job goes on"; exit status 1
 * then. Instead of numbers, "kill" ends the rank by SIGKILL after half a second. The variable CODING says how it is
 * coded.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define COUNT_MAX (1u << 16)

static size_t parse(const char *text, float *values)
{
    size_t count = 0;
    char *end;

    for (;; text = end) {
        float value = strtof(text, &end);
        size_t times = end == text ? 0 : *end == '*' ? strtoul(end + 1, &end, 10) : 1;
        if (times == 0 || times > COUNT_MAX - count) {
            return count;
        }
        while (times-- > 0) {
            values[count++] = value;
        }
    }
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
    const struct bps_declaration declaration = {
        .size = sizeof declaration, .name = "values", .dtype = BPS_DTYPES, .coding = getenv("CODING")};
    bps_handle handle;
    bps_status status = bps_declare(&declaration, 1, NULL, report);
    if (status == BPS_OK) {
        status = bps_push_pull_async(&request, &handle, report);
    }

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
    static float values[COUNT_MAX];
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
    if (status != BPS_OK) {
        fail(&report);
        if (bps_barrier(NULL) == BPS_OK) {
            printf("the job goes on\n");
        }
        bps_shutdown(NULL);
        return EXIT_FAILURE;
    }
    bps_shutdown(NULL);
    printf("sum:");
    for (size_t i = 0; i < count; i++) {
        printf(" %g", (double)values[i]);
    }
    printf("\n");
    return EXIT_SUCCESS;
}
