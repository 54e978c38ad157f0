/* SPDX-License-Identifier: Apache-2.0 */
/* transport_frames.c - frames of all sizes come as they were sent, in both directions and over several channels. */
#include <string.h>

#include "tools/check/transport_tests.h"

/* ---- all sizes ---- */

static void run_sizes(struct bps_check *check, const struct bps_stream *stream, const char *which)
{
    struct bps_side sides[2];
    struct bps_pair pair;
    bps_sides_open(check, sides);
    bps_pair_begin(&pair, &sides[0], &sides[1], stream);
    bps_check_at(check, "%s in both directions", which);
    bps_pair_connect(&pair, 0);
    bps_pairs_wait(&pair, 1);
    bps_check_at(check, "finish");
    bps_pairs_finish(&pair, 1);
    bps_pair_free(&pair);
    bps_sides_close(sides);
}

void bps_check_transport_sizes(struct bps_check *check)
{
    static const uint32_t small[] = {0, 1, 15, 16, 63, 64, 65, 255, 4095, 4096, 4097, 16384, 65537, 1 << 20};
    static const uint32_t large[] = {64u << 20, 1, (64u << 20) - 1};
    enum { SMALL = sizeof small / sizeof *small, LARGE = sizeof large / sizeof *large };
    run_sizes(check, &(struct bps_stream){1, 3 * SMALL, 1 << 20, small, SMALL, 0}, "frames of 0 bytes to 1 MiB");
    run_sizes(check, &(struct bps_stream){2, LARGE, 64u << 20, large, LARGE, 0}, "frames of 64 MiB");
}

/* ---- several channels ---- */

void bps_check_transport_many(struct bps_check *check)
{
    enum { CHANNELS = 6, FRAMES = 60 };
    struct bps_side sides[2];
    struct bps_pair pairs[CHANNELS];
    bps_sides_open(check, sides);
    for (unsigned i = 0; i < CHANNELS; i++) {
        const struct bps_stream stream = {i + 10, FRAMES, 100000, NULL, 0, 0};
        bool back = i % 3 == 2;
        bps_check_at(check, "connecting channel %u", i);
        bps_pair_begin(&pairs[i], &sides[0], &sides[1], &stream);
        pairs[i].dials.taking = pairs[i].listens.taking = i % 2 == 0 ? BPS_TAKING_MIXED : BPS_TAKING_TAKEN;
        pairs[i].dials.again = pairs[i].listens.again = back;
        bps_pair_connect(&pairs[i], i % sides[0].attr.lanes);
    }
    bps_check_at(check, "%d frames in both directions of %d channels", FRAMES, CHANNELS);
    bps_pairs_wait(pairs, CHANNELS);
    bps_check_at(check, "finish of %d channels", CHANNELS);
    bps_pairs_finish(pairs, CHANNELS);
    for (unsigned i = 0; i < CHANNELS; i++) {
        bps_pair_free(&pairs[i]);
    }
    bps_sides_close(sides);
}

/* ---- with a key ---- */

void bps_check_transport_key(struct bps_check *check)
{
    const struct bps_stream stream = {20, 30, 30000, NULL, 0, 0};
    struct bps_guarded memory = bps_guarded_new(check, "a key", sizeof(struct bps_channel_key), BPS_GUARDED_BACK);
    struct bps_channel_key key;
    struct bps_side sides[2];
    struct bps_pair pair;
    memset(&key, 0x42, sizeof key);
    memcpy(memory.at, &key, sizeof key);
    bps_sides_open(check, sides);
    sides[0].key = (const struct bps_channel_key *)memory.at;
    sides[1].key = &key;
    bps_pair_begin(&pair, &sides[0], &sides[1], &stream);
    bps_check_at(check, "a channel with a key");
    sides[1].next = &pair.listens;
    bps_end_dial(&pair.dials, sides[1].address, 0);
    bps_guarded_forbid(&memory); /* it is there during dial */
    bps_pairs_wait(&pair, 1);
    bps_pairs_finish(&pair, 1);
    bps_pair_free(&pair);
    bps_sides_close(sides);
    bps_guarded_free(&memory);
}
