/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coordinator.c - the worker at place 0 decides for a group of devices: which rounds they sum, and in which
 * order.
 *
 * A round is decided when all have spoken, or as soon as one of them cannot. Steps are ordered in batches,
 * two of them at a time: the devices always have the next one, and what is urgent does not wait long.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "device_group/devices.h"
#include "flow/step.h"

#define LOG        "local"
#define AHEAD      2u           /* batches under way at this worker */
#define FORM_LIMIT (60 * BPS_S) /* until all devices have joined */
#define FETCHED    (1u << 31)   /* in `given` of a task: its leader has said FETCHED */

/* A round of which not all have spoken, or that waits for the group. */
struct ask {
    struct {
        uint32_t tensor, round;
    } key;
    struct bps_header header; /* as the first has said */
    uint64_t spoken, waiting; /* places, a bit each; waiting: for our word */
    bool host;                /* it is decided: through the host */
    uint64_t begun;
    UT_hash_handle hh;
};

struct bps_coordinator {
    struct bps_devices *devices;
    uint64_t all; /* places */
    uint8_t identity[64][BPS_GROUP_IDENTITY_BYTES];
    struct ask *asks;
    uint64_t joined, forming_since;
    struct bps_heap queue; /* tasks of this worker whose next step is to be ordered */
    uint32_t group_size, under_way;
    bool pumping; /* a call to pump() is coming */
};

/* ---- life ---- */

bps_status bps_coordinator_new(struct bps_devices *devices, struct bps_coordinator **out)
{
    struct bps_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL) {
        return BPS_ERR_NOMEM;
    }
    coordinator->devices = devices;
    coordinator->all = UINT64_MAX >> (64 - devices->local->size);
    coordinator->group_size = (uint32_t)devices->local->worker->conf->worker.group_size;
    *out = coordinator;
    return BPS_OK;
}

static void coordinator_forget(struct bps_coordinator *coordinator, struct ask *ask)
{
    HASH_DEL(coordinator->asks, ask);
    free(ask);
}

static void forget_all(struct bps_coordinator *coordinator)
{
    struct ask *ask, *next;
    HASH_ITER(hh, coordinator->asks, ask, next) {
        coordinator_forget(coordinator, ask);
    }
}

void bps_coordinator_free(struct bps_coordinator *coordinator)
{
    if (coordinator != NULL) {
        forget_all(coordinator);
        bps_heap_fini(&coordinator->queue);
        free(coordinator);
    }
}

/* What always holds, between two calls. */
static void coordinator_check(const struct bps_coordinator *coordinator)
{
    const struct bps_devices *devices = coordinator->devices;
    const struct ask *ask, *next;
    bps_assert(devices->coordinator == coordinator && devices->local->place == 0);
    bps_assert((coordinator->joined & ~coordinator->all) == 0);
    bps_assert(devices->state != BPS_DEVICES_TOGETHER || coordinator->joined == coordinator->all);
    bps_assert(coordinator->group_size > 0 && coordinator->under_way <= AHEAD);
    HASH_ITER(hh, coordinator->asks, ask, next) {
        bps_assert(ask->spoken != 0 && (ask->spoken & ~coordinator->all) == 0);
        bps_assert((ask->waiting & ~ask->spoken) == 0);
        bps_assert(!ask->host || ask->waiting == 0);
    }
}

/* ---- words ---- */

static void send_to(struct bps_coordinator *coordinator, uint32_t place, const struct bps_header *header,
                    const void *payload, size_t bytes)
{
    struct bps_link *link = coordinator->devices->local->peer[place].link;
    if (link != NULL) {
        bps_link_send(link, header, payload, bytes);
    }
}

static void coordinator_send_to_all(struct bps_coordinator *coordinator, uint8_t type, const void *payload,
                                    size_t bytes)
{
    const struct bps_local *local = coordinator->devices->local;
    const struct bps_header header = {.type = type, .epoch = local->worker->job.epoch};
    for (uint32_t place = 1; place < local->size; place++) {
        send_to(coordinator, place, &header, payload, bytes);
    }
}

