/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.c - seats of a job whose members come and go: who is waited for at a reform, and which rank survivors get. */
#include "base/assert.h"
#include "scheduler/roster.h"

void bps_roster_be_elastic(struct bps_roster *roster, uint32_t least, uint32_t most)
{
    bps_assert(least > 0 && least <= roster->workers);
    roster->elastic = (struct bps_elastic){
        .least = least, .most = most > roster->workers ? most : roster->workers, .servers = roster->servers};
}

static uint32_t newcomers(const struct bps_roster *roster, uint32_t role)
{
    uint32_t n = 0;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        n += seat->early && seat->join.before < 0 && seat->join.role == role;
    }
    return n;
}

uint32_t bps_roster_waiting(const struct bps_roster *roster)
{
    uint32_t n = newcomers(roster, BPS_ROLE_WORKER) + newcomers(roster, BPS_ROLE_SERVER);
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        n += seat->reforms;
    }
    return n;
}

static bool survives(const struct bps_seat *seat)
{
    return seat->join.role == BPS_ROLE_WORKER && seat->join.before >= 0 && !seat->left;
}

uint32_t bps_roster_survivors(const struct bps_roster *roster)
{
    uint32_t n = 0;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        n += survives(seat);
    }
    return n;
}

/* So many workers, if there is room for them. */
static void want(struct bps_roster *roster, uint32_t workers)
{
    const struct bps_elastic *e = &roster->elastic;
    roster->workers = workers < e->least ? e->least : workers > e->most ? e->most : workers;
}

/* Those that are there; but somebody must sum. */
static void want_servers(struct bps_roster *roster)
{
    uint32_t n = bps_roster_count(roster, BPS_ROLE_SERVER);
    roster->servers = n == 0 && roster->colocated == BPS_COLOCATED_NONE ? 1 : n;
}

bool bps_roster_reform(struct bps_roster *roster, uint32_t departed)
{
    struct bps_elastic *e = &roster->elastic;
    e->reforms = e->returning > 0;
    want(roster, (e->reforms ? e->returning : departed) + newcomers(roster, BPS_ROLE_WORKER));
    bps_roster_renew(roster);
    want_servers(roster);
    e->returning = 0;
    return e->reforms;
}

void bps_roster_make_room(struct bps_roster *roster, const struct bps_seat *seat)
{
    if (roster->elastic.reforms && seat->join.role == BPS_ROLE_SERVER) {
        want_servers(roster);
    } else if (roster->elastic.reforms && seat->join.before < 0) {
        want(roster, roster->workers + 1);
    }
}

void bps_roster_expect_less(struct bps_roster *roster, uint32_t role)
{
    if (roster->elastic.reforms && role == BPS_ROLE_WORKER) {
        want(roster, roster->workers - 1);
    } else if (roster->elastic.reforms) {
        want_servers(roster);
    }
}

bool bps_roster_has_waited(const struct bps_roster *roster)
{
    bool any = false;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        any |= seat->join.before == BPS_JOINS_AGAIN;
    }
    return any;
}

bool bps_roster_settle(struct bps_roster *roster)
{
    uint32_t workers = bps_roster_count(roster, BPS_ROLE_WORKER);
    bool enough = roster->elastic.most > 0 && workers >= roster->elastic.least && workers < roster->workers &&
                  bps_roster_count(roster, BPS_ROLE_SERVER) == roster->servers;
    roster->workers = enough ? workers : roster->workers;
    return enough;
}

/* They have the first ranks, in the order of those that they had; newcomers may have asked for them earlier. */
static void survivors_come_first(struct bps_roster *roster)
{
    struct bps_seat *seat;
    const struct bps_seat *other;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        seat->rank = seat->join.role == BPS_ROLE_WORKER && !seat->left ? BPS_NO_RANK : seat->rank;
    }
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        bool free = survives(seat);
        TAILQ_FOREACH(other, &roster->seats, entry) {
            free &= !survives(other) || other->rank != (uint32_t)seat->join.before;
        }
        seat->rank = free ? (uint32_t)seat->join.before : seat->rank;
    }
}

/* Whether somebody has come that had another rank before, or one that there is not. */
static bool has_gaps(const struct bps_roster *roster, uint32_t role)
{
    bool gaps = roster->elastic.reforms;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        uint32_t wanted = bps_roster_wanted(roster, seat->join.role);
        gaps |= seat->join.role == role && (survives(seat) || (seat->rank != BPS_NO_RANK && seat->rank >= wanted));
    }
    return gaps && (roster->elastic.most > 0 || role == BPS_ROLE_SERVER);
}

static void close_gaps(struct bps_roster *roster, uint32_t role)
{
    uint32_t next = 0, lowest = 0;
    while (lowest != BPS_NO_RANK) {
        struct bps_seat *seat, *first = NULL;
        lowest = BPS_NO_RANK;
        TAILQ_FOREACH(seat, &roster->seats, entry) {
            if (seat->join.role == role && !seat->left && seat->rank >= next && seat->rank < lowest) {
                lowest = seat->rank;
                first = seat;
            }
        }
        if (first != NULL) {
            first->rank = next++;
        }
    }
}

void bps_roster_close_gaps(struct bps_roster *roster)
{
    if (roster->elastic.most > 0 && bps_roster_survivors(roster) > 0) {
        survivors_come_first(roster);
    }
    for (uint32_t role = BPS_ROLE_WORKER; role <= BPS_ROLE_SERVER; role++) {
        if (has_gaps(roster, role)) {
            close_gaps(roster, role);
        }
    }
}
