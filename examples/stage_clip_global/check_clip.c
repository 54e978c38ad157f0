/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_clip.c - what workers get with clip_global.conf: three tensors whose 5000 elements all have one value have a
 * norm of that value times the root of 5000 together, and of 1 at most after clipping.
 */
#include <stdio.h>
#include <stdlib.h>

#include <byteps/byteps.h>

enum { TENSORS = 3, MOST = 2500 };

static const size_t counts[TENSORS] = {900, 1600, MOST};
static const char *const names[TENSORS] = {"a", "b", "c"};
static float data[TENSORS][MOST];

static void check(bps_status status, const char *what, const struct bps_report *report)
{
    if (status != BPS_OK) {
        fprintf(stderr, "check_clip: %s: %s\n", what, report->text);
        exit(EXIT_FAILURE);
    }
}

static bps_handle start(int i, float value)
{
    struct bps_report report;
    bps_handle handle;
    struct bps_push_pull request = {.size = sizeof request, .name = names[i], .in = data[i], .out = data[i]};
    request.count = counts[i];
    request.dtype = BPS_FLOAT32;
    request.op = BPS_AVERAGE;
    request.prescale = request.postscale = 1;
    for (size_t k = 0; k < counts[i]; k++) {
        data[i][k] = value;
    }
    check(bps_push_pull_async(&request, &handle, &report), names[i], &report);
    return handle;
}

static void expect(int i, double value)
{
    for (size_t k = 0; k < counts[i]; k++) {
        double found = (double)data[i][k];
        if (found < value * (1 - 1e-6) || found > value * (1 + 1e-6)) {
            fprintf(stderr, "check_clip: element %zu of %s is %g, expected %g\n", k, names[i], found, value);
            exit(EXIT_FAILURE);
        }
    }
}

/* All three are started before the first one is waited for. */
static void step(float value)
{
    double norm = (double)value * 70.710678118654755;
    struct bps_report report;
    bps_handle handles[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        handles[i] = start(i, value);
    }
    for (int i = 0; i < TENSORS; i++) {
        check(bps_wait(handles[i], BPS_FOREVER, &report), names[i], &report);
        expect(i, norm > 1 ? (double)value / norm : (double)value);
    }
}

int main(void)
{
    struct bps_report report;
    check(bps_init(NULL, &report), "bps_init", &report);
    step(3);
    step(1e-3f);
    step(1e4f);
    check(bps_shutdown(&report), "bps_shutdown", &report);
    puts("check_clip: ok");
    return 0;
}
