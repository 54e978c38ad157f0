/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - the reducer "device": each process has a device, whose memory is that of the host, and which does its work
 * later: each queue in its own order, and those that can go on in any. What it is given may fail.
 */
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PAUSE 100000u /* ns */

/* A copy, of bytes that the item may own; or it waits for another queue. */
struct device_item {
    STAILQ_ENTRY(device_item) entry;
    void *to, *own;
    const void *from;
    size_t bytes;
    const struct device_queue *behind; /* NULL: it waits for nothing */
    uint64_t count;                    /* what has to be done there */
    bps_device_fn done;                /* NULL: nobody is told */
    void *arg;
};

struct device_answer {
    STAILQ_ENTRY(device_answer) entry;
    bps_device_fn fn;
    void *arg;
    bps_status status;
};

struct bps_mark {
    LIST_ENTRY(bps_mark) entry;
    const struct device_queue *behind;
    uint64_t count;
    bps_device_fn reached; /* NULL: nobody awaits it */
    void *arg;
};

static LIST_HEAD(, device) devices = LIST_HEAD_INITIALIZER(devices);

bool device_fails(struct device *device)
{
    device->failed = device->failed || sim_device_fails(device->process);
    return device->failed;
}

/* ---- answers ---- */

static void wake_loop(const struct device *device)
{
    const uint64_t one = 1;
    ssize_t n = write(device->event, &one, sizeof one);
    (void)n;
}

void device_answer(struct device *device, bps_device_fn fn, void *arg, bps_status status)
{
    struct device_answer *answer = __real_calloc(1, sizeof *answer);
    *answer = (struct device_answer){.fn = fn, .arg = arg, .status = status};
    STAILQ_INSERT_TAIL(&device->answers, answer, entry);
    wake_loop(device);
}

static void give_one(struct device *device)
{
    struct device_answer *answer = STAILQ_FIRST(&device->answers);
    const struct device_answer given = *answer;
    STAILQ_REMOVE_HEAD(&device->answers, entry);
    free(answer);
    given.fn(given.arg, given.status, "the device was to fail");
}

/* Some of them in this turn, others in the next one. */
static void on_event(void *arg, uint32_t events)
{
    struct device *device = arg;
    uint64_t count;
    (void)events;
    ssize_t n = read(device->event, &count, sizeof count);
    (void)n;
    do {
        if (!STAILQ_EMPTY(&device->answers)) {
            give_one(device);
        }
    } while (!STAILQ_EMPTY(&device->answers) && sim_chance(70));
    if (!STAILQ_EMPTY(&device->answers)) {
        wake_loop(device);
    }
}

/* ---- its work ---- */

static void give(struct device *device, uint32_t queue, const struct device_item *what)
{
    struct device_item *item = __real_calloc(1, sizeof *item);
    *item = *what;
    STAILQ_INSERT_TAIL(&device->queue[queue].items, item, entry);
    device->queue[queue].given++;
    sem_post(&device->work);
}

static void free_item(struct device_item *item)
{
    free(item->own);
    free(item);
}

static bool queue_goes_on(struct device *device, struct device_queue *queue)
{
    struct device_item *item = STAILQ_FIRST(&queue->items);
    if (item == NULL || (item->behind != NULL && item->behind->done < item->count)) {
        return false;
    }
    bool fails = item->done != NULL && device_fails(device);
    if (item->bytes > 0 && !fails) {
        memcpy(item->to, item->own != NULL ? item->own : item->from, item->bytes);
    }
    STAILQ_REMOVE_HEAD(&queue->items, entry);
    queue->done++;
    if (item->done != NULL) {
        device_answer(device, item->done, item->arg, fails ? BPS_ERR_FAILED : BPS_OK);
    }
    free_item(item);
    return true;
}

static bool marks_go_on(struct device *device)
{
    struct bps_mark *mark;
    LIST_FOREACH(mark, &device->marks, entry) {
        if (mark->reached != NULL && mark->behind->done >= mark->count) {
            bps_device_fn reached = mark->reached;
            mark->reached = NULL;
            device_answer(device, reached, mark->arg, device_fails(device) ? BPS_ERR_FAILED : BPS_OK);
            return true;
        }
    }
    return false;
}

