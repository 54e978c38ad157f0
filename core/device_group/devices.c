/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.c - what every worker does in a group of devices: it asks where a round is summed, joins, and hears
 * what the coordinator says.
 */
#include "device_group/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "flow/step.h"
#include "plugin/use.h"

#define LOG           "local"
#define MEMBERS_LIMIT 64u
#define NO_GROUP      "worker.device_groups = on, but the devices of this host form no group: "

static bool is_coordinator(const struct bps_devices *devices)
{
    return devices->local->place == 0;
}

static void send_text(struct bps_devices *devices, uint8_t type, const char *text)
{
    struct bps_header header = {.type = type};
    size_t bytes = strlen(text);
    bps_devices_send(devices, &header, text, bytes < BPS_TEXT_LIMIT ? bytes : BPS_TEXT_LIMIT);
}

/* ---- life ---- */

const char *bps_devices_obstacle(const struct bps_conf *conf, const struct bps_instance *reducer, uint32_t workers,
                                 char *text, size_t n, struct bps_report *report)
{
    const struct bps_device_ops *device = reducer != NULL ? bps_device_ops(reducer) : NULL;
    if (conf->worker.device_groups == BPS_DEVICE_GROUPS_OFF) {
        return "worker.device_groups = off";
    }
    if (workers > MEMBERS_LIMIT) {
        return "there are more than 64 workers";
    }
    if (conf->server.order == BPS_ORDER_RANK) {
        return "server.order = rank";
    }
    if (device == NULL || device->group == NULL) {
        return "a worker uses no reducer whose devices form groups";
    }
    BPS_CALLING(reducer, "group.query", NULL);
    bps_status status = device->group->query(reducer->self, text, n, report);
    return bps_returned_told(reducer, "group.query", status, report) == BPS_OK ? NULL : report->text;
}

static void devices_reached(struct bps_local_peer *peer)
{
    struct bps_devices *devices = peer->local->devices;
    if (peer == &peer->local->peer[0] && devices->state == BPS_DEVICES_OFF) {
        send_text(devices, BPS_FRAME_SEPARATE, devices->text);
    }
}

static void devices_leave(struct bps_devices *devices)
{
    if (devices->group != NULL) {
        BPS_CALLING(devices->reducer, "group.leave", NULL);
        devices->ops->leave(devices->group);
    }
}

static void drop(struct bps_devices *devices)
{
    if (devices->group != NULL && devices->local->worker->failure != BPS_OK) {
        BPS_CALLING(devices->reducer, "group.abort", NULL);
        devices->ops->abort(devices->group);
    }
}

static void free_devices(struct bps_devices *devices)
{
    bps_coordinator_free(devices->coordinator);
    bps_path_fini(&devices->path);
    while (!TAILQ_EMPTY(&devices->under_way)) {
        struct bps_devices_batch *batch = TAILQ_FIRST(&devices->under_way);
        TAILQ_REMOVE(&devices->under_way, batch, entry);
        free(batch);
    }
    while (!SLIST_EMPTY(&devices->spare)) {
        struct bps_devices_batch *batch = SLIST_FIRST(&devices->spare);
        SLIST_REMOVE_HEAD(&devices->spare, spare);
        free(batch);
    }
    free(devices);
}

static void tick(struct bps_devices *devices, uint64_t now)
{
    struct bps_worker *worker = devices->local->worker;
    const struct bps_devices_batch *first = TAILQ_FIRST(&devices->under_way);
    struct bps_devices_batch *batch;
    uint64_t limit = worker->conf->cluster.stall_timeout;
    char text[200];
    TAILQ_FOREACH(batch, &devices->under_way, entry) {
        batch->begun += bps_loop_late(worker->loop); /* we were stopped ourselves */
    }
    if (first != NULL && limit > 0 && now > first->begun && now - first->begun > limit) {
        snprintf(text, sizeof text,
                 "worker %u: its device has not finished a step of the group for %lu s (cluster.stall_timeout)",
                 worker->job.rank, (unsigned long)(limit / BPS_S));
        bps_worker_fail(worker, BPS_ERR_TIMEOUT, text);
    } else if (devices->coordinator != NULL) {
        bps_coordinator_tick(devices->coordinator, now);
    }
}

/* ---- which way a round goes ---- */

/* The host way was open all the time: the tasks begin as if nobody had asked. */
static void devices_release(struct bps_operation *operation)
{
    bps_assert(operation->phase == BPS_PHASE_ASKING);
    bps_operation_become(operation, BPS_PHASE_RUNNING);
    bps_tasks_start(operation);
}

static struct bps_operation *first_asking(const struct bps_worker *worker)
{
    struct bps_operation *operation = TAILQ_FIRST(&worker->operations);
    while (operation != NULL && operation->phase != BPS_PHASE_ASKING) {
        operation = TAILQ_NEXT(operation, entry);
    }
    return operation;
}

