/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - the regions of the core, by address, and how peers learn of them: by messages with a descriptor,
 * in the order of their numbers. A frame points into a region only when its message has left. A peer that does not
 * read costs no descriptors: messages that wait have that of the region, and go with it.
 */
#include "ipc.h"

#include <errno.h>
#include <string.h>

/* ---- messages ---- */

/* The message has left, or never will. */
static void message_left(struct bps_channel *channel, const struct ipc_message *message, int error)
{
    if (error != 0) {
        channel->mute = true; /* the peer has gone, as will be read soon */
    } else if (message->type == IPC_REGION) {
        channel->announced = message->region;
    }
    if (message->type == IPC_REGION && message->region == channel->arena.id) {
        ipc_fork_close(&channel->arena.fd);
    }
}

static bool queue(struct bps_channel *channel, const struct ipc_message *message, int fd)
{
    const struct bps_host *host = channel->ipc->host;
    struct ipc_post *post = host->alloc(host, sizeof *post, 8);
    if (post == NULL) {
        return false;
    }
    *post = (struct ipc_post){.message = *message, .fd = fd};
    STAILQ_INSERT_TAIL(&channel->posts, post, entry);
    return true;
}

static void post(struct bps_channel *channel, const struct ipc_message *message, int fd)
{
    int error = EAGAIN;
    if (channel->mute) {
        return;
    }
    if (STAILQ_EMPTY(&channel->posts)) {
        error = ipc_message_send(channel->fd, message, &fd, fd >= 0 ? 1 : 0);
    }
    if (error != EAGAIN) {
        message_left(channel, message, error);
    } else if (!queue(channel, message, fd)) {
        channel->mute = true; /* frames take another way */
    }
}

static void post_free(struct bps_channel *channel, struct ipc_post *post)
{
    STAILQ_REMOVE(&channel->posts, post, ipc_post, entry);
    channel->ipc->host->release(channel->ipc->host, post);
}

void ipc_posts_flush(struct bps_channel *channel)
{
    while (!STAILQ_EMPTY(&channel->posts)) {
        struct ipc_post *post = STAILQ_FIRST(&channel->posts);
        int error = ipc_message_send(channel->fd, &post->message, &post->fd, post->fd >= 0 ? 1 : 0);
        if (error == EAGAIN) {
            return;
        }
        message_left(channel, &post->message, error);
        post_free(channel, post);
    }
}

void ipc_posts_free(struct bps_channel *channel)
{
    while (!STAILQ_EMPTY(&channel->posts)) {
        post_free(channel, STAILQ_FIRST(&channel->posts));
    }
}

void ipc_region_announce(struct bps_channel *channel, uint32_t id, int fd, uint64_t bytes, uint64_t offset)
{
    const struct ipc_message message = {.type = IPC_REGION, .region = id, .bytes = bytes, .offset = offset};
    post(channel, &message, fd);
}

/* The peer need not know of the region any more, of which it may have heard nothing. */
static void forget(struct bps_channel *channel, uint32_t id)
{
    const struct ipc_message message = {.type = IPC_FORGET, .region = id};
    struct ipc_post *waiting;
    STAILQ_FOREACH(waiting, &channel->posts, entry) {
        if (waiting->message.type == IPC_REGION && waiting->message.region == id) {
            post_free(channel, waiting);
            return;
        }
    }
    post(channel, &message, -1);
}

/* ---- the regions of an instance ---- */

static uintptr_t start_of(const struct ipc_own_region *own)
{
    return (uintptr_t)own->region->memory;
}