/* A piece of what can be done, drawn. False: there is none. */
static bool go_on(struct device *device)
{
    const uint32_t kinds = DEVICE_QUEUES + 2;
    uint32_t first = sim_random(kinds);
    bool done = false;
    for (uint32_t i = 0; i < kinds && !done; i++) {
        uint32_t kind = (first + i) % kinds;
        done = kind < DEVICE_QUEUES    ? queue_goes_on(device, &device->queue[kind])
               : kind == DEVICE_QUEUES ? marks_go_on(device)
                                       : device_groups_go_on(device);
    }
    return done;
}

/* ---- life ---- */

static void free_device(struct device *device)
{
    for (uint32_t i = 0; i < DEVICE_QUEUES; i++) {
        while (!STAILQ_EMPTY(&device->queue[i].items)) {
            struct device_item *item = STAILQ_FIRST(&device->queue[i].items);
            STAILQ_REMOVE_HEAD(&device->queue[i].items, entry);
            free_item(item);
        }
    }
    while (!STAILQ_EMPTY(&device->answers)) {
        struct device_answer *answer = STAILQ_FIRST(&device->answers);
        STAILQ_REMOVE_HEAD(&device->answers, entry);
        free(answer);
    }
    while (!LIST_EMPTY(&device->marks)) {
        struct bps_mark *mark = LIST_FIRST(&device->marks);
        LIST_REMOVE(mark, entry);
        free(mark);
    }
    device_groups_part(device);
    close(device->event);
    sem_destroy(&device->work);
    LIST_REMOVE(device, entry);
    free(device);
}

static void *run_device(void *arg)
{
    struct device *device = arg;
    while (!device->closing) {
        if (go_on(device)) {
            sim_sleep(sim_random(device->pause));
        } else {
            sem_wait(&device->work);
        }
    }
    free_device(device);
    return NULL;
}

static bps_status device_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    struct device *device = __real_calloc(1, sizeof *device);
    (void)options;
    (void)report;
    *device = (struct device){.host = host, .process = sim_self(), .pause = 1 + sim_random(PAUSE)};
    device->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    device->watch = host->watch(host, device->event, on_event, device);
    if (device->watch == NULL) {
        close(device->event);
        free(device);
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < DEVICE_QUEUES; i++) {
        STAILQ_INIT(&device->queue[i].items);
    }
    LIST_INIT(&device->marks);
    LIST_INIT(&device->groups);
    STAILQ_INIT(&device->answers);
    sem_init(&device->work, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, run_device, device);
    LIST_INSERT_HEAD(&devices, device, entry);
    *out = device;
    return BPS_OK;
}
/*
 * What is under way is done, and nobody is told. The thread ends later: who is called by the core does not wait, as the
 * core notes the calls of a thread, and all of a job have one.
 */
static void device_close(void *instance)
{
    struct device *device = instance;
    if (!LIST_EMPTY(&device->marks)) {
        sim_blame("a mark was not released");
    }
    device_groups_end(device);
    while (go_on(device)) {
    }
    device->host->unwatch(device->host, device->watch);
    device->closing = true;
    sem_post(&device->work);
}

void sim_devices_reset(void)
{
    while (!LIST_EMPTY(&devices)) {
        free_device(LIST_FIRST(&devices));
    }
    device_groups_reset();
}

/* ---- the reducer ---- */

/* Sums of the host are the other reducer's. */
static bps_status device_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    (void)op;
    (void)dtype;
    (void)out;
    return BPS_ERR_UNSUPPORTED;
}

static struct bps_mark *new_mark(struct device *device, uint32_t queue)
{
    struct bps_mark *mark = __real_calloc(1, sizeof *mark);
    mark->behind = &device->queue[queue];
    mark->count = sim_marks_early() ? 0 : device->queue[queue].given;
    LIST_INSERT_HEAD(&device->marks, mark, entry);
    return mark;
}

static bps_status device_mark(void *instance, const struct bps_device *device, struct bps_mark **out,
                              struct bps_report *report)
{
    (void)device;
    (void)report;
    *out = new_mark(instance, DEVICE_STREAM);
    return BPS_OK;
}

static bps_status fail(struct bps_report *report)
{
    snprintf(report->text, sizeof report->text, "the device was to fail");
    return BPS_ERR_FAILED;
}

static bps_status device_mark_copies(void *instance, int32_t device, struct bps_mark **out, struct bps_report *report)
{
    (void)device;
    if (device_fails(instance)) {
        return fail(report);
    }
    *out = new_mark(instance, DEVICE_TO_DEVICE);
    return BPS_OK;
}

