/* SPDX-License-Identifier: Apache-2.0 */
/* transport_beside.c - `byteps plugin bench` of a transport: messages between two processes, through it and tcp. */
#include "bench/beside.h"
#include "bench/transport.h"

struct end {
    struct bps_bench_asker asker;
    struct bps_bench_listener listener;
};

static bps_status trip(void *side, const void *arg, double *out, struct bps_report *report)
{
    struct bps_bench_latency row;
    struct end *end = side;
    bps_status status = bps_bench_measure_latency(&end->asker, *(const uint32_t *)arg, &row, report);
    *out = row.trip.median;
    return status;
}

static bps_status stream(void *side, const void *arg, double *out, struct bps_report *report)
{
    struct bps_bench_goodput row;
    struct end *end = side;
    bps_status status = bps_bench_measure_goodput(&end->asker, *(const uint32_t *)arg, &row, report);
    *out = row.rate.median;
    return status;
}

static bps_status begin(const struct bps_bench_beside *beside, enum bps_bench_side side, struct end *end,
                        struct bps_report *report)
{
    const char *name = bps_bench_side_name[side];
    end->asker = (struct bps_bench_asker){.rounds = 1, .alone = true};
    bps_status status = bps_bench_channel_open(&end->asker.channel, beside->conf, name, report);
    if (status == BPS_OK && bps_bench_listener_start(beside->request, name, &end->listener) != 0) {
        BPS_REPORT(report, "transport %s cannot be measured between two processes", beside->name[side]);
        status = BPS_ERR_LOST;
    }
    return status == BPS_OK ? bps_bench_asker_begin(&end->asker, end->listener.address, report) : status;
}

static void finish(struct end *end)
{
    bps_bench_asker_end(&end->asker);
    bps_bench_channel_close(&end->asker.channel);
    bps_bench_listener_stop(&end->listener);
}

static bps_status measure(const struct bps_bench_beside *beside, struct end *ends, struct bps_report *report)
{
    static const uint32_t trips[] = {8, 4096};
    void *const sides[BPS_BENCH_SIDES] = {&ends[0], &ends[1]};
    bps_status status = BPS_OK;
    for (size_t i = 0; i < sizeof trips / sizeof *trips && status == BPS_OK; i++) {
        const struct bps_bench_figure figure = {"there and back",     trips[i], BPS_BENCH_SECONDS, trip,
                                                {sides[0], sides[1]}, &trips[i]};
        status = bps_bench_in_turn(beside, &figure, report);
    }
    for (uint32_t i = 0; i < beside->request->loads && status == BPS_OK; i++) {
        uint32_t bytes = (uint32_t)(beside->request->load[i].elements * sizeof(float));
        const struct bps_bench_figure figure = {"stream of messages", bytes, BPS_BENCH_RATE, stream,
                                                {sides[0], sides[1]}, &bytes};
        status = bps_bench_in_turn(beside, &figure, report);
    }
    return status;
}

bps_status bps_bench_transport_beside(struct bps_bench_beside *beside, struct bps_report *report)
{
    static struct end ends[BPS_BENCH_SIDES];
    size_t begun = 0;
    bps_status status = BPS_OK;
    while (begun < BPS_BENCH_SIDES && status == BPS_OK) {
        status = begin(beside, begun, &ends[begun], report);
        begun++;
    }
    if (status == BPS_OK) {
        bps_bench_beside_head(beside);
        status = measure(beside, ends, report);
    }
    while (begun > 0) {
        finish(&ends[--begun]);
    }
    return status;
}
