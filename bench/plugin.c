/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - `byteps plugin bench`: which plugin is measured, beside what, with which configuration. */
#include <stdlib.h>

#include <byteps/byteps.h>

#include "base/log.h"
#include "bench/beside.h"
#include "tools/plugin_bench.h"
#include "tools/plugin_which.h"

#define NAME "plugin"

/* What each kind is measured beside; a compressor is beside that of ours which codes to nearly as many bytes. */
static const struct {
    uint32_t kind;
    const char *reference;
    bps_status (*measure)(struct bps_bench_beside *beside, struct bps_report *report);
} kinds[] = {
    {BPS_KIND_TRANSPORT, "tcp", bps_bench_transport_beside},
    {BPS_KIND_REDUCER, "cpu", bps_bench_reducer_beside},
    {BPS_KIND_COMPRESSOR, "", bps_bench_compressor_beside},
    {BPS_KIND_STAGE, "memcpy", bps_bench_stage_beside},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* The configuration's text, "transports.measured.option=value"; kept by the caller until its end. */
static void set(struct bps_bench_request *request, char **kept, uint32_t kind, enum bps_bench_side side,
                const char *option, const char *value)
{
    *kept = bps_cmd_print("%ss.%s.%s%s", bps_kind_name(kind), bps_bench_side_name[side], option, value);
    bps_cmd_conf_set(&request->conf, *kept);
}

/* An entry for each of two transports, which the process at their other ends reads, too. */
static char **set_all(const struct bps_plugin_bench_request *asked, const struct bps_plugin_which *which,
                      const char *reference, struct bps_bench_request *request)
{
    char **kept = bps_cmd_alloc(asked->nset + 2, sizeof *kept);
    if (which->kind != BPS_KIND_TRANSPORT) {
        return kept;
    }
    for (size_t i = 0; i < asked->nset; i++) {
        set(request, &kept[i], which->kind, BPS_BENCH_MEASURED, asked->set[i], "");
    }
    set(request, &kept[asked->nset], which->kind, BPS_BENCH_MEASURED, "plugin=", which->name);
    set(request, &kept[asked->nset + 1], which->kind, BPS_BENCH_REFERENCE, "plugin=", reference);
    return kept;
}

static int add_sizes(const struct bps_plugin_bench_request *asked, struct bps_bench_request *request)
{
    int result = 0;
    for (size_t i = 0; i < asked->sizes && result == 0; i++) {
        result = bps_bench_add_size(request, asked->bytes[i]);
    }
    if (asked->sizes == 0) {
        bps_bench_add_size(request, "64KiB");
        bps_bench_add_size(request, "4MiB");
    }
    for (uint32_t i = 0; i < request->loads && result == 0; i++) {
        if (request->load[i].elements > BPS_BENCH_MESSAGE_LIMIT / sizeof(float)) {
            result = bps_cmd_usage(NAME, "--bytes %s: at most 64 MiB are measured", request->load[i].name);
        }
    }
    return result;
}

static int measure(const struct bps_bench_request *request, struct bps_bench_beside *beside, size_t kind)
{
    struct bps_report report = {""};
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request->conf, "worker");
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bps_log_set_level(BPS_LOG_WARN);
    bps_cmd_guard(conf);
    beside->conf = conf;
    bps_status status = kinds[kind].measure(beside, &report);
    bps_conf_free(conf);
    if (status != BPS_OK) {
        return bps_cmd_failure(NAME, "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return bps_bench_show(request,
                          json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:O}", "benchmark", "plugin", "version",
                                    bps_version(), "kind", bps_kind_name(beside->kind), "plugin",
                                    beside->name[BPS_BENCH_MEASURED], "reference", beside->name[BPS_BENCH_REFERENCE],
                                    "rounds", (json_int_t)request->rounds, "results", beside->rows));
}

static int measure_kind(const struct bps_plugin_bench_request *asked, const struct bps_plugin_which *which, size_t kind)
{
    struct bps_bench_request request = {.rounds = asked->rounds, .json = asked->json};
    struct bps_bench_beside beside = {
        &request, NULL, asked->set, asked->nset, which->kind, {which->name, kinds[kind].reference}, json_array()};
    char **kept = set_all(asked, which, kinds[kind].reference, &request);
    int result = add_sizes(asked, &request);
    result = result == 0 ? measure(&request, &beside, kind) : result;
    bps_bench_loads_fini(&request);
    bps_cmd_conf_fini(&request.conf);
    for (size_t i = 0; i < asked->nset + 2; i++) {
        free(kept[i]);
    }
    free(kept);
    json_decref(beside.rows);
    return result;
}

int bps_plugin_bench(const struct bps_plugin_bench_request *asked)
{
    struct bps_plugin_which which = {.path = NULL};
    int result = bps_plugin_check_set(asked->set, asked->nset);
    result = result == 0 ? bps_plugin_find(asked->plugin, asked->kind, &which) : result;
    size_t kind = 0;
    while (kind < KINDS && kinds[kind].kind != which.kind) {
        kind++;
    }
    if (result == 0 && kind == KINDS) {
        result = bps_cmd_failure(NAME,
                                 "'%s' is a %s, which has no work of its own that could be measured; transports, "
                                 "reducers, compressors and stages have",
                                 which.name, bps_kind_name(which.kind));
    } else if (result == 0) {
        result = measure_kind(asked, &which, kind);
    }
    free(which.path);
    return bps_cmd_finish(NAME, result);
}
