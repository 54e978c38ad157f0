/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - what is expected of stages: they say what they take, write all of dst and nothing else, and answer each
 * task exactly once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/stage.h>

#include "base/container.h"
#include "tools/check/check.h"
#include "tools/check/guarded.h"
#include "tools/check/stage.h"
#include "tools/check/values.h"

/* ---- what it takes ---- */

static const struct bps_stage_ops *ops_of(const struct bps_instance *instance)
{
    return instance->ops;
}

static struct bps_stage_attr query(const struct bps_instance *instance, int fill)
{
    BPS_ROOMY(bps_stage_attr) attr;
    memset(&attr, fill, sizeof attr);
    ops_of(instance)->query(instance->self, &attr.it);
    return attr.it;
}

static void check_mask(struct bps_check *check, const char *field, uint32_t mask, uint32_t allowed)
{
    BPS_CHECK(check, mask != 0, "its field `%s` is 0: it takes nothing", field);
    BPS_CHECK(check, (mask & ~allowed) == 0, "its field `%s` is 0x%x; allowed are the bits of 0x%x", field, mask,
              allowed);
}

static void check_query(struct bps_check *check)
{
    struct bps_instance *instance = bps_check_open(check);
    bps_check_at(check, "query");
    struct bps_stage_attr attr = query(instance, 0), again = query(instance, 0xa5);
    check_mask(check, "ops", attr.ops, (1u << BPS_OPS) - 1);
    check_mask(check, "dtypes", attr.dtypes, (1u << BPS_DTYPES) - 1);
    check_mask(check, "memory", attr.memory, BPS_MEMORY_HOST | BPS_MEMORY_DEVICE);
    BPS_CHECK(check, attr.executor <= BPS_EXECUTOR_CPU,
              "its field `executor` is %u; allowed are BPS_EXECUTOR_IO and BPS_EXECUTOR_CPU", attr.executor);
    BPS_CHECK(check, attr.writes <= 1, "its field `writes` is %u; allowed are 0 and 1", attr.writes);
    BPS_CHECK(check, attr.takes != NULL && attr.gives != NULL, "its fields `takes` and `gives` are not set");
    BPS_CHECK(check, attr.writes == 1 || strcmp(attr.takes, attr.gives) == 0,
              "it writes nothing, but takes '%s' and gives '%s'", attr.takes, attr.gives);
    bool same = attr.ops == again.ops && attr.dtypes == again.dtypes && attr.memory == again.memory &&
                attr.executor == again.executor && attr.writes == again.writes && attr.takes == again.takes &&
                attr.gives == again.gives;
    BPS_CHECK(check, same, "it does not set every field, or not alike each time");
    bps_check_close(check, instance);
}

/* ---- one task ---- */

/* A tensor of one partition at a stage that is bound to it. */
struct bound {
    struct bps_check *check;
    struct bps_instance *instance;
    struct bps_stage_attr attr;
    struct bps_tensor_info tensor;
    void *state;
    char at[80]; /* "sum of float32" */
};

struct run {
    struct bps_stage_task view; /* first: the plugin passes its address back */
    struct bps_check *check;
    unsigned answers;
    bool returned; /* what run has returned was the answer */
    bps_status status;
};

static void on_answer(const struct bps_stage_task *task, bps_status status, const char *text)
{
    struct run *run = bps_container(task, struct run, view);
    (void)text;
    BPS_CHECK(run->check, !run->returned, "it calls done for a task to which run has not returned BPS_INPROGRESS");
    BPS_CHECK(run->check, run->answers == 0, "it calls done twice for a task");
    BPS_CHECK(run->check, status <= 0, "it calls done with status %d; allowed are BPS_OK and BPS_ERR_*", status);
    run->answers++;
    run->status = status;
}

static bool is_answered(void *arg)
{
    return ((const struct run *)arg)->answers > 0;
}

static void wait_for(struct run *run)
{
    double most = run->check->limit / 2;
    BPS_CHECK(run->check, bps_check_drive(run->check, is_answered, run, most),
              "it has returned BPS_INPROGRESS, and not called done within %g s", most);
}

