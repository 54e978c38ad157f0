/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book.h - who is in the job: what the scheduler tells every member once all are there.
 */
#ifndef BPS_NODE_BOOK_H
#define BPS_NODE_BOOK_H

#include "base/tensor.h"
#include "conf/conf.h"
#include "node/identity.h"
#include "wire/message.h"

#define BPS_MEMBERS_LIMIT 65536u
#define BPS_SHARDS_LIMIT  16384u
#define BPS_NO_SHARD      UINT16_MAX

struct bps_book_member {
    uint32_t role; /* BPS_ROLE_WORKER or BPS_ROLE_SERVER */
    uint32_t rank; /* among the members of its role */
    uint32_t local_rank, local_size;
    uint32_t pid;
    uint64_t host_id; /* equal on the same host */
    uint32_t group;   /* the lowest rank of the workers that sum together before they push; its own: alone */
    char host[64];
    char local[128]; /* where other workers of its host can dial it; "": nowhere */
    uint8_t public_key[BPS_KEY_BYTES];
    bool lost; /* a worker of an elastic job, which the others do without */
};

struct bps_book_shard {
    uint32_t member; /* index of the server, or of the worker that hosts it */
    uint32_t weight; /* how much it gets, relative to the others */
    uint32_t spread; /* the same of what has no name, since all workers have agreed on that; also of one that is gone */
    uint64_t until;  /* `spread` of the shards up to and with this one */
    bool gone;       /* since an earlier view was made; it has no weight */
    bool lost;       /* gone, and all that it had with it: its partitions have heirs */
    char address[128]; /* to dial */
    char local[128];   /* the same for workers of its host; "": nowhere */
};

struct bps_book {
    uint32_t epoch;                   /* generation of the membership, from 1 */
    uint32_t view;                    /* of that, from 1 */
    uint32_t from[BPS_UNNAMED_KINDS]; /* which calls without a name, and which barriers, are the first of this view */
    uint32_t workers, members, shards;
    uint32_t spread;                /* the larger of: shards with `spread`, leaders of the largest group */
    struct bps_book_member *member; /* workers first, by rank */
    struct bps_book_shard *shard;   /* by member; one at least has a weight */
    struct bps_identity self;       /* of the member whose copy this is; does not travel */
};

void bps_book_write(const struct bps_book *book, struct bps_writer *w);
/* BPS_ERR_PROTOCOL or BPS_ERR_NOMEM; the caller frees the contents with bps_book_fini. */
bps_status bps_book_read(struct bps_reader *r, struct bps_book *out);
/* BPS_ERR_NOMEM. */
bps_status bps_book_copy(const struct bps_book *book, struct bps_book *out);
void bps_book_fini(struct bps_book *book);

/* The key of the links between this member and another one. BPS_ERR_PROTOCOL: the book has no key of that. */
bps_status bps_book_key(const struct bps_book *book, uint32_t member, const uint8_t *secret,
                        uint8_t out[BPS_KEY_BYTES]);

/* Whether the job goes on with this member only: a worker, or one with shards that are not gone. */
bool bps_book_needs(const struct bps_book *book, uint32_t member);
/* Whether this member has shards that are not gone. */
bool bps_book_hosts(const struct bps_book *book, uint32_t member);
/* All weights together. */
uint64_t bps_book_weights(const struct bps_book *book);
/*
 * Fills in `until`; where nothing has said yet how what has no name is spread, it is so by the weights. False if these
 * make no sense: none, or more than 32 bits of them.
 */
bool bps_book_weigh(struct bps_book *book);
/* The shards of this member are lost. False: there are no others. */
bool bps_book_lose(struct bps_book *book, uint32_t member);
/* What has no name is spread by the weights of now. */
void bps_book_spread(struct bps_book *book);

/* The group of each worker, for a summation engine; freed by the caller. NULL: no memory. */
uint32_t *bps_book_groups(const struct bps_book *book);
/* How many workers sum together with this one before they push, itself included. */
uint32_t bps_book_group_size(const struct bps_book *book, uint32_t rank);

/*
 * Which workers of a group lead partitions: in a small one all, in a large one a few, spread evenly over its places and
 * so over the nodes of memory. The others have links to these only: no square of the size is needed.
 */
#define BPS_LEADERS_LIMIT 32u /* all of a group that exchanges small tensors (sum/exchange.h) */

/* How many of a group of so many workers lead. */
static inline uint32_t bps_leaders(uint32_t size)
{
    return size < BPS_LEADERS_LIMIT ? size : BPS_LEADERS_LIMIT;
}

/* The place in the group of a leader, which are numbered from 0: the first is at place 0. */
static inline uint32_t bps_leader_place(uint32_t size, uint32_t leader)
{
    return (uint32_t)(((uint64_t)leader * size + bps_leaders(size) - 1) / bps_leaders(size));
}

/* True if the worker at this place is one of them. */
static inline bool bps_leads(uint32_t size, uint32_t place)
{
    return place < size && (uint64_t)place * bps_leaders(size) % size < bps_leaders(size);
}

/* "worker 1 (host a, pid 17)" */
void bps_member_text(const struct bps_book_member *member, char *text, size_t n);

#endif
