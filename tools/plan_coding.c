/* SPDX-License-Identifier: Apache-2.0 */
/* plan_coding.c - see plan_coding.h. */
#include "tools/plan_coding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coding/feedback.h"
#include "flow/thread_pool.h"
#include "tools/cmd.h"
#include "tools/normal.h"

#define MEASURE_NS (10 * BPS_MS) /* of each step, at least */

/* ---- which coding ---- */

bps_status bps_plan_find_coding(const struct bps_conf *conf, const char *word, struct bps_codings *codings,
                                struct bps_coding **out, struct bps_report *report)
{
    const struct bps_conf_node *known = bps_conf_find(conf, "compressors");
    const struct bps_conf_node *group = known != NULL ? bps_conf_member(known, word) : NULL;
    if (group != NULL) {
        char *path = bps_cmd_print("compressors.%s", word);
        bps_status status = bps_codings_of_group(codings, group, path, false, out, report);
        free(path);
        return status;
    }
    char *text = bps_cmd_print("%s%s", strchr(word, '=') == NULL ? "plugin=" : "", word);
    bps_status status = bps_codings_of_text(codings, text, out, report);
    free(text);
    return status;
}

/* ---- what it makes of the slices of a partition ---- */

enum step { ENCODE, DECODE, DECODE_ADD, STEPS };

/* Of one element. */
struct cost {
    double bytes;
    double seconds[STEPS]; /* on one thread; to encode includes what feedback and momentum need */
};

struct partition {
    const struct bps_coding *coding;
    uint32_t type, slices;
    size_t slice; /* elements of each */
    struct bps_feedback feedback;
    char *src, *dst, *coded; /* of one slice is what is coded */
    size_t coded_bytes;
};

static void encode(struct partition *p, uint32_t index, const void *src, void *dst)
{
    static const struct bps_random random = {.shared = 1, .own = 2};
    const struct bps_feedback_slice slice = {.index = index, .first = index * p->slice, .count = p->slice};
    bool feedback = bps_feedback_is_of(p->coding, true);
    if (feedback) {
        bps_feedback_apply(&p->feedback, &slice, src, dst);
    }
    p->coded_bytes =
        p->coding->ops->encode(p->coding->compressor->self, p->type, feedback ? dst : src, p->slice, &random, p->coded);
    if (feedback) {
        bps_feedback_move(&p->feedback, &slice, src, p->coded, p->coded_bytes);
    }
}

/* All slices, one after the other. Nothing is refused: the compressor has made it itself. */
static void run(struct partition *p, enum step step)
{
    const struct bps_compressor_ops *ops = p->coding->ops;
    void *self = p->coding->compressor->self;
    for (uint32_t i = 0; i < p->slices; i++) {
        size_t at = i * p->slice * bps_dtype_size(p->type);
        if (step == ENCODE) {
            encode(p, i, p->src + at, p->dst + at);
        } else if (step == DECODE) {
            ops->decode(self, p->type, p->coded, p->coded_bytes, p->dst + at, p->slice);
        } else {
            ops->decode_add(self, p->type, p->coded, p->coded_bytes, p->dst + at, p->slice);
        }
    }
}

/* Seconds of the fastest run: others had other work beside them. */
static double fastest(struct partition *p, enum step step)
{
    uint64_t begin = bps_now(), now = begin, best = UINT64_MAX;
    while (now < begin + MEASURE_NS || best == UINT64_MAX) {
        uint64_t before = now;
        run(p, step);
        now = bps_now();
        best = now - before < best ? now - before : best;
    }
    return (double)best * 1e-9;
}

static bps_status open_partition(struct partition *p)
{
    size_t count = p->slice * p->slices, size = bps_dtype_size(p->type);
    p->src = bps_cmd_alloc(count, size);
    p->dst = bps_cmd_alloc(count, size);
    p->coded = bps_cmd_alloc(1, bps_coding_bound(p->coding, false, p->type, p->slice));
    bps_normal((float *)p->src, count, 1);
    for (size_t i = count; i > 0 && p->type == BPS_FLOAT64; i--) {
        ((double *)p->src)[i - 1] = ((const float *)p->src)[i - 1];
    }
    return bps_feedback_fit(&p->feedback, p->coding, p->type, count, p->slices, true);
}

static void close_partition(struct partition *p)
{
    bps_feedback_fini(&p->feedback);
    free(p->src);
    free(p->dst);
    free(p->coded);
}

/* Of the whole slices of a partition, or of one slice if it is the whole partition. */
static bps_status measure(const struct bps_coding *coding, uint32_t type, uint64_t bytes, struct cost *out)
{
    uint64_t slice = bps_coding_slice(coding, type) < bytes ? bps_coding_slice(coding, type) : bytes;
    struct partition p = {
        .coding = coding, .type = type, .slice = slice / bps_dtype_size(type), .slices = (uint32_t)(bytes / slice)};
    bps_status status = open_partition(&p);
    for (enum step step = ENCODE; step < STEPS && status == BPS_OK; step++) {
        out->seconds[step] = fastest(&p, step) / (double)(p.slice * p.slices);
    }
    out->bytes = (double)p.coded_bytes / (double)p.slice;
    close_partition(&p);
    return status;
}

/* ---- the whole model ---- */

