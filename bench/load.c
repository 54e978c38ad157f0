/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - the tensors that `byteps bench` pushes and pulls. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "tools/plan.h"
#include "conf/option.h"
#include "conf/tree.h"

#define BYTES_LIMIT (1ull << 40)

static struct bps_bench_load *add(struct bps_bench_request *request, const char *name, uint32_t tensors)
{
    struct bps_bench_load *load = bps_cmd_alloc(request->loads + 1, sizeof *load);
    if (request->loads > 0) {
        memcpy(load, request->load, request->loads * sizeof *load);
    }
    free(request->load);
    request->load = load;
    load += request->loads++;
    load->name = bps_cmd_print("%s", name);
    load->tensors = tensors;
    load->count = bps_cmd_alloc(tensors, sizeof *load->count);
    return load;
}

int bps_bench_add_model(struct bps_bench_request *request, const char *word)
{
    struct bps_model model;
    struct bps_report report = {""};
    if (bps_model_read(word, &model, &report) != BPS_OK) {
        return bps_cmd_failure(BPS_BENCH_NAME, "%s", report.text);
    }
    struct bps_bench_load *load = add(request, model.name, model.tensors);
    for (uint32_t i = 0; i < model.tensors; i++) {
        load->count[i] = model.tensor[i].count;
    }
    load->elements = model.elements;
    bps_model_fini(&model);
    return 0;
}

static int parse_size(const char *option, const char *text, uint64_t *out)
{
    if (bps_parse_size(text, out) != BPS_OK || *out < 4 || *out % 4 != 0 || *out > BYTES_LIMIT) {
        return bps_cmd_usage(BPS_BENCH_NAME, "%s %s: expected a multiple of 4 bytes up to 1 TiB, such as 64MiB", option,
                             bps_shown(text).text);
    }
    return 0;
}

static void add_bytes(struct bps_bench_request *request, uint64_t bytes)
{
    struct bps_bench_load *load = add(request, bps_bench_size_text(bytes), 1);
    load->count[0] = load->elements = bytes / sizeof(float);
    load->sized = true;
}

int bps_bench_add_size(struct bps_bench_request *request, const char *text)
{
    uint64_t bytes;
    int result = parse_size("--bytes", text, &bytes);
    if (result == 0) {
        add_bytes(request, bytes);
    }
    return result;
}

int bps_bench_add_range(struct bps_bench_request *request, const char *min, const char *max)
{
    uint64_t least, most;
    int result = parse_size("--min", min, &least);
    result = result == 0 ? parse_size("--max", max, &most) : result;
    if (result == 0 && least > most) {
        result = bps_cmd_usage(BPS_BENCH_NAME, "--min %s is more than --max %s", min, max);
    }
    for (uint64_t bytes = least; result == 0 && bytes <= most; bytes *= 4) {
        add_bytes(request, bytes);
    }
    return result;
}

void bps_bench_loads_fini(struct bps_bench_request *request)
{
    for (uint32_t i = 0; i < request->loads; i++) {
        free(request->load[i].name);
        free(request->load[i].count);
    }
    free(request->load);
}
