/* SPDX-License-Identifier: Apache-2.0 */
/* slot.c - receive buffers, which all channels of a device share. */
#include "verbs.h"

uint32_t verbs_slot_bytes(const struct verbs_options *options)
{
    uint32_t bytes = VERBS_WHOLE_BYTES + (uint32_t)options->eager;
    bytes = bytes < VERBS_MESSAGE_MIN ? VERBS_MESSAGE_MIN : bytes;
    return (bytes + 63) / 64 * 64;
}

void verbs_slot_free(struct verbs_slot *slot)
{
    if (slot->block != NULL) {
        verbs_arena_give(&slot->device->verbs->receive, slot->block);
        slot->block = NULL;
    }
    STAILQ_INSERT_TAIL(&slot->device->reposts, slot, entry);
}

void verbs_slots_repost(struct verbs_device *device)
{
    struct ibv_recv_wr wr[VERBS_BATCH], *bad;
    struct ibv_sge sge[VERBS_BATCH];
    uint32_t bytes = verbs_slot_bytes(&device->verbs->options);
    while (!STAILQ_EMPTY(&device->reposts)) {
        unsigned n = 0;
        for (; n < VERBS_BATCH && !STAILQ_EMPTY(&device->reposts); n++) {
            struct verbs_slot *slot = STAILQ_FIRST(&device->reposts);
            STAILQ_REMOVE_HEAD(&device->reposts, entry);
            sge[n] = (struct ibv_sge){.addr = (uintptr_t)slot->data, .length = bytes, .lkey = slot->lkey};
            wr[n] =
                (struct ibv_recv_wr){.wr_id = (uintptr_t)slot, .next = &wr[n + 1], .sg_list = &sge[n], .num_sge = 1};
        }
        wr[n - 1].next = NULL;
        if (ibv_post_srq_recv(device->srq, wr, &bad) != 0) {
            device->verbs->host->log(device->verbs->host, BPS_LOG_ERROR, "the shared receive queue refuses buffers");
        }
    }
}

bool verbs_slots_add(struct verbs_device *device, uint32_t count)
{
    const struct bps_host *host = device->verbs->host;
    uint32_t bytes = verbs_slot_bytes(&device->verbs->options);
    struct verbs_chunk *chunk = host->alloc(host, sizeof *chunk, 8);
    if (chunk == NULL) {
        return false;
    }
    *chunk = (struct verbs_chunk){.memory = host->alloc(host, (size_t)count * bytes, 4096),
                                  .slots = host->alloc(host, count * sizeof *chunk->slots, 64)};
    LIST_INSERT_HEAD(&device->chunks, chunk, entry);
    if (chunk->memory == NULL || chunk->slots == NULL ||
        (chunk->mr = ibv_reg_mr(device->pd, chunk->memory, (size_t)count * bytes, IBV_ACCESS_LOCAL_WRITE)) == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        chunk->slots[i] =
            (struct verbs_slot){.device = device, .data = chunk->memory + (size_t)i * bytes, .lkey = chunk->mr->lkey};
        STAILQ_INSERT_TAIL(&device->reposts, &chunk->slots[i], entry);
    }
    device->nslots += count;
    verbs_slots_repost(device);
    return true;
}

void verbs_slots_close(struct verbs_device *device)
{
    const struct bps_host *host = device->verbs->host;
    while (!LIST_EMPTY(&device->chunks)) {
        struct verbs_chunk *chunk = LIST_FIRST(&device->chunks);
        LIST_REMOVE(chunk, entry);
        if (chunk->mr != NULL) {
            ibv_dereg_mr(chunk->mr);
        }
        host->release(host, chunk->memory);
        host->release(host, chunk->slots);
        host->release(host, chunk);
    }
}