static void go_apart(struct bps_devices *devices, const char *why)
{
    struct bps_worker *worker = devices->local->worker;
    struct bps_operation *operation;
    if (devices->state == BPS_DEVICES_OFF) {
        return;
    }
    if (devices->group != NULL && devices->state != BPS_DEVICES_TOGETHER) {
        BPS_CALLING(devices->reducer, "group.abort", NULL);
        devices->ops->abort(devices->group);
    }
    devices->state = BPS_DEVICES_OFF;
    snprintf(devices->text, sizeof devices->text, "%s", why);
    while ((operation = first_asking(worker)) != NULL) { /* each may fail the job, which ends any of the others */
        devices_release(operation);
    }
}

static void separate(struct bps_devices *devices, const char *why)
{
    struct bps_worker *worker = devices->local->worker;
    char text[BPS_TEXT_LIMIT];
    if (devices->state == BPS_DEVICES_OFF) {
        return;
    }
    if (worker->conf->worker.device_groups == BPS_DEVICE_GROUPS_ON) {
        snprintf(text, sizeof text, NO_GROUP "%s", why);
        bps_worker_fail(worker, BPS_ERR_UNSUPPORTED, text);
        return;
    }
    if (worker->device != NULL) {
        bps_info(LOG, "tensors on devices are summed by the host: %s", why);
    }
    go_apart(devices, why);
}

static void end_asking(struct bps_devices *devices, const struct bps_header *header)
{
    const struct bps_task *task = bps_devices_task(devices->local->worker, header);
    if (task != NULL && task->tensor->operation.phase == BPS_PHASE_ASKING) {
        devices_release(&task->tensor->operation);
    }
}

/* Why this worker cannot do it on its device; NULL: it can. */
static const char *obstacle(const struct bps_devices *devices, const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_push_pull *r = &operation->request;
    if (operation->kind != BPS_KIND_PUSH_PULL) {
        return "it is not a push_pull";
    }
    if (r->prescale != 1.0 || r->postscale != 1.0) {
        return "it is scaled";
    }
    uint32_t size = devices->local->size, divisor = bps_devices_divisor(operation);
    bool divides_alike = bps_local_is_final(devices->local) || divisor == 1 || divisor == size;
    if (!divides_alike ||
        !devices->ops->takes(devices->self, r->device.index, size, bps_devices_op(devices, operation), r->dtype)) {
        return "the devices do not support this operation on its type";
    }
    for (uint32_t i = 0; i < tensor->path.length; i++) {
        if (bps_node_is_plugin(tensor->path.step[i].node)) {
            return "it passes stages that need the host";
        }
    }
    return devices->device >= 0 && devices->device != r->device.index ? "this worker has another device in the group"
                                                                      : NULL;
}

/* Tells the coordinator; without an identity, that the round is to go through the host. */
static void devices_tell(struct bps_devices *devices, const struct bps_operation *operation, const uint8_t *identity)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_header header = bps_devices_header(operation, BPS_FRAME_READY);
    header.shape = tensor->named.unnamed ? bps_form_mark(&tensor->named.form) : 0;
    bps_status status = BPS_OK;
    if (is_coordinator(devices)) {
        status = bps_coordinator_ready(devices->coordinator, 0, &header, identity);
    } else {
        bps_devices_send(devices, &header, identity, identity != NULL ? BPS_GROUP_IDENTITY_BYTES : 0);
    }
    if (status != BPS_OK) {
        bps_worker_fail(devices->local->worker, status, "could not announce a tensor to the group of devices");
    }
}

static bool can(struct bps_devices *devices, const struct bps_operation *operation, uint8_t *identity)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_report report = {""};
    if (!bps_is_on_device(operation) || operation->bytes == 0) {
        return false;
    }
    const char *why = obstacle(devices, operation);
    if (why == NULL) {
        BPS_CALLING(devices->reducer, "group.identify", NULL);
        bps_status status = devices->ops->identify(devices->self, operation->request.device.index, identity, &report);
        status = bps_returned_told(devices->reducer, "group.identify", status, &report);
        why = status != BPS_OK ? report.text : NULL;
    }
    if (why != NULL && !devices->explained) {
        devices->explained = true;
        bps_info(LOG, "tensor '%s' on a device is summed by the host, as others may be: %s", tensor->named.name, why);
    }
    return why == NULL;
}

static bool devices_ask(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_devices *devices = tensor->worker->local->devices;
    uint8_t identity[BPS_GROUP_IDENTITY_BYTES];
    if (devices->state == BPS_DEVICES_OFF || tensor->worker->failure != BPS_OK) {
        return false;
    }
    if (!can(devices, operation, identity) || bps_tasks_start_on(operation, &devices->path) != BPS_OK) {
        devices_tell(devices, operation, NULL);
        return false;
    }
    devices->device = operation->request.device.index;
    bps_operation_become(operation, BPS_PHASE_ASKING);
    devices_tell(devices, operation, identity); /* the last word: the tasks may have begun when this returns */
    return true;
}