/* A stage that takes whole rounds gets one of this task. */
static bps_status call(const struct bound *bound, struct run *run, struct bps_report *report)
{
    const struct bps_stage_ops *ops = ops_of(bound->instance);
    const struct bps_stage_task *task = &run->view;
    if (ops->run_all == NULL) {
        return ops->run(bound->instance->self, bound->state, task, report);
    }
    bps_status status = ops->run_all(bound->instance->self, &task, &bound->state, 1, report);
    BPS_CHECK(bound->check, status <= 0, "run_all returns %d; allowed are BPS_OK and BPS_ERR_*", status);
    return status;
}

static bps_status begin(const struct bound *bound, struct run *run, struct bps_report *report)
{
    struct bps_check *check = bound->check;
    *report = (struct bps_report){""};
    run->check = check;
    run->view.done = on_answer;
    bps_status status = call(bound, run, report);
    BPS_CHECK(check, status <= 0 || status == BPS_INPROGRESS,
              "it returns %d; allowed are BPS_OK, BPS_INPROGRESS and BPS_ERR_*", status);
    BPS_CHECK(check, status != BPS_INPROGRESS || bound->attr.executor == BPS_EXECUTOR_IO,
              "it returns BPS_INPROGRESS, which only a stage with BPS_EXECUTOR_IO may");
    BPS_CHECK(check, status == BPS_INPROGRESS || run->answers == 0,
              "it has called done, and returns %d; allowed after that is BPS_INPROGRESS", status);
    run->returned = status != BPS_INPROGRESS;
    return status;
}

/* Runs a task to its end. Ordinary values must pass; with others an error is an answer too, if it has a reason. */
static bps_status run_task(const struct bound *bound, const void *src, void *dst, size_t count)
{
    struct run run = {.view = {.count = count, .src = src, .dst = bound->attr.writes != 0 ? dst : NULL}};
    struct bps_report report;
    bps_status status = begin(bound, &run, &report);
    if (status == BPS_INPROGRESS) {
        wait_for(&run);
        status = run.status;
    } else {
        BPS_CHECK(bound->check, status == BPS_OK || report.text[0] != '\0',
                  "it returns %d without a text in the report", status);
    }
    return status;
}

/* ---- bound to tensors ---- */

/* False: the stage leaves this tensor out, or refuses it. */
static bool bind(struct bound *bound, uint32_t op, uint32_t dtype, size_t count)
{
    struct bps_report report = {""};
    bound->tensor = (struct bps_tensor_info){"check.weight", dtype, op, count, 1, BPS_MEMORY_HOST};
    bound->state = NULL;
    snprintf(bound->at, sizeof bound->at, "%s of %s", bps_op_name(op), bps_dtype_name(dtype));
    bps_check_at(bound->check, "bind, %s, %zu elements", bound->at, count);
    bps_status status = ops_of(bound->instance)->bind(bound->instance->self, &bound->tensor, &bound->state, &report);
    BPS_CHECK(bound->check, status <= 0 || status == BPS_AGAIN,
              "it returns %d; allowed are BPS_OK, BPS_AGAIN and BPS_ERR_*", status);
    BPS_CHECK(bound->check, status >= 0 || status == BPS_ERR_NOMEM || report.text[0] != '\0',
              "it returns %d without a text in the report", status);
    return status == BPS_OK;
}

static void unbind(struct bound *bound)
{
    bps_check_at(bound->check, "unbind, %s", bound->at);
    ops_of(bound->instance)->unbind(bound->instance->self, bound->state);
    bound->state = NULL;
}

static struct bound open_bound(struct bps_check *check)
{
    struct bps_instance *instance = bps_check_open(check);
    return (struct bound){.check = check, .instance = instance, .attr = query(instance, 0)};
}

/* Calls fn for each operation and type that the stage takes, bound to a tensor of so many elements. */
static void each_form(struct bps_check *check, size_t count, void (*fn)(struct bound *bound, size_t count))
{
    struct bound bound = open_bound(check);
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            bool takes = (bound.attr.ops & BPS_OP_BIT(op)) != 0 && (bound.attr.dtypes & BPS_DTYPE_BIT(dtype)) != 0;
            if (takes && bind(&bound, op, dtype, count)) {
                fn(&bound, count);
                unbind(&bound);
            }
        }
    }
    bps_check_close(check, bound.instance);
}

