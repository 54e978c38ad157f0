/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - tensors that the network reads and writes on their device, without copies to and from the host.
 *
 * That needs a reducer that can share the memory of its devices, and a transport between hosts that reaches
 * it, which learns of a piece of memory when a tensor there is pushed for the first time, and forgets it when
 * the application has given it back. What one of them refuses goes through the host.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "device/copy.h"
#include "plugin/memory.h"
#include "plugin/returned.h"
#include "plugin/use.h"
#include "shards/shards.h"

#define LOG "worker"

/* An allocation of the application's. */
struct bps_direct_piece {
    LIST_ENTRY(bps_direct_piece) entry;
    uint64_t allocation;
    int32_t device;
    const void *memory; /* some address in it */
    struct bps_region region;
    struct bps_shared *shared; /* NULL: it cannot be reached */
};

static const struct bps_share_ops *share_ops(const struct bps_worker *worker)
{
    return bps_device_ops(worker->device)->share;
}

/* ---- what is possible ---- */

void bps_direct_init(struct bps_direct *direct)
{
    pthread_mutex_init(&direct->lock, NULL);
    LIST_INIT(&direct->pieces);
}

void bps_direct_fini(struct bps_direct *direct)
{
    while (!LIST_EMPTY(&direct->pieces)) {
        struct bps_direct_piece *piece = LIST_FIRST(&direct->pieces);
        LIST_REMOVE(piece, entry);
        if (piece->shared != NULL) {
            bps_memory_unshare(piece->shared);
        }
        free(piece);
    }
    pthread_mutex_destroy(&direct->lock);
}

const char *bps_direct_obstacle(const struct bps_instance *reducer, const struct bps_instance *transport,
                                const struct bps_graph *graph, uint32_t *least)
{
    *least = transport->attr.transport.device_bytes;
    const struct bps_conf *conf = transport->conf;
    bool checked = conf != NULL && (conf->cluster.checksum != BPS_CHECKSUM_NONE || conf->cluster.encrypt);
    return *least == 0                              ? "the transport does not reach devices"
           : bps_device_ops(reducer)->share == NULL ? "the reducer does not share the memory of its devices"
           : checked                                ? "cluster.checksum or cluster.encrypt needs the host"
           : bps_graph_has_plugins(graph)           ? "worker.graph lists plugins, which need the host"
                                                    : NULL;
}

void bps_direct_joined(struct bps_worker *worker)
{
    uint32_t least;
    if (worker->device == NULL || worker->shards == NULL || worker->shards->remotes == 0 ||
        bps_direct_obstacle(worker->device, worker->net, worker->graph, &least) != NULL) {
        return;
    }
    struct bps_direct *direct = &worker->memory->direct;
    direct->least = least;
    direct->always = worker->hooks == NULL; /* else a group has sums of its own */
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        direct->always = direct->always && worker->shards->remote[i]->transport == worker->net;
    }
}

/* ---- the application's memory ---- */

/* The application may have got other memory at the same address since. */
static void forget_freed(struct bps_worker *worker)
{
    struct bps_direct_piece *piece, *next;
    for (piece = LIST_FIRST(&worker->memory->direct.pieces); piece != NULL; piece = next) {
        next = LIST_NEXT(piece, entry);
        uint64_t now = share_ops(worker)->allocation(worker->device->self, piece->device, piece->memory);
        if (now != piece->allocation) {
            LIST_REMOVE(piece, entry);
            if (piece->shared != NULL) {
                bps_memory_unshare(piece->shared);
            }
            free(piece);
        }
    }
}

static void direct_learn(struct bps_worker *worker, struct bps_direct_piece *piece, uint64_t bytes)
{
    struct bps_report report = {""};
    BPS_ROOMY(bps_region) region = {.it = {.memory = NULL}};
    BPS_CALLING(worker->device, "region", NULL);
    bps_status status =
        share_ops(worker)->region(worker->device->self, piece->device, piece->memory, bytes, &region.it, &report);
    piece->region = region.it;
    status = bps_returned_pointer(worker->device, "region", status, "out->memory", piece->region.memory, &report);
    if (status == BPS_OK) {
        status = bps_memory_share(worker->net, &piece->region, &piece->shared, &report);
    }
    if (status != BPS_OK && !worker->memory->direct.explained) {
        worker->memory->direct.explained = true;
        bps_info(LOG, "a tensor on a device is copied to the host, as others may be: %s", report.text);
    }
}

