/* SPDX-License-Identifier: Apache-2.0 */
/* joining.c - see joining.h. */
#include "scheduler/joining.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void bps_joining_init(struct bps_joining *joining)
{
    TAILQ_INIT(&joining->all);
    joining->shares = joining->moving = false;
}

void bps_joining_fini(struct bps_joining *joining)
{
    while (!TAILQ_EMPTY(&joining->all)) {
        struct bps_joiner *joiner = TAILQ_FIRST(&joining->all);
        struct bps_guest *guest = joiner->guest;
        bps_joining_remove(joining, joiner);
        bps_link_drop(&guest->link);
        bps_guest_free(guest);
    }
}

bps_status bps_joining_add(struct bps_joining *joining, struct bps_guest *guest, struct bps_join *join)
{
    struct bps_joiner *joiner = calloc(1, sizeof *joiner);
    if (joiner == NULL) {
        return BPS_ERR_NOMEM;
    }
    joiner->guest = guest;
    joiner->join = *join;
    TAILQ_INSERT_TAIL(&joining->all, joiner, entry);
    bps_lobby_admit(guest);
    return BPS_OK;
}

struct bps_joiner *bps_joining_find(const struct bps_joining *joining, const struct bps_guest *guest)
{
    struct bps_joiner *joiner = TAILQ_FIRST(&joining->all);
    while (joiner != NULL && joiner->guest != guest) {
        joiner = TAILQ_NEXT(joiner, entry);
    }
    return joiner;
}

void bps_joining_remove(struct bps_joining *joining, struct bps_joiner *joiner)
{
    TAILQ_REMOVE(&joining->all, joiner, entry);
    bps_join_fini(&joiner->join);
    free(joiner->endpoint);
    free(joiner);
}

bps_status bps_joining_hear(struct bps_joiner *joiner, struct bps_reader *payload)
{
    if (!joiner->asked || joiner->endpoint != NULL) {
        return BPS_ERR_PROTOCOL;
    }
    return bps_endpoints_read(payload, &joiner->endpoint, &joiner->shards);
}

/* ---- becoming a member ---- */

static struct bps_seat *seat_of(struct bps_joiner *joiner, uint32_t rank)
{
    struct bps_seat *seat = calloc(1, sizeof *seat);
    if (seat != NULL) {
        *seat = (struct bps_seat){.guest = joiner->guest,
                                  .join = joiner->join,
                                  .rank = rank,
                                  .local_size = 1,
                                  .serves = true,
                                  .shards = joiner->shards,
                                  .endpoint = joiner->endpoint};
    }
    return seat;
}

/* The same for the arrays of a book. */
static bool book_grow(struct bps_book *book, uint32_t shards)
{
    struct bps_book_member *member = realloc(book->member, (book->members + (size_t)1) * sizeof *member);
    book->member = member != NULL ? member : book->member;
    struct bps_book_shard *shard = realloc(book->shard, (book->shards + (size_t)shards) * sizeof *shard);
    book->shard = shard != NULL ? shard : book->shard;
    return member != NULL && shard != NULL;
}

bps_status bps_joining_seat(struct bps_joining *joining, struct bps_joiner *joiner, struct bps_roster *roster,
                            struct bps_book *book)
{
    uint32_t shards = joiner->shards, first = book->shards;
    bps_assert(joiner->endpoint != NULL && roster->servers == book->members - book->workers);
    if (book->members >= BPS_MEMBERS_LIMIT || shards > BPS_SHARDS_LIMIT - first) {
        return BPS_ERR_INVALID;
    }
    struct bps_seat *seat = seat_of(joiner, roster->servers);
    if (seat == NULL || !book_grow(book, shards)) {
        free(seat);
        return BPS_ERR_NOMEM;
    }
    roster->servers++;
    for (uint32_t i = 0; i < shards; i++) {
        struct bps_book_shard *shard = &book->shard[first + i];
        *shard = (struct bps_book_shard){.member = book->members, .until = book->shard[first - 1].until};
        memcpy(shard->address, joiner->endpoint[i].address, sizeof shard->address);
        memcpy(shard->local, joiner->endpoint[i].local, sizeof shard->local);
    }
    book->shards += shards;
    bps_roster_take(roster, seat, &book->member[book->members++]);
    joiner->join = (struct bps_join){.role = BPS_ROLE_SERVER}; /* the seat has it, */
    joiner->endpoint = NULL;                                   /* and this */
    bps_joining_remove(joining, joiner);
    return BPS_OK;
}

/* ---- while they wait ---- */

void bps_joining_end(struct bps_joining *joining, const char *text)
{
    struct bps_joiner *joiner;
    TAILQ_FOREACH(joiner, &joining->all, entry) {
        bps_link_send_text(&joiner->guest->link, BPS_FRAME_REFUSE, text);
        bps_link_finish(&joiner->guest->link);
    }
}

void bps_joining_keep_alive(struct bps_joining *joining, uint64_t now, uint64_t quiet)
{
    struct bps_joiner *joiner;
    TAILQ_FOREACH(joiner, &joining->all, entry) {
        bps_link_keep_alive(&joiner->guest->link, now, quiet);
    }
}

struct bps_joiner *bps_joining_silent(const struct bps_joining *joining, uint64_t now, uint64_t limit)
{
    struct bps_joiner *joiner = TAILQ_FIRST(&joining->all);
    while (joiner != NULL && now <= joiner->guest->link.last_received + limit) {
        joiner = TAILQ_NEXT(joiner, entry);
    }
    return joiner;
}

void bps_joining_excuse(struct bps_joining *joining, uint64_t now)
{
    struct bps_joiner *joiner;
    TAILQ_FOREACH(joiner, &joining->all, entry) {
        joiner->guest->link.last_received = now;
    }
}
