/* SPDX-License-Identifier: Apache-2.0 */
/* roster.c - seats of a job: who may take one, and which rank it gets. */
#include "scheduler/roster.h"

#include <stdlib.h>
#include <string.h>

#include "base/report.h"

void bps_roster_init(struct bps_roster *roster, uint32_t workers, uint32_t servers, uint32_t colocated)
{
    *roster = (struct bps_roster){.workers = workers, .servers = servers, .colocated = colocated};
    TAILQ_INIT(&roster->seats);
}

void bps_roster_fini(struct bps_roster *roster)
{
    while (!TAILQ_EMPTY(&roster->seats)) {
        struct bps_seat *seat = TAILQ_FIRST(&roster->seats);
        bps_link_drop(&seat->guest->link);
        bps_roster_remove(roster, seat);
    }
}

uint32_t bps_roster_wanted(const struct bps_roster *roster, uint32_t role)
{
    return role == BPS_ROLE_WORKER ? roster->workers : roster->servers;
}

const char *bps_role_name(uint32_t role)
{
    return role == BPS_ROLE_WORKER ? "worker" : "server";
}

/* Seats of a role; those of the next generation and those of workers that have left count if so said. */
static uint32_t roster_count(const struct bps_roster *roster, uint32_t role, bool early, bool left)
{
    uint32_t n = 0;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        n += seat->join.role == role && (early || !seat->early) && (left || !seat->left);
    }
    return n;
}

uint32_t bps_roster_count(const struct bps_roster *roster, uint32_t role)
{
    return roster_count(roster, role, false, true);
}

uint32_t bps_roster_staying(const struct bps_roster *roster)
{
    return roster_count(roster, BPS_ROLE_WORKER, false, false);
}

bool bps_roster_complete(const struct bps_roster *roster)
{
    return bps_roster_count(roster, BPS_ROLE_WORKER) == roster->workers &&
           bps_roster_count(roster, BPS_ROLE_SERVER) == roster->servers;
}

void bps_seat_text(const struct bps_seat *seat, char *text, size_t n)
{
    const struct bps_join *join = &seat->join;
    if (seat->rank == BPS_NO_RANK) {
        snprintf(text, n, "%s (host %s, pid %u)", bps_role_name(join->role), join->host, join->pid);
    } else {
        snprintf(text, n, "%s %u (host %s, pid %u)", bps_role_name(join->role), seat->rank, join->host, join->pid);
    }
}

/* The seat that wants or has this rank. */
static struct bps_seat *holder(const struct bps_roster *roster, uint32_t role, uint32_t rank)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        if (seat->join.role == role && seat->rank == rank && !seat->left) {
            return seat;
        }
    }
    return NULL;
}

/* Whether those who come now have no rank of their own: survivors have the first ones. */
static bool is_free(const struct bps_roster *roster, bool early)
{
    return roster->elastic.reforms || (early && roster->elastic.most > 0);
}

static bps_status check_seat(const struct bps_roster *roster, const struct bps_join *join, bool early,
                             struct bps_report *report)
{
    const struct bps_elastic *elastic = &roster->elastic;
    bool worker = join->role == BPS_ROLE_WORKER, free = is_free(roster, early);
    uint32_t limit = elastic->most == 0 ? bps_roster_wanted(roster, join->role)
                     : worker           ? elastic->most
                                        : elastic->servers;
    char text[128];
    if (!free && join->rank >= 0 && (uint32_t)join->rank >= limit) {
        return bps_fail(report, BPS_ERR_REFUSED,
                        "%s rank %d does not exist: the job has %u %ss; check cluster.rank and cluster.%ss",
                        bps_role_name(join->role), join->rank, limit, bps_role_name(join->role),
                        bps_role_name(join->role));
    }
    const struct bps_seat *other =
        elastic->most == 0 && join->rank >= 0 ? holder(roster, join->role, (uint32_t)join->rank) : NULL;
    if (other != NULL) {
        bps_seat_text(other, text, sizeof text);
        return bps_fail(
            report, BPS_ERR_REFUSED,
            "rank %d is taken by %s; host %s, pid %u requests it, too; check cluster.rank, and whether another job "
            "uses the same address or BYTEPS_MEETING_FILE",
            join->rank, text, join->host, join->pid);
    }
    if (roster_count(roster, join->role, true, false) >= limit) {
        return bps_fail(report, BPS_ERR_REFUSED, "job '%s' already has its %u %ss; is an old process still running?",
                        join->job, limit, bps_role_name(join->role));
    }
    return BPS_OK;
}

