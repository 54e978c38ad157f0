/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - RDMA devices: which there are, and what their channels share. */
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMPLETIONS 1024u  /* at first */
#define RECEIVES    16384u /* buffers of the shared receive queue, at most */

/* ---- refusals ---- */

static bps_status no_device(struct bps_report *report)
{
    BPS_REPORT(report, "this host has no RDMA device: load the driver of its adapter, or use a different "
                       "transport, such as tcp");
    return BPS_ERR_UNSUPPORTED;
}

static bps_status unknown_device(const struct verbs *verbs, const char *item, struct bps_report *report)
{
    char known[256] = "";
    for (uint32_t i = 0; verbs->contexts[i] != NULL; i++) {
        bps_util_append(known, sizeof known, " %s", ibv_get_device_name(verbs->contexts[i]->device));
    }
    BPS_REPORT(report, "device '%.64s': there is no such RDMA device; this host has%s", item, known);
    return BPS_ERR_CONF;
}

static bps_status inactive(struct ibv_context *context, int64_t port, struct bps_report *report)
{
    BPS_REPORT(report, "port %lld of RDMA device %s is not active: connect its cable, or set its interface up",
               (long long)port, ibv_get_device_name(context->device));
    return BPS_ERR_UNSUPPORTED;
}

/* ---- one device ---- */

bool verbs_port_is_active(struct ibv_context *context, int64_t number)
{
    struct ibv_port_attr port;
    return ibv_query_port(context, (uint8_t)number, &port) == 0 && port.state == IBV_PORT_ACTIVE;
}

