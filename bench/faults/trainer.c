/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.c - makes steps of an elastic job, and prints the time (CLOCK_MONOTONIC) at which each has ended.
 *
 *   trainer STEPS TENSORS ELEMENTS
 *
 * "step N SECONDS" when a step has ended, "again N SECONDS" when it has failed for a lost worker and is made again.
 * Each worker contributes ones, so a sum is the number of workers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <byteps/elastic.h>

static size_t tensors, elements;
static float **gradient;

static void end(const char *what, bps_status status, const struct bps_report *report)
{
    printf("%s: %s\n", what, report->text[0] != '\0' ? report->text : bps_strerror(status));
    bps_shutdown(NULL);
    exit(EXIT_FAILURE);
}

static void tell(const char *what, int step)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%s %d %.6f\n", what, step, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    fflush(stdout);
}

static bps_status begin(size_t t, bps_handle *handle, struct bps_report *report)
{
    char name[32];
    snprintf(name, sizeof name, "gradient.%zu", t);
    for (size_t i = 0; i < elements; i++) {
        gradient[t][i] = 1;
    }
    const struct bps_push_pull request = {.size = sizeof request,
                                          .name = name,
                                          .in = gradient[t],
                                          .out = gradient[t],
                                          .count = elements,
                                          .dtype = BPS_FLOAT32,
                                          .op = BPS_SUM,
                                          .prescale = 1,
                                          .postscale = 1};
    return bps_push_pull_async(&request, handle, report);
}

static bps_status make_step(bps_handle *handle, struct bps_report *report)
{
    bps_status status = BPS_OK;
    size_t started = 0;
    while (started < tensors && (status = begin(started, &handle[started], report)) == BPS_OK) {
        started++;
    }
    for (size_t t = 0; t < started; t++) { /* all of them, whatever the first says */
        struct bps_report own = {""};
        bps_status result = bps_wait(handle[t], BPS_FOREVER, &own);
        if (result != BPS_OK && (status == BPS_OK || status == BPS_ERR_MEMBERSHIP)) {
            status = result;
            *report = own;
        }
    }
    return status;
}

static void check(void)
{
    for (size_t t = 0; t < tensors; t++) {
        if (gradient[t][0] != (float)bps_size() || gradient[t][elements - 1] != (float)bps_size()) {
            end("a sum is wrong", BPS_ERR_STATE, &(struct bps_report){""});
        }
    }
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    bps_status status = argc == 4 ? bps_init(NULL, &report) : BPS_ERR_INVALID;
    if (status != BPS_OK) {
        end("does not start", status, &report);
    }
    const int steps = atoi(argv[1]);
    tensors = strtoul(argv[2], NULL, 10);
    elements = strtoul(argv[3], NULL, 10);
    bps_handle *handle = calloc(tensors, sizeof *handle);
    gradient = calloc(tensors, sizeof *gradient);
    for (size_t t = 0; t < tensors; t++) {
        gradient[t] = malloc(elements * sizeof **gradient);
    }
    for (int step = 0; step < steps;) {
        status = make_step(handle, &report);
        if (status == BPS_OK) {
            check();
            tell("step", ++step);
            continue;
        }
        if (status == BPS_ERR_MEMBERSHIP) {
            tell("again", step + 1);
            status = bps_reform(&report);
        }
        if (status != BPS_OK) {
            end("error", status, &report);
        }
    }
    bps_shutdown(NULL);
    return EXIT_SUCCESS;
}
