/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - registered memory in blocks of one size, for payloads that pass through. */
#include "verbs.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES 1024u /* that a mask has bits for */
#define BITS  (8 * sizeof(unsigned long))

static size_t stride(const struct verbs_arena *arena)
{
    return VERBS_HEAD + (size_t)arena->block;
}

size_t verbs_arena_bytes(const struct verbs_arena *arena)
{
    return arena->count * stride(arena);
}

/* Large pages and a place near the device are only optimisations: it works without either. */
static uint8_t *map(size_t bytes, int node)
{
    unsigned long mask[NODES / BITS] = {0};
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    if (node >= 0 && (unsigned)node < NODES) {
        mask[(unsigned)node / BITS] = 1ul << (unsigned)node % BITS;
        syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, NODES, 0);
    }
    return memory;
}

bool verbs_arena_init(struct verbs_arena *arena, const struct bps_host *host, uint64_t bytes, uint32_t block, int node)
{
    *arena = (struct verbs_arena){.block = block};
    arena->count = (uint32_t)(bytes / block);
    arena->memory = map(verbs_arena_bytes(arena), node);
    arena->free = host->alloc(host, arena->count * sizeof *arena->free, 64);
    if (arena->memory == NULL || arena->free == NULL) {
        verbs_arena_fini(arena, host);
        return false;
    }
    while (arena->nfree < arena->count) {
        arena->free[arena->nfree] = arena->count - 1 - arena->nfree;
        arena->nfree++;
    }
    return true;
}

void verbs_arena_fini(struct verbs_arena *arena, const struct bps_host *host)
{
    if (arena->memory != NULL) {
        munmap(arena->memory, verbs_arena_bytes(arena));
    }
    host->release(host, arena->free);
    *arena = (struct verbs_arena){0};
}

uint8_t *verbs_arena_take(struct verbs_arena *arena)
{
    if (arena->nfree == 0) {
        return NULL;
    }
    return arena->memory + arena->free[--arena->nfree] * stride(arena) + VERBS_HEAD;
}

void verbs_arena_give(struct verbs_arena *arena, uint8_t *block)
{
    arena->free[arena->nfree++] = (uint32_t)((size_t)(block - arena->memory) / stride(arena));
}
