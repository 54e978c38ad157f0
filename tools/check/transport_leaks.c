/* SPDX-License-Identifier: Apache-2.0 */
/* transport_leaks.c - nothing is left of channels that have ended, however many there were. */
#include "tools/check/transport_tests.h"

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void once(struct bps_side sides[2], unsigned round)
{
    const struct bps_stream stream = {110, 4, 3000, NULL, 0, 0};
    struct bps_pair pair;
    bps_check_at(sides[0].check, "a channel, for the %uth time", round + 1);
    bps_pair_begin(&pair, &sides[0], &sides[1], &stream);
    bps_pair_connect(&pair, 0);
    bps_pairs_wait(&pair, 1);
    pair.dials.may_close = pair.listens.may_close = true;
    if (round % 4 == 1) {
        bps_end_drop(&pair.dials);
    } else if (round % 4 == 2) {
        bps_end_drop(&pair.listens);
    }
    bps_pairs_finish(&pair, 1);
    bps_pair_free(&pair);
}

void bps_check_transport_rounds(struct bps_check *check)
{
    enum { WARM = 24, ROUNDS = 200 };
    struct bps_check_usage before = bps_check_usage_now();
    struct bps_side sides[2];
    bps_sides_open(check, sides);
    for (unsigned i = 0; i < WARM + ROUNDS; i++) {
        if (i == WARM) {
            bps_sides_drive(check, never, NULL, 20);
            before = bps_check_usage_now();
        }
        once(sides, i);
    }
    bps_sides_drive(check, never, NULL, 20);
    bps_check_at(check, "channels that have ended");
    bps_check_usage_same(check, &before, ROUNDS);
    bps_sides_close(sides);
}

void bps_check_transport_hundred(struct bps_check *check)
{
    enum { CHANNELS = 100 };
    static struct bps_pair pairs[CHANNELS];
    const struct bps_stream stream = {111, 8, 20000, NULL, 0, 0};
    struct bps_check_usage before = bps_check_usage_now();
    struct bps_side sides[2];
    bps_sides_open(check, sides);
    for (unsigned i = 0; i < CHANNELS; i++) {
        bps_check_at(check, "channel %u of %d at once", i + 1, CHANNELS);
        bps_pair_begin(&pairs[i], &sides[0], &sides[1], &stream);
        bps_pair_connect(&pairs[i], 0);
    }
    bps_check_at(check, "frames over %d channels at once", CHANNELS);
    bps_pairs_wait(pairs, CHANNELS);
    for (unsigned i = 0; i < CHANNELS; i += 2) {
        bps_end_drop(&pairs[i].dials);
        pairs[i].listens.may_close = true;
    }
    bps_pairs_finish(pairs, CHANNELS);
    for (unsigned i = 0; i < CHANNELS; i++) {
        bps_pair_free(&pairs[i]);
    }
    bps_check_at(check, "close, after %d channels", CHANNELS);
    bps_sides_close(sides);
    struct bps_check_usage after = bps_check_usage_now();
    BPS_CHECK(check, after.descriptors <= before.descriptors, "leaks descriptors: %u, and %u before", after.descriptors,
              before.descriptors);
    BPS_CHECK(check, after.threads <= before.threads, "leaks threads: %u, and %u before", after.threads,
              before.threads);
}
