/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - a worker for test_scale.py:  scale TENSORS ROUNDS
 *
 * Sums small tensors, prints "ready", and lives on until the file that $SCALE_GO names is there, so that the
 * test can look at the processes of the job. Then it sums once more, and prints "scale: ok".
 *
 * The worker whose rank is $SCALE_LEAVES leaves instead, and the others print what a barrier says to that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define COUNT 300

static int size;

static void fail(const char *what, const struct bps_report *report)
{
    fprintf(stderr, "scale: %s: %s\n", what, report->text);
    exit(1);
}

/* All tensors at once: each of a name of its own, in flight together. */
static void sum(int tensors, int round)
{
    float(*data)[COUNT] = malloc((size_t)tensors * sizeof *data);
    bps_handle *handle = malloc((size_t)tensors * sizeof *handle);
    struct bps_report report = {""};
    for (int t = 0; t < tensors; t++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %d", t);
        for (int i = 0; i < COUNT; i++) {
            data[t][i] = (float)(t + round + i);
        }
        const struct bps_push_pull request = {
            .size = sizeof request,
            .name = name,
            .in = data[t],
            .out = data[t],
            .count = COUNT,
            .dtype = BPS_FLOAT32,
            .op = BPS_SUM,
            .prescale = 1,
            .postscale = 1,
        };
        if (bps_push_pull_async(&request, &handle[t], &report) != BPS_OK) {
            fail("push_pull", &report);
        }
    }
    for (int t = 0; t < tensors; t++) {
        if (bps_wait(handle[t], BPS_FOREVER, &report) != BPS_OK) {
            fail("wait", &report);
        }
        for (int i = 0; i < COUNT; i++) {
            if (data[t][i] != (float)(size * (t + round + i))) {
                snprintf(report.text, sizeof report.text, "element %d of tensor %d is %g", i, t, (double)data[t][i]);
                fail("result", &report);
            }
        }
    }
    free(data);
    free(handle);
}

static void leave_out(int rank)
{
    struct bps_report report = {"it leaves"};
    if (bps_rank() != rank && bps_barrier(&report) == BPS_OK) {
        fail("barrier", &report);
    }
    puts(report.text);
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    const char *go = getenv("SCALE_GO"), *leaves = getenv("SCALE_LEAVES");
    if (argc != 3 || go == NULL) {
        fprintf(stderr, "usage: SCALE_GO=FILE scale TENSORS ROUNDS\n");
        return 2;
    }
    if (bps_init(NULL, &report) != BPS_OK) {
        fail("init", &report);
    }
    size = bps_size();
    for (int round = 0; round < atoi(argv[2]); round++) {
        sum(atoi(argv[1]), round);
    }
    if (bps_barrier(&report) != BPS_OK) {
        fail("barrier", &report);
    }
    puts("ready");
    fflush(stdout);
    while (access(go, F_OK) != 0) {
        usleep(20000);
    }
    if (leaves != NULL) {
        leave_out(atoi(leaves));
    } else {
        sum(1, 0);
    }
    if (bps_shutdown(&report) != BPS_OK) {
        fail("shutdown", &report);
    }
    puts("scale: ok");
    return 0;
}
