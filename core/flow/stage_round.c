/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_round.c - the stages of plugins that take all tasks of a round at once.
 *
 * Such a stage keeps what comes to it until a thread of the application waits, and all that is in flight and passes
 * the stage has come. Before that there may be more of the round: only a thread that waits starts nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "flow/step.h"
#include "flow/thread_pool.h"
#include "plugin/returned.h"

/* A task at such a stage: the context of the step. */
struct held {
    struct bps_task *task;
    struct bps_stage_task view;
    bool is_held;
    TAILQ_ENTRY(held) entry;
};
TAILQ_HEAD(held_list, held);

/* A round of a stage, while the stage computes. */
struct round {
    struct bps_job job; /* for the pool */
    struct bps_worker *worker;
    const struct bps_node *node;
    struct held_list tasks;
    size_t count;
    const struct bps_stage_task **view; /* owned, as is `state` */
    void **state;
    bps_status status;
    struct bps_report report;
};

struct bps_rounds {
    struct bps_post asked; /* a thread has begun to wait */
    atomic_bool is_asked;  /* it is posted */
    _Atomic uint32_t waiting;
    struct bps_worker *worker;
    struct held_list held; /* [core] from here on */
    uint32_t running;      /* rounds that are being computed */
    bool looks;            /* held_on_look() follows at the end of this turn */
};

/* ---- the end of a round ---- */

static void held_finish(struct held *held, bps_status status, const char *text)
{
    struct bps_task *task = held->task;
    held->is_held = false;
    if (status == BPS_OK && bps_task_on(task)->node->attr.writes != 0) {
        task->src = task->dst;
    }
    bps_task_done(task, status, text);
}

static void held_finish_all(struct held_list *list, bps_status status, const char *text)
{
    struct held *held;
    while ((held = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, held, entry);
        held_finish(held, status, text);
    }
}

static void held_round_end(struct round *round)
{
    struct bps_worker *worker = round->worker;
    const char *text = round->report.text[0] != '\0' ? round->report.text : bps_strerror(round->status);
    worker->rounds->running--;
    held_finish_all(&round->tasks, round->status, text);
    free(round->view);
    free(round->state);
    free(round);
    bps_rounds_look(worker);
}

static void held_on_computed(struct bps_post *post)
{
    held_round_end(bps_container(post, struct round, job.done));
}

/* ---- its beginning ---- */

static void held_compute(struct bps_job *job)
{
    struct round *round = bps_container(job, struct round, job);
    const struct bps_node *node = round->node;
    BPS_CALLING(node->instance, "run_all", NULL);
    bps_status status =
        node->ops->run_all(node->instance->self, round->view, round->state, round->count, &round->report);
    round->status = bps_returned(node->instance, "run_all", BPS_OK, status, &round->report);
}

/* Moves what the stage keeps into the round. False: no memory. */
static bool held_take(struct round *round, struct held_list *from)
{
    struct held *held, *next;
    TAILQ_FOREACH(held, from, entry) {
        round->count += bps_task_on(held->task)->node == round->node;
    }
    round->view = calloc(round->count, sizeof(const struct bps_stage_task *));
    round->state = calloc(round->count, sizeof *round->state);
    if (round->view == NULL || round->state == NULL) {
        return false;
    }
    size_t i = 0;
    for (held = TAILQ_FIRST(from); held != NULL; held = next) {
        next = TAILQ_NEXT(held, entry);
        const struct bps_path_step *on = bps_task_on(held->task);
        if (on->node == round->node) {
            TAILQ_REMOVE(from, held, entry);
            TAILQ_INSERT_TAIL(&round->tasks, held, entry);
            round->view[i] = &held->view;
            round->state[i++] = on->state;
        }
    }
    return true;
}

static void held_round_begin(struct bps_worker *worker, const struct bps_node *node)
{
    struct bps_rounds *rounds = worker->rounds;
    struct round *round = calloc(1, sizeof *round);
    if (round == NULL) {
        held_finish_all(&rounds->held, BPS_ERR_NOMEM, "out of memory for a round");
        return;
    }
    round->worker = worker;
    round->node = node;
    TAILQ_INIT(&round->tasks);
    rounds->running++;
    if (!held_take(round, &rounds->held)) {
        round->status = BPS_ERR_NOMEM;
        held_finish_all(&rounds->held, BPS_ERR_NOMEM, "out of memory for a round");
        held_round_end(round);
    } else if (node->attr.executor == BPS_EXECUTOR_CPU) {
        round->job = (struct bps_job){.run = held_compute, .done.fn = held_on_computed};
        bps_thread_pool_run(worker->pool, &round->job);
    } else {
        held_compute(&round->job);
        held_round_end(round);
    }
}

/* ---- when ---- */

/* True if the task will come to the stage, or computes there. */
static bool held_is_on_its_way(const struct bps_task *task, const struct bps_node *node)
{
    if (task->state == BPS_TASK_IDLE || task->failed || task->refused) {
        return false;
    }
    for (uint32_t i = task->step; i < task->way->length; i++) {
        if (task->way->step[i].on->node == node) {
            return i > task->step || !((const struct held *)task->way->step[i].context)->is_held;
        }
    }
    return false;
}

