/* SPDX-License-Identifier: Apache-2.0 */
/* returning.c - see returning.h. */
#include "scheduler/returning.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "scheduler/declared_known.h"

/* So long those are waited for whose shards are gone: workers may still have something under way there. */
#define LEAVERS (3 * BPS_S)

bps_status bps_returning_init(struct bps_returning *returning, uint32_t workers)
{
    struct bps_join own = {.job = ""};
    TAILQ_INIT(&returning->all);
    bps_join_host(&own);
    returning->host_id = own.host_id;
    returning->workers = workers;
    returning->left = calloc(workers, sizeof *returning->left);
    return returning->left == NULL ? BPS_ERR_NOMEM : BPS_OK;
}

void bps_returning_fini(struct bps_returning *returning)
{
    while (!TAILQ_EMPTY(&returning->all)) {
        struct bps_returner *returner = TAILQ_FIRST(&returning->all);
        struct bps_guest *guest = returner->guest;
        bps_returning_remove(returning, returner);
        bps_link_drop(&guest->link);
        bps_guest_free(guest);
    }
    free(returning->left);
    free(returning->gone);
    returning->left = NULL;
    returning->gone = NULL;
}

void bps_returning_leave(struct bps_returning *returning, uint32_t rank)
{
    returning->leavers += !returning->left[rank];
    returning->left[rank] = true;
}

bps_status bps_returning_ended(struct bps_returning *returning, uint32_t pid)
{
    if (!bps_array_reserve(returning->gone, returning->gone_room, (size_t)returning->ngone + 1)) {
        return BPS_ERR_NOMEM;
    }
    returning->gone[returning->ngone++] = pid;
    return BPS_OK;
}

/* Whether the member at this place of the book has left or ended. */
static bool will_not_return(const struct bps_returning *returning, const struct bps_book *book, uint32_t i)
{
    const struct bps_book_member *member = &book->member[i];
    bool over = i < book->workers && bps_returning_has_left(returning, i);
    for (uint32_t k = 0; k < returning->ngone && member->host_id == returning->host_id; k++) {
        over |= returning->gone[k] == member->pid;
    }
    return over;
}

bps_status bps_returning_add(struct bps_returning *returning, struct bps_guest *guest, const struct bps_return *is,
                             struct bps_join *join, uint64_t now)
{
    struct bps_returner *returner = calloc(1, sizeof *returner);
    if (returner == NULL) {
        return BPS_ERR_NOMEM;
    }
    *returner = (struct bps_returner){.guest = guest, .join = *join, .is = *is, .done = join->role == BPS_ROLE_SERVER};
    STAILQ_INIT(&returner->known);
    returning->since = TAILQ_EMPTY(&returning->all) ? now : returning->since;
    TAILQ_INSERT_TAIL(&returning->all, returner, entry);
    bps_lobby_admit(guest);
    return BPS_OK;
}

struct bps_returner *bps_returning_find(const struct bps_returning *returning, const struct bps_guest *guest)
{
    struct bps_returner *returner = TAILQ_FIRST(&returning->all);
    while (returner != NULL && returner->guest != guest) {
        returner = TAILQ_NEXT(returner, entry);
    }
    return returner;
}

void bps_returning_remove(struct bps_returning *returning, struct bps_returner *returner)
{
    TAILQ_REMOVE(&returning->all, returner, entry);
    while (!STAILQ_EMPTY(&returner->known)) {
        struct bps_known *known = STAILQ_FIRST(&returner->known);
        STAILQ_REMOVE_HEAD(&returner->known, entry);
        free(known);
    }
    bps_book_fini(&returner->book);
    bps_join_fini(&returner->join);
    free(returner);
}

/* ---- what they say ---- */

static bps_status hear_book(struct bps_returner *returner, struct bps_reader *payload)
{
    struct bps_return is;
    if (!returner->asked || returner->book.members > 0) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_book_read(payload, &returner->book);
    if (status == BPS_OK) {
        status = bps_return_of(&returner->book, returner->is.rank, &is);
    }
    if (status == BPS_OK && (is.epoch != returner->is.epoch || is.view != returner->is.view ||
                             memcmp(is.members, returner->is.members, sizeof is.members) != 0)) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        bps_book_fini(&returner->book);
    }
    return status;
}

