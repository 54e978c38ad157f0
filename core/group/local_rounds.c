/* SPDX-License-Identifier: Apache-2.0 */
/* local_rounds.c - what a group has to do with rounds beside its steps: which way they go, and those that fail. */
#include <stdlib.h>

#include "group/local.h"
#include "shards/shards.h"

/* True if the devices of the group may take rounds of this tensor. */
static bool may_stay_on_devices(const struct bps_tensor_entry *tensor)
{
    const struct bps_step_ops *step = bps_step_for(tensor, 0, BPS_NODE_LOCAL_REDUCE);
    return tensor->id < BPS_ID_BARRIER && step != NULL && step != &bps_local_exchange.ops;
}

static bool local_rounds_ask(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    bps_local_hand_over(tensor);
    return tensor->worker->failure == BPS_OK && may_stay_on_devices(tensor) &&
           tensor->worker->local->device_ops->ask(operation);
}

static void local_rounds_decline(struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    if (may_stay_on_devices(tensor)) {
        tensor->worker->local->device_ops->decline(operation);
    }
}

/* What the shards have to know of the tensor is sent. */
static void declared(struct bps_worker *worker)
{
    struct bps_local *local = worker->local;
    struct bps_unsent_list list = STAILQ_HEAD_INITIALIZER(list);
    if (STAILQ_EMPTY(&local->unsent)) {
        return;
    }
    STAILQ_CONCAT(&list, &local->unsent);
    while (!STAILQ_EMPTY(&list)) {
        struct bps_unsent *unsent = STAILQ_FIRST(&list);
        STAILQ_REMOVE_HEAD(&list, entry);
        if (bps_remote_forward_poison(local->worker, &unsent->header, unsent->text)) {
            free(unsent->text);
            free(unsent);
        } else {
            STAILQ_INSERT_TAIL(&local->unsent, unsent, entry);
        }
    }
}

/* A server says that a round has failed: for this worker, and for those of its host that it leads. */
static bps_status failed(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    struct bps_local *local = worker->local;
    const struct bps_round_id id = bps_frame_round(header);
    const struct bps_tensor_entry *tensor = bps_tensor_of(worker, header->tensor);
    /* Asked before, as the tensor may be another one afterwards, or gone: a name can be forgotten meanwhile. */
    bool led =
        bps_sum_is_open(local->all.sum, &id) || (tensor != NULL && bps_is_summed_here(tensor, header->partition));
    if (local->device_ops->asks(worker, header)) {
        return bps_local_fail(local, header, text);
    }
    led = led && !local->device_ops->network_failed(worker, header, text);
    if (led && bps_task_find(worker, header) == NULL) {
        /* The others may be further: when this worker leaves, their rounds fail, and they begin the next. */
        return bps_local_fail(local, header, text);
    }
    bps_status status = bps_round_notice(worker, header, text);
    return status == BPS_OK && led ? bps_local_fail(local, header, text) : status;
}

const struct bps_round_hooks bps_local_hooks = {
    .ask = local_rounds_ask,
    .decline = local_rounds_decline,
    .declared = declared,
    .failed = failed,
};
