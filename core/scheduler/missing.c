/* SPDX-License-Identifier: Apache-2.0 */
/* missing.c - who has not come yet, in words for people: how many, which ranks, and from which hosts. */
#include <stdio.h>

#include "scheduler/roster.h"

/* Room for the longest item of a list, and for its end. */
#define ITEM 100u
#define END  6u

/* Whether the workers of these ranks that are here are all of one host. */
static bool is_of_one_host(const struct bps_roster *roster, uint32_t first, uint32_t count, uint64_t host)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        bool inside = seat->join.role == BPS_ROLE_WORKER && seat->rank >= first && seat->rank - first < count;
        if (inside && seat->join.host_id != host) {
            return false;
        }
    }
    return true;
}

/*
 * A worker of the host from which a missing one would come: launchers give the ranks of a host one after the other.
 * NULL: nobody has come from there, or they do not.
 */
static const struct bps_seat *neighbour(const struct bps_roster *roster, uint32_t role, uint32_t rank)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        uint32_t place = (uint32_t)seat->join.local_rank, count = (uint32_t)seat->join.local_size;
        if (role != BPS_ROLE_WORKER || seat->join.role != role || seat->join.local_rank < 0 || seat->rank < place) {
            continue;
        }
        uint32_t first = seat->rank - place;
        if (rank >= first && rank - first < count && is_of_one_host(roster, first, count, seat->join.host_id)) {
            return seat;
        }
    }
    return NULL;
}

static bool same_host(const struct bps_seat *a, const struct bps_seat *b)
{
    return a == b || (a != NULL && b != NULL && a->join.host_id == b->join.host_id);
}

/* The missing ranks from this one on that follow each other and are of one host; at least itself. */
static uint32_t run_of(const struct bps_roster *roster, uint32_t role, uint32_t rank, const struct bps_seat *host)
{
    uint32_t end = rank + 1, limit = bps_roster_wanted(roster, role);
    while (end < limit && bps_roster_holder(roster, role, end) == NULL &&
           same_host(host, neighbour(roster, role, end))) {
        end++;
    }
    return end - rank;
}

/* Ranks can be told only where all that are here have chosen theirs. */
static bool have_chosen(const struct bps_roster *roster, uint32_t role)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        if (seat->join.role == role && seat->rank == BPS_NO_RANK) {
            return false;
        }
    }
    return bps_roster_count(roster, role) > 0;
}

/* Writes "5", "5, " or "5-6 on c3". */
static size_t write_run(uint32_t rank, uint32_t count, const struct bps_seat *host, bool first, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, "%s%u", first ? "" : ", ", rank);
    if (count > 1) {
        at += (size_t)snprintf(text + at, n - at, "-%u", rank + count - 1);
    }
    if (host != NULL) {
        at += (size_t)snprintf(text + at, n - at, " on %s", host->join.host);
    }
    return at;
}

static size_t write_ranks(const struct bps_roster *roster, uint32_t role, uint32_t missing, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, " (rank%s ", missing > 1 ? "s" : "");
    bool first = true;
    for (uint32_t rank = 0; rank < bps_roster_wanted(roster, role); rank++) {
        if (bps_roster_holder(roster, role, rank) != NULL) {
            continue;
        }
        if (at + ITEM + END > n) {
            at += (size_t)snprintf(text + at, n - at, ", ...");
            break;
        }
        const struct bps_seat *host = neighbour(roster, role, rank);
        uint32_t count = run_of(roster, role, rank, host);
        at += write_run(rank, count, host, first, text + at, n - at);
        rank += count - 1;
        first = false;
    }
    return at + (size_t)snprintf(text + at, n - at, ")");
}

static size_t missing_role(const struct bps_roster *roster, uint32_t role, char *text, size_t n)
{
    uint32_t limit = bps_roster_wanted(roster, role), here = bps_roster_count(roster, role);
    if (here >= limit) {
        return 0;
    }
    size_t at = (size_t)snprintf(text, n, "%u of %u %ss", limit - here, limit, bps_role_name(role));
    return have_chosen(roster, role) ? at + write_ranks(roster, role, limit - here, text + at, n - at) : at;
}

void bps_roster_missing(const struct bps_roster *roster, char *text, size_t n)
{
    char workers[256] = "", servers[256] = "";
    size_t a = missing_role(roster, BPS_ROLE_WORKER, workers, sizeof workers);
    size_t b = missing_role(roster, BPS_ROLE_SERVER, servers, sizeof servers);
    snprintf(text, n, "%s%s%s", workers, a > 0 && b > 0 ? " and " : "", servers);
}