/* How many regions begin at or before the address. */
static uint32_t rank_of(const struct ipc *ipc, uintptr_t address)
{
    uint32_t low = 0, high = ipc->nregions;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (start_of(ipc->regions[middle]) <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct ipc_own_region *ipc_region_find(const struct ipc *ipc, const void *memory, uint32_t bytes)
{
    uintptr_t address = (uintptr_t)memory;
    uint32_t rank = rank_of(ipc, address);
    const struct ipc_own_region *own = rank > 0 ? ipc->regions[rank - 1] : NULL;
    if (own == NULL || address - start_of(own) > own->region->bytes ||
        bytes > own->region->bytes - (address - start_of(own))) {
        return NULL;
    }
    return own;
}

static bool make_room(struct ipc *ipc)
{
    uint32_t room = ipc->region_room == 0 ? 16 : 2 * ipc->region_room;
    if (ipc->nregions < ipc->region_room) {
        return true;
    }
    struct ipc_own_region **regions =
        bps_util_grow(ipc->host, ipc->regions, ipc->nregions * sizeof *regions, room * sizeof *regions, 8);
    if (regions == NULL) {
        return false;
    }
    ipc->regions = regions;
    ipc->region_room = room;
    return true;
}

static void announce(struct bps_channel *channel, const struct ipc_own_region *own)
{
    const struct bps_region *region = own->region;
    ipc_region_announce(channel, own->id, region->fd, region->bytes, region->offset);
}

bps_status ipc_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    struct ipc *ipc = instance;
    struct bps_channel *channel;
    if (region->fd < 0) {
        return BPS_OK; /* nobody else can map it */
    }
    if (region->bytes == 0 || region->offset % IPC_PAGE != 0 || !ipc_memory_is_sealed(region->fd)) {
        BPS_REPORT(report,
                   "a region of %llu bytes at %llu of its file cannot be shared: expected whole pages of a "
                   "memfd that is sealed with F_SEAL_SHRINK",
                   (unsigned long long)region->bytes, (unsigned long long)region->offset);
        return BPS_ERR_INVALID;
    }
    if (ipc->nregions >= IPC_REGIONS_MAX - 1) {
        BPS_REPORT(report, "there are %u shared regions already: expected fewer and larger ones", ipc->nregions);
        return BPS_ERR_NOMEM;
    }
    struct ipc_own_region *own = make_room(ipc) ? ipc->host->alloc(ipc->host, sizeof *own, 8) : NULL;
    if (own == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *own = (struct ipc_own_region){.region = region, .id = ++ipc->last_region};
    TAILQ_INSERT_TAIL(&ipc->region_list, own, entry);
    uint32_t rank = rank_of(ipc, (uintptr_t)region->memory);
    struct ipc_own_region **place = &ipc->regions[rank];
    memmove(place + 1, place, (ipc->nregions++ - rank) * sizeof *place);
    *place = own;
    LIST_FOREACH(channel, &ipc->channels, entry) {
        if (channel->state == IPC_OPEN) {
            announce(channel, own);
        }
    }
    return BPS_OK;
}

void ipc_detach(void *instance, const struct bps_region *region)
{
    struct ipc *ipc = instance;
    struct bps_channel *channel;
    uint32_t rank = rank_of(ipc, (uintptr_t)region->memory);
    if (rank == 0 || ipc->regions[rank - 1]->region != region) {
        return;
    }
    struct ipc_own_region **place = &ipc->regions[rank - 1], *own = *place;
    LIST_FOREACH(channel, &ipc->channels, entry) {
        if (channel->state == IPC_OPEN) {
            forget(channel, own->id);
        }
    }
    memmove(place, place + 1, (ipc->nregions-- - rank) * sizeof *place);
    TAILQ_REMOVE(&ipc->region_list, own, entry);
    ipc->host->release(ipc->host, own);
}

void ipc_regions_announce(struct bps_channel *channel)
{
    const struct ipc_own_region *own;
    TAILQ_FOREACH(own, &channel->ipc->region_list, entry) {
        announce(channel, own);
    }
}

void ipc_regions_free(struct ipc *ipc)
{
    while (ipc->nregions > 0) {
        ipc->host->release(ipc->host, ipc->regions[--ipc->nregions]);
    }
    ipc->host->release(ipc->host, ipc->regions);
}
