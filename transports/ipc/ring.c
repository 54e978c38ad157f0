/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - records into one ring and out of the other. Whatever the peer writes, nothing outside the rings is
 * touched.
 */
#include "ipc.h"

#include <string.h>

#define ACQUIRE memory_order_acquire
#define RELEASE memory_order_release

uint64_t ipc_ring_size(uint32_t bytes)
{
    return sizeof(struct ipc_shared) + 2 * (uint64_t)bytes;
}

void ipc_ring_init(struct ipc_ring *ring, void *shared, uint32_t bytes, bool dialler)
{
    uint8_t *first = (uint8_t *)shared + sizeof(struct ipc_shared), *second = first + bytes;
    *ring = (struct ipc_ring){.shared = shared, .bytes = bytes};
    ring->own = &ring->shared->side[dialler ? 0 : 1];
    ring->peer = &ring->shared->side[dialler ? 1 : 0];
    ring->out = dialler ? first : second;
    ring->in = dialler ? second : first;
}

/* ---- writing ---- */

static uint32_t place_of(const struct ipc_ring *ring, uint64_t index)
{
    return (uint32_t)(index & (ring->bytes - 1));
}

struct ipc_record *ipc_ring_reserve(struct ipc_ring *ring, uint32_t size)
{
    uint32_t place = place_of(ring, ring->tail), behind = ring->bytes - place;
    uint64_t room = ring->bytes - (ring->tail - ring->peer_head);
    struct ipc_record *record = (struct ipc_record *)(ring->out + place);
    if (size <= behind) {
        return size <= room ? record : NULL;
    }
    if ((uint64_t)behind + size > room) {
        return NULL;
    }
    *record = (struct ipc_record){.size = behind, .kind = IPC_PAD};
    ipc_ring_publish(ring, record);
    return (struct ipc_record *)ring->out;
}

void ipc_ring_publish(struct ipc_ring *ring, const struct ipc_record *record)
{
    ring->tail += record->size;
    atomic_store_explicit(&ring->own->tail, ring->tail, RELEASE);
}

bool ipc_ring_moved(const struct ipc_ring *ring)
{
    return atomic_load_explicit(&ring->peer->head, memory_order_relaxed) != ring->peer_head;
}

bool ipc_ring_refresh(struct ipc_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->peer->head, ACQUIRE);
    if (head - ring->peer_head > ring->tail - ring->peer_head || head % IPC_LINE != 0) {
        return false;
    }
    ring->peer_head = head;
    return true;
}

/* ---- reading ---- */

bool ipc_ring_ready(const struct ipc_ring *ring)
{
    return atomic_load_explicit(&ring->peer->tail, memory_order_relaxed) != ring->head;
}

bps_status ipc_ring_peek(const struct ipc_ring *ring, struct ipc_record *copy, uint8_t **place)
{
    uint64_t there = atomic_load_explicit(&ring->peer->tail, ACQUIRE) - ring->head;
    uint32_t at = place_of(ring, ring->head);
    if (there == 0) {
        return BPS_AGAIN;
    }
    if (there > ring->bytes || there % IPC_LINE != 0) {
        return BPS_ERR_PROTOCOL;
    }
    *place = ring->in + at;
    memcpy(copy, *place, sizeof *copy);
    if (copy->size == 0 || copy->size % IPC_LINE != 0 || copy->size > there || copy->size > ring->bytes - at) {
        return BPS_ERR_PROTOCOL;
    }
    return BPS_OK;
}

void ipc_ring_consume(struct ipc_ring *ring, uint32_t size)
{
    ring->head += size;
}

bool ipc_ring_tell(struct ipc_ring *ring)
{
    if (ring->told == ring->head) {
        return false;
    }
    ring->told = ring->head;
    atomic_store_explicit(&ring->own->head, ring->head, RELEASE);
    return true;
}