void bps_coordinator_separate(struct bps_coordinator *coordinator, const char *why)
{
    struct bps_devices *devices = coordinator->devices;
    if (devices->state != BPS_DEVICES_OFF) {
        coordinator_send_to_all(coordinator, BPS_FRAME_SEPARATE, why, strnlen(why, BPS_TEXT_LIMIT));
        forget_all(coordinator);
        devices->orders->separate(devices, why);
    }
}

/* ---- ordering ---- */

static uint32_t next_step(const struct bps_devices *devices, const struct bps_task *task)
{
    if (bps_local_is_final(devices->local)) {
        return BPS_STEP_ALL_REDUCE;
    }
    return bps_devices_round_of(task)->given == 0 ? BPS_STEP_REDUCE : BPS_STEP_BROADCAST;
}

static void order_batch(struct bps_coordinator *coordinator)
{
    struct bps_devices *devices = coordinator->devices;
    struct bps_worker *worker = devices->local->worker;
    struct bps_reader reader;
    struct bps_writer w;
    bps_writer_init(&w);
    for (uint32_t i = 0; i < coordinator->group_size && coordinator->queue.count > 0; i++) {
        const struct bps_task *task = bps_heap_pop(&coordinator->queue);
        bps_put_u8(&w, (uint8_t)next_step(devices, task));
        bps_put_u32(&w, task->tensor->id);
        bps_put_u32(&w, task->partition);
        bps_put_u32(&w, task->tensor->named.unnamed ? 0 : task->tensor->round);
    }
    bps_status status = w.failed ? BPS_ERR_NOMEM : BPS_OK;
    if (status == BPS_OK) {
        coordinator_send_to_all(coordinator, BPS_FRAME_ORDER, w.data, w.size);
        coordinator->under_way++;
        bps_reader_init(&reader, w.data, w.size);
        status = devices->orders->run(devices, &reader);
    }
    bps_writer_fini(&w);
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not order a batch of the devices of this host");
    }
}

static void pump(void *arg)
{
    bps_check(coordinator_check(arg));
    struct bps_coordinator *coordinator = arg;
    const struct bps_worker *worker = coordinator->devices->local->worker;
    coordinator->pumping = false;
    while (worker->failure == BPS_OK && coordinator->queue.count > 0 && coordinator->under_way < AHEAD) {
        order_batch(coordinator);
    }
}

/* Later in this turn, when all that can be ordered is known. */
static void pump_soon(struct bps_coordinator *coordinator)
{
    const struct bps_local *local = coordinator->devices->local;
    if (!coordinator->pumping) {
        coordinator->pumping = true;
        bps_loop_defer_for(local->worker->loop, local, pump, coordinator);
    }
}

void bps_coordinator_go_on(struct bps_coordinator *coordinator)
{
    bps_assert(coordinator->under_way > 0);
    bps_check(coordinator_check(coordinator));
    coordinator->under_way--;
    pump_soon(coordinator);
}

static bps_status coordinator_enqueue(struct bps_coordinator *coordinator, struct bps_task *task)
{
    struct bps_worker *worker = coordinator->devices->local->worker;
    int32_t priority = task->tensor->operation.request.priority;
    if (!bps_heap_push(&coordinator->queue, priority, worker->sequence++, task, &bps_devices_round_of(task)->place)) {
        return BPS_ERR_NOMEM;
    }
    pump_soon(coordinator);
    return BPS_OK;
}

/* All have the round on their devices, this worker too. */
static bps_status schedule(struct bps_coordinator *coordinator, struct ask *ask)
{
    struct bps_task *task = bps_devices_task(coordinator->devices->local->worker, &ask->header);
    coordinator_forget(coordinator, ask);
    if (task == NULL) {
        return BPS_OK; /* the job has failed */
    }
    const struct bps_tensor_entry *tensor = task->tensor;
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < tensor->tasks && status == BPS_OK; i++) {
        status = coordinator_enqueue(coordinator, &tensor->task[i]);
    }
    return status;
}

