/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_device.c - the operations of devices: marks are reached and copies done once, later and in their order, and
 * reductions give the bits of the oracle. What needs memory of a device is tested where that is the host's.
 */
#include <stdlib.h>
#include <string.h>

#include <byteps/device.h>

#include "tools/check/reducer.h"

enum { PATIENCE = 5, CALLS = 24 };

/* What a device is to tell once: a mark is reached, or a copy or a reduction is done. */
struct call {
    struct device *device;
    const char *name;
    bool inside; /* of the function that has begun it */
    unsigned told, order;
    const void *to, *expected; /* NULL, or what is there by then */
    size_t bytes;
};

struct device {
    struct bps_check *check;
    struct bps_instance *instance;
    const struct bps_device_ops *ops;
    struct bps_device stream;
    bool closed;
    unsigned begun, told;
};

static struct device device_open(struct bps_check *check)
{
    struct device device = {.check = check, .instance = bps_check_open(check)};
    device.ops = ((const struct bps_reducer_ops *)device.instance->ops)->device;
    if (device.ops == NULL) {
        bps_check_skip(check, "it has no devices");
    }
    device.stream = (struct bps_device){.type = device.ops->type};
    return device;
}

/* Other memory of devices is not to be had here. */
static struct device device_open_host(struct bps_check *check)
{
    struct device device = device_open(check);
    if (device.ops->type != BPS_DEVICE_HOST) {
        bps_check_skip(check, "the memory of its devices, of type %u, is not the host's", device.ops->type);
    }
    return device;
}

/* ---- what it tells ---- */

static void on_told(void *arg, bps_status status, const char *text)
{
    struct call *call = arg;
    struct bps_check *check = call->device->check;
    BPS_CHECK(check, !call->device->closed, "%s is called from within close, or after it", call->name);
    BPS_CHECK(check, !call->inside, "%s is called from within the function that has begun it", call->name);
    BPS_CHECK(check, call->told++ == 0, "%s is called twice", call->name);
    BPS_CHECK(check, status == BPS_OK, "%s is called with status %d and '%s'; expected BPS_OK", call->name, status,
              text != NULL ? text : "");
    BPS_CHECK(check, call->expected == NULL || memcmp(call->to, call->expected, call->bytes) == 0,
              "%s is called before the %zu bytes are there", call->name, call->bytes);
    call->order = call->device->told++;
}

static void call_begin(struct call *call, struct device *device, const char *name)
{
    *call = (struct call){.device = device, .name = name, .inside = true};
    device->begun++;
}

static void check_status(const struct device *device, const char *name, bps_status status,
                         const struct bps_report *report)
{
    BPS_CHECK(device->check, status == BPS_OK, "%s returns %d (%s): %s", name, status, bps_strerror(status),
              report->text);
}

