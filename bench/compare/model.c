/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - a worker that trains a model in which nothing is computed: it sleeps, so that the
 * processors are free for the communication.
 *
 * model DIRECTORY NAME TENSORS   a line of the file: elements of a tensor and its share of the compute
 * time
 *
 * The backward pass yields the gradients last to first, and each is pushed at once. The forward pass goes
 * first to last, and a layer waits only for its own sum, as with CrossBarrier of the PyTorch binding. The
 * driver writes lines PRIORITIES COMPUTE COUNT to the pipe NAME.RANK.go (round.h): COUNT iterations after
 * one to warm up, each with COMPUTE ns of computation, and the first layer the most urgent one or, if
 * PRIORITIES is 0, all alike. The answer has the moments in ns when those began and ended.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <byteps/byteps.h>

#include "round.h"

#define BACKWARD 2 /* a layer's backward pass takes so often the time of its forward pass */

struct model {
    struct bench_tensors tensors;
    bps_tensor *tensor;
    bps_handle *handle;
    float **memory;
};

static void check(bps_status status, const struct bps_report *report)
{
    if (status < 0) {
        bench_fail("%s: %s", bps_strerror(status), report->text);
    }
}

static void make_tensors(struct model *m)
{
    size_t n = m->tensors.n;

    m->tensor = calloc(n, sizeof *m->tensor);
    m->handle = calloc(n, sizeof *m->handle);
    m->memory = calloc(n, sizeof *m->memory);
    if (m->tensor == NULL || m->handle == NULL || m->memory == NULL) {
        bench_fail("out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        char name[24];
        const struct bps_declaration declaration = {
            .size = sizeof declaration, .name = name, .count = m->tensors.count[i], .dtype = BPS_FLOAT32};
        struct bps_report report = {""};

        snprintf(name, sizeof name, "%zu", i);
        check(bps_declare(&declaration, 1, &m->tensor[i], &report), &report);
        m->memory[i] = bench_memory(m->tensors.count[i], 1);
    }
}

static void push(struct model *m, size_t i, bool priorities)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .tensor = m->tensor[i],
        .in = m->memory[i],
        .out = m->memory[i],
        .count = m->tensors.count[i],
        .dtype = BPS_FLOAT32,
        .op = BPS_AVERAGE,
        .priority = priorities ? -(int32_t)i : 0,
        .prescale = 1,
        .postscale = 1,
    };
    struct bps_report report = {""};

    check(bps_push_pull_async(&request, &m->handle[i], &report), &report);
}

/* The clock counts the computation alone: a late wake-up delays only what happens at that moment. */
static void iterate(struct model *m, bool priorities, uint64_t compute)
{
    double unit = (double)compute / ((1 + BACKWARD) * (double)m->tensors.shares);
    double clock = (double)bench_now();
    struct bps_report report = {""};

    for (size_t i = m->tensors.n; i-- > 0;) {
        clock += BACKWARD * unit * (double)m->tensors.share[i];
        bench_sleep_until((uint64_t)clock);
        push(m, i, priorities);
    }
    for (size_t i = 0; i < m->tensors.n; i++) {
        bool late = bps_poll(m->handle[i]) == BPS_INPROGRESS;

        check(bps_wait(m->handle[i], BPS_FOREVER, &report), &report);
        clock = (late ? (double)bench_now() : clock) + unit * (double)m->tensors.share[i];
        bench_sleep_until((uint64_t)clock);
    }
}

static void serve(struct model *m, struct bench_driver *driver)
{
    unsigned long priorities, compute, count;
    char line[80];

    while (fgets(line, sizeof line, driver->go) != NULL) {
        if (sscanf(line, "%lu %lu %lu", &priorities, &compute, &count) != 3) {
            bench_fail("the driver said: %s", line);
        }
        iterate(m, priorities != 0, compute);
        uint64_t start = bench_now();
        for (unsigned long i = 0; i < count; i++) {
            iterate(m, priorities != 0, compute);
        }
        fprintf(driver->done, "%lu %lu\n", start, bench_now());
        fflush(driver->done);
    }
}

int main(int argc, char **argv)
{
    struct model m;
    struct bench_driver driver;
    struct bps_report report = {""};

    if (argc != 4) {
        bench_fail("usage: model DIRECTORY NAME TENSORS");
    }
    bench_tensors_read(argv[3], &m.tensors);
    if (m.tensors.shares == 0) {
        bench_fail("%s has no shares of the compute time", argv[3]);
    }
    (void)prctl(PR_SET_TIMERSLACK, 1); /* wake up in time */
    check(bps_init(NULL, &report), &report);
    make_tensors(&m);
    bench_driver_open(argv[1], argv[2], bps_rank(), &driver);
    serve(&m, &driver);
    check(bps_shutdown(&report), &report);
    return 0;
}
