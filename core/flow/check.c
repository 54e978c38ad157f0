/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what always holds of operations and their tasks, between two calls on the core thread. */
#include "base/assert.h"
#include "flow/step.h"

static void check_task(const struct bps_task *task, uint32_t i)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_way *way = task->way;
    bool busy = task->state != BPS_TASK_IDLE;
    bps_assert(task == &tensor->task[i] && (tensor->blocks ? task->partition >= i : task->partition == i));
    bps_assert(task->offset <= task->whole && task->bytes <= task->whole - task->offset);
    bps_assert(way == NULL || way == task->own || way == task->other);
    bps_assert(way == NULL || task->refused || task->step <= way->length);
    bps_assert(task->text == NULL || (task->state == BPS_TASK_READY && task->status != BPS_OK));
    bps_assert(task->direct <= task->bytes);
    bps_assert(!task->for_group || task->divisor > 0);
    bps_assert(task->late > 0 || task->last == 0);
    bps_assert(!busy || bps_has_begun(&tensor->operation));
    bps_assert(task->state != BPS_TASK_WORKING || !task->refused);
}

static void check_tensor(const struct bps_tensor_entry *tensor)
{
    bps_assert(tensor->named.name != NULL && tensor->named.slot > 0);
    bps_assert((tensor->tasks > 0) == (tensor->task != NULL));
    bps_assert((tensor->placed.n > 0) == (tensor->placed.partition != NULL));
    bps_assert((!tensor->asked || tensor->declaring) && (!tensor->forgotten || tensor->asked));
    bps_assert(tensor->named.unnamed == (tensor->id >= BPS_ID_UNNAMED));
    bps_assert(tensor->named.unnamed || tensor->round >= tensor->first_round);
    bps_assert(!tensor->named.unnamed || tensor->named.coding == NULL);
}

void bps_operation_check(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    uint32_t busy = 0;
    bps_assert(operation->phase == BPS_PHASE_OFF || (operation->op < BPS_WIRE_OPS && operation->use > 0));
    bps_assert(operation->use % BPS_OP_USE == 0);
    bps_assert(operation->phase != BPS_PHASE_OFF || operation->view == NULL);
    bps_assert(!bps_has_begun(operation) || bps_worker_alone(worker) || operation->view != NULL);
    bps_assert(operation->via == BPS_VIA_HOST || bps_is_on_device(operation));
    bps_assert(operation->phase != BPS_PHASE_ASKING || operation->via == BPS_VIA_DEVICE || worker->hooks != NULL);
    bps_assert(operation->phase != BPS_PHASE_REPORTED || !tensor->named.unnamed);
    bps_assert(operation->written.begin == NULL || bps_has_begun(operation) || operation->phase == BPS_PHASE_REPORTED);
    check_tensor(tensor);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        check_task(&tensor->task[i], i);
        busy += tensor->task[i].state != BPS_TASK_IDLE;
    }
    bps_assert(!bps_has_begun(operation) || operation->left >= busy);
}

void bps_worker_check(const struct bps_worker *worker)
{
    const struct bps_job_info *job = &worker->job;
    bps_assert((worker->failure == BPS_OK) == (worker->failure_text == NULL));
    bps_assert(worker->open_links <= worker->opened_links);
    bps_assert(job->size == 0 || (job->rank < job->size && job->local_rank < job->local_size));
    bps_assert(job->size == 0 || (job->local_size <= job->size && job->group <= job->rank));
    bps_assert(job->size == 0 || job->cross_rank < job->cross_size);
    bps_assert(worker->partition > 0 && worker->slice > 0 && (!worker->moving || !bps_worker_alone(worker)));
    bps_assert(TAILQ_EMPTY(&worker->operations) || atomic_load(&worker->in_flight) > 0);
}