static struct bps_direct_piece *piece_of(struct bps_worker *worker, int32_t device, const void *memory, uint64_t bytes)
{
    uint64_t allocation = share_ops(worker)->allocation(worker->device->self, device, memory);
    struct bps_direct_piece *piece;
    if (allocation == 0) {
        return NULL;
    }
    LIST_FOREACH(piece, &worker->memory->direct.pieces, entry) {
        if (piece->allocation == allocation && piece->device == device) {
            return piece;
        }
    }
    forget_freed(worker);
    piece = calloc(1, sizeof *piece);
    if (piece != NULL) {
        *piece = (struct bps_direct_piece){.allocation = allocation, .device = device, .memory = memory};
        direct_learn(worker, piece, bytes);
        LIST_INSERT_HEAD(&worker->memory->direct.pieces, piece, entry);
    }
    return piece;
}

static bool reaches(struct bps_worker *worker, int32_t device, const void *memory, uint64_t bytes)
{
    const struct bps_direct_piece *piece = piece_of(worker, device, memory, bytes);
    if (piece == NULL || piece->shared == NULL) {
        return false;
    }
    uintptr_t offset = (uintptr_t)memory - (uintptr_t)piece->region.memory;
    return offset <= piece->region.bytes && bytes <= piece->region.bytes - offset;
}

bool bps_direct_reaches(struct bps_worker *worker, const struct bps_operation *operation)
{
    const struct bps_push_pull *r = &operation->request;
    struct bps_direct *direct = &worker->memory->direct;
    if (direct->least == 0 ||
        bps_container(operation, const struct bps_tensor_entry, operation)->named.coding != NULL ||
        operation->kind != BPS_KIND_PUSH_PULL || operation->bytes < direct->least) {
        return false;
    }
    pthread_mutex_lock(&direct->lock);
    bool all = reaches(worker, r->device.index, r->in, operation->bytes) &&
               (r->in == r->out || reaches(worker, r->device.index, r->out, operation->bytes));
    pthread_mutex_unlock(&direct->lock);
    return all;
}

/* ---- how much of a partition ---- */

/* All slices that are large enough; only the last one of a partition may not be. */
static uint32_t direct_bytes_of(const struct bps_task *task)
{
    bps_assert(bps_tensor_slice(task->tensor) > 0);
    uint32_t least = task->tensor->worker->memory->direct.least, slice = bps_tensor_slice(task->tensor);
    uint32_t last = task->bytes % slice;
    return slice < least ? 0 : last < least ? task->bytes - last : task->bytes;
}

bool bps_direct_has_all(const struct bps_worker *worker, const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    bool all = worker->memory->direct.always;
    for (uint32_t i = 0; all && i < tensor->tasks; i++) {
        all = direct_bytes_of(&tensor->task[i]) == tensor->task[i].bytes;
    }
    return all;
}

uint32_t bps_direct_bytes(const struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_worker *worker = tensor->worker;
    if (tensor->operation.via != BPS_VIA_DIRECT || bps_way_has(task->way, BPS_NODE_LOCAL_REDUCE) ||
        bps_remote_of(task->tensor, task->partition)->transport != worker->net) {
        return 0;
    }
    return direct_bytes_of(task);
}

bps_status bps_direct_flush(const struct bps_operation *operation, struct bps_report *report)
{
    const struct bps_worker *worker = bps_container(operation, struct bps_tensor_entry, operation)->worker;
    BPS_CALLING(worker->device, "flush", NULL);
    bps_status status = share_ops(worker)->flush(worker->device->self, operation->request.device.index, report);
    return bps_returned_told(worker->device, "flush", status, report);
}
