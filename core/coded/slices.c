/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.c - slices that are coded when they are about to be sent, and results that are decoded to where they belong.
 *
 * What a slice has carried is kept until its result is there: then momentum and error of its elements can move on.
 */
#include <string.h>

#include <byteps/reducer.h>

#include "base/assert.h"
#include "base/report.h"
#include "coded/coded.h"
#include "plugin/returned.h"
#include "plugin/use.h"

static struct bps_coded_slice *coded_of(const struct bps_task *task, uint32_t index)
{
    return &bps_coded_push_of(task)->slice[index];
}

static uint32_t offset_of(const struct bps_task *task, uint32_t index)
{
    return index * bps_push_of(task)->slice;
}

static uint32_t dtype_of(const struct bps_task *task)
{
    return task->tensor->path_dtype;
}

static size_t count_of(const struct bps_task *task, uint32_t index)
{
    return bps_push_bytes(task, index) / bps_dtype_size(dtype_of(task));
}

static const struct bps_compressor_ops *ops_of(const struct bps_task *task)
{
    return bps_coding_ops(task->tensor->named.coding, bps_coded_push_of(task)->exact);
}

static uint32_t bound_of(const struct bps_task *task, uint32_t index)
{
    return (uint32_t)bps_coding_bound(task->tensor->named.coding, bps_coded_push_of(task)->exact, dtype_of(task),
                                      count_of(task, index));
}

/* ---- elements of the type that is coded ---- */

/* Sums of the tensor's type are made in the one that is coded: so its kernels convert. */
static bps_status find_kernels(const struct bps_worker *worker, uint32_t dtype, struct bps_kernels *out,
                               struct bps_report *report)
{
    const struct bps_instance *reducer;
    bps_status status = bps_reducer_kernels(worker->reducer, BPS_SUM, dtype, out, &reducer, report);
    if (status == BPS_OK && out->accumulator != bps_coding_type(dtype)) {
        BPS_REPORT(report, "reducer '%s' does not sum %s in %s, as coding needs", reducer->name, bps_dtype_name(dtype),
                   bps_dtype_name(bps_coding_type(dtype)));
        status = BPS_ERR_UNSUPPORTED;
    }
    return status;
}

/* Makes it ready, if the coding has any. */
static bps_status fit_feedback(struct bps_task *task)
{
    const struct bps_coding *coding = task->tensor->named.coding;
    bool fresh = task->feedback.coding == NULL;
    if (!bps_feedback_is_of(coding, true)) {
        return BPS_OK;
    }
    bps_status status = bps_feedback_fit(&task->feedback, coding, bps_coding_type(dtype_of(task)),
                                         task->bytes / bps_dtype_size(dtype_of(task)), bps_push_of(task)->slices, true);
    if (status == BPS_OK) {
        bps_state_restore(task, fresh);
    }
    return status;
}

bps_status bps_coded_prepare(struct bps_task *task, struct bps_report *report)
{
    struct bps_worker *worker = task->tensor->worker;
    uint32_t dtype = dtype_of(task);
    struct bps_kernels kernels;
    bps_status status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    if (status == BPS_OK) {
        status = find_kernels(worker, dtype, &kernels, report);
    }
    if (status == BPS_OK && bps_thread_pool_pays(worker, bps_push_bytes(task, 0))) {
        status = bps_thread_pool_need(worker, report);
    }
    if (status == BPS_OK && fit_feedback(task) != BPS_OK) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory for the error feedback of tensor '%s'",
                        task->tensor->named.name);
    }
    return status;
}

/*
 * What is to be coded of a slice but for its feedback, perhaps in its scratch: the sum of a group has its members'
 * scales already.
 */
static const void *load(const struct bps_task *task, uint32_t index)
{
    double scale = task->for_group ? task->divisor : task->tensor->operation.request.prescale;
    const char *src = task->src + offset_of(task, index);
    void *scratch = coded_of(task, index)->scratch;
    struct bps_kernels kernels;
    if (scale == 1.0 && dtype_of(task) == bps_coding_type(dtype_of(task))) {
        return src;
    }
    find_kernels(task->tensor->worker, dtype_of(task), &kernels, NULL);
    kernels.first(kernels.context, scratch, src, count_of(task, index), scale);
    return scratch;
}

static struct bps_feedback_slice feedback_slice(const struct bps_task *task, uint32_t index)
{
    return (struct bps_feedback_slice){.index = index,
                                       .first = offset_of(task, index) / bps_dtype_size(dtype_of(task)),
                                       .count = count_of(task, index),
                                       .rate = task->tensor->operation.request.learning_rate,
                                       .exact = bps_coded_push_of(task)->exact};
}