static const size_t counts[] = {1, 7, 64, 1000, 4099};
enum { COUNTS = sizeof counts / sizeof *counts };

static void each_form_and_count(struct bps_check *check, void (*fn)(struct bound *bound, size_t count))
{
    for (size_t i = 0; i < COUNTS; i++) {
        each_form(check, counts[i], fn);
    }
}

/* ---- bind ---- */

static void bind_only(struct bound *bound, size_t count)
{
    (void)bound;
    (void)count;
}

static void check_bind(struct bps_check *check)
{
    enum { WARM = 20, ROUNDS = 300 };
    struct bps_check_usage before = bps_check_usage_now();
    for (unsigned i = 0; i < WARM + ROUNDS; i++) {
        before = i == WARM ? bps_check_usage_now() : before;
        each_form(check, 1000, bind_only);
    }
    bps_check_at(check, "bind and unbind");
    bps_check_usage_same(check, &before, ROUNDS);
}

/* ---- memory ---- */

/* src and dst of a task, in memory that nobody may leave. */
struct pair {
    struct bps_guarded src, dst;
};

static struct pair new_pair(const struct bound *bound, size_t count, enum bps_guarded_end end, uint64_t seed)
{
    size_t bytes = count * bps_dtype_size(bound->tensor.dtype);
    struct pair pair = {bps_guarded_new(bound->check, "src", bytes, end),
                        bps_guarded_new(bound->check, "dst", bytes, end)};
    bps_check_fill(bound->tensor.dtype, pair.src.at, count, seed, BPS_CHECK_ORDINARY);
    bps_guarded_read_only(&pair.src, true);
    return pair;
}

static void free_pair(struct pair *pair)
{
    bps_guarded_free(&pair->src);
    bps_guarded_free(&pair->dst);
}

static void run_ordinary(const struct bound *bound, const void *src, void *dst, size_t count)
{
    bps_status status = run_task(bound, src, dst, count);
    BPS_CHECK(bound->check, status == BPS_OK, "it fails with %d (%s) for small numbers", status, bps_strerror(status));
}

/* A byte that keeps what stood there before, whatever that was, was not written. */
static void check_written(const struct bound *bound, const struct pair *pair, size_t count)
{
    size_t bytes = pair->dst.bytes, kept = bytes;
    uint8_t *first = malloc(bytes + 1);
    BPS_CHECK(bound->check, first != NULL, "out of memory");
    memset(pair->dst.at, 0x5a, bytes);
    run_ordinary(bound, pair->src.at, pair->dst.at, count);
    memcpy(first, pair->dst.at, bytes);
    memset(pair->dst.at, 0xa5, bytes);
    run_ordinary(bound, pair->src.at, pair->dst.at, count);
    for (size_t i = 0; i < bytes && kept == bytes; i++) {
        kept = first[i] == 0x5a && pair->dst.at[i] == 0xa5 ? i : bytes;
    }
    free(first);
    BPS_CHECK(bound->check, kept == bytes, "it has not written byte %zu of dst, which has %zu", kept, bytes);
}

static void run_between_guards(struct bound *bound, size_t count)
{
    for (enum bps_guarded_end end = BPS_GUARDED_FRONT; end <= BPS_GUARDED_BACK; end++) {
        struct pair pair = new_pair(bound, count, end, count);
        bps_check_at(bound->check, "run, %s, %zu elements, dst is not src", bound->at, count);
        if (bound->attr.writes != 0) {
            check_written(bound, &pair, count);
            bps_guarded_read_only(&pair.src, false);
            bps_check_at(bound->check, "run, %s, %zu elements, dst is src", bound->at, count);
            run_ordinary(bound, pair.src.at, pair.src.at, count);
        } else {
            run_ordinary(bound, pair.src.at, NULL, count);
        }
        free_pair(&pair);
    }
}

static void check_run(struct bps_check *check)
{
    each_form_and_count(check, run_between_guards);
}

/* ---- the same result ---- */

