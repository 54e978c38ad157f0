/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what always holds of rounds, between two calls into the engine. */
#include "base/assert.h"
#include "sum/round.h"

/* Those of a set who take part. */
static uint32_t round_check_count(const struct bps_round *round, const uint64_t *bits)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        n += bps_bit(bits, round->ranks->rank[i]);
    }
    return n;
}

static bool is_within(const struct bps_round *round, const uint64_t *bits, const uint64_t *others)
{
    uint32_t i = 0;
    while (i < round->sum->words && (bits[i] & ~others[i]) == 0) {
        i++;
    }
    return i == round->sum->words;
}

static void round_check_check_slice(const struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    const uint64_t *arrived = bps_arrived(round, slice->index);
    bps_assert(slice == &round->slice[slice->index]);
    bps_assert(slice->offset <= round->bytes && slice->bytes <= round->bytes - slice->offset);
    bps_assert(slice->settled <= slice->landed && slice->landed <= slice->bytes);
    bps_assert(slice->arrived == round_check_count(round, arrived));
    bps_assert(is_within(round, arrived, round->joined_bits));
    bps_assert(is_within(round, bps_begun(round, slice->index), round->spoke_bits));
    bps_assert(slice->undelivered <= round->ranks->n + 1);
}

void bps_round_check(const struct bps_round *round)
{
    const struct bps_sum *sum = round->sum;
    bps_assert(round->policy != NULL && round->element > 0 && round->width > 0 && round->grid > 0);
    bps_assert(round->ranks->n > 0 && round->ranks->n <= sum->all.n);
    bps_assert(round->joined == round_check_count(round, round->joined_bits));
    bps_assert(is_within(round, round->spoke_bits, round->joined_bits));
    bps_assert(is_within(round, round->for_group_bits, round->spoke_bits));
    bps_assert((round->base.failure == NULL) == (round->base.verdict == BPS_OK));
    bps_assert(round->complete <= round->slices && round->unfinished <= round->slices);
    bps_assert(round->odds == 0 || round->odd.data != NULL);
    bps_assert(round->opener == UINT32_MAX || sum->held[round->opener] >= round->memory);
    bps_assert(!round->pending || (bps_is_partial(sum) && round->base.failure != NULL && round->base.holds > 0));
    bps_assert(!round->handed_on || bps_is_partial(sum));
    bps_assert(round->max_bytes >= round->spec.bytes);
    for (uint32_t i = 0; i < round->slices; i++) {
        round_check_check_slice(&round->slice[i]);
    }
}