/* ---- what always holds ---- */

/* What was sent of a task has been made, nothing comes of what was not, and what a thread has is in its hands alone. */
static void check_slices(const struct bps_task *task)
{
    const struct bps_coded_push *push = bps_coded_push_of(task);
    uint32_t encoding = 0;
    bps_assert(push->push.payload == &bps_payload_coded && push->slice != NULL);
    for (uint32_t i = 0; i < push->push.slices; i++) {
        const struct bps_coded_slice *coded = &push->slice[i];
        bool sent = i < push->push.sent;
        encoding += coded->state == BPS_SLICE_ENCODING;
        bps_assert(!sent || (coded->state == BPS_SLICE_ENCODED && coded->sent_bytes <= bound_of(task, i)));
        bps_assert(coded->state == BPS_SLICE_RAW || coded->sent != NULL);
        bps_assert(sent || coded->result == NULL || push->push.kept != NULL); /* from a shard that is lost */
        bps_assert(coded->state != BPS_SLICE_ENCODING || coded->scratch != NULL);
    }
    bps_assert(encoding <= push->push.computing && task->tensor->named.coding != NULL);
    bps_assert(task->feedback.coding == NULL || task->feedback.slices == push->push.slices);
}

/* ---- memory ---- */

/* Of all elements as they are coded, twice: what is loaded, and what is decoded. */
static size_t scratch_bytes(const struct bps_task *task, uint32_t index)
{
    return 2 * count_of(task, index) * bps_dtype_size(bps_coding_type(dtype_of(task)));
}

static void *decoded_of(const struct bps_task *task, uint32_t index)
{
    return (char *)coded_of(task, index)->scratch + scratch_bytes(task, index) / 2;
}

static bool slices_take(struct bps_task *task, void **block, size_t bytes)
{
    if (*block == NULL) {
        *block = bps_pool_get(&task->tensor->worker->coded->pool, bytes);
    }
    return *block != NULL;
}

static void give_back(struct bps_task *task, void **block, size_t bytes)
{
    if (*block != NULL) {
        bps_pool_put(&task->tensor->worker->coded->pool, *block, bytes);
        *block = NULL;
    }
}

void bps_coded_release(struct bps_task *task)
{
    bps_check(check_slices(task));
    bps_assert(bps_push_of(task)->computing == 0 && bps_push_of(task)->outstanding == 0);
    for (uint32_t i = 0; i < bps_push_of(task)->slices; i++) {
        struct bps_coded_slice *coded = coded_of(task, i);
        give_back(task, &coded->sent, bound_of(task, i));
        if (bps_push_of(task)->kept == NULL) {
            give_back(task, &coded->result, bound_of(task, i));
        }
        coded->result = NULL;
        give_back(task, &coded->scratch, scratch_bytes(task, i));
    }
}

/* ---- on other threads ---- */

static bool goes_to_pool(const struct bps_task *task, uint32_t index)
{
    const struct bps_worker *worker = task->tensor->worker;
    return worker->pool != NULL && bps_thread_pool_pays(worker, bps_push_bytes(task, index));
}

static void compute(struct bps_task *task, uint32_t index, void (*run)(struct bps_job *job),
                    void (*back)(struct bps_post *post))
{
    struct bps_coded_slice *coded = coded_of(task, index);
    coded->task = task;
    coded->job = (struct bps_job){.run = run, .done = {.fn = back}};
    bps_push_of(task)->computing++;
    bps_thread_pool_run(task->tensor->worker->pool, &coded->job);
}

static uint32_t index_of(const struct bps_coded_slice *coded)
{
    return (uint32_t)(coded - bps_coded_push_of(coded->task)->slice);
}

/* A slice comes back to its task. */
static struct bps_coded_slice *computed(struct bps_post *post, uint32_t *index)
{
    struct bps_coded_slice *coded = bps_container(post, struct bps_coded_slice, job.done);
    bps_assert(bps_push_of(coded->task)->computing > 0);
    *index = index_of(coded);
    bps_push_of(coded->task)->computing--;
    return coded;
}

/* ---- to the shard ---- */

static uint32_t slice_bytes(const struct bps_task *task, uint32_t index)
{
    const struct bps_coded_slice *coded = coded_of(task, index);
    return coded->state == BPS_SLICE_ENCODED ? (uint32_t)coded->sent_bytes : bound_of(task, index);
}

static bool take_for_encoding(struct bps_task *task, uint32_t index)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    return slices_take(task, &coded->sent, bound_of(task, index)) &&
           slices_take(task, &coded->scratch, scratch_bytes(task, index));
}