bps_status bps_coordinator_fetched(struct bps_coordinator *coordinator, uint32_t place, const struct bps_header *header)
{
    bps_check(coordinator_check(coordinator));
    struct bps_local *local = coordinator->devices->local;
    struct bps_task *task = bps_devices_task(local->worker, header);
    if (task == NULL || task->failed || bps_devices_round_of(task)->given != 1u << BPS_STEP_REDUCE ||
        bps_local_leader_of(task->tensor, task->partition) != &local->peer[place]) {
        return BPS_ERR_PROTOCOL;
    }
    bps_devices_round_of(task)->given |= FETCHED;
    return coordinator_enqueue(coordinator, task);
}

bool bps_coordinator_is_busy(const struct bps_coordinator *coordinator)
{
    return coordinator->queue.count > 0;
}

void bps_coordinator_forget(struct bps_coordinator *coordinator, const struct bps_task *task)
{
    bps_heap_remove(&coordinator->queue, &bps_devices_round_of(task)->place);
}

/* ---- forming the group ---- */

static bool share_a_device(struct bps_coordinator *coordinator, char *text, size_t n)
{
    const struct bps_local *local = coordinator->devices->local;
    for (uint32_t i = 0; i < local->size; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (memcmp(coordinator->identity[i], coordinator->identity[k], BPS_GROUP_IDENTITY_BYTES) == 0) {
                snprintf(text, n, "workers %u and %u have the same device", local->peer[k].rank, local->peer[i].rank);
                return true;
            }
        }
    }
    return false;
}

static void coordinator_form(struct bps_coordinator *coordinator)
{
    struct bps_devices *devices = coordinator->devices;
    struct bps_report report = {""};
    uint8_t name[BPS_GROUP_NAME_BYTES];
    bps_status status = BPS_ERR_UNSUPPORTED;
    if (!share_a_device(coordinator, report.text, sizeof report.text)) {
        BPS_CALLING(devices->reducer, "group.name", NULL);
        status = devices->ops->name(devices->self, name, &report);
        status = bps_returned_told(devices->reducer, "group.name", status, &report);
    }
    if (status != BPS_OK) {
        bps_coordinator_separate(coordinator, report.text);
        return;
    }
    coordinator->forming_since = bps_now();
    coordinator_send_to_all(coordinator, BPS_FRAME_FORM, name, sizeof name);
    devices->orders->form(devices, name);
}

