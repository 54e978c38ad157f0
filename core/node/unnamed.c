/* SPDX-License-Identifier: Apache-2.0 */
/* unnamed.c - unnamed tensors, spread over the shards by their number. */
#include "node/unnamed.h"

/*
 * Multiples of the golden ratio fall evenly into the interval of all weights, wherever one begins to count
 * and whoever counts: any few numbers in a row are spread as the weights want it.
 */
uint16_t bps_unnamed_shard(const struct bps_book *book, uint32_t id, uint32_t partition)
{
    const uint32_t golden = 0x9e3779b9u;
    const struct bps_book_shard *shard = book->shard;
    uint32_t number = (id + partition) * golden;
    uint64_t at = (uint64_t)number * shard[book->shards - 1].until >> 32;
    uint32_t low = 0, high = book->shards - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (shard[middle].until > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (uint16_t)low;
}
