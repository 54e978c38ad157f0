/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_region.c - the regions of the peer. They are mapped when the peer tells of them, and their pages are
 * entered into the page table at the first use.
 */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGES_PER_TURN 64
#define TURNS_PER_REGION  1024
#define POPULATE_MOST     (1ull << 30) /* bytes; the pages of larger regions come as they are touched */

struct ipc_region *ipc_region_get(const struct bps_channel *channel, uint32_t id)
{
    uint32_t low = 0, high = channel->nregions;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (channel->regions[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < channel->nregions && channel->regions[low].id == id ? &channel->regions[low] : NULL;
}

/* ---- messages ---- */

static bool make_room(struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    uint32_t room = channel->region_room == 0 ? 8 : 2 * channel->region_room;
    if (channel->nregions < channel->region_room) {
        return true;
    }
    if (room > IPC_REGIONS_MAX) {
        return false;
    }
    struct ipc_region *regions =
        bps_util_grow(host, channel->regions, channel->nregions * sizeof *regions, room * sizeof *regions, 8);
    if (regions == NULL) {
        return false;
    }
    channel->regions = regions;
    channel->region_room = room;
    return true;
}

static bps_status on_region(struct bps_channel *channel, const struct ipc_message *message, int fd)
{
    bool allocated = false;
    if (message->region <= channel->last_region || message->region == IPC_NONE || fd < 0) {
        return BPS_ERR_PROTOCOL;
    }
    if (!make_room(channel)) {
        return BPS_ERR_NOMEM;
    }
    void *memory = ipc_memory_map(fd, message->bytes, message->offset, &allocated);
    if (memory == NULL) {
        return errno == ENOMEM ? BPS_ERR_NOMEM : BPS_ERR_PROTOCOL;
    }
    channel->last_region = message->region;
    channel->regions[channel->nregions++] = (struct ipc_region){
        .id = message->region,
        .memory = memory,
        .bytes = message->bytes,
        .populate = allocated && message->bytes <= POPULATE_MOST,
    };
    return BPS_OK;
}

static bps_status on_forget(struct bps_channel *channel, const struct ipc_message *message)
{
    struct ipc_region *region = ipc_region_get(channel, message->region);
    if (region == NULL || region->loans > 0) {
        return BPS_ERR_PROTOCOL;
    }
    ipc_memory_unmap(region->memory, region->bytes);
    channel->nregions--;
    memmove(region, region + 1, (size_t)(&channel->regions[channel->nregions] - region) * sizeof *region);
    return BPS_OK;
}

static bps_status on_message(struct bps_channel *channel, const struct ipc_message *message, int fd)
{
    switch (message->type) {
    case IPC_REGION:
        return on_region(channel, message, fd);
    case IPC_FORGET:
        return on_forget(channel, message);
    default:
        return BPS_ERR_PROTOCOL;
    }
}

static const char *reason(bps_status status)
{
    return status == BPS_ERR_NOMEM ? "out of memory or file descriptors for a region of the peer"
                                   : "the peer sent an invalid message";
}

bool ipc_messages_receive(struct bps_channel *channel)
{
    for (unsigned n = 0; channel->readable; n++) {
        struct ipc_message message;
        if (n == MESSAGES_PER_TURN) {
            ipc_channel_queue(channel);
            return true;
        }
        bps_status status = ipc_channel_receive(channel, &message);
        if (status == BPS_AGAIN || status == BPS_ERR_IO) {
            channel->readable = false;
            channel->eof = status == BPS_ERR_IO;
            return true;
        }
        if (status == BPS_OK) {
            status = on_message(channel, &message, channel->fds[0]);
            ipc_channel_close_fds(channel);
        }
        if (status != BPS_OK) {
            ipc_channel_end(channel, status, reason(status));
            return false;
        }
    }
    return true;
}

/* ---- use ---- */

/* Frames and messages take different ways: the region may have been told of already. */
static struct ipc_region *find(struct bps_channel *channel, uint32_t id)
{
    channel->readable = channel->readable || id > channel->last_region;
    for (unsigned n = 0; id > channel->last_region && channel->readable && n < TURNS_PER_REGION; n++) {
        if (!ipc_messages_receive(channel)) {
            break;
        }
    }
    return channel->state == IPC_OPEN ? ipc_region_get(channel, id) : NULL;
}

void *ipc_region_address(struct bps_channel *channel, uint32_t id, uint64_t at, uint32_t bytes)
{
    struct ipc_region *region = find(channel, id);
    if (region == NULL || at > region->bytes || bytes > region->bytes - at) {
        return NULL;
    }
#ifdef MADV_POPULATE_READ
    if (region->populate) {
        region->populate = false;
        (void)madvise(region->memory, region->bytes, MADV_POPULATE_READ);
    }
#endif
    return region->memory + at;
}

void ipc_peer_regions_free(struct bps_channel *channel)
{
    for (uint32_t i = 0; i < channel->nregions; i++) {
        ipc_memory_unmap(channel->regions[i].memory, channel->regions[i].bytes);
    }
    channel->ipc->host->release(channel->ipc->host, channel->regions);
}
