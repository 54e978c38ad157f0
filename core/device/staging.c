/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.c - the host memory of tensors that lie on a device.
 *
 * It comes in slabs of bps_alloc(), because that is what other workers of the host can map and what
 * reducers and transports prepare for. A tensor keeps its piece until the job ends.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "device/copy.h"

#define SLAB  (32ull << 20)
#define ALIGN 64u

struct bps_slab {
    LIST_ENTRY(bps_slab) entry;
    char *memory;
    uint64_t bytes, taken;
};

void bps_staging_init(struct bps_staging *staging)
{
    pthread_mutex_init(&staging->lock, NULL);
    LIST_INIT(&staging->slabs);
}

void bps_staging_fini(struct bps_staging *staging)
{
    while (!LIST_EMPTY(&staging->slabs)) {
        struct bps_slab *slab = LIST_FIRST(&staging->slabs);
        LIST_REMOVE(slab, entry);
        bps_free(slab->memory);
        free(slab);
    }
    pthread_mutex_destroy(&staging->lock);
}

static struct bps_slab *new_slab(struct bps_staging *staging, uint64_t bytes)
{
    struct bps_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return NULL;
    }
    slab->bytes = bytes > SLAB ? bytes : SLAB;
    slab->memory = bps_alloc(slab->bytes);
    if (slab->memory == NULL) {
        free(slab);
        return NULL;
    }
    /* The application does not know this memory, nor do its children. */
    madvise(slab->memory, slab->bytes, MADV_DONTFORK);
    LIST_INSERT_HEAD(&staging->slabs, slab, entry);
    return slab;
}

/* The newest slab, or else a new one: what is left in older ones is less than a tensor. */
static char *staging_take(struct bps_staging *staging, uint64_t bytes)
{
    char *memory = NULL;
    pthread_mutex_lock(&staging->lock);
    struct bps_slab *slab = LIST_FIRST(&staging->slabs);
    if (slab == NULL || bytes > slab->bytes - slab->taken) {
        slab = new_slab(staging, bytes);
    }
    if (slab != NULL) {
        memory = slab->memory + slab->taken;
        slab->taken += bytes;
    }
    pthread_mutex_unlock(&staging->lock);
    return memory;
}

/*
 * The tensor of an unnamed operation has another size each time: powers of two, so that all the pieces that
 * it outgrows are together smaller than the last one.
 */
static uint64_t room_for(const struct bps_tensor_entry *tensor, uint64_t bytes)
{
    uint64_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (tensor->named.unnamed) {
        for (room = ALIGN; room < bytes; room *= 2) {
        }
    }
    return room;
}

void bps_staging_reserve(struct bps_tensor_entry *tensor, uint64_t bytes)
{
    uint64_t room = room_for(tensor, bytes);
    char *memory = bytes > tensor->staging_bytes ? staging_take(&tensor->worker->memory->staging, room) : NULL;
    if (memory != NULL) {
        tensor->staging = memory;
        tensor->staging_bytes = room;
    }
}
