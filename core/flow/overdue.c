/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overdue.c - a worker's own clock for the operations that it waits for.
 *
 * Those who sum tell a round's workers whom it waits for, and end it; see sum/sum.c. This clock is for all that they
 * do not see: a stage that does not answer, a device, a declaration, a transport that has lost a frame. It goes a
 * little slower than theirs, as they know more.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "flow/step.h"

#define LOG    "worker"
#define SLOWLY 5 / 4        /* times the limits of the configuration */
#define AND    BPS_S        /* more */
#define AFTER  (10 * BPS_S) /* the job has failed, until what still holds an operation ends the process */

static uint64_t slowly(uint64_t limit)
{
    return limit > 0 ? limit * SLOWLY + AND : UINT64_MAX;
}

/* What the operation is at: the first partition that is not done. */
static void overdue_describe(const struct bps_tensor_entry *tensor, char *text, size_t n)
{
    const struct bps_operation *operation = &tensor->operation;
    const struct bps_worker *worker = tensor->worker;
    if (!bps_has_begun(operation)) {
        snprintf(text, n, "%s",
                 operation->phase == BPS_PHASE_DEVICE || operation->mark != NULL ? "for its device"
                 : tensor->id == 0                                               ? "for the scheduler to declare it"
                                                                                 : "to begin");
        return;
    }
    uint32_t i = 0;
    while (i < tensor->tasks && tensor->task[i].state == BPS_TASK_IDLE) {
        i++;
    }
    if (i == tensor->tasks) {
        snprintf(text, n, "for its end");
        return;
    }
    const struct bps_task *task = &tensor->task[i];
    const struct bps_node *node = bps_task_on(task)->node;
    struct bps_text out = bps_text_in(text, n);
    bps_text_add(&out, "in stage %s (%s", node->name, bps_task_step(task)->name);
    if (node->kind == BPS_NODE_PUSH_PULL && worker->view != NULL && i < tensor->placed.n) {
        uint32_t member = worker->view->book.shard[tensor->placed.partition[i].shard].member,
                 workers = worker->view->book.workers;
        bps_text_add(&out, ", to the %s %u", member < workers ? "server in worker" : "server",
                     member < workers ? member : member - workers);
    }
    bps_text_add(&out, "), partition %u of %u", i, tensor->tasks);
}

static void overdue_look(struct bps_worker *worker, struct bps_operation *operation, uint64_t passed)
{
    const struct bps_conf_cluster *cluster = &worker->conf->cluster;
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    char where[300], text[700];
    operation->waited += passed;
    bool late = operation->waited >= slowly(cluster->stall_timeout);
    if (!late && (operation->told || operation->waited < slowly(cluster->stall_warning))) {
        return;
    }
    overdue_describe(tensor, where, sizeof where);
    snprintf(text, sizeof text, "tensor '%.200s' has waited %.1f s %s", tensor->named.name,
             (double)operation->waited / 1e9, where);
    if (late) {
        bps_worker_fail(worker, BPS_ERR_TIMEOUT, text);
    } else {
        operation->told = true;
        bps_warn(LOG, "%s", text);
    }
}

/* A stage that neither answers nor can be told not to keeps the application's memory, and the application. */
static void look_after_failure(const struct bps_worker *worker, struct bps_operation *operation, uint64_t passed)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    char where[300];
    operation->held += operation->phase == BPS_PHASE_DEVICE ? 0 : passed;
    if (operation->held < AFTER) {
        return;
    }
    overdue_describe(tensor, where, sizeof where);
    bps_error(LOG, "%s; tensor '%.200s' is still %s; ending the process", worker->failure_text, tensor->named.name,
              where);
    _exit(EXIT_FAILURE);
}

void bps_overdue_look(struct bps_worker *worker, uint64_t passed)
{
    struct bps_operation *operation, *next;
    for (operation = TAILQ_FIRST(&worker->operations); operation != NULL; operation = next) {
        next = TAILQ_NEXT(operation, entry);
        if (worker->failure != BPS_OK) {
            look_after_failure(worker, operation, passed);
        } else {
            overdue_look(worker, operation, passed);
        }
    }
}
