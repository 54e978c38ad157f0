/* SPDX-License-Identifier: Apache-2.0 */
/* transport_random.c - random operations on several channels, which know nothing of each other. */
#include "tools/check/transport_tests.h"
#include "tools/check/values.h"

enum { CHANNELS = 5, OPERATIONS = 3000 };

struct play {
    struct bps_side sides[2];
    struct bps_pair pairs[CHANNELS];
    bool begun[CHANNELS];
    uint64_t random;
    unsigned turns;
};

static unsigned draw(struct play *play, unsigned most)
{
    return (unsigned)(bps_check_random(&play->random) % most);
}

static bool is_over(const struct bps_end *end)
{
    return end->closed > 0 || end->dropped;
}

static bool some_turns(void *arg)
{
    struct play *play = arg;
    return play->turns-- <= 1;
}

static void turn(struct play *play, unsigned turns)
{
    play->turns = turns;
    bps_sides_drive(play->sides[0].check, some_turns, play, 1000);
}

static void begin(struct play *play, unsigned which)
{
    const struct bps_stream stream = {1000 + (uint32_t)draw(play, 1 << 30), 1000000, 100000, NULL, 0, draw(play, 5)};
    struct bps_pair *pair = &play->pairs[which];
    struct bps_end *ends[] = {&pair->dials, &pair->listens};
    bps_pair_begin(pair, &play->sides[0], &play->sides[1], &stream);
    for (unsigned i = 0; i < 2; i++) {
        ends[i]->taking = (enum bps_taking)draw(play, 3);
        ends[i]->lending = (enum bps_lending)draw(play, 3);
        ends[i]->opens = draw(play, 2) == 0;
        ends[i]->again = draw(play, 2) == 0;
        ends[i]->slots = 1 + draw(play, BPS_END_SLOTS);
        ends[i]->open_for = draw(play, 4);
    }
    bps_pair_connect(pair, 0);
    play->begun[which] = true;
}

/* One that has been finished sends all that it was given, unless its other end was dropped or finished, too. */
static void check_left(const struct bps_end *end, const struct bps_end *other)
{
    BPS_CHECK(end->check,
              !end->finished || end->dropped || other->dropped || other->finished || other->received == end->handed,
              "of %u frames that next has given %u have come, at %s (%s), when the other end was finished (%s)",
              end->handed, other->received, other->name, other->text, end->text);
}

static void end(struct play *play, unsigned which)
{
    struct bps_pair *pair = &play->pairs[which];
    check_left(&pair->dials, &pair->listens);
    check_left(&pair->listens, &pair->dials);
    bps_pair_check_closed(pair);
    bps_pair_free(pair);
    play->begun[which] = false;
}

static void operate(struct play *play, struct bps_pair *pair)
{
    struct bps_end *one = draw(play, 2) == 0 ? &pair->dials : &pair->listens;
    unsigned what = draw(play, 40);
    if (what < 2) {
        pair->dials.may_close = pair->listens.may_close = true;
        (what == 0 ? bps_end_drop : bps_end_finish)(one);
    } else if (what < 30) {
        one->open_for += draw(play, 6);
        bps_end_kick(one);
    } else {
        turn(play, 1 + draw(play, 8));
    }
}

static void operate_many(struct play *play)
{
    for (unsigned i = 0; i < OPERATIONS; i++) {
        unsigned which = draw(play, CHANNELS);
        bps_check_at(play->sides[0].check, "operation %u of %d", i + 1, OPERATIONS);
        if (!play->begun[which]) {
            begin(play, which);
        } else if (is_over(&play->pairs[which].dials) && is_over(&play->pairs[which].listens)) {
            end(play, which);
        } else {
            operate(play, &play->pairs[which]);
        }
    }
}

static void end_all(struct play *play)
{
    for (unsigned i = 0; i < CHANNELS; i++) {
        if (play->begun[i]) {
            bps_pairs_finish(&play->pairs[i], 1);
            end(play, i);
        }
    }
}

void bps_check_transport_random(struct bps_check *check)
{
    static struct play all = {.random = 1};
    struct play *play = &all;
    bps_sides_open(check, play->sides);
    operate_many(play);
    bps_check_at(check, "the end of all channels after %d operations", OPERATIONS);
    end_all(play);
    bps_sides_close(play->sides);
}
