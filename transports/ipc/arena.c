/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - memory of a channel that the peer maps, for payloads that it cannot reach otherwise. Made when it
 * is needed first. Pages from the beginning are taken first, so that few of them are ever touched and those
 * stay warm.
 */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define WORD 64u

static bool make(struct bps_channel *channel)
{
    struct ipc *ipc = channel->ipc;
    struct ipc_arena *arena = &channel->arena;
    uint64_t bytes = ipc->options.arena;
    uint32_t pages = (uint32_t)(bytes / IPC_PAGE), words = (pages + WORD - 1) / WORD;
    void *memory;
    arena->failed = true; /* unless we come to the end */
    if (pages == 0 || channel->mute) {
        return false;
    }
    bool made = ipc_memory_make("byteps-arena", bytes, &arena->fd, &memory);
    arena->used = made ? ipc->host->alloc(ipc->host, words * sizeof *arena->used, IPC_LINE) : NULL;
    if (arena->used == NULL) {
        ipc->host->log(ipc->host, BPS_LOG_WARN, "there is no shared arena for %s: %s", channel->peer,
                       made ? "out of memory" : strerror(errno));
        if (made) {
            ipc_memory_unmap(memory, bytes);
            ipc_fork_close(&arena->fd);
        }
        return false;
    }
    memset(arena->used, 0, words * sizeof *arena->used);
    arena->memory = memory;
    arena->pages = pages;
    arena->id = ++ipc->last_region;
    ipc_region_announce(channel, arena->id, arena->fd, bytes, 0);
    arena->failed = false;
    return true;
}

static bool is_used(const struct ipc_arena *arena, uint32_t page)
{
    return (arena->used[page / WORD] >> page % WORD & 1) != 0;
}

static void mark(struct ipc_arena *arena, uint32_t first, uint32_t pages, bool used)
{
    for (uint32_t page = first; page < first + pages; page++) {
        uint64_t bit = (uint64_t)1 << page % WORD;
        arena->used[page / WORD] = used ? arena->used[page / WORD] | bit : arena->used[page / WORD] & ~bit;
    }
}

/* The first page of as many free ones in a row; IPC_NONE: there are none. */
static uint32_t find(const struct ipc_arena *arena, uint32_t pages)
{
    uint32_t run = 0;
    for (uint32_t page = 0; page < arena->pages; page++) {
        if (page % WORD == 0 && arena->used[page / WORD] == UINT64_MAX) {
            run = 0;
            page += WORD - 1;
            continue;
        }
        run = is_used(arena, page) ? 0 : run + 1;
        if (run == pages) {
            return page + 1 - pages;
        }
    }
    return IPC_NONE;
}

static uint32_t pages_of(uint32_t bytes)
{
    return (bytes + IPC_PAGE - 1) / IPC_PAGE;
}

/* Whether pages up to `end` may be used; those that were used before exist anyway. */
static bool touch(struct ipc *ipc, struct ipc_arena *arena, uint32_t end, uint64_t most)
{
    uint32_t more = end > arena->touched ? end - arena->touched : 0;
    if (more > 0 && (uint64_t)(ipc->touched + more) * IPC_PAGE > most) {
        return false;
    }
    ipc->touched += more;
    arena->touched += more;
    return true;
}

uint8_t *ipc_arena_take(struct bps_channel *channel, uint32_t bytes, uint64_t most)
{
    struct ipc_arena *arena = &channel->arena;
    if (arena->memory == NULL && (arena->failed || !make(channel))) {
        return NULL;
    }
    uint32_t first = channel->announced >= arena->id ? find(arena, pages_of(bytes)) : IPC_NONE;
    if (first == IPC_NONE || !touch(channel->ipc, arena, first + pages_of(bytes), most)) {
        return NULL;
    }
    mark(arena, first, pages_of(bytes), true);
    return arena->memory + (size_t)first * IPC_PAGE;
}

void ipc_arena_give(struct bps_channel *channel, const uint8_t *slot, uint32_t bytes)
{
    struct ipc_arena *arena = &channel->arena;
    mark(arena, (uint32_t)((size_t)(slot - arena->memory) / IPC_PAGE), pages_of(bytes), false);
}

void ipc_arena_free(struct bps_channel *channel)
{
    struct ipc *ipc = channel->ipc;
    ipc->touched -= channel->arena.touched;
    ipc_memory_unmap(channel->arena.memory, ipc->options.arena);
    ipc_fork_close(&channel->arena.fd);
    ipc->host->release(ipc->host, channel->arena.used);
}
