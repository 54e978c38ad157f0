/* SPDX-License-Identifier: Apache-2.0 */
/* transport_sinks.c - payloads get to where their receiver wants them: taken, placed, opened, lent with an answer. */
#include "tools/check/transport_tests.h"

struct way {
    const char *name;
    enum bps_taking taking;
    enum bps_lending lending;
    bool opens, attached;
};

static void set_way(struct bps_end *end, const struct way *way)
{
    end->taking = way->taking;
    end->lending = way->lending;
    end->opens = way->opens;
    if (way->attached) {
        bps_end_attach(end);
    }
}

static void run_way(struct bps_check *check, const struct way *way, uint32_t seed)
{
    const struct bps_stream stream = {seed, 60, 300000, NULL, 0, way->lending != BPS_LENDING_NONE ? 4 : 0};
    struct bps_side sides[2];
    struct bps_pair pair;
    bps_sides_open(check, sides);
    bps_check_at(check, "payloads are %s", way->name);
    bps_pair_begin(&pair, &sides[0], &sides[1], &stream);
    set_way(&pair.dials, way);
    set_way(&pair.listens, way);
    bps_pair_connect(&pair, 0);
    bps_pairs_wait(&pair, 1);
    BPS_CHECK(check, pair.dials.lent == pair.listens.answered && pair.listens.lent == pair.dials.answered,
              "%u loans were returned with an answer, and %u have come back", pair.dials.lent + pair.listens.lent,
              pair.dials.answered + pair.listens.answered);
    if (way->lending == BPS_LENDING_MIXED || way->opens) {
        bps_check_note(check, "%s: %u lent, %u opened", way->name, pair.dials.lent + pair.listens.lent,
                       pair.dials.opened + pair.listens.opened);
    }
    bps_pairs_finish(&pair, 1);
    bps_pair_free(&pair);
    bps_sides_close(sides);
}

void bps_check_transport_sinks(struct bps_check *check)
{
    static const struct way ways[] = {
        {"placed", BPS_TAKING_PLACED, BPS_LENDING_NONE, false, false},
        {"taken", BPS_TAKING_TAKEN, BPS_LENDING_NONE, false, false},
        {"placed in part, and taken by elements", BPS_TAKING_MIXED, BPS_LENDING_NONE, false, false},
    };
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        run_way(check, &ways[i], 40 + i);
    }
}

void bps_check_transport_loans(struct bps_check *check)
{
    static const struct way ways[] = {
        {"opened", BPS_TAKING_PLACED, BPS_LENDING_NONE, true, false},
        {"opened now and then", BPS_TAKING_MIXED, BPS_LENDING_NONE, true, false},
        {"refused as loans", BPS_TAKING_MIXED, BPS_LENDING_REFUSED, false, false},
        {"kept as loans", BPS_TAKING_MIXED, BPS_LENDING_MIXED, false, false},
        {"kept as loans or opened", BPS_TAKING_MIXED, BPS_LENDING_MIXED, true, false},
        {"in regions, and kept as loans or opened", BPS_TAKING_MIXED, BPS_LENDING_MIXED, true, true},
        {"in regions", BPS_TAKING_PLACED, BPS_LENDING_NONE, false, true},
    };
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        run_way(check, &ways[i], 50 + i);
    }
}
