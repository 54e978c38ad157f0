/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_device_faulty.c - a reducer with a device whose memory is that of the host, with one fault of those that
 * `byteps plugin check` must find: the one that -DFAULT=NAME chooses, or none. The device does one piece of its work in
 * each turn of the loop, copies of both directions and sums of float32 in one queue.
 */
#include <string.h>

#include <byteps/device.h>
#include <byteps/reducer.h>

#define WORK 64 /* pieces under way */

enum fault {
    NONE,
    MARK_NULL,
    MARK_ANY_DEVICE,
    MARK_SAYS_NOTHING,
    MARK_COPIES_EARLY,
    FOLLOW_IGNORES,
    AWAIT_AT_ONCE,
    AWAIT_TWICE,
    AWAIT_NEVER,
    AWAIT_POSITIVE,
    RELEASE_REACHES,
    COPY_AT_ONCE,
    COPY_TWICE,
    COPY_NEVER,
    COPY_EARLY,
    COPY_SHORT,
    COPY_BEYOND,
    COPY_WRITES_FROM,
    COPY_SWAPS,
    COPY_RETURNS_ONE,
    CAN_REDUCE_DIFFERS,
    REDUCE_AT_ONCE,
    REDUCE_ONE_SOURCE,
    REDUCE_WITHOUT_SCALES,
    REDUCE_WITHOUT_DIVISOR,
    CLOSE_FORGETS,
    CLOSE_TELLS,
};

static volatile enum fault fault = FAULT;

static bool has(enum fault one)
{
    return fault == one;
}

struct bps_mark {
    struct bps_mark *next; /* of those that are awaited */
    uint64_t behind;       /* so many pieces of work */
    bps_device_fn reached;
    void *arg;
};

struct work {
    struct bps_copy copy;
    struct bps_reduction reduction; /* with no sources: it is a copy */
    double scales[BPS_REDUCTION_SOURCES];
};

struct faulty {
    const struct bps_host *host;
    struct work work[WORK];
    uint64_t given, done, stream; /* stream: it waits for so many */
    struct bps_mark *awaited;
    bool deferred;
};

static void turn(void *arg);

static void schedule(struct faulty *faulty)
{
    if (!faulty->deferred) {
        faulty->deferred = true;
        faulty->host->defer(faulty->host, turn, faulty);
    }
}

/* ---- its work ---- */

static float element(const void *elements, uint64_t i)
{
    float value;

    memcpy(&value, (const char *)elements + i * 4, 4);
    return value;
}

static void add(const struct work *work)
{
    const struct bps_reduction *r = &work->reduction;
    float factor = (float)(r->scale / (double)(has(REDUCE_WITHOUT_DIVISOR) ? 1 : r->divisor));
    static const uint32_t nan = 0x7fc00000;

    for (uint64_t i = 0; i < r->count; i++) {
        float sum = element(r->src[0], i) * (float)work->scales[0];
        for (unsigned k = 1; k < (has(REDUCE_ONE_SOURCE) ? 1 : r->n); k++) {
            sum += element(r->src[k], i) * (float)work->scales[k];
        }
        sum *= factor;
        memcpy((char *)r->dst + i * 4, sum != sum ? (const void *)&nan : &sum, 4);
    }
}

static void move(const struct bps_copy *copy)
{
    volatile char *from = (volatile char *)copy->from, *to = copy->to;

    memcpy(copy->to, copy->from, copy->bytes - (copy->bytes > 0 && has(COPY_SHORT)));
    if (has(COPY_BEYOND)) {
        to[copy->bytes] = 0;
    } else if (has(COPY_WRITES_FROM) && copy->bytes > 0) {
        from[0] = 0;
    }
}

static void work_on(struct faulty *faulty, bool tells)
{
    struct work *work = &faulty->work[faulty->done++ % WORK];
    bool reduces = work->reduction.n > 0;
    bps_device_fn done = reduces ? work->reduction.done : work->copy.done;
    void *arg = reduces ? work->reduction.arg : work->copy.arg;

    if (has(COPY_EARLY) && tells && !reduces) {
        done(arg, BPS_OK, "");
        tells = false;
    }
    if (reduces) {
        add(work);
    } else {
        move(&work->copy);
    }
    for (int i = 0; i < 1 + has(COPY_TWICE) - has(COPY_NEVER) && tells; i++) {
        done(arg, BPS_OK, "");
    }
}

/* Two pieces that have not begun change their places. */
static void swap(struct faulty *faulty)
{
    struct work *first = &faulty->work[faulty->done % WORK], *third = &faulty->work[(faulty->done + 2) % WORK];

    if (faulty->given - faulty->done > 2) {
        struct work kept = *first;
        *first = *third;
        *third = kept;
    }
}

static void reach(struct faulty *faulty)
{
    for (struct bps_mark **at = &faulty->awaited, *mark; (mark = *at) != NULL;) {
        if (mark->behind > faulty->done || has(AWAIT_NEVER)) {
            at = &mark->next;
            continue;
        }
        *at = mark->next;
        for (int i = 0; i < 1 + has(AWAIT_TWICE); i++) {
            mark->reached(mark->arg, has(AWAIT_POSITIVE) ? 4 : BPS_OK, "");
        }
    }
}

static void turn(void *arg)
{
    struct faulty *faulty = arg;

    faulty->deferred = false;
    reach(faulty);
    if (has(COPY_SWAPS)) {
        swap(faulty);
    }
    if (faulty->done < faulty->given) {
        work_on(faulty, true);
    }
    if (faulty->done < faulty->given || (faulty->awaited && !has(AWAIT_NEVER))) {
        schedule(faulty);
    }
}

/* ---- marks ---- */

