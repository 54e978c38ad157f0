/* SPDX-License-Identifier: Apache-2.0 */
/*
 * returning.h - the members of a running job, which reconnect to a scheduler that has taken no part in it so far.
 *
 * They say of which job they are, and workers what they know of its tensors. When all are back, or when most are and
 * the others are not to be waited for any more, it is taken over. Until then the scheduler may as well gather a new
 * job: what is complete first is its job.
 */
#ifndef BPS_RETURNING_H
#define BPS_RETURNING_H

#include "node/return.h"
#include "scheduler/declared.h"
#include "scheduler/roster.h"

/* A message KNOWN. */
struct bps_known {
    STAILQ_ENTRY(bps_known) entry;
    size_t size;
    uint8_t bytes[];
};

struct bps_returner {
    TAILQ_ENTRY(bps_returner) entry;
    struct bps_guest *guest;
    struct bps_join join;
    struct bps_return is;
    bool asked;           /* for its book */
    bool done;            /* it has said all that it knows */
    struct bps_book book; /* no members: it has not sent it */
    STAILQ_HEAD(, bps_known) known;
};

struct bps_returning {
    TAILQ_HEAD(bps_returners, bps_returner) all;
    uint64_t since;            /* when the first one came */
    bool *left;                /* of each worker: it has left, and is not to come back */
    uint32_t workers, leavers; /* of these, those who have left */
    uint64_t host_id;          /* this host; and processes that have ended here: */
    uint32_t *gone, ngone;
    size_t gone_room;
};

/* BPS_ERR_NOMEM */
bps_status bps_returning_init(struct bps_returning *returning, uint32_t workers);
/* Drops all. */
void bps_returning_fini(struct bps_returning *returning);
/* The worker of this rank has left, and is not waited for. */
void bps_returning_leave(struct bps_returning *returning, uint32_t rank);
static inline bool bps_returning_has_left(const struct bps_returning *returning, uint32_t rank)
{
    return rank < returning->workers && returning->left[rank];
}
/* Nor is this process of the scheduler's host, which has ended. BPS_ERR_NOMEM */
bps_status bps_returning_ended(struct bps_returning *returning, uint32_t pid);
/* Takes over the guest and the join. BPS_ERR_NOMEM: it has not. */
bps_status bps_returning_add(struct bps_returning *returning, struct bps_guest *guest, const struct bps_return *is,
                             struct bps_join *join, uint64_t now);
/* NULL: this guest is none of them. */
struct bps_returner *bps_returning_find(const struct bps_returning *returning, const struct bps_guest *guest);
/* Its link has ended; what there is of it is freed, but for the guest. */
void bps_returning_remove(struct bps_returning *returning, struct bps_returner *returner);
/* Reads its BOOK or KNOWN. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_returning_hear(struct bps_returner *returner, const struct bps_header *header,
                              struct bps_reader *payload);
/*
 * The book of the job, if it can be taken over, now or, without those that have not come back, after `patience`. NULL:
 * not yet.
 */
const struct bps_book *bps_returning_book(struct bps_returning *returning, const struct bps_roster *roster,
                                          uint64_t now, uint64_t patience);
/* How many of how many are back: "2 of 3 members of the job that runs have come back" */
void bps_returning_text(const struct bps_returning *returning, char *text, size_t n);
/* They hear PING and WAITING, while they wait; */
void bps_returning_keep_alive(struct bps_returning *returning, uint64_t now, uint64_t quiet);
void bps_returning_tell(struct bps_returning *returning, uint8_t frame, const char *text);
/* All are refused, and stay here until they hang up. */
void bps_returning_refuse(struct bps_returning *returning, const char *text);
/* The members of the book get the seats that they had. BPS_ERR_NOMEM: some. */
bps_status bps_returning_seat(struct bps_returning *returning, struct bps_roster *roster, const struct bps_book *book);
/* Puts together what those who have got a seat know of tensors. */
bps_status bps_returning_recall(struct bps_returning *returning, struct bps_declared *declared);
/* Those who have got one are none of these any more. */
void bps_returning_let_go(struct bps_returning *returning);

#endif