/* An operation that has not begun has no way yet: what it passes is not known. */
static bool held_may_come(const struct bps_operation *operation, const struct bps_node *node)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    if (operation->phase < BPS_PHASE_RUNNING) {
        return operation->kind == BPS_KIND_PUSH_PULL && operation->blocks.ranks == 0 && operation->status == BPS_OK;
    }
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        if (held_is_on_its_way(&tensor->task[i], node)) {
            return true;
        }
    }
    return false;
}

static bool held_is_complete(const struct bps_worker *worker, const struct bps_node *node)
{
    const struct bps_operation *operation;
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        if (held_may_come(operation, node)) {
            return false;
        }
    }
    return true;
}

/* Rounds of one stage after the other: what leaves the first comes to the next. */
static void held_on_look(void *arg)
{
    struct bps_worker *worker = arg;
    struct bps_rounds *rounds = worker->rounds;
    const struct held *held;
    rounds->looks = false;
    bool waits = atomic_load(&rounds->waiting) > 0 || atomic_load(&worker->closing);
    if (!waits || rounds->running > 0) {
        return;
    }
    TAILQ_FOREACH(held, &rounds->held, entry) {
        const struct bps_node *node = bps_task_on(held->task)->node;
        if (held_is_complete(worker, node)) {
            held_round_begin(worker, node);
            return;
        }
    }
}

void bps_rounds_look(struct bps_worker *worker)
{
    struct bps_rounds *rounds = worker->rounds;
    if (rounds != NULL && !rounds->looks && !TAILQ_EMPTY(&rounds->held)) {
        rounds->looks = true;
        bps_loop_defer_for(worker->loop, rounds, held_on_look, worker);
    }
}

static void held_on_asked(struct bps_post *post)
{
    struct bps_rounds *rounds = bps_container(post, struct bps_rounds, asked);
    atomic_store(&rounds->is_asked, false);
    bps_rounds_look(rounds->worker);
}

void bps_rounds_wait(struct bps_worker *worker)
{
    struct bps_rounds *rounds = worker->rounds;
    if (rounds != NULL) {
        atomic_fetch_add(&rounds->waiting, 1);
        if (!atomic_exchange(&rounds->is_asked, true)) {
            bps_loop_post(worker->loop, &rounds->asked);
        }
    }
}

void bps_rounds_go_on(struct bps_worker *worker)
{
    if (worker->rounds != NULL) {
        atomic_fetch_sub(&worker->rounds->waiting, 1);
    }
}

/* ---- the step ---- */

static bool held_start(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_node *node = bps_task_on(task)->node;
    struct held *held = bps_task_context(task);
    uint32_t size = (uint32_t)bps_dtype_size(tensor->path_dtype);
    if (tensor->operation.request.done != NULL) {
        bps_task_done(task, BPS_ERR_UNSUPPORTED,
                      "it takes whole rounds, which end when the application waits; an operation with a callback is "
                      "never waited for");
        return false;
    }
    *held = (struct held){.task = task, .is_held = true};
    held->view = (struct bps_stage_task){
        .partition = task->partition,
        .round = tensor->round,
        .first = task->offset / size,
        .count = task->bytes / size,
        .src = task->src,
        .dst = node->attr.writes != 0 ? task->dst : NULL,
    };
    TAILQ_INSERT_TAIL(&tensor->worker->rounds->held, held, entry);
    bps_rounds_look(tensor->worker);
    return false;
}

/* What is being computed comes back anyhow. */
static void held_abandon(struct bps_task *task)
{
    struct held *held = bps_task_context(task);
    if (held->is_held && held->task == task) {
        struct held_list *list = &task->tensor->worker->rounds->held;
        TAILQ_REMOVE(list, held, entry);
        held_finish(held, BPS_ERR_FAILED, "the job has failed");
    }
}

static const struct bps_step_ops whole_round = {
    .name = "run_all, once the application waits for an operation",
    .takes = "what its condition says",
    .context = sizeof(struct held),
    .start = held_start,
    .abandon = held_abandon,
};

const struct bps_step_ops *const bps_plugin_round_steps[] = {&whole_round, NULL};

/* ---- life ---- */

bps_status bps_rounds_open(struct bps_worker *worker)
{
    if (!bps_graph_takes_rounds(worker->graph)) {
        return BPS_OK;
    }
    worker->rounds = calloc(1, sizeof *worker->rounds);
    if (worker->rounds == NULL) {
        return BPS_ERR_NOMEM;
    }
    worker->rounds->worker = worker;
    worker->rounds->asked.fn = held_on_asked;
    TAILQ_INIT(&worker->rounds->held);
    return BPS_OK;
}

void bps_rounds_close(struct bps_worker *worker)
{
    if (worker->rounds != NULL) {
        bps_loop_forget(worker->loop, worker->rounds);
        free(worker->rounds);
        worker->rounds = NULL;
    }
}
