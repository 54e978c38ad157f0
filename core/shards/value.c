/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c - tensors in mode async: the shards keep a value, to which they add what is pushed, and each worker pushes
 * for itself. Workers have no rounds in common, so no result is kept for the heirs of a shard.
 */
#include "shards/shards.h"

static bool value_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->named.form.keeps;
}

static size_t value_more(const struct bps_task *task)
{
    return bps_push_more(bps_partitions(task->bytes, bps_tensor_slice(task->tensor)));
}

static bool value_start(struct bps_task *task)
{
    bps_push_init_plain(task, bps_push_of(task) + 1);
    bps_push_of(task)->flags = BPS_FLAG_KEEPS;
    return bps_push_start(task);
}

const struct bps_step_ops bps_push_value = {
    .name = "add",
    .takes = "tensors in mode async",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .more = value_more,
    .probe = value_takes,
    .start = value_start,
    .cancel = bps_push_cancel,
    .refuse = bps_remote_refuse,
};
