/* SPDX-License-Identifier: Apache-2.0 */
/* unnamed.c - unnamed tensors, spread over the shards by their number. */
#include "node/unnamed.h"

#include "base/assert.h"
#include "base/roles.h"
#include "base/tensor.h"

/* Of one worker, among which its blocks are spread. */
#define OWN_SHARDS 16u

/* After so many places of shards that are gone, the next shard that is there will do. */
#define ATTEMPTS 64u

/* The shard at a place of the interval of all weights, of 2^32. */
static uint32_t shard_at(const struct bps_book *book, uint32_t place)
{
    const struct bps_book_shard *shard = book->shard;
    uint64_t at = (uint64_t)place * shard[book->shards - 1].until >> 32;
    uint32_t low = 0, high = book->shards - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (shard[middle].until > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    bps_assert(low < book->shards && shard[low].until > at && shard[low].spread > 0);
    return low;
}

/* The place after one whose shard is gone: any, so that what it had is spread over all others. */
static uint32_t next_place(uint32_t place)
{
    place = (place ^ place >> 16) * 0x85ebca6bu;
    place = (place ^ place >> 13) * 0xc2b2ae35u;
    return (place ^ place >> 16) + 1;
}

/* One of the shards of this worker that are not lost: one that goes meanwhile still ends what is placed by it. */
static uint32_t shard_of_worker(const struct bps_book *book, const struct bps_book *now, uint32_t worker,
                                uint32_t place)
{
    uint32_t own[OWN_SHARDS], n = 0;
    for (uint32_t i = 0; i < book->shards && n < OWN_SHARDS; i++) {
        if (book->shard[i].member == worker && !book->shard[i].gone && !now->shard[i].lost) {
            own[n++] = i;
        }
    }
    return n > 0 ? own[place % n] : BPS_NO_SHARD;
}

/* A tensor has so many partitions for each shard, or worker of a host, so that all of these get about the same. */
#define EACH 8u
#define STEP 5u

/*
 * In the interval of all weights. Partitions of an unnamed tensor that follow one another go to equal parts of it in
 * turn, and those of a large one fill each part evenly, wherever one begins to count: shards of the same weight get the
 * same. Where in its cell a partition lies depends on the tensor, so that what rounding gives a shard too much evens
 * out. Others are alone, as heirs have them: multiples of the golden ratio are spread as the weights want it.
 */
static uint32_t unnamed_place(const struct bps_book *book, uint32_t id, uint32_t partition)
{
    uint32_t number = id + partition;
    const uint32_t golden = 0x9e3779b9u;
    if (id < BPS_ID_UNNAMED) {
        return number * golden;
    }
    uint64_t cell = ((uint64_t)1 << 32) / (EACH * (uint64_t)book->spread);
    uint64_t at = (uint64_t)(number % book->spread) * EACH + number / book->spread * STEP % EACH;
    return (uint32_t)(at * cell + (id * golden * cell >> 32));
}

static uint16_t spread_shard(const struct bps_book *book, const struct bps_book *now, uint32_t id, uint32_t partition)
{
    uint32_t place = unnamed_place(book, id, partition), shard = shard_at(book, place);
    if (!now->shard[shard].lost) {
        return (uint16_t)shard;
    }
    for (uint32_t i = 0; i < ATTEMPTS && now->shard[shard].gone; i++) {
        place = next_place(place);
        shard = shard_at(book, place);
    }
    for (uint32_t i = 0; i < now->shards && now->shard[shard].gone; i++) {
        shard = i; /* by its number, which is the same in all views: whoever comes later changes nothing */
    }
    return (uint16_t)shard;
}

/*
 * A block is summed, or handed on, where it is from or where it is going: so it crosses the network once for each of
 * the others, which is the least. Its number tells whose it is, whatever the operation: that is the remainder.
 */
uint16_t bps_unnamed_shard(const struct bps_book *book, const struct bps_book *now, uint32_t id, uint32_t partition)
{
    bps_assert(book->shards > 0 && book->shard[book->shards - 1].until > 0 && now->shards >= book->shards);
    uint32_t own = BPS_NO_SHARD, block = partition - BPS_BLOCKS;
    if (id >= BPS_ID_UNNAMED && partition >= BPS_BLOCKS) {
        own = shard_of_worker(book, now, block % book->workers, block / book->workers);
    }
    return own != BPS_NO_SHARD ? (uint16_t)own : spread_shard(book, now, id, partition);
}

uint16_t bps_unnamed_group_shard(const struct bps_book *book, const struct bps_book *now, const uint32_t *member,
                                 uint32_t n, uint32_t id, uint32_t partition)
{
    bps_assert(n > 0 && now->shards >= book->shards);
    uint32_t number = partition >= BPS_BLOCKS ? partition - BPS_BLOCKS : id + partition;
    uint32_t own = shard_of_worker(book, now, member[number % n], number / n);
    return own != BPS_NO_SHARD ? (uint16_t)own : spread_shard(book, now, id, partition);
}

#define GRAIN 1024u

uint32_t bps_unnamed_size(const struct bps_book *book, uint64_t bytes, uint64_t most)
{
    bps_assert(book->spread > 0 && most > 0);
    uint64_t size = (bytes / (EACH * (uint64_t)book->spread) / GRAIN + 1) * GRAIN;
    size = size > BPS_SPREAD_BYTES ? size : BPS_SPREAD_BYTES;
    return (uint32_t)(book->spread > 1 && size < most ? size : most);
}
