/* SPDX-License-Identifier: Apache-2.0 */
/* hosting.c - which members serve, and what share of the bytes each of them gets. */
#include <math.h>
#include <stdlib.h>

#include "scheduler/roster.h"
#include "scheduler/weigh.h"

static bool hosting_choice_same_host(const struct bps_seat *a, const struct bps_seat *b)
{
    return a->join.host_id == b->join.host_id;
}

/* The first seat of this role on its host. */
static bool is_first(const struct bps_roster *roster, const struct bps_seat *seat)
{
    const struct bps_seat *other;
    TAILQ_FOREACH(other, &roster->seats, entry) {
        if (other->join.role == seat->join.role && other->rank < seat->rank && hosting_choice_same_host(other, seat)) {
            return false;
        }
    }
    return true;
}

static bool has_neighbour(const struct bps_roster *roster, const struct bps_seat *seat, uint32_t role)
{
    const struct bps_seat *other;
    TAILQ_FOREACH(other, &roster->seats, entry) {
        if (other->join.role == role && hosting_choice_same_host(other, seat)) {
            return true;
        }
    }
    return false;
}

/* ---- bandwidths ---- */

/*
 * What the configuration says, where it says something of any host; else what all network devices say; else they are
 * thought to be equal.
 */
static void hosting_choice_set_bandwidths(struct bps_roster *roster)
{
    struct bps_seat *seat;
    bool known = true;
    roster->told = false;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        roster->told |= seat->join.bandwidth > 0;
        known &= seat->join.speed > 0;
    }
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        double configured = seat->join.bandwidth > 0 ? seat->join.bandwidth / 1000.0 : 1;
        seat->bandwidth = roster->told ? configured : known ? seat->join.speed : 1;
    }
}

/* ---- the hosts of the members ---- */

struct hosts {
    uint32_t count;
    struct bps_share *share;
    const struct bps_seat **first; /* some seat on each */
};

static void hosts_fini(struct hosts *hosts)
{
    free(hosts->share);
    free(hosts->first);
}

static bps_status hosts_init(struct hosts *hosts, uint32_t seats)
{
    *hosts = (struct hosts){
        .share = calloc(seats, sizeof *hosts->share),
        .first = calloc(seats, sizeof *hosts->first),
    };
    if (hosts->share == NULL || hosts->first == NULL) {
        hosts_fini(hosts);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

static uint32_t hosting_choice_host_of(const struct hosts *hosts, const struct bps_seat *seat)
{
    uint32_t i = 0;
    while (i < hosts->count && !hosting_choice_same_host(hosts->first[i], seat)) {
        i++;
    }
    return i;
}

/* The host of a seat, which sends so many contributions more. */
static void add_seat(struct hosts *hosts, const struct bps_seat *seat, bool sends)
{
    uint32_t i = hosting_choice_host_of(hosts, seat);
    if (i == hosts->count) {
        hosts->first[hosts->count++] = seat;
    }
    struct bps_share *share = &hosts->share[i];
    share->senders += sends;
    share->bandwidth = fmax(share->bandwidth, seat->bandwidth);
}

/* ---- who serves ---- */

/* cluster.colocated, "auto" resolved for the hosts that the members are on, of which each sends one sum. */
static bps_status resolve(const struct bps_roster *roster, uint32_t *colocated)
{
    const struct bps_seat *seat;
    struct hosts hosts;
    uint32_t seats = bps_roster_count(roster, BPS_ROLE_WORKER) + bps_roster_count(roster, BPS_ROLE_SERVER);
    bps_status status = hosts_init(&hosts, seats);
    if (status != BPS_OK) {
        return status;
    }
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        add_seat(&hosts, seat, seat->join.role == BPS_ROLE_WORKER && is_first(roster, seat));
    }
    *colocated = bps_share_colocated(roster->colocated, hosts.share, hosts.count, roster->servers);
    hosts_fini(&hosts);
    return BPS_OK;
}

bps_status bps_roster_host(struct bps_roster *roster)
{
    uint32_t colocated;
    struct bps_seat *seat;
    hosting_choice_set_bandwidths(roster);
    bps_status status = resolve(roster, &colocated);
    if (status != BPS_OK) {
        return status;
    }
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        bool worker = seat->join.role == BPS_ROLE_WORKER;
        seat->serves = !worker || colocated == BPS_COLOCATED_ALL ||
                       (colocated == BPS_COLOCATED_FIRST && seat->rank == 0) ||
                       (colocated == BPS_COLOCATED_HOSTS && is_first(roster, seat) &&
                        !has_neighbour(roster, seat, BPS_ROLE_SERVER));
    }
    return BPS_OK;
}

/* ---- shares ---- */

bps_status bps_roster_weigh(const struct bps_roster *roster, struct bps_book *book)
{
    const struct bps_seat *seat;
    struct bps_hosts hosts;
    bps_status status = bps_hosts_init(&hosts, book);
    if (status != BPS_OK) {
        return status;
    }
    for (uint32_t h = 0; h < hosts.count; h++) {
        hosts.share[h].bandwidth = 0;
    }
    for (uint32_t member = 0; member < book->members; member++) {
        struct bps_share *share = &hosts.share[hosts.of[member]];
        seat = bps_roster_seat(roster, member);
        share->bandwidth = fmax(share->bandwidth, seat != NULL ? seat->bandwidth : 0);
    }
    for (uint32_t h = 0; h < hosts.count; h++) { /* all of some may be gone */
        hosts.share[h].bandwidth = hosts.share[h].bandwidth > 0 ? hosts.share[h].bandwidth : 1;
    }
    bps_share_set(hosts.share, hosts.count);
    status = bps_hosts_weigh(&hosts, book);
    bps_hosts_fini(&hosts);
    return status;
}

bps_status bps_roster_reweigh(struct bps_roster *roster, struct bps_book *book)
{
    hosting_choice_set_bandwidths(roster);
    return bps_roster_weigh(roster, book);
}