static bool asks(struct bps_worker *worker, const struct bps_header *header)
{
    const struct bps_task *task = bps_devices_task(worker, header);
    return task != NULL && task->tensor->operation.phase == BPS_PHASE_ASKING;
}

static void devices_decline(struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_devices *devices = tensor->worker->local->devices;
    if (devices->state != BPS_DEVICES_OFF) {
        devices_tell(devices, operation, NULL);
    }
}

/* True if this worker pushes the partition for the group, and waits for the result. */
static bool crosses(const struct bps_task *task)
{
    return task->state == BPS_TASK_WAITING && task->for_group && !bps_devices_has_result(task);
}

static bool network_failed(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    struct bps_local *local = worker->local;
    const struct bps_task *task = bps_devices_task(worker, header);
    if (task == NULL) {
        return false;
    }
    bps_devices_forget(task);
    for (uint32_t place = 0; place < local->size && crosses(task); place++) {
        struct bps_link *link = local->peer[place].link;
        if (place != local->place && link != NULL) {
            bps_link_send(link, header, text, strnlen(text, BPS_TEXT_LIMIT));
        }
    }
    return true;
}

/* ---- joining ---- */

static void devices_on_joined(void *arg, bps_status status, const char *text)
{
    struct bps_devices *devices = arg;
    struct bps_report report;
    status = bps_answered(devices->reducer, "joined", status, &text, &report);
    const char *why = status != BPS_OK ? text : "";
    if (devices->state != BPS_DEVICES_FORMING) {
        return; /* it was given up */
    }
    if (is_coordinator(devices)) {
        bps_coordinator_joined(devices->coordinator, 0, why);
    } else {
        devices->state = status == BPS_OK ? BPS_DEVICES_TOGETHER : devices->state;
        send_text(devices, BPS_FRAME_JOINED, why);
    }
}

static bps_status devices_form(struct bps_devices *devices, const uint8_t *name)
{
    struct bps_report report = {""};
    if (devices->state == BPS_DEVICES_OFF) {
        return BPS_OK; /* the coordinator hears of it */
    }
    if (devices->state != BPS_DEVICES_APART || devices->device < 0) {
        return BPS_ERR_PROTOCOL;
    }
    const struct bps_group_seat seat = {
        .name = name,
        .place = devices->local->place,
        .size = devices->local->size,
        .device = devices->device,
        .joined = devices_on_joined,
        .arg = devices,
    };
    devices->state = BPS_DEVICES_FORMING;
    BPS_CALLING(devices->reducer, "group.join", NULL);
    bps_status status = devices->ops->join(devices->self, &seat, &devices->group, &report);
    if (bps_returned_pointer(devices->reducer, "group.join", status, "*out", devices->group, &report) != BPS_OK) {
        devices->group = NULL;
        devices_on_joined(devices, BPS_ERR_FAILED, report.text);
    }
    return BPS_OK;
}

/* ---- messages ---- */

static void devices_left(struct bps_local_peer *peer)
{
    struct bps_devices *devices = peer->local->devices;
    char why[80];
    snprintf(why, sizeof why, "worker %u has left the job", peer->rank);
    if (devices->coordinator != NULL && bps_coordinator_is_busy(devices->coordinator)) {
        strcat(why, " during a round of its device");
        bps_worker_fail(devices->local->worker, BPS_ERR_PROTOCOL, why);
    } else {
        go_apart(devices, why);
    }
}

/* True if there can be such a round. */
static bool is_round(const struct bps_header *header)
{
    size_t size = bps_dtype_size(header->dtype);
    return size != 0 && header->op < BPS_WIRE_OPS && header->bytes <= BPS_TENSOR_LIMIT && header->bytes % size == 0 &&
           header->tensor != 0 && header->tensor < BPS_ID_BARRIER &&
           (header->tensor < BPS_ID_UNNAMED || header->round == 0);
}

