/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - the least loaded server, and its least loaded shard, for each partition. */
#include "scheduler/placement.h"

#include <stdlib.h>

#include "wire/frame.h"

/* What a partition costs besides its bytes, so that many tiny tensors are spread too. */
#define PARTITION_COST 1024u

bps_status bps_placement_init(struct bps_placement *placement, uint32_t places)
{
    placement->servers = places;
    placement->server = calloc(places, sizeof *placement->server);
    placement->load = calloc(places, sizeof *placement->load);
    if (placement->server == NULL || placement->load == NULL) {
        bps_placement_fini(placement);
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < places; i++) {
        placement->server[i] = (struct bps_placement_server){.first = i, .shards = 1, .weight = 1};
    }
    return BPS_OK;
}

bps_status bps_placement_init_shards(struct bps_placement *placement, const struct bps_book *book)
{
    bps_status status = bps_placement_init(placement, book->shards);
    if (status != BPS_OK) {
        return status;
    }
    placement->servers = 0;
    for (uint32_t i = 0; i < book->shards; i++) {
        const struct bps_book_shard *shard = &book->shard[i];
        if (i == 0 || shard->member != shard[-1].member) {
            placement->server[placement->servers++] = (struct bps_placement_server){.first = i};
        }
        struct bps_placement_server *server = &placement->server[placement->servers - 1];
        server->shards++;
        server->weight += shard->weight;
    }
    return BPS_OK;
}

void bps_placement_fini(struct bps_placement *placement)
{
    free(placement->server);
    free(placement->load);
    *placement = (struct bps_placement){0};
}

/* Would `a` have less for its weight than `b`, with so many bytes more? In whole numbers: ties are ties. */
static bool is_better(const struct bps_placement_server *a, const struct bps_placement_server *b, uint64_t bytes)
{
    return (unsigned __int128)(a->load + bytes) * b->weight < (unsigned __int128)(b->load + bytes) * a->weight;
}

static uint32_t place(struct bps_placement *placement, uint64_t bytes)
{
    struct bps_placement_server *best = &placement->server[0];
    for (uint32_t s = 1; s < placement->servers; s++) {
        if (is_better(&placement->server[s], best, bytes)) {
            best = &placement->server[s];
        }
    }
    uint32_t shard = best->first;
    for (uint32_t i = best->first + 1; i < best->first + best->shards; i++) {
        if (placement->load[i] < placement->load[shard]) {
            shard = i;
        }
    }
    best->load += bytes;
    placement->load[shard] += bytes;
    return shard;
}

void bps_placement_add_whole(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out)
{
    for (uint64_t i = 0; i < bytes / partition; i++) {
        out[i] = (uint16_t)place(placement, partition + PARTITION_COST);
    }
}

void bps_placement_add_rest(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out)
{
    if (bytes % partition != 0 || bytes == 0) {
        out[bytes / partition] = (uint16_t)place(placement, bytes % partition + PARTITION_COST);
    }
}

void bps_placement_add(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out)
{
    bps_placement_add_whole(placement, bytes, partition, out);
    bps_placement_add_rest(placement, bytes, partition, out);
}

/* The inverse of place(). */
static void take_away(struct bps_placement *placement, uint64_t bytes, uint32_t shard)
{
    uint32_t s = 0;
    while (shard >= placement->server[s].first + placement->server[s].shards) {
        s++;
    }
    placement->server[s].load -= bytes;
    placement->load[shard] -= bytes;
}

void bps_placement_remove(struct bps_placement *placement, uint64_t bytes, uint64_t partition, const uint16_t *places)
{
    for (uint32_t i = 0, n = bps_partitions(bytes, partition); i < n; i++) {
        take_away(placement, bps_partition_bytes(bytes, partition, i) + PARTITION_COST, places[i]);
    }
}
