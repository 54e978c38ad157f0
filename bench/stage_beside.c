/* SPDX-License-Identifier: Apache-2.0 */
/* stage_beside.c - `byteps plugin bench` of a stage: a partition that passes it, beside memcpy() of as many bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/stage.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/loop.h"
#include "bench/beside.h"

#define ROUND_BYTES  (64u << 20) /* small partitions pass again and again */
#define ANSWER_LIMIT (10 * BPS_S)

/* A partition, and the stage that it passes; `stage` NULL: it is copied. */
struct pass {
    struct bps_stage_task task; /* first: the stage passes its address back */
    struct bps_instance *stage;
    struct bps_loop *loop;
    void *state, *src, *dst;
    uint32_t dtype, op;
    size_t bytes;
    bool answered;
    bps_status answer;
    char text[200];
};

/* ---- one time ---- */

static void on_answer(const struct bps_stage_task *task, bps_status status, const char *text)
{
    struct pass *pass = bps_container(task, struct pass, task);
    pass->answered = true;
    pass->answer = status;
    snprintf(pass->text, sizeof pass->text, "%s", text != NULL ? text : "");
    bps_loop_stop(pass->loop);
}

static bps_status wait_for_answer(struct pass *pass, struct bps_report *report)
{
    struct bps_timer *limit = bps_loop_timer(pass->loop, ANSWER_LIMIT, 0, (void (*)(void *))bps_loop_stop, pass->loop);
    if (limit == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (!pass->answered) {
        bps_loop_run(pass->loop);
    }
    if (!pass->answered) {
        BPS_REPORT(report, "stage %s has returned BPS_INPROGRESS and not called done within %llu s",
                   pass->stage->loaded->plugin->name, ANSWER_LIMIT / BPS_S);
        return BPS_ERR_TIMEOUT;
    }
    bps_loop_cancel(pass->loop, limit);
    BPS_REPORT(report, "%s", pass->text);
    return pass->answer;
}

static bps_status run(struct pass *pass, struct bps_report *report)
{
    if (pass->stage == NULL) {
        memcpy(pass->dst, pass->src, pass->bytes);
        return BPS_OK;
    }
    const struct bps_stage_ops *ops = pass->stage->ops;
    const struct bps_stage_task *task = &pass->task;
    pass->answered = false;
    pass->task.round++;
    if (ops->run_all != NULL) {
        return ops->run_all(pass->stage->self, &task, &pass->state, 1, report);
    }
    bps_status status = ops->run(pass->stage->self, pass->state, task, report);
    return status == BPS_INPROGRESS ? wait_for_answer(pass, report) : status;
}

/* The first time does not count: so what ran before leaves no trace in the caches. */
static bps_status measure(void *side, const void *arg, double *out, struct bps_report *report)
{
    struct pass *pass = side;
    size_t repeats = pass->bytes < ROUND_BYTES ? ROUND_BYTES / pass->bytes : 1;
    bps_status status = run(pass, report);
    uint64_t begin = bps_now();
    (void)arg;
    for (size_t i = 0; i < repeats && status == BPS_OK; i++) {
        status = run(pass, report);
    }
    *out = (double)(pass->bytes * repeats) / ((double)(bps_now() - begin) * 1e-9);
    return status;
}

/* ---- one size ---- */

/* BPS_AGAIN: the stage has nothing to do for such a tensor. */
static bps_status bind(struct pass *pass, struct bps_report *report)
{
    const struct bps_stage_ops *ops = pass->stage->ops;
    const struct bps_tensor_info tensor = {"bench.weight", pass->dtype, pass->op, pass->task.count, 1, BPS_MEMORY_HOST};
    pass->state = NULL;
    return ops->bind != NULL ? ops->bind(pass->stage->self, &tensor, &pass->state, report) : BPS_OK;
}

/* Sums of float32 first; else the first operation and type that the stage does something for. */
static bps_status bind_any(struct pass *pass, struct bps_report *report)
{
    const struct bps_stage_attr *attr = &pass->stage->attr.stage;
    bps_status status = BPS_AGAIN;
    for (uint32_t i = 0; i < BPS_OPS * BPS_DTYPES && status == BPS_AGAIN; i++) {
        pass->op = (BPS_SUM + i / BPS_DTYPES) % BPS_OPS;
        pass->dtype = (BPS_FLOAT32 + i % BPS_DTYPES) % BPS_DTYPES;
        pass->task.count = pass->bytes / bps_dtype_size(pass->dtype);
        if ((attr->ops & BPS_OP_BIT(pass->op)) != 0 && (attr->dtypes & BPS_DTYPE_BIT(pass->dtype)) != 0) {
            status = bind(pass, report);
        }
    }
    if (status == BPS_AGAIN) {
        BPS_REPORT(report, "stage %s has nothing to do for a tensor of %zu bytes, of whatever type and operation",
                   pass->stage->loaded->plugin->name, pass->bytes);
        status = BPS_ERR_UNSUPPORTED;
    }
    return status;
}

static bps_status measure_bound(const struct bps_bench_beside *beside, struct pass *pass, struct bps_report *report)
{
    struct pass copy = {.src = pass->src, .dst = pass->dst, .bytes = pass->bytes};
    const struct bps_stage_ops *ops = pass->stage->ops;
    char name[40];
    snprintf(name, sizeof name, "%s of %s", bps_op_name(pass->op), bps_dtype_name(pass->dtype));
    const struct bps_bench_figure figure = {name, pass->bytes, BPS_BENCH_RATE, measure, {pass, &copy}, NULL};
    pass->task.src = pass->src;
    pass->task.dst = pass->stage->attr.stage.writes != 0 ? pass->dst : NULL;
    pass->task.done = on_answer;
    memset(pass->src, 0x3c, pass->bytes);
    memset(pass->dst, 0x3c, pass->bytes);
    bps_status status = bps_bench_in_turn(beside, &figure, report);
    if (ops->unbind != NULL) {
        ops->unbind(pass->stage->self, pass->state);
    }
    return status;
}

static bps_status measure_size(const struct bps_bench_beside *beside, struct bps_instance *stage, struct bps_loop *loop,
                               size_t bytes, struct bps_report *report)
{
    struct pass pass = {.stage = stage, .loop = loop, .bytes = bytes, .src = malloc(bytes), .dst = malloc(bytes)};
    bps_status status = pass.src != NULL && pass.dst != NULL ? bind_any(&pass, report) : BPS_ERR_NOMEM;
    if (status == BPS_OK) {
        status = measure_bound(beside, &pass, report);
    }
    if (status != BPS_ERR_TIMEOUT) { /* after which the stage may still use it */
        free(pass.src);
        free(pass.dst);
    }
    return status;
}

bps_status bps_bench_stage_beside(struct bps_bench_beside *beside, struct bps_report *report)
{
    struct bps_instance *stage = NULL;
    struct bps_loop *loop = bps_loop_new();
    bps_status status = loop != NULL ? BPS_OK : BPS_ERR_NOMEM;
    if (status == BPS_OK) {
        status = bps_bench_beside_open(beside, BPS_BENCH_MEASURED, loop, &stage, report);
    }
    if (status == BPS_OK && strcmp(stage->attr.stage.takes, "plain") != 0) {
        BPS_REPORT(report, "stage %s takes '%s'; what takes plain data can be measured",
                   beside->name[BPS_BENCH_MEASURED], stage->attr.stage.takes);
        status = BPS_ERR_UNSUPPORTED;
    }
    if (status == BPS_OK) {
        bps_bench_beside_head(beside);
    }
    for (uint32_t i = 0; i < beside->request->loads && status == BPS_OK; i++) {
        status = measure_size(beside, stage, loop, beside->request->load[i].elements * sizeof(float), report);
    }
    bps_instance_close(stage);
    bps_loop_free(loop);
    return status;
}