/* All tensors that are coded, on one thread; the bytes are those of all tensors. */
static bps_status sum_up(const struct bps_coding *coding, const struct bps_model *model, uint64_t partition,
                         struct cost *out)
{
    struct cost cost[BPS_DTYPES] = {{0}}; /* of the types that compressors get; measured where there is one */
    bps_status status = BPS_OK;
    *out = (struct cost){0};
    for (uint32_t i = 0; i < model->tensors && status == BPS_OK; i++) {
        const struct bps_model_tensor *t = &model->tensor[i];
        uint32_t type = bps_coding_type(t->dtype);
        if (!bps_coding_takes(coding, t->dtype)) {
            out->bytes += (double)t->count * (double)bps_dtype_size(t->dtype);
            continue;
        }
        if (cost[type].bytes == 0) {
            status = measure(coding, type, partition, &cost[type]);
        }
        out->bytes += (double)t->count * cost[type].bytes;
        for (enum step step = ENCODE; step < STEPS; step++) {
            out->seconds[step] += (double)t->count * cost[type].seconds[step];
        }
    }
    return status;
}

static bps_status count_processors(const struct bps_conf *conf, struct bps_plan_coding *out, struct bps_report *report)
{
    struct bps_pinning pinning;
    bps_status status = bps_pinning_init(&pinning, conf, report);
    if (status == BPS_OK) {
        out->threads = bps_thread_pool_count(conf, &pinning, 1);
        out->shards = bps_server_count_shards(conf, &pinning, "");
        out->cores = (uint32_t)hwloc_bitmap_weight(pinning.allowed);
        bps_pinning_fini(&pinning);
    }
    return status;
}

/* A server decodes what each worker pushes, the first one into an empty sum, and codes the sum once. */
static void set_limits(const struct bps_plan *plan, const struct cost *all, struct bps_plan_coding *out)
{
    double worker = all->seconds[ENCODE] + all->seconds[DECODE];
    double server = worker + (plan->hosts - 1) * all->seconds[DECODE_ADD];
    double *limit = out->limit;
    limit[BPS_PLAN_NETWORK] = plan->placed * all->bytes / (double)(plan->bytes > 0 ? plan->bytes : 1);
    limit[BPS_PLAN_WORKER] = worker / out->threads;
    for (uint32_t i = 0; i < plan->servers; i++) {
        double part = plan->server[i].share * server;
        double host = (part + (plan->server[i].colocated ? worker : 0)) / out->cores;
        limit[BPS_PLAN_SERVER] = fmax(limit[BPS_PLAN_SERVER], part / out->shards);
        limit[BPS_PLAN_HOST] = fmax(limit[BPS_PLAN_HOST], host);
    }
    for (uint32_t i = 0; i < BPS_PLAN_LIMITS; i++) {
        out->seconds = fmax(out->seconds, limit[i]);
    }
    out->bytes = (uint64_t)all->bytes;
    out->pays = out->seconds < plan->placed;
}

bps_status bps_plan_code(const struct bps_conf *conf, const char *word, const struct bps_model *model,
                         const struct bps_plan *plan, struct bps_plan_coding *out, struct bps_report *report)
{
    struct bps_codings codings;
    struct bps_coding *coding;
    struct cost all;
    *out = (struct bps_plan_coding){.bytes = 0};
    bps_codings_init(&codings, conf->worker.slice);
    bps_status status = bps_plan_find_coding(conf, word, &codings, &coding, report);
    if (status == BPS_OK) {
        snprintf(out->text, sizeof out->text, "%s", coding->text);
        status = count_processors(conf, out, report);
    }
    if (status == BPS_OK) {
        status = sum_up(coding, model, plan->partition, &all);
    }
    if (status == BPS_OK) {
        set_limits(plan, &all, out);
    }
    bps_codings_fini(&codings);
    return status;
}

/* ---- for people and for programs ---- */

static const char *const limit_names[BPS_PLAN_LIMITS] = {"network", "worker", "server", "host"};

void bps_plan_coding_print(const struct bps_plan_coding *coding, const struct bps_plan *plan)
{
    const double *limit = coding->limit;
    double bytes = (double)coding->bytes;
    uint32_t least = 0;
    while (limit[least] < coding->seconds) {
        least++;
    }
    printf("\n%s\n", coding->text);
    printf("  coded, %s are %s (%.3g); hosts as this one, one thread of which was measured\n\n",
           bps_bytes_text((double)plan->bytes), bps_bytes_text(bytes),
           plan->bytes > 0 ? bytes / (double)plan->bytes : 1);
    printf("  %-34s%10s\n", "as placed, not coded", bps_duration_text(plan->placed));
    printf("  %-34s%10s\n", "the network, coded", bps_duration_text(limit[BPS_PLAN_NETWORK]));
    printf("  %-34s%10s  threads: %u\n", "coding by a worker", bps_duration_text(limit[BPS_PLAN_WORKER]),
           coding->threads);
    printf("  %-34s%10s  shards: %u\n", "coding by the busiest server", bps_duration_text(limit[BPS_PLAN_SERVER]),
           coding->shards);
    printf("  %-34s%10s  cores: %u\n", "both, on the busiest host", bps_duration_text(limit[BPS_PLAN_HOST]),
           coding->cores);
    printf("  coding %s: at least %s instead of %s, limited by the %s\n", coding->pays ? "pays" : "does not pay",
           bps_duration_text(coding->seconds), bps_duration_text(plan->placed),
           least == BPS_PLAN_NETWORK ? "network" : "coding");
}

json_t *bps_plan_coding_json(const struct bps_plan_coding *coding)
{
    json_t *limits = json_object();
    for (uint32_t i = 0; i < BPS_PLAN_LIMITS; i++) {
        json_object_set_new(limits, limit_names[i], json_real(coding->limit[i]));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:f, s:b}", "text", coding->text, "bytes",
                     (json_int_t)coding->bytes, "threads", (json_int_t)coding->threads, "shards",
                     (json_int_t)coding->shards, "cores", (json_int_t)coding->cores, "limits", limits, "seconds",
                     coding->seconds, "pays", coding->pays);
}