/* On any thread. */
static void encode(struct bps_task *task, uint32_t index)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_coding *coding = tensor->named.coding;
    struct bps_coded_slice *coded = coded_of(task, index);
    const struct bps_random random =
        bps_coding_random(coding, tensor->id, task->partition, tensor->round, index, tensor->worker->job.rank);
    const struct bps_feedback_slice part = feedback_slice(task, index);
    const void *x = load(task, index);
    if (task->feedback.coding != NULL) {
        bps_feedback_apply(&task->feedback, &part, x, coded->scratch);
        x = coded->scratch;
    }
    BPS_CALLING(coding->compressor, "encode", tensor->named.name);
    coded->sent_bytes = ops_of(task)->encode(coding->compressor->self, bps_coding_type(dtype_of(task)), x,
                                             count_of(task, index), &random, coded->sent);
}

static bps_status encoded(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    struct bps_coding *coding = task->tensor->named.coding;
    struct bps_coded_slice *coded = coded_of(task, index);
    coded->state = BPS_SLICE_ENCODED;
    give_back(task, &coded->scratch, scratch_bytes(task, index));
    bps_status status =
        bps_returned_bytes(coding->compressor, "encode", coded->sent_bytes, bound_of(task, index), report);
    if (status == BPS_OK) {
        bps_coding_count(coding, bps_push_bytes(task, index), coded->sent_bytes);
    }
    return status;
}

/*
 * A slice cannot be made. Without memory the job fails. Else it is the compressor's fault: then the round does, as
 * everybody hears from the shard, and this worker like all others. What is out of the task comes back meanwhile.
 */
static void refuse(struct bps_task *task, bps_status status, const char *why)
{
    struct bps_tensor_entry *tensor = task->tensor;
    struct bps_coded_push *push = bps_coded_push_of(task);
    char text[BPS_TEXT_LIMIT];
    if (status == BPS_ERR_NOMEM) {
        bps_push_fail(tensor->worker, status, why);
    } else if (!push->refused) {
        push->refused = true;
        bps_push_withdraw(task);
        snprintf(text, sizeof text, "worker %u: %s", tensor->worker->job.rank, why);
        bps_remote_refuse(tensor, task->partition, tensor->operation.bytes, status, text, true);
    }
}

static void run_encode(struct bps_job *job)
{
    const struct bps_coded_slice *coded = bps_container(job, struct bps_coded_slice, job);
    encode(coded->task, index_of(coded));
}

static void on_encoded(struct bps_post *post)
{
    uint32_t index;
    struct bps_coded_slice *coded = computed(post, &index);
    struct bps_report report;
    bps_status status = encoded(coded->task, index, &report);
    if (status != BPS_OK && !coded->task->failed) {
        refuse(coded->task, status, report.text);
    }
    bps_push_made(coded->task);
}

/* Without memory slices_make() has the last word. */
static bool ready(struct bps_task *task, uint32_t index)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    if (coded->state == BPS_SLICE_RAW && goes_to_pool(task, index) && take_for_encoding(task, index)) {
        coded->state = BPS_SLICE_ENCODING;
        compute(task, index, run_encode, on_encoded);
    }
    return coded->state != BPS_SLICE_ENCODING;
}

static bps_status make_now(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    if (!take_for_encoding(task, index)) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory to code tensor %s", task->tensor->named.name);
    }
    encode(task, index);
    return encoded(task, index, report);
}

static bps_status slices_make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                              struct bps_report *report)
{
    const struct bps_coded_slice *coded = coded_of(task, index);
    bps_status status = BPS_OK;
    bps_check(check_slices(task));
    bps_assert(coded->state != BPS_SLICE_ENCODING);
    if (coded->state == BPS_SLICE_RAW && (status = make_now(task, index, report)) != BPS_OK) {
        return status;
    }
    header->length = (uint32_t)coded->sent_bytes;
    header->coding = task->tensor->named.coding->number;
    header->flags |= bps_coded_push_of(task)->exact ? BPS_FLAG_EXACT : 0;
    header->flags |= task->feedback.brings ? BPS_FLAG_BRINGS : 0;
    header->flags |= task->feedback.dropped ? BPS_FLAG_DROPPED : 0;
    header->prescale = task->tensor->operation.request.learning_rate;
    task->feedback.moving = task->feedback.coding != NULL;
    *payload = coded->sent;
    return BPS_OK;
}

/* ---- and back ---- */

/* With the other results that are kept, or for as long as the task. */
static bool take_for_result(struct bps_task *task, uint32_t index)
{
    const struct bps_push *push = bps_push_of(task);
    struct bps_coded_slice *coded = coded_of(task, index);
    if (push->kept == NULL) {
        return slices_take(task, &coded->result, bound_of(task, index));
    }
    coded->result = bps_kept_place(&push->remote->worker->shards->kept, push->kept, index, bound_of(task, index));
    return coded->result != NULL;
}

