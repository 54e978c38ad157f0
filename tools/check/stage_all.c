/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_all.c - what is expected of stages that take whole rounds: every task is done, and the order in which they
 * come, which is another one on each worker, does not matter.
 */
#include "tools/check/stage.h"

#include <stdlib.h>
#include <string.h>

#include <byteps/stage.h>

#include "tools/check/guarded.h"
#include "tools/check/values.h"

enum { TENSORS = 5, MOST = 2000 };
static const size_t counts[TENSORS] = {1, 7, 64, 1000, MOST};
static const char *const names[TENSORS] = {"check.0", "check.1", "check.2", "check.3", "check.4"};

struct round {
    struct bps_check *check;
    struct bps_instance *instance;
    uint32_t op, dtype;
    bool writes;
    struct bps_guarded src[TENSORS], dst[TENSORS];
    struct bps_stage_task view[TENSORS];
    void *state[TENSORS];
};

static const struct bps_stage_ops *ops_of(const struct round *round)
{
    return round->instance->ops;
}

/* False: the stage leaves such tensors out. */
static bool bind_tensor(struct round *round, size_t i)
{
    struct bps_tensor_info info = {names[i], round->dtype, round->op, counts[i], 1, BPS_MEMORY_HOST};
    struct bps_report report = {""};
    size_t bytes = counts[i] * bps_dtype_size(round->dtype);
    if (ops_of(round)->bind(round->instance->self, &info, &round->state[i], &report) != BPS_OK) {
        return false;
    }
    round->src[i] = bps_guarded_new(round->check, "src", bytes, BPS_GUARDED_BACK);
    round->dst[i] = bps_guarded_new(round->check, "dst", bytes, BPS_GUARDED_BACK);
    bps_check_fill(round->dtype, round->src[i].at, counts[i], i + 1, BPS_CHECK_ORDINARY);
    bps_guarded_read_only(&round->src[i], true);
    round->view[i] = (struct bps_stage_task){
        .count = counts[i], .src = round->src[i].at, .dst = round->writes ? round->dst[i].at : NULL};
    return true;
}

static void free_tensors(struct round *round, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ops_of(round)->unbind(round->instance->self, round->state[i]);
        bps_guarded_free(&round->src[i]);
        bps_guarded_free(&round->dst[i]);
    }
}

/* All tensors in this order, what stood in dst before being `fill`. */
static void run_in_order(struct round *round, bool backwards, int fill)
{
    const struct bps_stage_task *task[TENSORS];
    void *state[TENSORS];
    struct bps_report report = {""};
    for (size_t i = 0; i < TENSORS; i++) {
        size_t at = backwards ? TENSORS - 1 - i : i;
        task[i] = &round->view[at];
        state[i] = round->state[at];
        memset(round->dst[at].at, fill, round->dst[at].bytes);
    }
    bps_check_at(round->check, "run_all, %s of %s, %d tensors%s", bps_op_name(round->op), bps_dtype_name(round->dtype),
                 TENSORS, backwards ? ", in another order" : "");
    bps_status status = ops_of(round)->run_all(round->instance->self, task, state, TENSORS, &report);
    BPS_CHECK(round->check, status <= 0, "it returns %d; allowed are BPS_OK and BPS_ERR_*", status);
    BPS_CHECK(round->check, status == BPS_OK, "it fails for small numbers: %s", report.text);
}

/* By an instance of its own; the results go to `out`. False: the stage leaves such tensors out. */
static bool run_round(struct bps_check *check, uint32_t op, uint32_t dtype, bool backwards, int fill, uint8_t *out)
{
    struct round round = {.check = check, .instance = bps_check_open(check), .op = op, .dtype = dtype};
    BPS_ROOMY(bps_stage_attr) attr = {.it = {0}};
    ops_of(&round)->query(round.instance->self, &attr.it);
    round.writes = attr.it.writes != 0;
    bool takes = (attr.it.ops & BPS_OP_BIT(op)) != 0 && (attr.it.dtypes & BPS_DTYPE_BIT(dtype)) != 0;
    size_t bound = 0;
    while (takes && bound < TENSORS && bind_tensor(&round, bound)) {
        bound++;
    }
    if (bound == TENSORS) {
        run_in_order(&round, backwards, fill);
        for (size_t i = 0; round.writes && i < TENSORS; out += round.dst[i++].bytes) {
            memcpy(out, round.dst[i].at, round.dst[i].bytes);
        }
    }
    free_tensors(&round, bound);
    bps_check_close(check, round.instance);
    return bound == TENSORS;
}

void bps_check_run_all(struct bps_check *check)
{
    static uint8_t first[TENSORS * MOST * 8], again[sizeof first], other[sizeof first];
    struct bps_instance *instance = bps_check_open(check);
    bool takes_rounds = ((const struct bps_stage_ops *)instance->ops)->run_all != NULL;
    bps_check_close(check, instance);
    if (!takes_rounds) {
        bps_check_skip(check, "it takes each task as it comes");
    }
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            if (run_round(check, op, dtype, false, 0, first)) {
                run_round(check, op, dtype, false, 0xff, again);
                BPS_CHECK(check, memcmp(first, again, sizeof first) == 0,
                          "it has not written all of dst, or its result differs each time");
                run_round(check, op, dtype, true, 0, other);
                BPS_CHECK(check, memcmp(first, other, sizeof first) == 0,
                          "the result depends on the order of the tasks");
            }
        }
    }
}
