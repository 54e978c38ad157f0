/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push_pull.c - the C interface in one file. Every worker of a job runs this program:
 *
 *     cc -o push_pull push_pull.c $(pkg-config --cflags --libs byteps)
 *     byteps run -n 2 -s 1 -- ./push_pull
 *
 * It averages two tensors over the workers, hands the settings of worker 0 to all, and checks what came back.
 */
#include <byteps/byteps.h>

#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000000

static struct bps_report report;

/* Every call that can fail explains itself in the report. */
static void check(bps_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, bps_strerror(status), report.text);
        exit(EXIT_FAILURE);
    }
}

static void expect(float got, float want, const char *what, size_t i)
{
    const float rounding = 1e-5f;
    if (!(got >= want - rounding && got <= want + rounding)) {
        fprintf(stderr, "worker %d: %s[%zu] is %g, not %g\n", bps_rank(), what, i, got, want);
        exit(EXIT_FAILURE);
    }
}

/* Worker r gives r + i % 8, so the average is (size - 1) / 2 + i % 8. */
static void fill(float *gradient)
{
    for (size_t i = 0; i < COUNT; i++) {
        gradient[i] = (float)(bps_rank() + (int)(i % 8));
    }
}

static void average(float *weight, float *bias)
{
    /* Declaring several tensors at once costs a few messages, however many they are. */
    const struct bps_declaration declarations[] = {
        {.size = sizeof(*declarations), .name = "weight", .count = COUNT, .dtype = BPS_FLOAT32},
        {.size = sizeof(*declarations), .name = "bias", .count = COUNT, .dtype = BPS_FLOAT32},
    };
    bps_tensor tensors[2];
    check(bps_declare(declarations, 2, tensors, &report), "declare");

    /* Both are on their way at the same time. In place: the result replaces what was given. */
    float *data[] = {weight, bias};
    bps_handle handles[2];
    for (int i = 0; i < 2; i++) {
        struct bps_push_pull request = {
            .size = sizeof(request),
            .tensor = tensors[i],
            .in = data[i],
            .out = data[i],
            .count = COUNT,
            .dtype = BPS_FLOAT32,
            .op = BPS_AVERAGE,
            .priority = i, /* the bias is wanted first */
            .prescale = 1,
            .postscale = 1,
        };
        fill(data[i]);
        check(bps_push_pull_async(&request, &handles[i], &report), "push_pull");
    }
    for (int i = 0; i < 2; i++) {
        check(bps_wait(handles[i], BPS_FOREVER, &report), "wait");
        for (size_t j = 0; j < COUNT; j++) {
            expect(data[i][j], (float)(j % 8) + (float)(bps_size() - 1) / 2, declarations[i].name, j);
        }
    }
}

static void share_settings(void)
{
    /* 0.1 is the value that all shall have; the others do not know it yet. */
    float rate = bps_rank() == 0 ? 0.1f : -1.0f;
    const struct bps_push_pull request = {
        .size = sizeof(request),
        .name = "learning rate",
        .in = &rate,
        .out = &rate,
        .count = 1,
        .dtype = BPS_FLOAT32,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;
    check(bps_broadcast_async(&request, 0, &handle, &report), "broadcast");
    check(bps_wait(handle, BPS_FOREVER, &report), "wait");
    expect(rate, 0.1f, "rate", 0);
}

int main(void)
{
    check(bps_init(NULL, &report), "init");
    float *weight = malloc(COUNT * sizeof(float));
    float *bias = malloc(COUNT * sizeof(float));
    if (!weight || !bias) {
        fprintf(stderr, "out of memory\n");
        return EXIT_FAILURE;
    }
    average(weight, bias);
    share_settings();
    check(bps_barrier(&report), "barrier");
    printf("worker %d of %d: all results are right\n", bps_rank(), bps_size());
    check(bps_shutdown(&report), "shutdown");
    free(weight);
    free(bias);
    return EXIT_SUCCESS;
}