/* What only the coordinator is told. */
static bps_status to_coordinator(struct bps_local_peer *peer, const struct bps_header *header,
                                 struct bps_reader *payload)
{
    struct bps_devices *devices = peer->local->devices;
    struct bps_coordinator *coordinator = devices->coordinator;
    uint32_t place = (uint32_t)(peer - peer->local->peer);
    size_t bytes = (size_t)(payload->end - payload->at);
    char text[BPS_TEXT_LIMIT + 1], why[BPS_TEXT_LIMIT + 32];
    if (header->type == BPS_FRAME_READY && devices->state == BPS_DEVICES_OFF) {
        const struct bps_header answer = {.type = BPS_FRAME_SEPARATE, .epoch = header->epoch};
        bps_link_send(peer->link, &answer, devices->text, strlen(devices->text));
        return BPS_OK;
    }
    if (coordinator == NULL) {
        return BPS_OK;
    }
    switch (header->type) {
    case BPS_FRAME_READY:
        return is_round(header) && (bytes == 0 || bytes == BPS_GROUP_IDENTITY_BYTES)
                   ? bps_coordinator_ready(coordinator, place, header, bytes > 0 ? payload->at : NULL)
                   : BPS_ERR_PROTOCOL;
    case BPS_FRAME_FETCHED:
        return bytes == 0 ? bps_coordinator_fetched(coordinator, place, header) : BPS_ERR_PROTOCOL;
    case BPS_FRAME_JOINED:
        bps_get_text(payload, text, sizeof text);
        return bps_coordinator_joined(coordinator, place, text);
    default:
        if (devices->state == BPS_DEVICES_TOGETHER) {
            return BPS_ERR_PROTOCOL;
        }
        bps_get_text(payload, text, sizeof text);
        snprintf(why, sizeof why, "worker %u: %s", peer->rank, text);
        bps_coordinator_separate(coordinator, why);
        return BPS_OK;
    }
}

static bps_status from_coordinator(struct bps_devices *devices, const struct bps_header *header,
                                   struct bps_reader *payload)
{
    uint8_t name[BPS_GROUP_NAME_BYTES];
    char text[BPS_TEXT_LIMIT + 1];
    switch (header->type) {
    case BPS_FRAME_HOST:
        end_asking(devices, header);
        return bps_reader_done(payload) ? BPS_OK : BPS_ERR_PROTOCOL;
    case BPS_FRAME_FORM:
        bps_get_bytes(payload, name, sizeof name);
        return bps_reader_done(payload) ? devices_form(devices, name) : BPS_ERR_PROTOCOL;
    case BPS_FRAME_ORDER:
        return bps_devices_run(devices, payload);
    default:
        bps_get_text(payload, text, sizeof text);
        separate(devices, text);
        return BPS_OK;
    }
}

static bps_status message(struct bps_local_peer *peer, const struct bps_header *header, struct bps_reader *payload)
{
    struct bps_local *local = peer->local;
    bool asks =
        header->type == BPS_FRAME_READY || header->type == BPS_FRAME_JOINED || header->type == BPS_FRAME_FETCHED;
    bool orders = header->type == BPS_FRAME_HOST || header->type == BPS_FRAME_FORM || header->type == BPS_FRAME_ORDER;
    bool is_first = peer == &local->peer[0];
    if (header->epoch != local->worker->job.epoch || (asks && local->place != 0) || (orders && !is_first) ||
        (local->place != 0 && !is_first)) {
        return BPS_ERR_PROTOCOL;
    }
    if (local->dropped) {
        return BPS_OK;
    }
    return local->place == 0 ? to_coordinator(peer, header, payload)
                             : from_coordinator(local->devices, header, payload);
}

static const struct bps_devices_orders orders = {
    .run = bps_devices_run,
    .form = devices_form,
    .release = end_asking,
    .separate = separate,
};

static bps_status open_devices(struct bps_local *local, struct bps_report *report)
{
    const struct bps_worker *worker = local->worker;
    struct bps_devices *devices = calloc(1, sizeof *devices);
    struct bps_report why = {""};
    if (devices == NULL) {
        return BPS_ERR_NOMEM;
    }
    local->devices = devices;
    devices->local = local;
    devices->device = -1;
    devices->orders = &orders;
    SLIST_INIT(&devices->spare);
    TAILQ_INIT(&devices->under_way);
    const char *against =
        bps_devices_obstacle(worker->conf, worker->device, local->size, devices->text, sizeof devices->text, &why);
    if (against != NULL && worker->conf->worker.device_groups == BPS_DEVICE_GROUPS_ON) {
        BPS_REPORT(report, NO_GROUP "%s", against);
        return BPS_ERR_UNSUPPORTED;
    }
    if (against != NULL) {
        separate(devices, against);
        return BPS_OK;
    }
    devices->ops = bps_device_ops(worker->device)->group;
    devices->reducer = worker->device;
    devices->self = worker->device->self;
    if (bps_path_new_among_devices(worker->graph, &devices->path) != BPS_OK) {
        return BPS_ERR_NOMEM;
    }
    return is_coordinator(devices) ? bps_coordinator_new(devices, &devices->coordinator) : BPS_OK;
}

const struct bps_local_device_ops bps_device_group = {
    .open = open_devices,
    .reached = devices_reached,
    .left = devices_left,
    .leave = devices_leave,
    .drop = drop,
    .free = free_devices,
    .tick = tick,
    .ask = devices_ask,
    .decline = devices_decline,
    .asks = asks,
    .network_failed = network_failed,
    .message = message,
};
