/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed.h - which shard sums which partition of an unnamed tensor.
 *
 * Such tensors live for one round. Every worker cuts them and finds their shards by itself, in the book and by their
 * numbers; how named tensors are cut and placed it hears from the scheduler.
 */
#ifndef BPS_NODE_UNNAMED_H
#define BPS_NODE_UNNAMED_H

#include "node/book.h"

/*
 * The shard of a partition, whatever the size of the tensor: workers that push different ones meet there. The book says
 * how it is spread, `now` which shards are lost by now. Each partition has one row of shards; if the first is lost, the
 * next that is there is its heir, in all views alike. A named partition whose shard is lost has the same heir. Blocks
 * are at the worker that they belong to, if that hosts shards.
 */
uint16_t bps_unnamed_shard(const struct bps_book *book, const struct bps_book *now, uint32_t id, uint32_t partition);
/*
 * The same in a process group: what has blocks is at the member that they belong to, and all else is spread evenly over
 * the members; of one that hosts no shards it is where it would be of all workers.
 */
uint16_t bps_unnamed_group_shard(const struct bps_book *book, const struct bps_book *now, const uint32_t *member,
                                 uint32_t n, uint32_t id, uint32_t partition);
/* The size of all partitions but the last of a tensor with so many bytes: at most `most`. */
uint32_t bps_unnamed_size(const struct bps_book *book, uint64_t bytes, uint64_t most);

#endif
