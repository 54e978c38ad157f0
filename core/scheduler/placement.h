/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - how a named tensor is cut into partitions, and which shard sums each, and which worker of a host.
 *
 * A tensor is cut where the shares of the servers end: each gets bytes by its weight, less what it has above its share
 * from the tensors before, and so each of its shards. A small one goes whole to a single server, that with the most
 * room, unless this would exceed its share. The scheduler does it once per tensor, so every worker gets the same answer
 * whatever the order of its declarations.
 */
#ifndef BPS_PLACEMENT_H
#define BPS_PLACEMENT_H

#include "node/book.h"

/* What gets a part of the bytes: a server, a shard, a place in a group. */
struct bps_bin {
    uint64_t weight; /* 0: gets nothing */
    uint64_t load;   /* bytes placed on it, and what each tensor costs besides */
};

struct bps_placement {
    uint32_t view;     /* whose weights these are */
    uint64_t expected; /* the load of all tensors that are placed, and of those that are about to be */
    uint32_t servers;
    uint64_t weights; /* of all servers */
    struct bps_bin *server, *shard;
    uint32_t *first; /* shard of each server; behind them the number of shards */
    uint32_t sizes;  /* of groups, that differ */
    struct bps_group_bins {
        uint32_t size;
        uint32_t leaders;
        struct bps_bin *leader;
    } *group;                  /* the largest first: that one cuts partitions */
    struct bps_choice *choice; /* room for dividing a tensor */
};

/* How a tensor is cut and placed. */
struct bps_layout {
    uint32_t view; /* the number of the one by which */
    uint32_t move; /* and of the move: of two places of a tensor the later one has the larger */
    uint32_t n;
    size_t room, lead_room;
    struct bps_layout_part {
        uint32_t bytes;
        uint16_t shard;
    } *part;
#define BPS_NO_LEADER UINT16_MAX
    uint16_t *lead; /* for each partition, for each size of groups: which of the leaders sums it there */
};
void bps_layout_fini(struct bps_layout *layout);

/* Over the shards of a book, of which those of one member stand together, and its groups of workers. */
bps_status bps_placement_init(struct bps_placement *placement, const struct bps_book *book);
void bps_placement_fini(struct bps_placement *placement);
/* Other weights, by the shards of another book of the same members. What is placed stays. */
void bps_placement_weigh(struct bps_placement *placement, const struct bps_book *book);
/* Shards have come behind the others, of another member, which has no weight yet. BPS_ERR_NOMEM. */
bps_status bps_placement_grow(struct bps_placement *placement, const struct bps_book *book);
/* The index of a size of groups. */
uint16_t bps_placement_group(const struct bps_placement *placement, uint32_t size);
/* A tensor of so many bytes is about to be placed. What is known beforehand is placed better: the large ones first. */
void bps_placement_expect(struct bps_placement *placement, uint64_t bytes);
/*
 * Places it. Partitions have at most `most` bytes; with `whole` they have no less, but for the last one. BPS_ERR_NOMEM:
 * it is not placed, nor expected any more.
 */
bps_status bps_placement_add(struct bps_placement *placement, uint64_t bytes, uint64_t most, bool whole,
                             struct bps_layout *out);
/*
 * A tensor that was placed by another scheduler: leaders of which nobody knows are chosen. With `now` it has its place
 * there, else it had.
 */
void bps_placement_restore(struct bps_placement *placement, struct bps_layout *layout, bool now);
/* Another shard sums partition i of what is placed. */
void bps_placement_shift(struct bps_placement *placement, struct bps_layout *layout, uint32_t i, uint16_t shard);
/* Takes back what was added for a tensor. */
void bps_placement_remove(struct bps_placement *placement, const struct bps_layout *layout);

#endif
