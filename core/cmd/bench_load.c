/* SPDX-License-Identifier: Apache-2.0 */
/* bench_load.c - the tensors that `byteps bench` pushes and pulls. */
#include <stdlib.h>
#include <string.h>

#include "cmd/bench.h"
#include "cmd/plan.h"
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

int bps_bench_add_size(struct bps_bench_request *request, const char *text)
{
    uint64_t bytes;
    if (bps_parse_size(text, &bytes) != BPS_OK || bytes < 4 || bytes % 4 != 0 || bytes > BYTES_LIMIT) {
        return bps_cmd_usage(BPS_BENCH_NAME,
                             "--bytes %s: expected a multiple of 4 bytes up to 1 TiB, such as 64MiB",
                             bps_shown(text).text);
    }
    struct bps_bench_load *load = add(request, text, 1);
    load->count[0] = load->elements = bytes / 4;
    return 0;
}

void bps_bench_loads_fini(struct bps_bench_request *request)
{
    for (uint32_t i = 0; i < request->loads; i++) {
        free(request->load[i].name);
        free(request->load[i].count);
    }
    free(request->load);
}