static bps_status new_mark(struct faulty *faulty, uint64_t behind, struct bps_mark **out, struct bps_report *report)
{
    struct bps_mark *mark = faulty->host->alloc(faulty->host, sizeof *mark, 8);

    if (!mark) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *mark = (struct bps_mark){.behind = behind};
    *out = has(MARK_NULL) ? NULL : mark;
    return BPS_OK;
}

static bps_status faulty_mark(void *instance, const struct bps_device *device, struct bps_mark **out,
                              struct bps_report *report)
{
    struct faulty *faulty = instance;

    if (device->index != 0 && !has(MARK_ANY_DEVICE)) {
        BPS_REPORT(report, "%s", has(MARK_SAYS_NOTHING) ? "" : "there is no such device");
        return BPS_ERR_INVALID;
    }
    return new_mark(faulty, faulty->stream, out, report);
}

static bps_status faulty_mark_copies(void *instance, int32_t device, struct bps_mark **out, struct bps_report *report)
{
    struct faulty *faulty = instance;

    (void)device;
    return new_mark(faulty, has(MARK_COPIES_EARLY) ? 0 : faulty->given, out, report);
}

static bps_status faulty_follow(void *instance, const struct bps_device *device, struct bps_mark *mark,
                                struct bps_report *report)
{
    struct faulty *faulty = instance;

    (void)device;
    (void)report;
    if (mark->behind > faulty->stream && !has(FOLLOW_IGNORES)) {
        faulty->stream = mark->behind;
    }
    return BPS_OK;
}

static bps_status faulty_await(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                               struct bps_report *report)
{
    struct faulty *faulty = instance;

    (void)report;
    if (has(AWAIT_AT_ONCE)) {
        reached(arg, BPS_OK, "");
        return BPS_OK;
    }
    *mark = (struct bps_mark){.next = faulty->awaited, .behind = mark->behind, .reached = reached, .arg = arg};
    faulty->awaited = mark;
    schedule(faulty);
    return BPS_OK;
}

static void faulty_release(void *instance, struct bps_mark *mark)
{
    struct faulty *faulty = instance;

    if (has(RELEASE_REACHES) && mark->reached) {
        mark->reached(mark->arg, BPS_OK, "");
    }
    faulty->host->release(faulty->host, mark);
}

/* ---- copies and reductions ---- */

static bps_status give(struct faulty *faulty, const struct work *work, struct bps_report *report)
{
    if (faulty->given - faulty->done == WORK) {
        BPS_REPORT(report, "too much is under way");
        return BPS_ERR_BUSY;
    }
    faulty->work[faulty->given++ % WORK] = *work;
    schedule(faulty);
    return BPS_OK;
}

static bps_status faulty_copy(void *instance, const struct bps_copy *copy, struct bps_report *report)
{
    if (has(COPY_AT_ONCE)) {
        move(copy);
        copy->done(copy->arg, BPS_OK, "");
        return BPS_OK;
    }
    return has(COPY_RETURNS_ONE) ? 1 : give(instance, &(struct work){.copy = *copy}, report);
}

static bps_status faulty_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    (void)instance;
    (void)region;
    (void)report;
    return BPS_OK;
}

static void faulty_detach(void *instance, const struct bps_region *region)
{
    (void)instance;
    (void)region;
}

static bool faulty_can_reduce(void *instance, int32_t device, uint32_t op, uint32_t dtype)
{
    static bool once;

    (void)instance;
    (void)device;
    once = !once;
    return op == BPS_SUM && dtype == BPS_FLOAT32 && (once || !has(CAN_REDUCE_DIFFERS));
}

static bps_status faulty_reduce(void *instance, const struct bps_reduction *reduction, struct bps_report *report)
{
    struct work work = {.reduction = *reduction};

    for (unsigned i = 0; i < reduction->n; i++) {
        work.scales[i] = reduction->scales && !has(REDUCE_WITHOUT_SCALES) ? reduction->scales[i] : 1;
    }
    if (has(REDUCE_AT_ONCE)) {
        add(&work);
        reduction->done(reduction->arg, BPS_OK, "");
        return BPS_OK;
    }
    return give(instance, &work, report);
}

/* ---- the instance ---- */

static bps_status faulty_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    struct faulty *faulty = host->alloc(host, sizeof *faulty, 8);

    (void)options;
    if (!faulty) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *faulty = (struct faulty){.host = host};
    *out = faulty;
    return BPS_OK;
}

static void faulty_close(void *instance)
{
    struct faulty *faulty = instance;

    while (faulty->done < faulty->given && !has(CLOSE_FORGETS)) {
        work_on(faulty, has(CLOSE_TELLS));
    }
    faulty->host->release(faulty->host, faulty);
}

static bps_status faulty_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    (void)op;
    (void)dtype;
    (void)out;
    return BPS_ERR_UNSUPPORTED;
}

static const struct bps_device_ops device_ops = {
    .size = sizeof device_ops,
    .type = BPS_DEVICE_HOST,
    .mark = faulty_mark,
    .mark_copies = faulty_mark_copies,
    .follow = faulty_follow,
    .await = faulty_await,
    .release = faulty_release,
    .copy = faulty_copy,
    .attach = faulty_attach,
    .detach = faulty_detach,
    .can_reduce = faulty_can_reduce,
    .reduce = faulty_reduce,
};

static const struct bps_reducer_ops faulty_ops = {
    .size = sizeof faulty_ops,
    .open = faulty_open,
    .close = faulty_close,
    .kernels = faulty_kernels,
    .device = &device_ops,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "faulty", "1.0", "Apache-2.0", .summary = "a device of host memory",
                  .ops = &faulty_ops);
