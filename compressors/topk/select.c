/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - finds the key of the kept-th largest magnitude, in passes over all elements.
 *
 * A pass counts how many keys are in each of 2048 bins of a range, and the next one looks into one bin only (radix
 * select): three passes for float32 and six for float64 at most, whatever the elements are. The first range is guessed
 * from a sample: then few elements are in it, comparing many at once finds them, and later passes go over the pool of
 * these only. If the guess was wrong, the range is everything. So time is linear, and the result does not depend on the
 * guess.
 */
#include "select.h"

#include <stddef.h>
#include <string.h>

#define PIECE        (1u << 20) /* elements of a call of the kernel */
#define SAMPLE_PIECE 32u        /* elements that lie together in a sample */
#define SAMPLE_SHARE 8u         /* of so many elements one is in the sample, */
#define SAMPLE_LIMIT 4096u      /* but so many at most */
#define SAMPLE_LEAST 256u       /* with fewer there is none */
#define GUESSES      3u         /* passes over the sample */

static struct range range_of(uint64_t low, uint64_t last)
{
    struct range range = {low, last, 0};
    while ((last - low) >> range.shift >= BINS) {
        range.shift++;
    }
    return range;
}

static struct range everything(size_t size)
{
    return range_of(0, UINT64_MAX >> (65 - 8 * size));
}

/* Every `stride` elements as many as a piece. */
static void tally(const struct topk_kernels *kernels, const uint8_t *src, size_t count, size_t size, size_t piece,
                  size_t stride, const struct range *range, struct tally *out)
{
    memset(out, 0, offsetof(struct tally, pool));
    for (size_t i = 0; i < count; i += stride) {
        size_t n = count - i < piece ? count - i : piece;
        kernels->tally(src + i * size, n, range, out);
    }
}

/* The bin with the rank-th largest key, and the rank within it; it must be in the range. */
static unsigned bin_of(const struct tally *tally, size_t rank, size_t *rank_in_bin)
{
    unsigned bin = BINS - 1;
    rank -= tally->above;
    while (tally->bin[bin] < rank) {
        rank -= tally->bin[bin--];
    }
    *rank_in_bin = rank;
    return bin;
}

static uint64_t first_of(const struct range *range, unsigned bin)
{
    return range->low + ((uint64_t)bin << range->shift);
}

static uint64_t last_of(const struct range *range, unsigned bin)
{
    uint64_t last = first_of(range, bin) + ((uint64_t)1 << range->shift) - 1;
    return last < range->last ? last : range->last;
}

/* Between two ranks of the sample, so far apart that the one looked for is hardly ever outside. */
static struct range guess(const struct topk_kernels *kernels, const uint8_t *src, size_t count, size_t size,
                          size_t kept, struct tally *t)
{
    const struct range all = everything(size);
    size_t wanted = count / SAMPLE_SHARE < SAMPLE_LIMIT ? count / SAMPLE_SHARE : SAMPLE_LIMIT, unused;
    if (wanted < SAMPLE_LEAST) {
        return all;
    }
    size_t stride = count / (wanted / SAMPLE_PIECE), sampled = count / stride * SAMPLE_PIECE;
    size_t rank = (size_t)((double)kept / (double)count * (double)sampled), margin = rank / 4 + 8;
    size_t upper = rank > margin ? rank - margin : 1, lower = rank + margin < sampled ? rank + margin : sampled;
    struct range range = all;
    for (unsigned i = 0; i < GUESSES && range.low < range.last; i++) {
        tally(kernels, src, count / stride * stride, size, SAMPLE_PIECE, stride, &range, t);
        uint64_t low = first_of(&range, bin_of(t, lower, &unused));
        range = range_of(low, last_of(&range, bin_of(t, upper, &unused)));
    }
    /* The sample need not have the smallest and the largest ones. */
    return range_of(lower < sampled ? range.low : all.low, rank > margin ? range.last : all.last);
}

struct threshold topk_select(const struct topk_kernels *kernels, const uint8_t *src, size_t count, size_t size,
                             size_t kept)
{
    struct tally t;
    struct range range = guess(kernels, src, count, size, kept, &t);
    for (;;) {
        tally(kernels, src, count, size, PIECE, PIECE, &range, &t);
        if (t.above >= kept || t.above + t.inside < kept) {
            range = everything(size);
            continue;
        }
        if (range.low == range.last) {
            return (struct threshold){range.low, kept - t.above};
        }
        size_t ties;
        unsigned bin = bin_of(&t, kept, &ties);
        range = range_of(first_of(&range, bin), last_of(&range, bin));
        if (range.low == range.last) {
            return (struct threshold){range.low, ties};
        }
        if (t.pooled == t.inside) {
            src = t.pool;
            count = t.pooled;
            kept -= t.above;
        }
    }
}
