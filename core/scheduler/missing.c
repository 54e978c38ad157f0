/* SPDX-License-Identifier: Apache-2.0 */
/* missing.c - who has not come yet, in words for people: how many, which ranks, and from which hosts. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "scheduler/roster.h"

#define ITEM 102u /* room for the longest item of a list, and for what comes after it */

/* What is known of a rank. */
struct place {
    const struct bps_seat *seat;      /* NULL: it is missing */
    const struct bps_seat *neighbour; /* of the host from which it would come; NULL: unknown */
};

static bool absent_same_host(const struct bps_seat *a, const struct bps_seat *b)
{
    return a == b || (a != NULL && b != NULL && a->join.host_id == b->join.host_id);
}

/*
 * Launchers give the ranks of a host one after the other, so that a worker which knows its place there tells where the
 * ranks around it come from; unless some of those have come from elsewhere.
 */
static void absent_look_around(const struct bps_seat *seat, struct place *places, uint32_t n)
{
    const struct bps_join *join = &seat->join;
    if (join->local_rank < 0 || join->local_size < 0 || seat->rank < (uint32_t)join->local_rank) {
        return;
    }
    uint32_t first = seat->rank - (uint32_t)join->local_rank;
    uint32_t end = (uint32_t)join->local_size < n - first ? first + (uint32_t)join->local_size : n;
    if (places[first].neighbour != NULL) {
        return; /* a worker before has done so */
    }
    for (uint32_t rank = first; rank < end; rank++) {
        if (places[rank].seat != NULL && !absent_same_host(places[rank].seat, seat)) {
            return;
        }
    }
    for (uint32_t rank = first; rank < end; rank++) {
        places[rank].neighbour = seat;
    }
}

/* Fills in the places of a role; each pass over the seats is one over thousands. */
static void survey(const struct bps_roster *roster, uint32_t role, struct place *places, uint32_t n)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        if (seat->join.role == role && seat->rank < n && !seat->left) {
            places[seat->rank].seat = seat;
        }
    }
    for (uint32_t rank = 0; rank < n && role == BPS_ROLE_WORKER; rank++) {
        if (places[rank].seat != NULL) {
            absent_look_around(places[rank].seat, places, n);
        }
    }
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

/* "5", "5-6" or "5-6 on c3". */
static void add_run(uint32_t first, uint32_t last, const struct bps_seat *host, struct bps_text *text)
{
    bps_text_add(text, "%u", first);
    if (last > first) {
        bps_text_add(text, "-%u", last);
    }
    if (host != NULL) {
        bps_text_add(text, " on %s", host->join.host);
    }
}

/* Those that follow each other and are of one host make one item. */
static void add_ranks(const struct place *places, uint32_t count, struct bps_text *text)
{
    const char *joint = "";
    for (uint32_t rank = 0; rank < count; rank++) {
        if (places[rank].seat != NULL) {
            continue;
        }
        bps_text_add(text, "%s", joint);
        joint = ", ";
        if (text->length + ITEM > text->room) {
            bps_text_add(text, "...");
            return;
        }
        const struct bps_seat *host = places[rank].neighbour;
        uint32_t last = rank;
        while (last + 1 < count && places[last + 1].seat == NULL &&
               absent_same_host(host, places[last + 1].neighbour)) {
            last++;
        }
        add_run(rank, last, host, text);
        rank = last;
    }
}

static void add_missing(const struct bps_roster *roster, uint32_t role, uint32_t missing, struct bps_text *text)
{
    uint32_t count = bps_roster_wanted(roster, role);
    struct place *places = calloc(count, sizeof *places);
    if (places == NULL) {
        return; /* how many are missing has been said */
    }
    survey(roster, role, places, count);
    bps_text_add(text, " (rank%s ", missing > 1 ? "s" : "");
    add_ranks(places, count, text);
    bps_text_add(text, ")");
    free(places);
}

static void add_role(const struct bps_roster *roster, uint32_t role, struct bps_text *text)
{
    uint32_t limit = bps_roster_wanted(roster, role), here = bps_roster_count(roster, role);
    if (here >= limit) {
        return;
    }
    bps_text_add(text, "%u of %u %ss", limit - here, limit, bps_role_name(role));
    if (have_chosen(roster, role)) {
        add_missing(roster, role, limit - here, text);
    }
}

void bps_roster_missing(const struct bps_roster *roster, char *text, size_t n)
{
    char workers[256], servers[256];
    struct bps_text a = bps_text_in(workers, sizeof workers), b = bps_text_in(servers, sizeof servers);
    add_role(roster, BPS_ROLE_WORKER, &a);
    add_role(roster, BPS_ROLE_SERVER, &b);
    snprintf(text, n, "%s%s%s", workers, a.length > 0 && b.length > 0 ? " and " : "", servers);
}
