/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coded.c - slices that are coded when they are about to be sent, and results that are decoded to where they belong.
 *
 * What a slice has carried is kept until its result is there: only then do momentum and error of its elements move on.
 */
#include <stdlib.h>
#include <string.h>

#include <byteps/reducer.h>

#include "plugin/use.h"
#include "shards/shards.h"

static struct bps_coded_slice *coded_of(const struct bps_task *task, uint32_t index)
{
    return &bps_push_of(task)->coded[index];
}

static uint32_t offset_of(const struct bps_task *task, uint32_t index)
{
    return index * bps_push_of(task)->slice;
}

/* Bytes of the partition that the slice stands for. */
static uint32_t plain_bytes(const struct bps_task *task, uint32_t index)
{
    return bps_partition_bytes(task->bytes, bps_push_of(task)->slice, index);
}

static uint32_t dtype_of(const struct bps_task *task)
{
    return task->tensor->path_dtype;
}

static size_t count_of(const struct bps_task *task, uint32_t index)
{
    return plain_bytes(task, index) / bps_dtype_size(dtype_of(task));
}

static uint32_t bound_of(const struct bps_task *task, uint32_t index)
{
    return (uint32_t)bps_coding_bound(task->tensor->coding, dtype_of(task), count_of(task, index));
}

/* ---- elements of the type that is coded ---- */

/* Sums of the tensor's type are made in the one that is coded: so its kernels convert. */
static bps_status find_kernels(const struct bps_worker *worker, uint32_t dtype, struct bps_kernels *out,
                               struct bps_report *report)
{
    const struct bps_reducer_ops *ops = worker->reducer->ops;
    bps_status status = ops->kernels(worker->reducer->self, BPS_SUM, dtype, out);
    if (status == BPS_OK && out->accumulator != bps_coding_type(dtype)) {
        status = BPS_ERR_UNSUPPORTED;
    }
    if (status != BPS_OK) {
        BPS_REPORT(report, "the reducer '%s' does not sum %s in %s, as coding needs", worker->reducer->name,
                   bps_dtype_name(dtype), bps_dtype_name(bps_coding_type(dtype)));
    }
    return status;
}

static bool reserve_scratch(struct bps_shards *shards, size_t bytes)
{
    if (bytes > shards->scratch_bytes) {
        free(shards->scratch);
        shards->scratch = malloc(2 * bytes);
        shards->scratch_bytes = shards->scratch != NULL ? bytes : 0;
        shards->result = (char *)shards->scratch + shards->scratch_bytes;
    }
    return shards->scratch != NULL;
}

/* Makes it ready, if the coding has any. */
static bps_status fit_feedback(struct bps_task *task)
{
    const struct bps_coding *coding = task->tensor->coding;
    bool fresh = task->feedback.coding == NULL;
    if (!bps_feedback_is_of(coding, true)) {
        return BPS_OK;
    }
    bps_status status = bps_feedback_fit(&task->feedback, coding, bps_coding_type(dtype_of(task)),
                                         task->bytes / bps_dtype_size(dtype_of(task)), bps_push_slices(task), true);
    return status == BPS_OK && fresh ? bps_state_begin(task) : status;
}

