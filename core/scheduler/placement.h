/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - which shard sums which partition of a named tensor.
 *
 * Tensors are placed by bytes: each partition goes to the server that has least for its weight, and
 * there to the shard that has least. The scheduler does it once per tensor, so every worker gets the same
 * answer whatever the order of its declarations.
 */
#ifndef BPS_PLACEMENT_H
#define BPS_PLACEMENT_H

#include "node/book.h"

struct bps_placement_server {
    uint32_t first, shards; /* its shards */
    uint64_t weight;        /* 0: gets nothing */
    uint64_t load;          /* bytes placed on it, and what each partition costs besides */
};

struct bps_placement {
    uint32_t servers;
    struct bps_placement_server *server;
    uint64_t *load; /* likewise for each shard */
};

/* Over so many places that are equal. */
bps_status bps_placement_init(struct bps_placement *placement, uint32_t places);
/* Over the shards of a book: those of one member stand together, and one at least has a weight. */
bps_status bps_placement_init_shards(struct bps_placement *placement, const struct bps_book *book);
void bps_placement_fini(struct bps_placement *placement);
/* Places the partitions of a tensor; out receives one shard for each. */
void bps_placement_add(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out);
/* The same in two steps: the whole partitions, and the last one if it is smaller. */
void bps_placement_add_whole(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out);
void bps_placement_add_rest(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out);

/* Takes back what was added for a tensor. */
void bps_placement_remove(struct bps_placement *placement, uint64_t bytes, uint64_t partition, const uint16_t *places);

#endif