/* That it has had, or wants. Newcomers come after the survivors of a reform. */
static uint32_t first_rank(const struct bps_roster *roster, const struct bps_join *join, bool early)
{
    int32_t rank = is_free(roster, early) ? join->before : join->rank;
    const struct bps_seat *other;
    TAILQ_FOREACH(other, &roster->seats, entry) {
        bool taken = other->join.role == join->role && other->early == early && !other->left;
        rank = taken && rank >= 0 && other->rank == (uint32_t)rank ? -1 : rank;
    }
    return rank >= 0 ? (uint32_t)rank : BPS_NO_RANK;
}

bps_status bps_roster_add(struct bps_roster *roster, struct bps_guest *guest, struct bps_join *join, bool early,
                          struct bps_report *report)
{
    bps_status status = check_seat(roster, join, early, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_seat *seat = calloc(1, sizeof *seat);
    if (seat == NULL) {
        return BPS_ERR_NOMEM;
    }
    seat->guest = guest;
    seat->join = *join;
    if (early && roster->elastic.returning == 0) {
        seat->join.before = join->before < 0 ? join->before : BPS_IS_NEW; /* the others have gone on without it */
    }
    seat->rank = first_rank(roster, join, early);
    seat->early = early;
    guest->user = seat;
    TAILQ_INSERT_TAIL(&roster->seats, seat, entry);
    return BPS_OK;
}

void bps_roster_renew(struct bps_roster *roster)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        seat->early = false;
        seat->shards = 0;
        free(seat->endpoint);
        seat->endpoint = NULL;
    }
}

void bps_roster_forget(struct bps_roster *roster, struct bps_seat *seat)
{
    TAILQ_REMOVE(&roster->seats, seat, entry);
    seat->guest->user = NULL;
    bps_join_fini(&seat->join);
    free(seat->endpoint);
    free(seat);
}

void bps_roster_remove(struct bps_roster *roster, struct bps_seat *seat)
{
    struct bps_guest *guest = seat->guest;
    bps_roster_forget(roster, seat);
    bps_guest_free(guest);
}

/*
 * Ranks for those who wanted none: host by host in the order in which
 * hosts came, so that neighbours are near.
 */
static void assign_ranks(struct bps_roster *roster, uint32_t role)
{
    uint32_t next = 0;
    struct bps_seat *first, *seat;
    TAILQ_FOREACH(first, &roster->seats, entry) {
        TAILQ_FOREACH(seat, &roster->seats, entry) {
            bool mine =
                seat->join.role == role && seat->rank == BPS_NO_RANK && seat->join.host_id == first->join.host_id;
            if (!mine) {
                continue;
            }
            while (holder(roster, role, next) != NULL) {
                next++;
            }
            seat->rank = next;
        }
    }
}

static void assign_local(struct bps_roster *roster, struct bps_seat *seat)
{
    uint32_t before = 0, all = 0;
    const struct bps_seat *other;
    TAILQ_FOREACH(other, &roster->seats, entry) {
        if (other->join.role == seat->join.role && other->join.host_id == seat->join.host_id) {
            all++;
            before += other->rank < seat->rank;
        }
    }
    bool told = !roster->elastic.reforms;
    seat->local_rank = told && seat->join.local_rank >= 0 ? (uint32_t)seat->join.local_rank : before;
    seat->local_size = told && seat->join.local_size > 0 ? (uint32_t)seat->join.local_size : all;
}

bps_status bps_roster_assign(struct bps_roster *roster)
{
    struct bps_seat *seat;
    assign_ranks(roster, BPS_ROLE_WORKER);
    assign_ranks(roster, BPS_ROLE_SERVER);
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        assign_local(roster, seat);
    }
    return bps_roster_host(roster);
}

bool bps_roster_serving(const struct bps_roster *roster)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        if (seat->left || (seat->serves && seat->endpoint == NULL)) {
            return false;
        }
    }
    return true;
}

/* The lowest rank of the workers on this seat's host, if all of them can be dialled there; else its own. */
static uint32_t group_of(const struct bps_roster *roster, const struct bps_seat *seat)
{
    uint32_t lowest = seat->rank;
    const struct bps_seat *other;
    if (seat->join.role != BPS_ROLE_WORKER || roster->elastic.most > 0 || roster->alone) {
        return lowest; /* a group would be lost with its leader, or be late as a whole */
    }
    TAILQ_FOREACH(other, &roster->seats, entry) {
        if (other->join.role != BPS_ROLE_WORKER || other->join.host_id != seat->join.host_id) {
            continue;
        }
        if (other->join.local[0] == '\0') {
            return seat->rank;
        }
        lowest = other->rank < lowest ? other->rank : lowest;
    }
    return lowest;
}

