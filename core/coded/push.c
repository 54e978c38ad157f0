/* SPDX-License-Identifier: Apache-2.0 */
/* push.c - the step push_pull of tensors that have a coding. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coded/coded.h"

#define LOG "worker"

/* Too small to be coded; it may have momentum, though. */
static bool is_small(const struct bps_tensor_entry *tensor)
{
    return tensor->path_bytes < tensor->named.coding->min_bytes;
}

static bool takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    bool sums = tensor->path_op == BPS_SUM || tensor->path_op == BPS_AVERAGE;
    return tensor->named.coding != NULL && sums && tensor->path_bytes > 0 &&
           (!is_small(tensor) || tensor->named.coding->momentum);
}

static uint32_t coded_slice(const struct bps_tensor_entry *tensor)
{
    return bps_coding_slice(tensor->named.coding, tensor->path_dtype);
}

/* For a round that is coded, and for one that is not. */
static size_t coded_more(const struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    uint32_t slices = bps_partitions(task->bytes, coded_slice(tensor));
    size_t coded = slices * sizeof(struct bps_coded_slice) + bps_push_more(slices);
    size_t plain = bps_push_more(bps_partitions(task->bytes, bps_tensor_slice(tensor)));
    return coded > plain || !tensor->named.coding->automatic ? coded : plain;
}

/* The rounds of which this worker measures whether coding pays, and tells all. */
static bool chooses(const struct bps_tensor_entry *tensor)
{
    return tensor->named.coding->automatic && bps_tensor_speaks_for(tensor, 0);
}

/* A round that has gone well has told all alike how the next one goes; after one that has failed nothing changes. */
static void on_finished(struct bps_task *task)
{
    const struct bps_coded_push *push = bps_coded_push_of(task);
    struct bps_coding *coding = task->tensor->named.coding;
    char text[160];
    if (coding->automatic && !task->failed) {
        task->codes = (push->push.answer & BPS_FLAG_CODES) != 0;
    }
    if (chooses(task->tensor)) {
        bps_trial_end(&coding->trial, push->slice != NULL, task->bytes, !task->failed, bps_now());
        if (bps_trial_tell(&coding->trial, text, sizeof text)) {
            bps_info(LOG, "coding by %s %s", coding->text, text);
        }
    }
    if (push->slice != NULL) {
        bps_coded_release(task);
    }
    task->feedback.summed = !task->failed;
}

static bool start_coded(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_report report = {""};
    bps_status status = bps_coded_prepare(task, &report);
    if (status != BPS_OK) {
        bps_worker_fail(tensor->worker, status, report.text);
        return false;
    }
    return bps_push_start(task);
}

static void init_coded(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_coded_push *push = bps_coded_push_of(task);
    uint32_t slices = bps_partitions(task->bytes, coded_slice(tensor));
    push->slice = (struct bps_coded_slice *)(push + 1);
    push->exact = tensor->round < tensor->named.coding->start || is_small(tensor);
    memset(push->slice, 0, slices * sizeof *push->slice);
    bps_push_init(task, &bps_payload_coded, coded_slice(tensor), push->slice + slices);
    push->push.wire = (uint32_t)tensor->worker->slice;
}

static bool coded_start(struct bps_task *task)
{
    struct bps_coding *coding = task->tensor->named.coding;
    struct bps_coded_push *push = bps_coded_push_of(task);
    bool coded = task->codes || !coding->automatic;
    *push = (struct bps_coded_push){.push = push->push};
    if (coded) {
        init_coded(task);
    } else {
        bps_push_init_plain(task, push + 1);
    }
    push->push.finish = on_finished;
    if (chooses(task->tensor)) {
        bps_trial_begin(&coding->trial, coded, bps_now());
        push->push.flags = bps_trial_codes(&coding->trial) ? BPS_FLAG_CODES : 0;
    }
    return coded ? start_coded(task) : bps_push_start(task);
}

const struct bps_step_ops bps_push_coded = {
    .name = "push coded",
    .takes = "sums and averages of a tensor that has a coding",
    .crosses = true,
    .context = sizeof(struct bps_coded_push),
    .more = coded_more,
    .probe = takes,
    .start = coded_start,
    .cancel = bps_push_cancel,
    .abandon = bps_push_abandon,
    .refuse = bps_remote_refuse,
};