static bool all_told(void *arg)
{
    const struct device *device = arg;
    return device->told == device->begun;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* A few turns more: what is told once is not told again. */
static void device_wait(struct device *device)
{
    double limit = device->check->limit / 2;
    bool in_time = bps_check_drive(device->check, all_told, device, limit < PATIENCE ? limit : PATIENCE);
    BPS_CHECK(device->check, in_time, "of %u marks, copies and reductions, %u are never reached or done", device->begun,
              device->begun - device->told);
    bps_check_drive(device->check, never, NULL, 0.002);
}

static void device_close(struct device *device)
{
    device->closed = true;
    bps_check_close(device->check, device->instance);
}

/* ---- marks ---- */

static struct bps_mark *mark_stream(struct device *device)
{
    struct bps_mark *mark = NULL;
    struct bps_report report = {""};
    check_status(device, "mark", device->ops->mark(device->instance->self, &device->stream, &mark, &report), &report);
    BPS_CHECK(device->check, mark != NULL, "mark returns BPS_OK without a mark");
    return mark;
}

static struct bps_mark *mark_copies(struct device *device)
{
    struct bps_mark *mark = NULL;
    struct bps_report report = {""};
    check_status(device, "mark_copies", device->ops->mark_copies(device->instance->self, 0, &mark, &report), &report);
    BPS_CHECK(device->check, mark != NULL, "mark_copies returns BPS_OK without a mark");
    return mark;
}

static void await(struct device *device, struct bps_mark *mark, struct call *call)
{
    struct bps_report report = {""};
    call_begin(call, device, "reached");
    check_status(device, "await", device->ops->await(device->instance->self, mark, on_told, call, &report), &report);
    call->inside = false;
}

static void follow(struct device *device, struct bps_mark *mark)
{
    struct bps_report report = {""};
    check_status(device, "follow", device->ops->follow(device->instance->self, &device->stream, mark, &report),
                 &report);
}

static void mark_no_device(struct device *device, int32_t index)
{
    const struct bps_device stream = {.type = device->ops->type, .index = index};
    struct bps_mark *mark = NULL;
    struct bps_report report = {""};
    bps_check_at(device->check, "mark of device %d, which does not exist", index);
    bps_status status = device->ops->mark(device->instance->self, &stream, &mark, &report);
    BPS_CHECK(device->check, status == BPS_ERR_INVALID, "it returns %d; expected BPS_ERR_INVALID", status);
    BPS_CHECK(device->check, report.text[0] != '\0', "it returns BPS_ERR_INVALID without a text in the report");
}

void bps_check_device_marks(struct bps_check *check)
{
    struct device device = device_open(check);
    struct bps_mark *marks[CALLS];
    struct call calls[CALLS];
    mark_no_device(&device, -1);
    mark_no_device(&device, 1 << 20);
    bps_check_at(check, "marks of the default stream and of copies, each other one awaited");
    for (unsigned i = 0; i < CALLS; i++) {
        marks[i] = i % 4 < 2 ? mark_stream(&device) : mark_copies(&device);
        follow(&device, marks[i]);
        if (i % 2 == 0) {
            await(&device, marks[i], &calls[i]);
        }
    }
    device_wait(&device);
    for (unsigned i = 0; i < CALLS; i++) {
        device.ops->release(device.instance->self, marks[i]);
    }
    bps_check_drive(check, never, NULL, 0.002);
    device_close(&device);
}

/* ---- copies ---- */

/* Two buffers between pages that cannot be touched. `from` may only be read. */
struct buffers {
    struct bps_guarded from, to;
};

static struct buffers buffers_new(struct bps_check *check, size_t bytes, const void *contents)
{
    struct buffers b = {bps_guarded_new(check, "from", bytes, BPS_GUARDED_BACK),
                        bps_guarded_new(check, "to", bytes, BPS_GUARDED_BACK)};
    memset(b.to.at, 0x5a, bytes);
    for (size_t i = 0; i < bytes; i++) {
        b.from.at[i] = contents != NULL ? ((const uint8_t *)contents)[i] : (uint8_t)bps_summands_draw();
    }
    bps_guarded_read_only(&b.from, true);
    return b;
}

static void buffers_free(struct buffers *b)
{
    bps_guarded_free(&b->from);
    bps_guarded_free(&b->to);
}

static void copy(struct device *device, const struct buffers *b, bool to_device, struct call *call)
{
    struct bps_report report = {""};
    call_begin(call, device, "done of a copy");
    call->to = b->to.at;
    call->expected = b->from.at;
    call->bytes = b->from.bytes;
    const struct bps_copy what = {.to_device = to_device,
                                  .to = b->to.at,
                                  .from = b->from.at,
                                  .bytes = b->from.bytes,
                                  .done = on_told,
                                  .arg = call};
    check_status(device, "copy", device->ops->copy(device->instance->self, &what, &report), &report);
    call->inside = false;
}

static const char *direction(bool to_device)
{
    return to_device ? "to the device" : "to the host";
}

static void copy_all_sizes(struct device *device)
{
    static const size_t sizes[] = {0, 1, 15, 4097, (1 << 20) + 1};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        struct buffers b = buffers_new(device->check, sizes[i / 2], NULL);
        struct call call;
        bps_check_at(device->check, "copy of %zu bytes %s", sizes[i / 2], direction(i % 2 == 0));
        copy(device, &b, i % 2 == 0, &call);
        device_wait(device);
        buffers_free(&b);
    }
}

static void copy_in_order(struct device *device)
{
    struct buffers b[CALLS];
    struct call calls[CALLS];
    bps_check_at(device->check, "%d copies, now %s and now %s", CALLS, direction(true), direction(false));
    for (unsigned i = 0; i < CALLS; i++) {
        b[i] = buffers_new(device->check, 1 + i % 5 * 3000, NULL);
        copy(device, &b[i], i % 2 == 0, &calls[i]);
    }
    device_wait(device);
    for (unsigned i = 0; i < CALLS; i++) {
        BPS_CHECK(device->check, i < 2 || calls[i - 2].order < calls[i].order,
                  "the %uth copy %s is done before the %uth", i / 2 + 1, direction(i % 2 == 0), i / 2);
        buffers_free(&b[i]);
    }
}

/* The mark of copies, or one of the stream that follows it. */
static void mark_behind_copies(struct device *device, bool follows)
{
    struct buffers b[CALLS];
    struct call calls[CALLS], reached;
    bps_check_at(device->check, "a mark of %s behind %d copies to the device",
                 follows ? "a stream that follows that of copies" : "copies", CALLS);
    for (unsigned i = 0; i < CALLS; i++) {
        b[i] = buffers_new(device->check, 1000, NULL);
        copy(device, &b[i], true, &calls[i]);
    }
    struct bps_mark *behind = mark_copies(device), *mark = behind;
    if (follows) {
        follow(device, behind);
        device->ops->release(device->instance->self, behind);
        mark = mark_stream(device);
    }
    await(device, mark, &reached);
    reached.to = b[CALLS - 1].to.at;
    reached.expected = b[CALLS - 1].from.at;
    reached.bytes = 1000;
    device_wait(device);
    device->ops->release(device->instance->self, mark);
    for (unsigned i = 0; i < CALLS; i++) {
        buffers_free(&b[i]);
    }
}