bps_status bps_returning_hear(struct bps_returner *returner, const struct bps_header *header,
                              struct bps_reader *payload)
{
    if (header->type == BPS_FRAME_BOOK) {
        return hear_book(returner, payload);
    }
    size_t size = (size_t)(payload->end - payload->at);
    if (header->type != BPS_FRAME_KNOWN || returner->done || size == 0 || *payload->at >= BPS_KNOWN_KINDS) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_known *known = malloc(sizeof *known + size);
    if (known == NULL) {
        return BPS_ERR_NOMEM;
    }
    known->size = size;
    memcpy(known->bytes, payload->at, size);
    STAILQ_INSERT_TAIL(&returner->known, known, entry);
    returner->done = known->bytes[0] == BPS_KNOWN_END;
    return BPS_OK;
}

/* ---- whether the job can be taken over ---- */

static bool returns_to_same(const struct bps_returner *a, const struct bps_returner *b)
{
    return memcmp(a->is.members, b->is.members, sizeof a->is.members) == 0;
}

/* Of the only job that more than half of them may be of; of that the newest view. NULL: none is back. */
static struct bps_returner *newest_returner(const struct bps_returning *returning)
{
    struct bps_returner *returner, *of = NULL, *out = NULL;
    uint32_t more = 0;
    TAILQ_FOREACH(returner, &returning->all, entry) {
        of = more == 0 ? returner : of;
        more = more == 0 || returns_to_same(of, returner) ? more + 1 : more - 1;
    }
    TAILQ_FOREACH(returner, &returning->all, entry) {
        bool better = returns_to_same(of, returner) && (out == NULL || returner->is.view > out->is.view);
        out = better ? returner : out;
    }
    return out;
}

/* Its place in the book. */
static uint32_t book_index_of(const struct bps_returner *returner, const struct bps_book *book)
{
    return returner->join.role == BPS_ROLE_WORKER ? returner->is.rank : book->workers + returner->is.rank;
}

/* Whether the job cannot go on yet. */
static bool misses_any(const struct bps_returning *returning, const struct bps_returner *like)
{
    const struct bps_book *book = &like->book;
    const struct bps_returner *returner;
    uint32_t missing = 0;
    for (uint32_t i = 0; i < book->members; i++) {
        missing += bps_book_needs(book, i) && !will_not_return(returning, book, i);
    }
    TAILQ_FOREACH(returner, &returning->all, entry) {
        missing -=
            returner->done && returns_to_same(returner, like) && bps_book_needs(book, book_index_of(returner, book));
    }
    return missing > 0;
}

static uint32_t count_back(const struct bps_returning *returning, const struct bps_returner *like)
{
    uint32_t n = 0;
    const struct bps_returner *returner;
    for (uint32_t i = 0; i < like->book.members; i++) {
        n += will_not_return(returning, &like->book, i);
    }
    TAILQ_FOREACH(returner, &returning->all, entry) {
        n += returner->done && returns_to_same(returner, like);
    }
    return n;
}

const struct bps_book *bps_returning_book(struct bps_returning *returning, const struct bps_roster *roster,
                                          uint64_t now, uint64_t patience)
{
    struct bps_returner *returner = newest_returner(returning);
    if (returner == NULL) {
        return NULL;
    }
    const struct bps_book *book = &returner->book;
    if (book->members == 0) {
        const uint8_t word = BPS_RETURN_BOOK;
        const struct bps_header header = {.type = BPS_FRAME_RETURN};
        if (!returner->asked) {
            returner->asked = true;
            bps_link_send(&returner->guest->link, &header, &word, sizeof word);
        }
        return NULL;
    }
    const struct bps_elastic *elastic = &roster->elastic;
    uint32_t servers = book->members - book->workers;
    bool fits = elastic->most > 0 ? book->workers <= elastic->most && servers <= elastic->servers
                                  : book->workers == roster->workers && servers >= roster->servers;
    uint32_t back = count_back(returning, returner);
    uint64_t waited = now - returning->since;
    bool enough = fits && (back == book->members || (waited > LEAVERS && !misses_any(returning, returner)) ||
                           (waited > patience && (back > book->members / 2 || elastic->most > 0)));
    return enough ? book : NULL;
}

void bps_returning_text(const struct bps_returning *returning, char *text, size_t n)
{
    const struct bps_returner *returner = newest_returner(returning);
    if (returner == NULL || returner->book.members == 0) {
        snprintf(text, n, "the members of a running job, which reconnect");
    } else {
        snprintf(text, n, "the members of the running job: %u of %u have reconnected", count_back(returning, returner),
                 returner->book.members);
    }
}

void bps_returning_keep_alive(struct bps_returning *returning, uint64_t now, uint64_t quiet)
{
    struct bps_returner *returner;
    TAILQ_FOREACH(returner, &returning->all, entry) {
        bps_link_keep_alive(&returner->guest->link, now, quiet);
    }
}