static void book_member(const struct bps_roster *roster, const struct bps_seat *seat, struct bps_book_member *out)
{
    *out = (struct bps_book_member){.role = seat->join.role,
                                    .rank = seat->rank,
                                    .local_rank = seat->local_rank,
                                    .local_size = seat->local_size,
                                    .pid = seat->join.pid,
                                    .host_id = seat->join.host_id,
                                    .group = group_of(roster, seat)};
    memcpy(out->host, seat->join.host, sizeof out->host);
    memcpy(out->public_key, seat->join.public_key, sizeof out->public_key);
    memcpy(out->local, seat->join.local, sizeof out->local);
}

const struct bps_seat *bps_roster_seat(const struct bps_roster *roster, uint32_t member)
{
    uint32_t role = member < roster->workers ? BPS_ROLE_WORKER : BPS_ROLE_SERVER;
    uint32_t rank = role == BPS_ROLE_WORKER ? member : member - roster->workers;
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        if (seat->join.role == role && seat->rank == rank && !seat->left && !seat->early) {
            return seat;
        }
    }
    return NULL;
}

void bps_roster_take(struct bps_roster *roster, struct bps_seat *seat, struct bps_book_member *out)
{
    seat->guest->user = seat;
    TAILQ_INSERT_TAIL(&roster->seats, seat, entry);
    book_member(roster, seat, out);
}

bps_status bps_endpoints_read(struct bps_reader *payload, struct bps_endpoint **out, uint32_t *n)
{
    uint32_t shards = bps_get_u32(payload);
    struct bps_endpoint *endpoint = shards > 0 && shards <= BPS_SHARDS_LIMIT ? calloc(shards, sizeof *endpoint) : NULL;
    if (endpoint == NULL) {
        return shards > 0 && shards <= BPS_SHARDS_LIMIT ? BPS_ERR_NOMEM : BPS_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; i < shards; i++) {
        bps_get_string(payload, endpoint[i].address, sizeof endpoint[i].address);
        bps_get_string(payload, endpoint[i].local, sizeof endpoint[i].local);
    }
    if (!bps_reader_done(payload)) {
        free(endpoint);
        return BPS_ERR_PROTOCOL;
    }
    *out = endpoint;
    *n = shards;
    return BPS_OK;
}

void bps_roster_want_servers(struct bps_roster *roster, uint32_t servers)
{
    uint32_t there = bps_roster_count(roster, BPS_ROLE_SERVER);
    roster->servers = there > servers ? there : servers;
}

/* Shards by member, and those of one in its own order. */
static bps_status book_shards(const struct bps_roster *roster, struct bps_book *out)
{
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        out->shards += seat->shards;
    }
    if (out->shards > BPS_SHARDS_LIMIT) {
        return BPS_ERR_INVALID;
    }
    out->shard = calloc(out->shards, sizeof *out->shard);
    if (out->shard == NULL) {
        return BPS_ERR_NOMEM;
    }
    uint32_t n = 0;
    for (uint32_t member = 0; member < out->members; member++) {
        seat = bps_roster_seat(roster, member);
        for (uint32_t i = 0; i < seat->shards; i++, n++) {
            out->shard[n].member = member;
            memcpy(out->shard[n].address, seat->endpoint[i].address, sizeof out->shard[n].address);
            memcpy(out->shard[n].local, seat->endpoint[i].local, sizeof out->shard[n].local);
        }
    }
    return bps_roster_weigh(roster, out);
}

bps_status bps_roster_book(const struct bps_roster *roster, struct bps_book *out)
{
    memset(out, 0, sizeof *out);
    out->workers = roster->workers;
    out->members = roster->workers + roster->servers;
    out->member = calloc(out->members, sizeof *out->member);
    if (out->member == NULL) {
        return BPS_ERR_NOMEM;
    }
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &roster->seats, entry) {
        uint32_t first = seat->join.role == BPS_ROLE_WORKER ? 0 : roster->workers;
        if (!seat->early) {
            book_member(roster, seat, &out->member[first + seat->rank]);
        }
    }
    bps_status status = book_shards(roster, out);
    if (status != BPS_OK) {
        bps_book_fini(out);
    }
    return status;
}