static bps_status slices_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    bps_check(check_slices(task));
    if (bytes == 0 || bytes > bound_of(task, index)) {
        return BPS_ERR_PROTOCOL;
    }
    coded->result_bytes = bytes;
    coded->dropped = (bps_push_of(task)->answer & BPS_FLAG_DROPPED) != 0;
    return take_for_result(task, index) ? BPS_OK : BPS_ERR_NOMEM;
}

static char *slices_place(struct bps_task *task, uint32_t index)
{
    return coded_of(task, index)->result;
}

static bps_status decode_to(const struct bps_task *task, uint32_t index, void *to)
{
    const struct bps_coding *coding = task->tensor->named.coding;
    const struct bps_coded_slice *coded = coded_of(task, index);
    BPS_CALLING(coding->compressor, "decode", task->tensor->named.name);
    return ops_of(task)->decode(coding->compressor->self, bps_coding_type(dtype_of(task)), coded->result,
                                coded->result_bytes, to, count_of(task, index));
}

/* What was sent has been summed, unless it was too late; x is the result. Its place may have the gradient until now. */
static bps_status move_feedback(struct bps_task *task, uint32_t index, const void *x)
{
    const struct bps_coded_slice *coded = coded_of(task, index);
    const struct bps_feedback_slice part = feedback_slice(task, index);
    if (!coded->dropped && bps_feedback_is_finite(task->feedback.type, x, part.count)) {
        return bps_feedback_move(&task->feedback, &part, load(task, index), coded->sent, coded->sent_bytes);
    }
    bps_feedback_keep(&task->feedback, &part);
    return BPS_OK;
}

/* On any thread. */
static bps_status decode(struct bps_task *task, uint32_t index)
{
    uint32_t dtype = dtype_of(task);
    char *dst = task->dst + offset_of(task, index), *x = decoded_of(task, index);
    bool same = bps_coding_type(dtype) == dtype;
    struct bps_kernels kernels;
    if (same && task->feedback.coding == NULL) {
        return decode_to(task, index, dst);
    }
    bps_status status = decode_to(task, index, x);
    if (status == BPS_OK && task->feedback.coding != NULL) {
        status = move_feedback(task, index, x);
        coded_of(task, index)->own = status != BPS_OK;
    }
    if (status == BPS_OK && same) {
        memcpy(dst, x, bps_push_bytes(task, index));
    } else if (status == BPS_OK) {
        find_kernels(task->tensor->worker, dtype, &kernels, NULL);
        kernels.finish(kernels.context, dst, x, count_of(task, index), 1.0, 1);
    }
    return status;
}

static void run_decode(struct bps_job *job)
{
    struct bps_coded_slice *coded = bps_container(job, struct bps_coded_slice, job);
    coded->status = decode(coded->task, index_of(coded));
}

/* Whose fault it is. */
static bps_status decoded(struct bps_task *task, uint32_t index, bps_status returned, struct bps_report *report)
{
    const struct bps_coding *coding = task->tensor->named.coding;
    struct bps_coded_slice *coded = coded_of(task, index);
    give_back(task, &coded->scratch, scratch_bytes(task, index));
    if (returned != BPS_OK && coded->own) {
        return bps_blame(coding->compressor, "decode_add", report, "returned %d for data that encode produced",
                         returned);
    }
    bps_status status = bps_returned(coding->compressor, "decode", BPS_OK, returned, report);
    if (status != BPS_OK && status == returned) {
        BPS_REPORT(report, "the server sent data that is not encoded with %s", coding->text);
    }
    return status;
}

static void on_decoded(struct bps_post *post)
{
    uint32_t index;
    struct bps_coded_slice *coded = computed(post, &index);
    struct bps_report report;
    bps_status status = decoded(coded->task, index, coded->status, &report);
    bps_push_settled(coded->task, index, status, report.text);
}

static bps_status settle(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    struct bps_coded_slice *coded = coded_of(task, index);
    bps_check(check_slices(task));
    if (!slices_take(task, &coded->scratch, scratch_bytes(task, index))) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory to decode %s", task->tensor->named.name);
    }
    if (goes_to_pool(task, index)) {
        compute(task, index, run_decode, on_decoded);
        return BPS_INPROGRESS;
    }
    return decoded(task, index, decode(task, index), report);
}

const struct bps_payload_ops bps_payload_coded = {
    .begin = bps_coded_tell,
    .bytes = slice_bytes,
    .ready = ready,
    .make = slices_make,
    .refuse = refuse,
    .expect = slices_expect,
    .place = slices_place,
    .settle = settle,
};