void bps_returning_tell(struct bps_returning *returning, uint8_t frame, const char *text)
{
    struct bps_returner *returner;
    TAILQ_FOREACH(returner, &returning->all, entry) {
        bps_link_send_text(&returner->guest->link, frame, text);
    }
}

/* ---- taking it over ---- */

/* The member of the book that it is; NULL: none, or not of a view that another one can follow. */
static const struct bps_book_member *member_of(const struct bps_returner *returner, const struct bps_book *book,
                                               const struct bps_return *of)
{
    uint32_t index = book_index_of(returner, book), rank = returner->is.rank;
    bool worker = returner->join.role == BPS_ROLE_WORKER;
    if (rank >= (worker ? book->workers : book->members - book->workers) || returner->is.view + 1 < book->view ||
        !returner->done || memcmp(of->members, returner->is.members, sizeof of->members) != 0) {
        return NULL;
    }
    const struct bps_book_member *member = &book->member[index];
    return memcmp(member->public_key, returner->join.public_key, sizeof member->public_key) == 0 ? member : NULL;
}

static bps_status give_seat(struct bps_roster *roster, struct bps_returner *returner, const struct bps_book *book,
                            const struct bps_book_member *member)
{
    struct bps_seat *seat = calloc(1, sizeof *seat);
    uint32_t index = (uint32_t)(member - book->member), shards = 0, gone = 0;
    if (seat == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < book->shards; i++) {
        shards += book->shard[i].member == index;
        gone += book->shard[i].member == index && book->shard[i].gone;
    }
    seat->guest = returner->guest;
    seat->guest->user = seat;
    seat->join = returner->join;
    returner->join = (struct bps_join){.role = seat->join.role};
    seat->rank = member->rank;
    seat->local_rank = member->local_rank;
    seat->local_size = member->local_size;
    seat->serves = shards > 0;
    seat->retired = seat->join.role == BPS_ROLE_SERVER && shards > 0 && shards == gone;
    roster->told |= seat->join.bandwidth > 0;
    TAILQ_INSERT_TAIL(&roster->seats, seat, entry);
    return BPS_OK;
}

void bps_returning_refuse(struct bps_returning *returning, const char *text)
{
    struct bps_returner *returner;
    TAILQ_FOREACH(returner, &returning->all, entry) {
        bps_link_send_text(&returner->guest->link, BPS_FRAME_REFUSE, text);
        bps_link_finish(&returner->guest->link);
    }
}

void bps_returning_let_go(struct bps_returning *returning)
{
    struct bps_returner *returner, *next;
    for (returner = TAILQ_FIRST(&returning->all); returner != NULL; returner = next) {
        next = TAILQ_NEXT(returner, entry);
        if (returner->guest->user != NULL) {
            bps_returning_remove(returning, returner);
        }
    }
}

bps_status bps_returning_seat(struct bps_returning *returning, struct bps_roster *roster, const struct bps_book *book)
{
    struct bps_returner *returner;
    struct bps_return of;
    bps_status status = bps_return_of(book, 0, &of);
    TAILQ_FOREACH(returner, &returning->all, entry) {
        const struct bps_book_member *member = member_of(returner, book, &of);
        if (member != NULL && bps_roster_seat(roster, book_index_of(returner, book)) == NULL && status == BPS_OK) {
            status = give_seat(roster, returner, book, member);
        }
    }
    return status;
}

static bps_status recall_one(const struct bps_returner *returner, struct bps_declared *declared,
                             struct bps_recall *recall)
{
    const struct bps_known *known;
    bps_status status = BPS_OK;
    STAILQ_FOREACH(known, &returner->known, entry) {
        struct bps_reader r;
        bps_reader_init(&r, known->bytes, known->size);
        if (status == BPS_OK) {
            status = bps_declared_recall(declared, returner->is.rank, &r, recall);
        }
    }
    return status;
}

bps_status bps_returning_recall(struct bps_returning *returning, struct bps_declared *declared)
{
    struct bps_returner *returner;
    struct bps_recall recall = {.n = 0};
    bps_status status = BPS_OK;
    TAILQ_FOREACH(returner, &returning->all, entry) {
        if (returner->guest->user != NULL && status == BPS_OK) {
            status = recall_one(returner, declared, &recall);
        }
    }
    if (status == BPS_OK) {
        status = bps_declared_settle(declared, &recall);
    }
    free(recall.round);
    return status;
}
