/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roster.h - the scheduler's list of members while and after they gather: seats, ranks, who is missing.
 */
#ifndef BPS_ROSTER_H
#define BPS_ROSTER_H

#include "node/book.h"
#include "node/join.h"
#include "wire/lobby.h"

#define BPS_NO_RANK UINT32_MAX /* has not chosen one, and has been given none yet */

/* Where a shard can be dialled. */
struct bps_endpoint {
    char address[128];
    char local[128]; /* by workers of its host; "": nowhere */
};

/* A member that has joined. */
struct bps_seat {
    TAILQ_ENTRY(bps_seat) entry;
    struct bps_guest *guest;
    struct bps_join join;
    uint32_t rank, local_rank, local_size;
    bool serves;      /* runs shards */
    bool left;        /* a worker that has left in order, but not yet hung up */
    bool reforms;     /* one that waits for the others to reform; */
    bool returns;     /* and has left */
    bool retired;     /* a server whose shards are gone from the view */
    bool early;       /* a worker of the next generation, while this one still runs */
    double bandwidth; /* of its host's link, relative to the others */
    uint32_t shards;
    struct bps_endpoint *endpoint; /* of each shard; NULL until it has told them */
};

/* Of a job that goes on without those who are lost. */
struct bps_elastic {
    uint32_t least, most, servers; /* workers that it needs, and takes, and servers; most 0: it is not elastic */
    uint32_t returning;            /* workers that have left to reform */
    bool reforms;                  /* it has, or is about to: only survivors keep their place */
};

struct bps_roster {
    uint32_t workers, servers; /* wanted */
    struct bps_elastic elastic;
    bool alone;         /* workers of a host do not sum among themselves first */
    uint32_t colocated; /* BPS_COLOCATED_*: which workers host servers, too */
    bool told;          /* the bandwidths of links are configured */
    TAILQ_HEAD(bps_seats, bps_seat) seats;
};

void bps_roster_init(struct bps_roster *roster, uint32_t workers, uint32_t servers, uint32_t colocated);
void bps_roster_fini(struct bps_roster *roster);

/*
 * Takes over the guest and the join. `early`: for the next generation, in the place of a worker that has left
 * this one. BPS_ERR_REFUSED with the reason if there is no seat for it.
 */
bps_status bps_roster_add(struct bps_roster *roster, struct bps_guest *guest, struct bps_join *join, bool early,
                          struct bps_report *report);
/* The next generation begins: those who came early are in it. */
void bps_roster_renew(struct bps_roster *roster);
void bps_roster_remove(struct bps_roster *roster, struct bps_seat *seat);
/* The same, but its guest has yet to hang up. */
void bps_roster_forget(struct bps_roster *roster, struct bps_seat *seat);
/* Members of this generation. */
uint32_t bps_roster_count(const struct bps_roster *roster, uint32_t role);
/* Workers of this generation that have not left. */
uint32_t bps_roster_staying(const struct bps_roster *roster);
bool bps_roster_complete(const struct bps_roster *roster);
/* Gives every seat its rank and local rank, and says who serves. BPS_ERR_NOMEM. */
bps_status bps_roster_assign(struct bps_roster *roster);
/* True if every seat that serves has told its endpoints. */
bool bps_roster_serving(const struct bps_roster *roster);
/* The seats as a book. BPS_ERR_INVALID: too many shards. */
bps_status bps_roster_book(const struct bps_roster *roster, struct bps_book *out);
/* Takes the seat of a member that has joined the job while that runs, and says who it is. */
void bps_roster_take(struct bps_roster *roster, struct bps_seat *seat, struct bps_book_member *out);
/* Reads an ENDPOINTS message; the caller frees the array. BPS_ERR_PROTOCOL, _NOMEM. */
bps_status bps_endpoints_read(struct bps_reader *payload, struct bps_endpoint **out, uint32_t *n);
/*
 * The next generation is about to gather: at least so many servers, and all that are there, as some may have come into
 * this one.
 */
void bps_roster_want_servers(struct bps_roster *roster, uint32_t servers);
/* The seat of a member of the book. */
const struct bps_seat *bps_roster_seat(const struct bps_roster *roster, uint32_t member);
/* How many the job has of a role. */
uint32_t bps_roster_wanted(const struct bps_roster *roster, uint32_t role);
/* "worker" */
const char *bps_role_name(uint32_t role);
/* "worker 1 (host a, pid 17)" */
void bps_seat_text(const struct bps_seat *seat, char *text, size_t n);

/* ---- elastic.c ---- */
void bps_roster_be_elastic(struct bps_roster *roster, uint32_t least, uint32_t most);
/*
 * All workers have left: wants those who return, and newcomers. False: nobody returns; it wants as many as have
 * `departed`, if they come for another job, as after suspend().
 */
bool bps_roster_reform(struct bps_roster *roster, uint32_t departed);
/* Workers that wait for the next generation, and were in the job before. */
uint32_t bps_roster_survivors(const struct bps_roster *roster);
/* Somebody new is there, while the others gather again. */
void bps_roster_make_room(struct bps_roster *roster, const struct bps_seat *seat);
/* One of those who gather again is lost. */
void bps_roster_expect_less(struct bps_roster *roster, uint32_t role);
/* Whether somebody wanted to join a job before, whose scheduler was lost: its members may come back. */
bool bps_roster_has_waited(const struct bps_roster *roster);
/* Goes on with those who are there, if they are enough. */
bool bps_roster_settle(struct bps_roster *roster);
/* Ranks without gaps, of workers in an elastic job only, in the order of those that seats have had, or want. */
void bps_roster_close_gaps(struct bps_roster *roster);
/* Workers that wait for the others to reform: newcomers, and those of this generation. */
uint32_t bps_roster_waiting(const struct bps_roster *roster);

/* ---- missing.c ---- */
/* "3 of 8 workers (ranks 2, 5-6 on c3) and 1 of 1 servers" */
void bps_roster_missing(const struct bps_roster *roster, char *text, size_t n);

/* ---- hosting.c ---- */
/* Says who serves; ranks are known. */
bps_status bps_roster_host(struct bps_roster *roster);
/* Gives the shards of a book their weights; some of its members may be gone. */
bps_status bps_roster_weigh(const struct bps_roster *roster, struct bps_book *book);
/* The same, after somebody has come whose link counts. */
bps_status bps_roster_reweigh(struct bps_roster *roster, struct bps_book *book);

#endif