bps_status bps_coded_prepare(struct bps_task *task, struct bps_report *report)
{
    struct bps_worker *worker = task->tensor->worker;
    uint32_t dtype = dtype_of(task), type = bps_coding_type(dtype);
    struct bps_kernels kernels;
    bps_status status = BPS_OK;
    if (worker->reducer == NULL) {
        status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    }
    if (status == BPS_OK) {
        status = find_kernels(worker, dtype, &kernels, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    if (!reserve_scratch(worker->shards, count_of(task, 0) * bps_dtype_size(type)) || fit_feedback(task) != BPS_OK) {
        BPS_REPORT(report, "out of memory for what coding keeps of tensor '%s'", task->tensor->name);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

/* What is to be coded of a slice but for its feedback: the sum of a group has its members' scales already. */
static const void *load(const struct bps_task *task, uint32_t index)
{
    const struct bps_worker *worker = task->tensor->worker;
    double scale = task->for_group ? task->divisor : task->tensor->operation.request.prescale;
    const char *src = task->src + offset_of(task, index);
    struct bps_kernels kernels;
    if (scale == 1.0 && dtype_of(task) == bps_coding_type(dtype_of(task))) {
        return src;
    }
    find_kernels(worker, dtype_of(task), &kernels, NULL);
    kernels.first(worker->shards->scratch, src, count_of(task, index), scale);
    return worker->shards->scratch;
}

static struct bps_feedback_slice feedback_slice(const struct bps_task *task, uint32_t index)
{
    return (struct bps_feedback_slice){.index = index,
                                       .first = offset_of(task, index) / bps_dtype_size(dtype_of(task)),
                                       .count = count_of(task, index),
                                       .rate = task->tensor->operation.request.learning_rate};
}

/* ---- to the shard ---- */

static uint32_t slice_bytes(const struct bps_task *task, uint32_t index)
{
    const struct bps_coded_slice *coded = coded_of(task, index);
    return coded->sent != NULL ? coded->sent_bytes : bound_of(task, index);
}

static void *block_of(struct bps_task *task, uint32_t index)
{
    return bps_pool_get(&task->tensor->worker->shards->pool, bound_of(task, index));
}

static uint32_t encode(struct bps_task *task, uint32_t index, void *out)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_coding *coding = tensor->coding;
    const struct bps_random random =
        bps_coding_random(coding, tensor->id, task->partition, tensor->round, index, tensor->worker->rank);
    const struct bps_feedback_slice part = feedback_slice(task, index);
    const void *x = load(task, index);
    if (task->feedback.coding != NULL) {
        bps_feedback_apply(&task->feedback, &part, x, tensor->worker->shards->scratch);
        x = tensor->worker->shards->scratch;
    }
    size_t bytes = coding->ops->encode(coding->compressor->self, bps_coding_type(dtype_of(task)), x,
                                       count_of(task, index), &random, out);
    bps_coding_count(coding, plain_bytes(task, index), bytes);
    return (uint32_t)bytes;
}

static bool make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    coded->sent = block_of(task, index);
    if (coded->sent == NULL) {
        return false;
    }
    coded->sent_bytes = encode(task, index, coded->sent);
    header->length = coded->sent_bytes;
    header->coding = task->tensor->coding->number;
    header->flags |= task->feedback.brings != NULL && task->feedback.brings[index] ? BPS_FLAG_BRINGS : 0;
    header->prescale = task->tensor->operation.request.learning_rate;
    *payload = coded->sent;
    return true;
}

/* ---- and back ---- */

static bps_status expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    if (bytes == 0 || bytes > bound_of(task, index)) {
        return BPS_ERR_PROTOCOL;
    }
    coded->result = block_of(task, index);
    coded->result_bytes = bytes;
    return coded->result != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

static char *place(struct bps_task *task, uint32_t index)
{
    return coded_of(task, index)->result;
}

static void release_slice(struct bps_task *task, uint32_t index)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    struct bps_pool *pool = &task->tensor->worker->shards->pool;
    if (coded->sent != NULL) {
        bps_pool_put(pool, coded->sent, bound_of(task, index));
    }
    if (coded->result != NULL) {
        bps_pool_put(pool, coded->result, bound_of(task, index));
    }
    coded->sent = coded->result = NULL;
}

static void release(struct bps_task *task)
{
    for (uint32_t i = 0; i < bps_push_slices(task); i++) {
        release_slice(task, i);
    }
}

static bps_status decode(const struct bps_task *task, uint32_t index, void *to)
{
    const struct bps_coding *coding = task->tensor->coding;
    const struct bps_coded_slice *coded = coded_of(task, index);
    return coding->ops->decode(coding->compressor->self, bps_coding_type(dtype_of(task)), coded->result,
                               coded->result_bytes, to, count_of(task, index));
}

/* What was sent of the slice has been summed, and x is the result. Its place may have the gradient until now. */
static void move_feedback(struct bps_task *task, uint32_t index, const void *x)
{
    const struct bps_coded_slice *coded = coded_of(task, index);
    const struct bps_feedback_slice part = feedback_slice(task, index);
    if (bps_feedback_is_finite(task->feedback.type, x, part.count)) {
        bps_feedback_move(&task->feedback, &part, load(task, index), coded->sent, coded->sent_bytes);
    }
}

static bps_status settle(struct bps_task *task, uint32_t index)
{
    const struct bps_worker *worker = task->tensor->worker;
    uint32_t dtype = dtype_of(task);
    char *dst = task->dst + offset_of(task, index);
    bool same = bps_coding_type(dtype) == dtype;
    struct bps_kernels kernels;
    if (same && task->feedback.coding == NULL) {
        return decode(task, index, dst);
    }
    bps_status status = decode(task, index, worker->shards->result);
    if (status == BPS_OK && task->feedback.brings != NULL) {
        task->feedback.brings[index] = false;
    }
    if (status == BPS_OK && task->feedback.coding != NULL) {
        move_feedback(task, index, worker->shards->result);
    }
    if (status == BPS_OK && same) {
        memcpy(dst, worker->shards->result, plain_bytes(task, index));
    } else if (status == BPS_OK) {
        find_kernels(worker, dtype, &kernels, NULL);
        kernels.finish(dst, worker->shards->result, count_of(task, index), 1.0, 1);
    }
    return status;
}

const struct bps_payload_ops bps_payload_coded = {
    .bytes = slice_bytes,
    .make = make,
    .expect = expect,
    .place = place,
    .settle = settle,
    .release = release,
};
