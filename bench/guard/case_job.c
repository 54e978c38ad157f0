/* SPDX-License-Identifier: Apache-2.0 */
/* case_job.c - a push_pull in a job of this one process: its start, its way along the graph, its end. */
#include <byteps/byteps.h>

#include "hot_paths.h"

#define COUNT 16u

static float gradient[COUNT];
static struct bps_push_pull request = {
    .size = sizeof request,
    .in = gradient,
    .out = gradient,
    .count = COUNT,
    .dtype = BPS_FLOAT32,
    .op = BPS_AVERAGE,
    .prescale = 1.0,
    .postscale = 1.0,
};

static void open_job(const void *arg)
{
    static const char *const settings[] = {"reducers.sum.isa=baseline"};
    static const struct bps_init_options options = {.size = sizeof options, .set = settings, .nset = 1};
    static const struct bps_declaration declaration = {
        .size = sizeof declaration, .name = "gradient", .count = COUNT, .dtype = BPS_FLOAT32};
    struct bps_report report = {""};
    (void)arg;
    hot_path_need(bps_init(&options, &report) == BPS_OK, "%s", report.text);
    hot_path_need(bps_declare(&declaration, 1, &request.tensor, &report) == BPS_OK, "%s", report.text);
}

static void push_pull(void)
{
    struct bps_report report = {""};
    bps_handle handle;
    hot_path_need(bps_push_pull(&request, BPS_FOREVER, &handle, &report) == BPS_OK, "%s", report.text);
}

const struct hot_path hot_paths_job[] = {
    {"push-pull-alone", 1000, open_job, push_pull, NULL},
    {NULL, 0, NULL, NULL, NULL},
};
