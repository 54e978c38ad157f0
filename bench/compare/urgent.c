/* SPDX-License-Identifier: Apache-2.0 */
/*
 * urgent.c - a worker that pushes and pulls a huge tensor and, beside it, a small urgent one.
 *
 * urgent DIRECTORY NAME TENSORS   the file has the elements of the huge tensor, then of the urgent one
 *
 * The driver writes lines HUGE PERIOD COUNT to the pipe NAME.RANK.go (round.h). With HUGE the huge tensor is
 * sent once. The urgent one is sent every PERIOD ns (0: not at all), at the same moments by all workers:
 * COUNT times, or until the huge one is there on some worker. The answer is a line with the moment when the
 * huge one started, the round trips of the urgent one, and the moment when the huge one ended, all in ns.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>

#include "round.h"

enum { HUGE_ONE, URGENT_ONE, TENSORS };

struct flight {
    uint64_t start, end;
    atomic_bool over;
    bps_status status;
    struct bps_report report;
    sem_t landed;
};

struct urgent {
    struct bench_tensors tensors;
    bps_tensor tensor[TENSORS], clock;
    float *memory[TENSORS], *sum; /* the urgent one's result goes to `sum`, as its input is a message */
    struct flight flight;         /* of the huge one */
};

static void check(bps_status status, const struct bps_report *report)
{
    if (status < 0) {
        bench_fail("%s: %s", bps_strerror(status), report->text);
    }
}

static void declare(struct urgent *u)
{
    const struct bps_declaration declarations[] = {
        {.size = sizeof *declarations, .name = "huge", .count = u->tensors.count[HUGE_ONE], .dtype = BPS_FLOAT32},
        {.size = sizeof *declarations, .name = "urgent", .count = u->tensors.count[URGENT_ONE], .dtype = BPS_FLOAT32},
        {.size = sizeof *declarations, .name = "clock", .count = 1, .dtype = BPS_INT64},
    };
    bps_tensor out[TENSORS + 1];
    struct bps_report report = {""};

    check(bps_declare(declarations, TENSORS + 1, out, &report), &report);
    memcpy(u->tensor, out, sizeof u->tensor);
    u->clock = out[TENSORS];
}

/* ---- the huge one ---- */

static void landed(void *arg, bps_status status, const char *text)
{
    struct flight *flight = arg;

    flight->end = bench_now();
    flight->status = status;
    snprintf(flight->report.text, sizeof flight->report.text, "%s", text == NULL ? "" : text);
    atomic_store(&flight->over, true);
    sem_post(&flight->landed);
}

static void start_huge(struct urgent *u)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .tensor = u->tensor[HUGE_ONE],
        .in = u->memory[HUGE_ONE],
        .out = u->memory[HUGE_ONE],
        .count = u->tensors.count[HUGE_ONE],
        .dtype = BPS_FLOAT32,
        .op = BPS_AVERAGE,
        .prescale = 1,
        .postscale = 1,
        .done = landed,
        .arg = &u->flight,
    };
    struct bps_report report = {""};
    bps_handle handle;

    atomic_store(&u->flight.over, false);
    u->flight.start = bench_now();
    check(bps_push_pull_async(&request, &handle, &report), &report);
}

static void wait_for_huge(struct urgent *u)
{
    while (sem_wait(&u->flight.landed) != 0) {
    }
    check(u->flight.status, &u->flight.report);
}

/* ---- the urgent one ---- */

/* The moment when the first worker came here, the same on all of them: their hosts share a clock. */
static uint64_t common_moment(struct urgent *u)
{
    int64_t moment = (int64_t)bench_now();
    const struct bps_push_pull request = {
        .size = sizeof request,
        .tensor = u->clock,
        .in = &moment,
        .out = &moment,
        .count = 1,
        .dtype = BPS_INT64,
        .op = BPS_MIN,
        .prescale = 1,
        .postscale = 1,
    };
    struct bps_report report = {""};
    bps_handle handle;

    check(bps_push_pull(&request, BPS_FOREVER, &handle, &report), &report);
    return (uint64_t)moment;
}

/* The first element tells the others that the huge one is here; true if it is on some worker. */
static bool push_urgent(struct urgent *u, bool tell)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .tensor = u->tensor[URGENT_ONE],
        .in = u->memory[URGENT_ONE],
        .out = u->sum,
        .count = u->tensors.count[URGENT_ONE],
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .priority = 1,
        .prescale = 1,
        .postscale = 1,
    };
    struct bps_report report = {""};
    bps_handle handle;

    u->memory[URGENT_ONE][0] = tell ? 1 : 0;
    check(bps_push_pull(&request, BPS_FOREVER, &handle, &report), &report);
    return u->sum[0] > 0;
}

/* Round trips that ended after the huge one was here do not count. */
static void push_urgents(struct urgent *u, bool huge, uint64_t period, uint64_t count, uint64_t begin, FILE *answer)
{
    bool over = false;

    for (uint64_t i = 1; huge ? !over : i <= count; i++) {
        bench_sleep_until(begin + i * period);
        uint64_t start = bench_now();
        over = push_urgent(u, huge && atomic_load(&u->flight.over));
        uint64_t end = bench_now();
        if (!huge || !atomic_load(&u->flight.over)) {
            fprintf(answer, " %lu", end - start);
        }
    }
}

/* ---- the driver ---- */

static void serve(struct urgent *u, struct bench_driver *driver)
{
    unsigned long huge, period, count;
    char line[80];

    while (fgets(line, sizeof line, driver->go) != NULL) {
        if (sscanf(line, "%lu %lu %lu", &huge, &period, &count) != 3) {
            bench_fail("the driver said: %s", line);
        }
        uint64_t begin = common_moment(u);
        u->flight.start = u->flight.end = 0;
        if (huge) {
            start_huge(u);
        }
        fprintf(driver->done, "%lu", u->flight.start);
        if (period > 0) {
            push_urgents(u, huge, period, count, begin, driver->done);
        }
        if (huge) {
            wait_for_huge(u);
        }
        fprintf(driver->done, " %lu\n", u->flight.end);
        fflush(driver->done);
    }
}

int main(int argc, char **argv)
{
    struct urgent u = {.flight = {.status = BPS_OK}};
    struct bench_driver driver;
    struct bps_report report = {""};

    if (argc != 4) {
        bench_fail("usage: urgent DIRECTORY NAME TENSORS");
    }
    bench_tensors_read(argv[3], &u.tensors);
    if (u.tensors.n != TENSORS || sem_init(&u.flight.landed, 0, 0) != 0) {
        bench_fail("%s must have %d tensors", argv[3], TENSORS);
    }
    check(bps_init(NULL, &report), &report);
    for (size_t i = 0; i < TENSORS; i++) {
        u.memory[i] = bench_memory(u.tensors.count[i], 1);
    }
    u.sum = bench_memory(u.tensors.count[URGENT_ONE], 0);
    declare(&u);
    bench_driver_open(argv[1], argv[2], bps_rank(), &driver);
    serve(&u, &driver);
    check(bps_shutdown(&report), &report);
    return 0;
}