static void on_async(void *arg, uint32_t events)
{
    struct verbs_device *device = arg;
    struct ibv_async_event event;
    (void)events;
    while (ibv_get_async_event(device->context, &event) == 0) {
        bool good = event.event_type == IBV_EVENT_PORT_ACTIVE || event.event_type == IBV_EVENT_COMM_EST ||
                    event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED || event.event_type == IBV_EVENT_GID_CHANGE;
        device->verbs->host->log(device->verbs->host, good ? BPS_LOG_DEBUG : BPS_LOG_WARN, "device %s: %s",
                                 ibv_get_device_name(device->context->device), ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
    device->verbs->leave_ports(device->verbs);
}

static void on_wake(void *arg, uint32_t events)
{
    struct verbs_device *device = arg;
    struct ibv_cq *cq;
    void *context;
    (void)events;
    while (ibv_get_cq_event(device->wake, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
    }
    device->verbs->poll(device->verbs);
}

/* All instances of a process share the context, and a loop watches a descriptor once: so each has its own. */
static bool watch_device(struct verbs_device *device)
{
    const struct bps_host *host = device->verbs->host;
    bps_util_fork_hold();
    device->async_fd = fcntl(device->context->async_fd, F_DUPFD_CLOEXEC, 0);
    if (device->async_fd >= 0 && bps_util_nonblock(device->async_fd)) {
        device->async_watch = host->watch(host, device->async_fd, on_async, device);
    }
    bps_util_fork_release();
    return device->async_watch != NULL;
}

/* Memory for all completions that there can be at once. False: there is none. */
static bool hold_completions(struct verbs_device *device, uint32_t room)
{
    const struct bps_host *host = device->verbs->host;
    struct ibv_wc *wc = bps_util_grow(host, device->wc, (size_t)device->nwc * sizeof *wc, room * sizeof *wc, 64);
    if (wc == NULL) {
        errno = ENOMEM;
        return false;
    }
    device->wc = wc;
    device->cq_room = room;
    return true;
}

static bool open_queues(struct verbs_device *device)
{
    const struct bps_host *host = device->verbs->host;
    uint32_t limit = (uint32_t)device->attr.max_srq_wr;
    device->srq_room = limit < RECEIVES ? limit : RECEIVES;
    device->pd = ibv_alloc_pd(device->context);
    bps_util_fork_hold();
    device->wake = ibv_create_comp_channel(device->context);
    if (device->wake != NULL && bps_util_nonblock(device->wake->fd)) {
        device->wake_watch = host->watch(host, device->wake->fd, on_wake, device);
    }
    bps_util_fork_release();
    if (device->pd == NULL || device->wake_watch == NULL || !hold_completions(device, COMPLETIONS)) {
        return false;
    }
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = device->srq_room, .max_sge = 1}};
    device->cq = ibv_create_cq(device->context, (int)device->cq_room, NULL, device->wake, 0);
    device->srq = device->cq != NULL ? ibv_create_srq(device->pd, &attr) : NULL;
    return device->srq != NULL && watch_device(device);
}

static struct ibv_mr *register_arena(struct verbs_device *device, const struct verbs_arena *arena, int access)
{
    return ibv_reg_mr(device->pd, arena->memory, verbs_arena_bytes(arena), access);
}

static void close_mr(struct ibv_mr *mr)
{
    if (mr != NULL) {
        ibv_dereg_mr(mr);
    }
}

static void close_watches(struct verbs_device *device)
{
    const struct bps_host *host = device->verbs->host;
    bps_util_fork_hold();
    if (device->async_watch != NULL) {
        host->unwatch(host, device->async_watch);
    }
    if (device->async_fd >= 0) {
        close(device->async_fd);
    }
    if (device->wake_watch != NULL) {
        host->unwatch(host, device->wake_watch);
    }
    if (device->wake != NULL) {
        ibv_destroy_comp_channel(device->wake);
    }
    bps_util_fork_release();
}

static void device_close(struct verbs_device *device)
{
    const struct bps_host *host = device->verbs->host;
    LIST_REMOVE(device, entry);
    if (device->srq != NULL) {
        ibv_destroy_srq(device->srq);
    }
    if (device->cq != NULL) {
        ibv_destroy_cq(device->cq);
    }
    close_watches(device);
    verbs_windows_close(device);
    verbs_slots_close(device);
    close_mr(device->send_mr);
    close_mr(device->receive_mr);
    host->release(host, device->wc);
    if (device->pd != NULL) {
        ibv_dealloc_pd(device->pd);
    }
    host->release(host, device);
}

static bps_status device_open(struct verbs_device *device, struct bps_report *report)
{
    const struct verbs_options *o = &device->verbs->options;
    const char *name = ibv_get_device_name(device->context->device);
    if (ibv_query_device(device->context, &device->attr) != 0 || !open_queues(device)) {
        if (errno == ENOMEM) {
            verbs_register_failed(o->arena, errno, report);
        } else {
            BPS_REPORT(report, "RDMA device %s: %s", name, strerror(errno));
        }
        return BPS_ERR_UNSUPPORTED;
    }
    device->receive_mr = register_arena(device, &device->verbs->receive, IBV_ACCESS_LOCAL_WRITE);
    device->send_mr = register_arena(device, &device->verbs->send, IBV_ACCESS_REMOTE_READ);
    if (device->receive_mr == NULL || device->send_mr == NULL) {
        verbs_register_failed(o->arena, errno, report);
        return BPS_ERR_UNSUPPORTED;
    }
    verbs_windows_open(device);
    return BPS_OK;
}

/* The NUMA node of a device; -1: unknown. */
static int node_of(const struct ibv_context *context)
{
    char path[sizeof context->device->ibdev_path + 32], text[16];
    snprintf(path, sizeof path, "%s/device/numa_node", context->device->ibdev_path);
    bps_util_read_line(path, text, sizeof text);
    return *text != '\0' ? (int)strtol(text, NULL, 10) : -1;
}

/* With the first device that is prepared. */
static bool open_arenas(struct verbs *verbs, const struct ibv_context *context)
{
    const struct verbs_options *o = &verbs->options;
    int node = node_of(context);
    return verbs->send.memory != NULL ||
           (verbs_arena_init(&verbs->send, verbs->host, o->arena, (uint32_t)o->block, node) &&
            verbs_arena_init(&verbs->receive, verbs->host, o->arena, (uint32_t)o->block, node));
}

struct verbs_device *verbs_device_of(struct verbs *verbs, struct ibv_context *context, struct bps_report *report)
{
    struct verbs_device *device;
    LIST_FOREACH(device, &verbs->devices, entry) {
        if (device->context == context) {
            return device;
        }
    }
    device = open_arenas(verbs, context) ? verbs->host->alloc(verbs->host, sizeof *device, 64) : NULL;
    if (device == NULL) {
        BPS_REPORT(report, "out of memory");
        return NULL;
    }
    memset(device, 0, sizeof *device);
    device->verbs = verbs;
    device->context = context;
    device->async_fd = -1;
    STAILQ_INIT(&device->reposts);
    LIST_INSERT_HEAD(&verbs->devices, device, entry);
    if (device_open(device, report) != BPS_OK) {
        device_close(device);
        return NULL;
    }
    return device;
}

/* ---- room for channels ---- */

bps_status verbs_device_reserve(struct verbs_device *device, uint32_t completions, struct bps_report *report)
{
    uint32_t credits = (uint32_t)device->verbs->options.credits;
    uint32_t need = device->cq_used + completions + credits, room = device->cq_room;
    while (room < need) {
        room *= 2;
    }
    if (room > device->cq_room) {
        if (room > (uint32_t)device->attr.max_cqe || ibv_resize_cq(device->cq, (int)room) != 0 ||
            !hold_completions(device, room)) {
            BPS_REPORT(report, "the completion queue of the RDMA device cannot hold %u entries: lower credits", room);
            return BPS_ERR_NOMEM;
        }
    }
    if (device->promised + credits > device->srq_room) {
        BPS_REPORT(report, "the receive queue of the RDMA device holds %u messages only: lower credits",
                   device->srq_room);
        return BPS_ERR_NOMEM;
    }
    if (device->promised + credits > device->nslots && !verbs_slots_add(device, credits)) {
        verbs_register_failed((uint64_t)credits * verbs_slot_bytes(&device->verbs->options), ENOMEM, report);
        return BPS_ERR_NOMEM;
    }
    device->promised += credits;
    device->cq_used += completions + credits;
    return BPS_OK;
}

void verbs_device_unreserve(struct verbs_device *device, uint32_t completions)
{
    uint32_t credits = (uint32_t)device->verbs->options.credits;
    device->promised -= credits;
    device->cq_used -= completions + credits;
}

/* ---- the devices of an instance ---- */

/* Of an item of `device`, "mlx5_0" or "mlx5_0:2": the port, and the length of the name. */
static int64_t port_of(const struct verbs *verbs, const char *item, size_t *length)
{
    char *end;
    *length = strcspn(item, ":");
    if (item[*length] == '\0') {
        return verbs->options.port;
    }
    long port = strtol(item + *length + 1, &end, 10);
    return *end == '\0' && port >= 1 && port <= UINT8_MAX ? port : 0;
}

static bps_status add_rail(struct verbs *verbs, struct ibv_context *context, int64_t port, struct bps_report *report)
{
    const struct bps_list *hosts = &verbs->options.host;
    struct verbs_rail *rail = &verbs->rails[verbs->nrails];
    *rail = (struct verbs_rail){.device = verbs_device_of(verbs, context, report),
                                .port = (uint8_t)port,
                                .host = verbs->nrails < hosts->count ? hosts->items[verbs->nrails] : ""};
    verbs->nrails++;
    return rail->device != NULL ? BPS_OK : BPS_ERR_UNSUPPORTED;
}

static bps_status find_rail(struct verbs *verbs, const char *item, struct bps_report *report)
{
    size_t length;
    int64_t port = port_of(verbs, item, &length);
    if (port == 0) {
        BPS_REPORT(report, "device '%.64s': expected DEVICE or DEVICE:PORT with a port from 1 to 255", item);
        return BPS_ERR_CONF;
    }
    for (uint32_t i = 0; verbs->contexts[i] != NULL; i++) {
        const char *name = ibv_get_device_name(verbs->contexts[i]->device);
        if (strlen(name) == length && strncmp(name, item, length) == 0) {
            return verbs_port_is_active(verbs->contexts[i], port) ? add_rail(verbs, verbs->contexts[i], port, report)
                                                                  : inactive(verbs->contexts[i], port, report);
        }
    }
    return unknown_device(verbs, item, report);
}

/* The first device with an active port. */
static bps_status find_any(struct verbs *verbs, struct bps_report *report)
{
    int64_t port = verbs->options.port;
    for (uint32_t i = 0; verbs->contexts[i] != NULL; i++) {
        if (verbs_port_is_active(verbs->contexts[i], port)) {
            return add_rail(verbs, verbs->contexts[i], port, report);
        }
    }
    return inactive(verbs->contexts[0], port, report);
}

static bps_status find_rails(struct verbs *verbs, struct bps_report *report)
{
    const struct bps_list *names = &verbs->options.device;
    bps_status status = names->count == 0 ? find_any(verbs, report) : BPS_OK;
    for (uint32_t i = 0; i < names->count && status == BPS_OK; i++) {
        status = find_rail(verbs, names->items[i], report);
    }
    return status;
}

/* Looks before librdmacm is asked, which would complain on its own. */
static bps_status find_devices(struct verbs *verbs, struct bps_report *report)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (list != NULL) {
        ibv_free_device_list(list);
    }
    if (n == 0) {
        return no_device(report);
    }
    int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        BPS_REPORT(report, "/dev/infiniband/rdma_cm: %s; %s", strerror(errno),
                   errno == EACCES || errno == EPERM
                       ? "let this user read and write the files in /dev/infiniband"
                       : "load the kernel module rdma_ucm, and give containers /dev/infiniband");
        return BPS_ERR_UNSUPPORTED;
    }
    close(fd);
    verbs->contexts = rdma_get_devices(&n);
    if (verbs->contexts == NULL || n == 0) {
        BPS_REPORT(report,
                   "no RDMA device can be opened: %s; let this user read and write the files in /dev/infiniband",
                   strerror(errno));
        return BPS_ERR_UNSUPPORTED;
    }
    return BPS_OK;
}

bps_status verbs_devices_open(struct verbs *verbs, struct bps_report *report)
{
    bps_util_fork_hold(); /* librdmacm opens the devices */
    bps_status status = find_devices(verbs, report);
    if (verbs->contexts != NULL) {
        verbs_fork_add(verbs);
    }
    bps_util_fork_release();
    return status == BPS_OK ? find_rails(verbs, report) : status;
}

void verbs_devices_close(struct verbs *verbs)
{
    while (!LIST_EMPTY(&verbs->devices)) {
        device_close(LIST_FIRST(&verbs->devices));
    }
    verbs_arena_fini(&verbs->send, verbs->host);
    verbs_arena_fini(&verbs->receive, verbs->host);
    if (verbs->contexts != NULL) {
        bps_util_fork_hold();
        bps_util_fork_remove(&verbs->forked);
        rdma_free_devices(verbs->contexts);
        bps_util_fork_release();
    }
}