bps_status bps_coordinator_joined(struct bps_coordinator *coordinator, uint32_t place, const char *why)
{
    struct bps_devices *devices = coordinator->devices;
    struct ask *ask, *next;
    uint64_t bit = 1ull << place;
    char text[BPS_TEXT_LIMIT + 32];
    if (devices->state == BPS_DEVICES_OFF) {
        return BPS_OK; /* it was given up meanwhile */
    }
    if (devices->state != BPS_DEVICES_FORMING || (coordinator->joined & bit) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    if (why[0] != '\0') {
        snprintf(text, sizeof text, "worker %u: %s", devices->local->peer[place].rank, why);
        bps_coordinator_separate(coordinator, text);
        return BPS_OK;
    }
    coordinator->joined |= bit;
    if (coordinator->joined != coordinator->all) {
        return BPS_OK;
    }
    devices->state = BPS_DEVICES_TOGETHER;
    bps_info(LOG, "the devices of %u workers of this host sum among themselves through %s", devices->local->size,
             devices->text);
    HASH_ITER(hh, coordinator->asks, ask, next) {
        if (ask->spoken == coordinator->all && schedule(coordinator, ask) != BPS_OK) {
            bps_worker_fail(devices->local->worker, BPS_ERR_NOMEM, "out of memory");
        }
    }
    return BPS_OK;
}

/* ---- which way a round goes ---- */

static struct ask *coordinator_find(struct bps_coordinator *coordinator, const struct bps_header *header)
{
    struct ask *ask, wanted = {.key = {header->tensor, header->round}};
    HASH_FIND(hh, coordinator->asks, &wanted.key, sizeof wanted.key, ask);
    if (ask != NULL) {
        return ask;
    }
    ask = calloc(1, sizeof *ask);
    if (ask != NULL) {
        ask->key = wanted.key;
        ask->header = *header;
        ask->header.type = BPS_FRAME_HOST;
        ask->header.partition = 0; /* every tensor has it */
        ask->begun = bps_now();
        HASH_ADD(hh, coordinator->asks, key, sizeof ask->key, ask);
    }
    return ask;
}

/* Tells those who wait for our word that the round goes through the host, this worker last. */
static void tell_host(struct bps_coordinator *coordinator, struct ask *ask)
{
    struct bps_header header = ask->header;
    header.shape = 0;
    uint64_t waiting = ask->waiting;
    ask->waiting = 0;
    for (uint32_t place = 1; place < coordinator->devices->local->size; place++) {
        if ((waiting >> place & 1) != 0) {
            send_to(coordinator, place, &header, NULL, 0);
        }
    }
    if (ask->spoken == coordinator->all) {
        coordinator_forget(coordinator, ask);
    }
    if ((waiting & 1) != 0) {
        coordinator->devices->orders->release(coordinator->devices, &header);
    }
}

bps_status bps_coordinator_ready(struct bps_coordinator *coordinator, uint32_t place, const struct bps_header *header,
                                 const uint8_t *identity)
{
    struct bps_devices *devices = coordinator->devices;
    struct ask *ask = coordinator_find(coordinator, header);
    uint64_t bit = 1ull << place;
    bps_assert(place < devices->local->size);
    if (ask == NULL || (ask->spoken & bit) != 0) {
        return ask == NULL ? BPS_ERR_NOMEM : BPS_ERR_PROTOCOL;
    }
    ask->spoken |= bit;
    if (identity != NULL) {
        ask->waiting |= bit;
        memcpy(coordinator->identity[place], identity, BPS_GROUP_IDENTITY_BYTES);
    }
    ask->host = ask->host || identity == NULL || ask->header.dtype != header->dtype || ask->header.op != header->op ||
                ask->header.bytes != header->bytes || ask->header.shape != header->shape;
    if (ask->host) {
        tell_host(coordinator, ask);
    } else if (ask->spoken == coordinator->all && devices->state == BPS_DEVICES_TOGETHER) {
        return schedule(coordinator, ask);
    } else if (ask->spoken == coordinator->all && devices->state == BPS_DEVICES_APART) {
        coordinator_form(coordinator);
    }
    return BPS_OK;
}

/* ---- time ---- */

/* A round that some are late for goes through the host, where all is said about those who are. */
void bps_coordinator_tick(struct bps_coordinator *coordinator, uint64_t now)
{
    bps_check(coordinator_check(coordinator));
    const struct bps_devices *devices = coordinator->devices;
    const struct bps_conf_cluster *cluster = &devices->local->worker->conf->cluster;
    uint64_t limit = cluster->stall_warning;
    struct ask *ask, *next;
    if (limit == 0 || (cluster->stall_timeout > 0 && cluster->stall_timeout < limit)) {
        limit = cluster->stall_timeout;
    }
    if (devices->state == BPS_DEVICES_FORMING && now - coordinator->forming_since > FORM_LIMIT) {
        bps_coordinator_separate(coordinator, "they did not form a group within 60 s");
    }
    HASH_ITER(hh, coordinator->asks, ask, next) {
        if (limit > 0 && !ask->host && ask->spoken != coordinator->all && now - ask->begun > limit) {
            ask->host = true;
            tell_host(coordinator, ask);
        }
    }
}