static bps_status device_follow(void *instance, const struct bps_device *device, struct bps_mark *mark,
                                struct bps_report *report)
{
    const struct device_item item = {.behind = mark->behind, .count = mark->count};
    (void)device;
    (void)report;
    give(instance, DEVICE_STREAM, &item);
    return BPS_OK;
}

static bps_status device_await(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                               struct bps_report *report)
{
    struct device *device = instance;
    (void)report;
    mark->reached = reached;
    mark->arg = arg;
    sem_post(&device->work);
    return BPS_OK;
}

static void device_release(void *instance, struct bps_mark *mark)
{
    (void)instance;
    if (mark->reached != NULL) {
        sim_blame("a mark is released that somebody awaits");
    }
    LIST_REMOVE(mark, entry);
    free(mark);
}

static bps_status device_copy(void *instance, const struct bps_copy *copy, struct bps_report *report)
{
    struct device *device = instance;
    const struct device_item item = {
        .to = copy->to, .from = copy->from, .bytes = copy->bytes, .done = copy->done, .arg = copy->arg};
    if (device_fails(device)) {
        return fail(report);
    }
    give(device, copy->to_device ? DEVICE_TO_DEVICE : DEVICE_TO_HOST, &item);
    return BPS_OK;
}

static bps_status device_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    (void)instance;
    (void)region;
    (void)report;
    return BPS_OK;
}

static void device_detach(void *instance, const struct bps_region *region)
{
    (void)instance;
    (void)region;
}

static bool device_can_reduce(void *instance, int32_t device, uint32_t op, uint32_t dtype)
{
    (void)instance;
    (void)device;
    (void)op;
    return dtype == BPS_FLOAT32 || dtype == BPS_UINT8;
}

/* Nothing is scaled here: one contribution is its result. */
static bps_status device_reduce(void *instance, const struct bps_reduction *reduction, struct bps_report *report)
{
    const struct device_item item = {.to = reduction->dst,
                                     .from = reduction->src[0],
                                     .bytes = reduction->count * bps_dtype_size(reduction->dtype),
                                     .done = reduction->done,
                                     .arg = reduction->arg};
    if (device_fails(instance)) {
        return fail(report);
    }
    if (reduction->n != 1 || reduction->scale != 1 || reduction->divisor != 1) {
        sim_blame("a device is to reduce what it was not asked for");
    }
    give(instance, DEVICE_TO_DEVICE, &item);
    return BPS_OK;
}

static const struct bps_device_ops device_ops = {
    .size = sizeof device_ops,
    .type = BPS_DEVICE_CUDA,
    .mark = device_mark,
    .mark_copies = device_mark_copies,
    .follow = device_follow,
    .await = device_await,
    .release = device_release,
    .copy = device_copy,
    .attach = device_attach,
    .detach = device_detach,
    .can_reduce = device_can_reduce,
    .reduce = device_reduce,
    .group = &device_group_ops,
};

static const struct bps_reducer_ops ops = {
    .size = sizeof ops,
    .open = device_open,
    .close = device_close,
    .kernels = device_kernels,
    .device = &device_ops,
};

static const struct bps_plugin plugin = {
    .size = sizeof plugin,
    .kind = BPS_KIND_REDUCER,
    .name = "device",
    .summary = "has devices",
    .ops = &ops,
};

static const struct bps_plugin *const plugins[] = {&plugin};

const struct bps_module sim_devices = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof sim_devices,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "device",
    .version = "1",
    .license = "Apache-2.0",
    .nplugins = 1,
    .plugins = plugins,
};

/* ---- the application ---- */

static struct device *mine(void)
{
    struct device *device = LIST_FIRST(&devices);
    while (device->process != sim_self() || device->closing) {
        device = LIST_NEXT(device, entry);
    }
    return device;
}

void sim_device_write(void *to, const void *from, size_t bytes)
{
    struct device_item item = {.to = to, .own = __real_calloc(1, bytes + 1), .bytes = bytes};
    memcpy(item.own, from, bytes);
    give(mine(), DEVICE_STREAM, &item);
}

bool sim_device_finish(void)
{
    const struct device *device = mine();
    const struct device_queue *stream = &device->queue[DEVICE_STREAM];
    uint64_t given = stream->given;
    while (stream->done < given) {
        sim_sleep(1 + sim_random(PAUSE));
    }
    return !device->failed;
}
