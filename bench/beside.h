/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.h - the parts of `byteps plugin bench`: a plugin and the reference of its kind, measured in turn in one run.
 */
#ifndef BPS_BENCH_BESIDE_H
#define BPS_BENCH_BESIDE_H

#include "bench/bench.h"
#include "plugin/instance.h"

enum bps_bench_side { BPS_BENCH_MEASURED, BPS_BENCH_REFERENCE, BPS_BENCH_SIDES };
/* What the two are called in messages, and in a configuration that has both. */
extern const char *const bps_bench_side_name[BPS_BENCH_SIDES];

struct bps_bench_beside {
    const struct bps_bench_request *request;
    const struct bps_conf *conf; /* which has an entry for each of two transports */
    const char *const *set;      /* options of the measured plugin, "name=value" */
    size_t nset;
    uint32_t kind;
    const char *name[BPS_BENCH_SIDES]; /* of the two plugins; what is no plugin is "memcpy" */
    json_t *rows;
};

/* What a figure counts. */
enum bps_bench_unit { BPS_BENCH_RATE, BPS_BENCH_SECONDS, BPS_BENCH_SHARE };

/* One thing that is measured of both; `once` measures one of `side`. */
struct bps_bench_figure {
    const char *name;
    uint64_t bytes;
    enum bps_bench_unit unit;
    bps_status (*once)(void *side, const void *arg, double *out, struct bps_report *report);
    void *side[BPS_BENCH_SIDES];
    const void *arg; /* for `once` */
};

/* ---- beside.c ---- */

/* An instance of a side's plugin: with the options of the command line, or with its defaults. */
bps_status bps_bench_beside_open(const struct bps_bench_beside *beside, enum bps_bench_side side, struct bps_loop *loop,
                                 struct bps_instance **out, struct bps_report *report);
/* Head and rows of the table, which are printed unless the output is JSON. */
void bps_bench_beside_head(const struct bps_bench_beside *beside);
bps_status bps_bench_in_turn(const struct bps_bench_beside *beside, const struct bps_bench_figure *figure,
                             struct bps_report *report);

/* ---- each kind; with an error the report says what is wrong ---- */

bps_status bps_bench_transport_beside(struct bps_bench_beside *beside, struct bps_report *report);
bps_status bps_bench_reducer_beside(struct bps_bench_beside *beside, struct bps_report *report);
bps_status bps_bench_compressor_beside(struct bps_bench_beside *beside, struct bps_report *report);
bps_status bps_bench_stage_beside(struct bps_bench_beside *beside, struct bps_report *report);

#endif