/* By an instance of its own, as a stage may remember what it has seen. */
static void result_of(struct bps_check *check, const struct bound *like, size_t count, bool in_place, uint8_t *out)
{
    size_t bytes = count * bps_dtype_size(like->tensor.dtype);
    struct bound bound = open_bound(check);
    if (bind(&bound, like->tensor.op, like->tensor.dtype, count)) {
        struct pair pair = new_pair(&bound, count, BPS_GUARDED_BACK, count);
        bps_guarded_read_only(&pair.src, !in_place);
        bps_check_at(check, "run, %s, %zu elements, dst is %ssrc", bound.at, count, in_place ? "" : "not ");
        uint8_t *dst = in_place ? pair.src.at : pair.dst.at;
        run_ordinary(&bound, pair.src.at, dst, count);
        memcpy(out, dst, bytes);
        free_pair(&pair);
        unbind(&bound);
    }
    bps_check_close(check, bound.instance);
}

static void compare_places(struct bound *bound, size_t count)
{
    size_t bytes = count * bps_dtype_size(bound->tensor.dtype);
    uint8_t *results = calloc(3, bytes);
    BPS_CHECK(bound->check, results != NULL, "out of memory");
    for (size_t i = 0; i < 3; i++) {
        result_of(bound->check, bound, count, i == 2, results + i * bytes);
    }
    /* A stage that draws random numbers differs from itself, too. */
    bool repeats = memcmp(results, results + bytes, bytes) == 0;
    BPS_CHECK(bound->check, !repeats || memcmp(results, results + 2 * bytes, bytes) == 0,
              "its result differs from that with another dst");
    free(results);
}

static void check_places(struct bps_check *check)
{
    struct bound bound = open_bound(check);
    if (bound.attr.writes == 0) {
        bps_check_skip(check, "it writes nothing");
    }
    bps_check_close(check, bound.instance);
    each_form(check, 1000, compare_places);
}

/* ---- values ---- */

static void run_special(struct bound *bound, size_t count)
{
    struct pair pair = new_pair(bound, count, BPS_GUARDED_BACK, count);
    bps_guarded_read_only(&pair.src, false);
    bps_check_fill(bound->tensor.dtype, pair.src.at, count, 3, BPS_CHECK_SPECIAL);
    bps_guarded_read_only(&pair.src, true);
    bps_check_at(bound->check, "run, %s, %zu elements with NaN, infinities and extremes", bound->at, count);
    run_task(bound, pair.src.at, pair.dst.at, count);
    free_pair(&pair);
}

static void check_special(struct bps_check *check)
{
    each_form_and_count(check, run_special);
}

/* ---- rounds: nothing is left of a task ---- */

static void run_rounds(struct bound *bound, size_t count)
{
    enum { WARM = 8, ROUNDS = 200 };
    struct pair pair = new_pair(bound, count, BPS_GUARDED_BACK, count);
    struct bps_check_usage before = bps_check_usage_now();
    for (unsigned i = 0; i < WARM + ROUNDS; i++) {
        before = i == WARM ? bps_check_usage_now() : before;
        bps_check_at(bound->check, "run, %s, %zu elements, for the %uth time", bound->at, count, i + 1);
        run_ordinary(bound, pair.src.at, pair.dst.at, count);
    }
    bps_check_usage_same(bound->check, &before, ROUNDS);
    free_pair(&pair);
}

static void check_rounds(struct bps_check *check)
{
    each_form(check, 64, run_rounds);
}

/* ---- threads of the pool ---- */

enum { THREADS = 4, REPEATS = 200, IN_THREAD = 4099 };

struct worker {
    const struct bound *bound;
    pthread_t thread;
    struct pair pair;
    uint8_t *expected;
    unsigned wrong;
};

static void *run_many(void *arg)
{
    struct worker *worker = arg;
    for (unsigned i = 0; i < REPEATS; i++) {
        run_ordinary(worker->bound, worker->pair.src.at, worker->pair.dst.at, IN_THREAD);
        worker->wrong += memcmp(worker->pair.dst.at, worker->expected, worker->pair.dst.bytes) != 0;
    }
    return NULL;
}

