/* SPDX-License-Identifier: Apache-2.0 */
/* transport_finish.c - the end in order: what is left is sent, and then both ends are closed. */
#include "tools/check/transport_tests.h"

static bool both_closed(void *arg)
{
    const struct bps_pair *pair = arg;
    return pair->dials.closed > 0 && pair->listens.closed > 0;
}

static void begin(struct bps_pair *pair, struct bps_side sides[2])
{
    static const uint32_t sizes[] = {8u << 20, 5, 0, (3u << 20) + 1, 70000};
    const struct bps_stream stream = {70, 10, 8u << 20, sizes, sizeof sizes / sizeof *sizes, 0};
    bps_pair_begin(pair, &sides[0], &sides[1], &stream);
    pair->dials.open_for = pair->listens.open_for = 0;
    pair->dials.may_close = pair->listens.may_close = true;
    bps_pair_connect(pair, 0);
}

static void finish_full(struct bps_end *end)
{
    end->open_for = UINT32_MAX;
    bps_end_kick(end);
    bps_end_finish(end);
}

static void finish_one(struct bps_side sides[2], bool dials)
{
    struct bps_pair pair;
    bps_check_at(sides[0].check, "finish with 10 frames left, at the end that has %s", dials ? "dialled" : "accepted");
    begin(&pair, sides);
    struct bps_end *end = dials ? &pair.dials : &pair.listens, *other = dials ? &pair.listens : &pair.dials;
    finish_full(end);
    bps_sides_wait(end->check, both_closed, &pair, &pair.dials, 2);
    bps_pair_check_closed(&pair);
    BPS_CHECK(end->check, end->handed == end->out.frames && end->sent == end->handed,
              "it is closed when `next` has given %u of %u frames, and `sent` was called for %u", end->handed,
              end->out.frames, end->sent);
    BPS_CHECK(end->check, other->received == end->out.frames, "%u of %u frames have come", other->received,
              end->out.frames);
    bps_pair_free(&pair);
}

static void kick_with_more(struct bps_end *end)
{
    end->open_for = UINT32_MAX;
    bps_end_kick(end);
}

/* What comes too late is not asked for: from within the first take, when its frame was the last one that there was. */
static void finish_and_kick(struct bps_side sides[2])
{
    static const uint32_t sizes[] = {5};
    struct bps_pair pair;
    bps_check_at(sides[0].check, "kick after finish");
    begin(&pair, sides);
    pair.dials.out.sizes = pair.listens.in.sizes = sizes;
    pair.dials.out.nsizes = pair.listens.in.nsizes = 1;
    pair.listens.act = (struct bps_act){BPS_CALL_TAKE, 1, kick_with_more, &pair.dials};
    pair.dials.open_for = 1;
    bps_end_kick(&pair.dials);
    bps_end_finish(&pair.dials);
    bps_sides_wait(sides[0].check, both_closed, &pair, &pair.dials, 2);
    bps_pair_check_closed(&pair);
    BPS_CHECK(sides[0].check, pair.listens.received == pair.dials.handed,
              "`next` has given %u frames, and %u have come: is it asked after its last BPS_AGAIN?", pair.dials.handed,
              pair.listens.received);
    bps_pair_free(&pair);
}

static void finish_both(struct bps_side sides[2])
{
    struct bps_pair pair;
    bps_check_at(sides[0].check, "finish of both ends, with 10 frames left at each");
    begin(&pair, sides);
    finish_full(&pair.dials);
    finish_full(&pair.listens);
    bps_end_finish(&pair.dials);
    bps_sides_wait(sides[0].check, both_closed, &pair, &pair.dials, 2);
    bps_pair_check_closed(&pair);
    bps_pair_free(&pair);
}

void bps_check_transport_left(struct bps_check *check)
{
    struct bps_side sides[2];
    bps_sides_open(check, sides);
    finish_one(sides, true);
    finish_one(sides, false);
    finish_both(sides);
    finish_and_kick(sides);
    bps_sides_close(sides);
}
