/* SPDX-License-Identifier: Apache-2.0 */
/* transport_pair.c - channels between two sides of one process: both ends begin, do what is theirs, and end. */
#include <stdio.h>

#include "tools/check/transport.h"

struct pairs {
    struct bps_pair *pairs;
    unsigned count;
};

void bps_pair_begin(struct bps_pair *pair, struct bps_side *dials, struct bps_side *listens,
                    const struct bps_stream *stream)
{
    *pair = (struct bps_pair){
        .dials = {.side = dials, .name = "the end that has dialled", .out = *stream, .in = *stream},
        .listens = {.side = listens, .name = "the end that has accepted", .out = *stream, .in = *stream},
    };
    pair->listens.out.seed = pair->dials.in.seed = stream->seed + 1000;
    bps_end_begin(&pair->dials);
    bps_end_begin(&pair->listens);
}

void bps_pair_free(struct bps_pair *pair)
{
    bps_end_free(&pair->dials);
    bps_end_free(&pair->listens);
}

static bool is_over(const struct bps_end *end)
{
    return end->closed > 0 || end->dropped;
}

static bool are_connected(void *arg)
{
    const struct bps_pair *pair = arg;
    return (pair->dials.connected || is_over(&pair->dials)) && (pair->listens.connected || is_over(&pair->dials));
}

void bps_pair_connect(struct bps_pair *pair, uint32_t lane)
{
    pair->listens.side->next = &pair->listens;
    bps_end_dial(&pair->dials, pair->listens.side->address, lane);
    bps_sides_wait(pair->dials.check, are_connected, pair, &pair->dials, 1);
}

static bool are_complete(void *arg)
{
    const struct pairs *pairs = arg;
    for (unsigned i = 0; i < pairs->count; i++) {
        if (!bps_end_is_complete(&pairs->pairs[i].dials) || !bps_end_is_complete(&pairs->pairs[i].listens)) {
            return false;
        }
    }
    return true;
}

static bool are_over(void *arg)
{
    const struct pairs *pairs = arg;
    for (unsigned i = 0; i < pairs->count; i++) {
        if (!is_over(&pairs->pairs[i].dials) || !is_over(&pairs->pairs[i].listens)) {
            return false;
        }
    }
    return true;
}

void bps_pairs_wait(struct bps_pair *pairs, unsigned count)
{
    struct pairs all = {pairs, count};
    bps_sides_wait(pairs->dials.check, are_complete, &all, &pairs->dials, 2 * count);
}

/* `other` may be closed before this one, if it was finished, too. */
static void check_closed(const struct bps_end *end, const struct bps_end *other)
{
    bps_status expected = end->finished ? BPS_OK : BPS_ERR_IO;
    if (end->closed == 0 || end->dropped || other->dropped || (!end->finished && !other->finished)) {
        return;
    }
    bool second = end->finished && other->finished && end->status == BPS_ERR_IO;
    BPS_CHECK(end->check, end->status == expected || second,
              "closed is called with %d (%s) and '%s'; expected %d (%s), as %s was finished, at %s", end->status,
              bps_strerror(end->status), end->text, expected, bps_strerror(expected),
              end->finished ? "this end" : "the other end", end->name);
}

void bps_pair_check_closed(const struct bps_pair *pair)
{
    check_closed(&pair->dials, &pair->listens);
    check_closed(&pair->listens, &pair->dials);
}

/* Now the one end begins, now the other. */
void bps_pairs_finish(struct bps_pair *pairs, unsigned count)
{
    struct pairs all = {pairs, count};
    for (unsigned i = 0; i < count; i++) {
        pairs[i].dials.may_close = pairs[i].listens.may_close = true;
        bps_end_finish(i % 2 == 0 ? &pairs[i].dials : &pairs[i].listens);
    }
    bps_sides_wait(pairs->dials.check, are_over, &all, &pairs->dials, 2 * count);
    for (unsigned i = 0; i < count; i++) {
        bps_pair_check_closed(&pairs[i]);
    }
}
