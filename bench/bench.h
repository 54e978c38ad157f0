/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - the parts of `byteps bench`. */
#ifndef BPS_BENCH_BENCH_H
#define BPS_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/cmd.h"

#define BPS_BENCH_NAME "bench"

/*
 * What a row of the table measures: the elements of its tensors, in the order of the forward pass; in types
 * of other sizes than float32 a load of a given size has more of them, a model as many.
 */
struct bps_bench_load {
    char *name;
    bool sized;
    uint32_t tensors;
    uint64_t *count;
    uint64_t elements;
};

/* The job that is made if this process is in none. NULL: as by default. */
struct bps_bench_job {
    const char *workers, *servers;
    bool testbed;
    const char *rate;  /* of each of its links */
    const char *links; /* of each host */
    const char **slow; /* HOST=RATE, of links that differ */
    uint32_t nslow;
};

struct bps_bench_request {
    struct bps_cmd_conf conf;
    struct bps_bench_load *load;
    uint32_t loads;
    int64_t rounds;
    int64_t settle; /* push_pull: rounds before those */
    bool json;
    const char *plot;       /* into this file; NULL: no picture */
    bool alloc;             /* push_pull: tensors lie in memory of bps_alloc() */
    bool dtype[BPS_DTYPES]; /* push_pull: in which types */
    const char *beside;     /* train: another way to train; NULL: none */
    struct bps_bench_job job;
    const char **name; /* transport, compressor: which ones */
    uint32_t names;
    const char *listen, *connect; /* transport: at or to this address, "" any; NULL: not said */
};

/* ---- load.c: print what is wrong; return an exit status ---- */

/* The tensors of a model, or one tensor of `text` bytes. */
int bps_bench_add_model(struct bps_bench_request *request, const char *word);
int bps_bench_add_size(struct bps_bench_request *request, const char *text);
/* Sizes from `min` to `max`, each four times the one before. */
int bps_bench_add_range(struct bps_bench_request *request, const char *min, const char *max);
void bps_bench_loads_fini(struct bps_bench_request *request);

/* ---- figures.c ---- */

struct bps_bench_spread {
    double median, least, most;
};

/* Sorts the values. */
struct bps_bench_spread bps_bench_spread(double *values, size_t n);
/* The time of this host's processors since its start, in some unit, and the idle part of it; 0: not known. */
struct bps_bench_processors {
    double all, idle;
};
struct bps_bench_processors bps_bench_processors(void);
/* "64MiB", into a static buffer of which there are a few. */
const char *bps_bench_size_text(uint64_t bytes);

/* ---- script.c: print what is wrong; return an exit status ---- */

/* Whether --plot, if it was given, will work. */
int bps_bench_check_plot(const struct bps_bench_request *request);
/* Whether a training can be measured here. */
int bps_bench_check_train(void);
/* Becomes a worker of a training, which measures. */
int bps_bench_train(const struct bps_bench_request *request);
/* Prints and draws the results as the options say, and frees them; NULL: there was no memory. */
int bps_bench_show(const struct bps_bench_request *request, json_t *root);

/* ---- job.c ---- */

/* Becomes a job that measures by these arguments; returns an exit status, and only when that fails. */
int bps_bench_become_job(const struct bps_bench_request *request, int argc, char **argv);

/* ---- the benchmarks; each returns an exit status ---- */

/* reducer.c: the kernels of the reducer that the configuration chooses. */
int bps_bench_reducer(const struct bps_bench_request *request);
/* compressor.c: one or several compressors. */
int bps_bench_compressor(const struct bps_bench_request *request);
/* push_pull.c: a worker of the job measures, and rank 0 prints. */
int bps_bench_push_pull(const struct bps_bench_request *request);

/* transport.c: one or several transports between two processes. */
#define BPS_BENCH_MESSAGE_LIMIT (64u << 20)
int bps_bench_transport(const struct bps_bench_request *request);

#endif
