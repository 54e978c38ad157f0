/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joining.h - servers that come into a job that runs (`byteps server --join`), until they are members of it.
 *
 * One after the other is told a rank, and says where its shards are. The next view has them, without any share, so that
 * workers reach them while nothing depends on that. Then tensors move (declared_move.c), in the view after that one.
 */
#ifndef BPS_JOINING_H
#define BPS_JOINING_H

#include "scheduler/roster.h"

struct bps_joiner {
    TAILQ_ENTRY(bps_joiner) entry;
    struct bps_guest *guest;
    struct bps_join join;
    bool asked; /* it has a rank, and is to say where its shards are */
    uint32_t shards;
    struct bps_endpoint *endpoint; /* of each; NULL: it has not said it */
};

struct bps_joining {
    TAILQ_HEAD(bps_joiners, bps_joiner) all;
    bool shares; /* what is summed is to be shared anew, with a server that is in the newest view */
    bool moving; /* that is under way */
};

void bps_joining_init(struct bps_joining *joining);
/* Drops the links of all. */
void bps_joining_fini(struct bps_joining *joining);
/* Takes over the guest and the join. BPS_ERR_NOMEM. */
bps_status bps_joining_add(struct bps_joining *joining, struct bps_guest *guest, struct bps_join *join);
/* NULL: it is none of these. */
struct bps_joiner *bps_joining_find(const struct bps_joining *joining, const struct bps_guest *guest);
/* What there is of it is freed, but for the guest. */
void bps_joining_remove(struct bps_joining *joining, struct bps_joiner *joiner);
/* Reads its ENDPOINTS. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_joining_hear(struct bps_joiner *joiner, struct bps_reader *payload);
/*
 * It gets a seat, and the book a member and its shards, behind the others and without a weight. BPS_ERR_INVALID: the
 * job has no room for them. BPS_ERR_NOMEM; in both cases nothing has changed.
 */
bps_status bps_joining_seat(struct bps_joining *joining, struct bps_joiner *joiner, struct bps_roster *roster,
                            struct bps_book *book);
/* All hear this, and are to hang up. */
void bps_joining_end(struct bps_joining *joining, const char *text);
void bps_joining_keep_alive(struct bps_joining *joining, uint64_t now, uint64_t quiet);
/* The first that has said nothing for so long; NULL: none. */
struct bps_joiner *bps_joining_silent(const struct bps_joining *joining, uint64_t now, uint64_t limit);
void bps_joining_excuse(struct bps_joining *joining, uint64_t now);

#endif
