/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - registered memory in blocks of one size, for payloads that pass through. */
#include "verbs.h"

#define LINE 4096u

static size_t stride(const struct verbs_arena *arena)
{
    return VERBS_HEAD + (size_t)arena->block;
}

size_t verbs_arena_bytes(const struct verbs_arena *arena)
{
    return arena->count * stride(arena);
}

bool verbs_arena_init(struct verbs_arena *arena, const struct bps_host *host, uint64_t bytes, uint32_t block)
{
    *arena = (struct verbs_arena){.block = block};
    arena->count = (uint32_t)(bytes / block);
    arena->memory = host->alloc(host, verbs_arena_bytes(arena), LINE);
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
    host->release(host, arena->memory);
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
