/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_acts.c - drop, finish and kick from within each callback, of the same channel, of its other end and of
 * another channel: the rest goes on.
 */
#include <stdio.h>
#include <string.h>

#include "tools/check/transport_tests.h"

struct what {
    const char *name;
    void (*fn)(struct bps_end *end);
};

/* Two channels. An end of the first one acts, of whom the victim is one of three. */
struct play {
    struct bps_side sides[2];
    struct bps_pair pairs[2];
};

static struct bps_end *victim_of(struct play *play, unsigned which, bool dials)
{
    struct bps_pair *pair = &play->pairs[which / 2];
    return (which == 1) != dials ? &pair->dials : &pair->listens;
}

static bool is_over(const struct bps_end *end)
{
    return end->closed > 0 || end->dropped;
}

/* Neither dropped nor finished, so that all has to come. */
static bool goes_on(const struct bps_end *end)
{
    return !end->dropped && !end->finished;
}

static bool pair_is_done(const struct bps_pair *pair)
{
    if (!goes_on(&pair->dials) || !goes_on(&pair->listens)) {
        return is_over(&pair->dials) && is_over(&pair->listens);
    }
    return bps_end_is_complete(&pair->dials) && bps_end_is_complete(&pair->listens);
}

static bool is_done(void *arg)
{
    const struct play *play = arg;
    return pair_is_done(&play->pairs[0]) && pair_is_done(&play->pairs[1]);
}

static void begin(struct play *play, enum bps_call call)
{
    static const uint32_t sizes[] = {7, 70000, 0, 300000, 3000, 1, 200000};
    const struct bps_stream stream = {60, 12, 300000, sizes, sizeof sizes / sizeof *sizes, 4};
    for (unsigned i = 0; i < 2; i++) {
        struct bps_end *ends[] = {&play->pairs[i].dials, &play->pairs[i].listens};
        bps_pair_begin(&play->pairs[i], &play->sides[0], &play->sides[1], &stream);
        for (unsigned j = 0; j < 2; j++) {
            ends[j]->taking = BPS_TAKING_MIXED;
            ends[j]->lending = call == BPS_CALL_LEND ? BPS_LENDING_MIXED : BPS_LENDING_NONE;
            ends[j]->opens = call == BPS_CALL_OPEN || call == BPS_CALL_PLACED;
        }
    }
}

/* All frames of an end that has finished have come, unless the other end has dropped the channel or finished, too. */
static void check_finished(const struct bps_end *end, const struct bps_end *other)
{
    if (!end->finished || end->dropped || !goes_on(other)) {
        return;
    }
    BPS_CHECK(end->check, !end->unasked, "closed without asking `next` for what was left to send, at %s", end->name);
    BPS_CHECK(end->check, other->received == end->handed,
              "of %u frames that next has given %u have come, at %s, when it was finished", end->handed,
              other->received, other->name);
}

static void end_pairs(struct play *play)
{
    for (unsigned i = 0; i < 2; i++) {
        struct bps_pair *pair = &play->pairs[i];
        check_finished(&pair->dials, &pair->listens);
        check_finished(&pair->listens, &pair->dials);
        bps_pairs_finish(pair, 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        bps_pair_free(&play->pairs[i]);
    }
}

static void act(struct play *play, bool dials, enum bps_call call, unsigned nth, const struct what *what,
                unsigned which)
{
    static const char *const victims[] = {"this end", "the other end", "an end of another channel"};
    struct bps_check *check = play->sides[0].check;
    begin(play, call);
    struct bps_end *actor = dials ? &play->pairs[0].dials : &play->pairs[0].listens;
    struct bps_end *victim = victim_of(play, which, dials);
    struct bps_pair *hit = &play->pairs[which / 2];
    actor->act = (struct bps_act){call, nth, what->fn, victim};
    hit->dials.may_close = hit->listens.may_close = true;
    bps_check_at(check, "%s of %s from within the %uth %s of the end that has %s", what->name, victims[which], nth,
                 bps_call_name(call), dials ? "dialled" : "accepted");
    bps_pair_connect(&play->pairs[1], 0);
    bps_pair_connect(&play->pairs[0], 0);
    bps_sides_wait(check, is_done, play, &play->pairs[0].dials, 4);
    end_pairs(play);
}

static void act_in_each(struct bps_check *check, const char *name, void (*fn)(struct bps_end *end))
{
    const struct what what = {name, fn};
    struct play play;
    bps_sides_open(check, play.sides);
    for (unsigned i = 0; i < 2 * BPS_CALLS; i++) {
        for (unsigned which = 0; which < 3; which++) {
            act(&play, i % 2 == 0, (enum bps_call)(i / 2), 1, &what, which);
            act(&play, i % 2 == 0, (enum bps_call)(i / 2), 3, &what, which);
        }
    }
    bps_sides_close(play.sides);
}

void bps_check_transport_drop(struct bps_check *check)
{
    act_in_each(check, "drop", bps_end_drop);
}

void bps_check_transport_finish(struct bps_check *check)
{
    act_in_each(check, "finish", bps_end_finish);
}

void bps_check_transport_kick(struct bps_check *check)
{
    act_in_each(check, "kick", bps_end_kick);
}
