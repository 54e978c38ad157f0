/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_bench.h - `byteps plugin bench`: a plugin beside the reference of its kind. bench/ measures. */
#ifndef BPS_TOOLS_PLUGIN_BENCH_H
#define BPS_TOOLS_PLUGIN_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPS_PLUGIN_BENCH_SIZES 16

struct bps_plugin_bench_request {
    const char *plugin; /* a name, or the path of a file */
    uint32_t kind;      /* 0: any */
    bool json;
    const char *const *set; /* options of the plugin, "name=value" */
    size_t nset;
    uint32_t rounds;
    const char *bytes[BPS_PLUGIN_BENCH_SIZES]; /* sizes as the command line has them; none: some that are usual */
    size_t sizes;
};

/* Returns the exit status. */
int bps_plugin_bench(const struct bps_plugin_bench_request *request);

#endif