static void run_in_threads(struct bound *bound, size_t count)
{
    struct worker workers[THREADS] = {{0}};
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *one = &workers[i];
        *one = (struct worker){.bound = bound, .pair = new_pair(bound, count, BPS_GUARDED_BACK, i)};
        one->expected = calloc(1, one->pair.dst.bytes);
        BPS_CHECK(bound->check, one->expected != NULL, "out of memory");
        run_ordinary(bound, one->pair.src.at, one->pair.dst.at, count);
        memcpy(one->expected, one->pair.dst.at, one->pair.dst.bytes);
        run_ordinary(bound, one->pair.src.at, one->pair.dst.at, count);
        one->wrong = memcmp(one->pair.dst.at, one->expected, one->pair.dst.bytes) != 0 ? REPEATS + 1 : 0;
    }
    bool repeats = workers[0].wrong == 0;
    bps_check_at(bound->check, "run, %s, %zu elements, on %d threads", bound->at, count, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        int error = pthread_create(&workers[i].thread, NULL, run_many, &workers[i]);
        BPS_CHECK(bound->check, error == 0, "cannot start a thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        BPS_CHECK(bound->check, !repeats || bound->attr.writes == 0 || workers[i].wrong == 0,
                  "%u of %d results differ from those of one thread", workers[i].wrong, REPEATS);
        free_pair(&workers[i].pair);
        free(workers[i].expected);
    }
}

static void check_threads(struct bps_check *check)
{
    struct bound bound = open_bound(check);
    if (bound.attr.executor != BPS_EXECUTOR_CPU || ops_of(bound.instance)->run_all != NULL) {
        bps_check_skip(check, "it is called by one thread at a time");
    }
    bps_check_close(check, bound.instance);
    each_form(check, IN_THREAD, run_in_threads);
}

/* ---- answers that come later ---- */

static void cancel_task(struct bound *bound, size_t count)
{
    enum { TASKS = 8 };
    struct pair pairs[TASKS];
    struct run runs[TASKS];
    struct bps_report report;
    unsigned later = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        pairs[i] = new_pair(bound, count, BPS_GUARDED_BACK, count);
        runs[i] = (struct run){.view = {.round = i,
                                        .count = count,
                                        .src = pairs[i].src.at,
                                        .dst = bound->attr.writes != 0 ? pairs[i].dst.at : NULL}};
        bps_check_at(bound->check, "run, %s, %zu elements, while others are under way", bound->at, count);
        later += begin(bound, &runs[i], &report) == BPS_INPROGRESS;
    }
    for (unsigned i = 0; i < TASKS; i++) {
        bps_check_at(bound->check, "cancel, %s", bound->at);
        if (!runs[i].returned && runs[i].answers == 0 && i % 2 == 0 && ops_of(bound->instance)->cancel != NULL) {
            ops_of(bound->instance)->cancel(bound->instance->self, bound->state, &runs[i].view);
        }
    }
    for (unsigned i = 0; i < TASKS; i++) {
        bps_check_at(bound->check, "done, %s, after cancel of some tasks", bound->at);
        if (!runs[i].returned) {
            wait_for(&runs[i]);
        }
        free_pair(&pairs[i]);
    }
    bps_check_note(bound->check, "%s: %u of %d tasks were answered later", bound->at, later, TASKS);
}

static void check_later(struct bps_check *check)
{
    struct bound bound = open_bound(check);
    if (bound.attr.executor != BPS_EXECUTOR_IO || ops_of(bound.instance)->run_all != NULL) {
        bps_check_skip(check, "it answers at once");
    }
    bps_check_close(check, bound.instance);
    each_form(check, 1000, cancel_task);
}

const struct bps_check_test bps_check_stage[] = {
    {"query", check_query, 0},
    {"bind and unbind", check_bind, 0},
    {"run: all of dst is written, and nothing else", check_run, 2},
    {"run: the same result in place", check_places, 0},
    {"run: NaN, infinities and extremes", check_special, 0},
    {"run: nothing is left behind", check_rounds, 2},
    {"run: on several threads", check_threads, 2},
    {"run_all: several tasks, in any order", bps_check_run_all, 0},
    {"done and cancel", check_later, 2},
    {NULL, NULL, 0},
};
