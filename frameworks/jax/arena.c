/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - memory for the tensors in flight, the same again in each step.
 *
 * It is shared memory in large chunks, as each takes a descriptor: workers of one host sum there without another
 * copy. Blocks are cut from a chunk one behind the other, and it is empty again when all of them have been given
 * back, which is so after a step. What a program does not need any more, because its tensors have become larger,
 * is freed when a new chunk has to be made.
 */
#include "arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <byteps/byteps.h>

#define ALIGNMENT ((size_t)64)
#define CHUNK     ((size_t)16 << 20)

struct chunk {
    struct chunk *next;
    char *memory;
    size_t bytes, used;
    size_t blocks; /* in use */
    bool shared;
};

static struct {
    pthread_mutex_t lock;
    struct chunk *chunks;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct chunk *chunk_new(size_t bytes)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));

    if (chunk == NULL)
        return NULL;
    chunk->bytes = bytes > CHUNK ? bytes : CHUNK;
    chunk->memory = bps_alloc(chunk->bytes);
    chunk->shared = chunk->memory != NULL;
    if (!chunk->shared)
        chunk->memory = aligned_alloc(ALIGNMENT, chunk->bytes);
    if (chunk->memory == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->next = arena.chunks;
    arena.chunks = chunk;
    return chunk;
}

static void free_idle_chunks(void)
{
    struct chunk **link = &arena.chunks;

    while (*link != NULL) {
        struct chunk *chunk = *link;

        if (chunk->blocks > 0) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        if (chunk->shared)
            bps_free(chunk->memory);
        else
            free(chunk->memory);
        free(chunk);
    }
}

/* Of the chunks with enough room the one with the least: a large one is left for what is large. */
static struct chunk *chunk_with_room(size_t bytes)
{
    struct chunk *best = NULL;

    for (struct chunk *chunk = arena.chunks; chunk != NULL; chunk = chunk->next) {
        size_t room = chunk->bytes - chunk->used;

        if (room >= bytes && (best == NULL || room < best->bytes - best->used))
            best = chunk;
    }
    return best;
}

struct block arena_take(size_t bytes)
{
    struct block block = {NULL, NULL};
    struct chunk *chunk;

    if (bytes > SIZE_MAX - ALIGNMENT)
        return block;
    bytes = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    pthread_mutex_lock(&arena.lock);
    chunk = chunk_with_room(bytes);
    if (chunk == NULL) {
        free_idle_chunks();
        chunk = chunk_new(bytes);
    }
    if (chunk != NULL) {
        block = (struct block){chunk->memory + chunk->used, chunk};
        chunk->used += bytes;
        chunk->blocks++;
    }
    pthread_mutex_unlock(&arena.lock);
    return block;
}

void arena_give(struct block block)
{
    pthread_mutex_lock(&arena.lock);
    if (--block.chunk->blocks == 0)
        block.chunk->used = 0;
    pthread_mutex_unlock(&arena.lock);
}
