/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_rig.c - an instance of the reducer "cuda", and an application beside it. */
#include "tests/gpu/cuda_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <byteps/reducer.h>

#include "conf/conf.h"

#define DEADLINE (100ull * 1000000000ull) /* ns after which a test has failed */

/* ---- life ---- */

static bps_status instance_open(struct bps_loop *loop, struct bps_instance **out, struct bps_report *report)
{
    const struct bps_conf_node group = {.kind = BPS_CONF_GROUP, .origin = "test"};
    return bps_instance_open(BPS_KIND_REDUCER, "cuda", "cuda", &group, "reducers.cuda", loop, out, report);
}

bps_status rig_refused(struct bps_report *report)
{
    struct bps_instance *instance;
    struct bps_loop *loop = bps_loop_new();
    bps_status status = instance_open(loop, &instance, report);
    bps_loop_free(loop);
    return status;
}

void rig_open(struct rig *rig)
{
    struct bps_report report = {""};
    *rig = (struct rig){.loop = bps_loop_new()};
    ck_assert_msg(instance_open(rig->loop, &rig->instance, &report) == BPS_OK, "%s", report.text);
    rig->self = rig->instance->self;
    rig->ops = ((const struct bps_reducer_ops *)rig->instance->ops)->device;
    for (int i = 0; i < DEVICES; i++) {
        CUDA(cuDevicePrimaryCtxRetain(&rig->context[i], i));
    }
    CUDA(cuCtxSetCurrent(rig->context[0]));
}

void rig_close_plugin(struct rig *rig)
{
    struct standin_counts counts;
    bps_instance_close(rig->instance);
    standin_count(&counts);
    ck_assert_uint_eq(counts.retained, DEVICES);
    ck_assert_uint_eq(counts.events, 0);
    ck_assert_uint_eq(counts.registrations, 0);
    ck_assert_uint_eq(counts.modules, 0);
}

void rig_close(struct rig *rig)
{
    struct standin_counts counts;
    rig_close_plugin(rig);
    for (int i = 0; i < DEVICES; i++) {
        CUDA(cuDevicePrimaryCtxRelease_v2(i));
    }
    bps_loop_free(rig->loop);
    standin_count(&counts);
    ck_assert_uint_eq(counts.retained, 0);
    ck_assert_uint_eq(counts.streams, 0);
    ck_assert_uint_eq(counts.allocations, 0);
}

/* ---- calls ---- */

void calls_init(struct rig *rig, struct call *calls, unsigned n, unsigned *left)
{
    for (unsigned i = 0; i < n; i++) {
        calls[i] = (struct call){.rig = rig, .left = left};
    }
    *left = n;
}

void call_done(void *arg, bps_status status, const char *text)
{
    static unsigned order;
    struct call *call = arg;
    ck_assert_uint_eq(call->count++, 0);
    call->order = ++order;
    call->status = status;
    snprintf(call->text, sizeof call->text, "%s", text);
    if (--*call->left == 0) {
        bps_loop_stop(call->rig->loop);
    }
}

static void too_late(void *arg)
{
    (void)arg;
    ck_abort_msg("nothing has happened for too long");
}

void rig_run(struct rig *rig, unsigned *left)
{
    struct bps_timer *timer = bps_loop_timer(rig->loop, DEADLINE, 0, too_late, NULL);
    ck_assert_uint_gt(*left, 0);
    bps_loop_run(rig->loop);
    ck_assert_uint_eq(*left, 0);
    bps_loop_cancel(rig->loop, timer);
}

/* ---- operations ---- */

static void must_work(bps_status status, const struct bps_report *report)
{
    ck_assert_msg(status == BPS_OK, "%d: %s", status, report->text);
}

void rig_copy(struct rig *rig, int32_t device, bool to_device, void *to, const void *from, uint64_t bytes,
              struct call *call)
{
    struct bps_report report = {""};
    const struct bps_copy copy = {
        .device = device,
        .to_device = to_device,
        .to = to,
        .from = from,
        .bytes = bytes,
        .done = call_done,
        .arg = call,
    };
    must_work(rig->ops->copy(rig->self, &copy, &report), &report);
    ck_assert_uint_eq(call->count, 0);
}

struct bps_mark *rig_mark(struct rig *rig, int32_t device, struct CUstream_st *stream)
{
    struct bps_report report = {""};
    struct bps_mark *mark = NULL;
    const struct bps_device where = {.type = BPS_DEVICE_CUDA, .index = device, .stream = stream};
    must_work(rig->ops->mark(rig->self, &where, &mark, &report), &report);
    return mark;
}

void rig_await(struct rig *rig, struct bps_mark *mark, struct call *call)
{
    struct bps_report report = {""};
    must_work(rig->ops->await(rig->self, mark, call_done, call, &report), &report);
    ck_assert_uint_eq(call->count, 0);
}

void rig_follow(struct rig *rig, int32_t device, struct CUstream_st *stream, struct bps_mark *mark)
{
    struct bps_report report = {""};
    const struct bps_device where = {.type = BPS_DEVICE_CUDA, .index = device, .stream = stream};
    must_work(rig->ops->follow(rig->self, &where, mark, &report), &report);
}

/* ---- the application ---- */

struct CUstream_st *stream_new(unsigned flags)
{
    struct CUstream_st *stream;
    CUDA(cuStreamCreate(&stream, flags));
    return stream;
}

void *device_alloc(size_t bytes)
{
    unsigned long long memory;
    CUDA(cuMemAlloc_v2(&memory, bytes));
    return (void *)(uintptr_t)memory;
}

void device_write(void *memory, const void *bytes, size_t count)
{
    CUDA(cuMemcpyHtoD_v2((uintptr_t)memory, bytes, count));
    CUDA(cuStreamSynchronize(NULL)); /* the copy may have returned before the bytes are there */
}

void device_free(void *memory)
{
    CUDA(cuMemFree_v2((uintptr_t)memory));
}

static void gate_wait(void *arg)
{
    struct gate *gate = arg;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

void gate_close(struct gate *gate, struct CUstream_st *stream)
{
    gate->open = false;
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    CUDA(cuLaunchHostFunc(stream, gate_wait, gate));
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}