void bps_check_device_copies(struct bps_check *check)
{
    struct device device = device_open_host(check);
    copy_all_sizes(&device);
    copy_in_order(&device);
    mark_behind_copies(&device, false);
    mark_behind_copies(&device, true);
    device_close(&device);
}

void bps_check_device_close(struct bps_check *check)
{
    struct device device = device_open_host(check);
    struct buffers b[CALLS];
    struct call calls[CALLS];
    bps_check_at(check, "close while %d copies are under way", CALLS);
    for (unsigned i = 0; i < CALLS; i++) {
        b[i] = buffers_new(check, 5000, NULL);
        copy(&device, &b[i], i % 2 == 0, &calls[i]);
    }
    device_close(&device);
    for (unsigned i = 0; i < CALLS; i++) {
        BPS_CHECK(check, memcmp(b[i].to.at, b[i].from.at, 5000) == 0,
                  "the bytes of a copy %s are not there: close waits for what is under way", direction(i % 2 == 0));
        buffers_free(&b[i]);
    }
    bps_check_drive(check, never, NULL, 0.002);
}

/* ---- reductions ---- */

enum { COUNT = 301 };

/* What the steps make of them. */
static void expect(struct bps_check *check, struct bps_reduction *r, uint8_t *expected)
{
    uint8_t *acc = calloc(COUNT, oracle_size(oracle_accumulator(r->dtype)));
    BPS_CHECK(check, acc != NULL, "out of memory");
    oracle_first(r->dtype, acc, r->src[0], COUNT, r->scales != NULL ? r->scales[0] : 1);
    for (unsigned i = 1; i < r->n; i++) {
        oracle_fold(r->op, r->dtype, acc, r->src[i], COUNT, r->scales != NULL ? r->scales[i] : 1);
    }
    oracle_finish(r->dtype, expected, acc, COUNT, r->scale, r->divisor);
    free(acc);
}

static void reduce(struct device *device, struct bps_reduction *r)
{
    const struct bps_summer summer = {.check = device->check, .op = r->op, .dtype = r->dtype};
    uint8_t expected[COUNT * 8];
    struct bps_report report = {""};
    struct call call;
    bps_check_at(device->check, "reduce, %s of %s, %u sources%s", bps_op_name(r->op), bps_dtype_name(r->dtype), r->n,
                 r->scales != NULL ? ", with scales" : "");
    expect(device->check, r, expected);
    call_begin(&call, device, "done of a reduction");
    r->done = on_told;
    r->arg = &call;
    check_status(device, "reduce", device->ops->reduce(device->instance->self, r, &report), &report);
    call.inside = false;
    device_wait(device);
    bps_summer_same(&summer, "dst", r->dtype, r->dst, expected, COUNT);
}

static void reduce_some(struct device *device, uint32_t op, uint32_t dtype)
{
    static const double scales[BPS_REDUCTION_SOURCES] = {1, 2, 0.5, 3, 1, 1, 1, 1};
    const struct bps_summer summer = {.check = device->check, .op = op, .dtype = dtype};
    struct buffers src[BPS_REDUCTION_SOURCES];
    struct bps_reduction r = {.op = op, .dtype = dtype, .count = COUNT, .scale = 1, .divisor = 1};
    for (unsigned i = 0; i < BPS_REDUCTION_SOURCES; i++) {
        struct bps_summands random = bps_summands_new(&summer, "src", dtype, COUNT, 0);
        src[i] = buffers_new(device->check, random.bytes, random.at);
        r.src[i] = src[i].from.at;
        bps_summands_free(&random);
    }
    r.dst = src[0].to.at;
    for (r.n = 1; r.n <= BPS_REDUCTION_SOURCES; r.n++) {
        r.scales = r.n % 2 == 0 && dtype != BPS_BOOL ? scales : NULL;
        r.divisor = oracle_is_float(dtype) ? r.n : 1;
        reduce(device, &r);
    }
    for (unsigned i = 0; i < BPS_REDUCTION_SOURCES; i++) {
        buffers_free(&src[i]);
    }
}

void bps_check_device_reductions(struct bps_check *check)
{
    struct device device = device_open_host(check);
    void *self = device.instance->self;
    if (device.ops->can_reduce == NULL) {
        bps_check_skip(check, "its devices do not reduce");
    }
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; op != BPS_AVERAGE && dtype < BPS_DTYPES; dtype++) {
            bps_check_at(check, "can_reduce, %s of %s", bps_op_name(op), bps_dtype_name(dtype));
            bool can = device.ops->can_reduce(self, 0, op, dtype);
            BPS_CHECK(check, can == device.ops->can_reduce(self, 0, op, dtype),
                      "it does not return the same each time");
            if (can) {
                reduce_some(&device, op, dtype);
            }
        }
    }
    device_close(&device);
}
