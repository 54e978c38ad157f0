/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds.h - open rounds, by partition and number: what those of an engine and those of an exchange have in common.
 *
 * Several of a partition may be open: who is ahead begins the next one, and rounds that have failed wait for those who
 * have not come to them yet.
 */
#ifndef BPS_SUM_ROUNDS_H
#define BPS_SUM_ROUNDS_H

#define HASH_NONFATAL_OOM 1
/* Ids have 64 bits; the golden ratio spreads them over the upper half. */
#define HASH_FUNCTION(id, length, hash) ((hash) = (unsigned)(*(id) * 0x9e3779b97f4a7c15u >> 32))
#include <uthash.h>

#include "coding/feedback.h"
#include "sum/contribution.h"

/* The first member of a round. */
struct bps_round_base {
    struct bps_round_base *next; /* of the key */
    struct bps_key *key;
    struct bps_round_id id;
    uint64_t begun, reminded; /* ns */
    bps_status verdict;       /* BPS_OK, or how it failed */
    char *failure;            /* why it failed; NULL: it has not */
};

struct bps_key {
    uint64_t id;                   /* tensor << 32 | partition */
    struct bps_round_base *rounds; /* that are open, the latest first */
    uint32_t open;                 /* how many these are */
    uint32_t done;                 /* rounds below this number are over, unless they are open */
    struct bps_feedback feedback;  /* of coded results */
    UT_hash_handle hh;
};

struct bps_rounds {
    struct bps_key *keys;
};

/* Of a partition's coded results; NULL: there have not been any. */
struct bps_feedback *bps_rounds_feedback(const struct bps_rounds *rounds, uint32_t tensor, uint32_t partition);
/* The round of this id; NULL: it is not open. */
struct bps_round_base *bps_rounds_at(const struct bps_rounds *rounds, const struct bps_round_id *id);
/*
 * The same, and what it takes to open it. With BPS_OK, NULL and a key it is to be opened; without a key it is over.
 * BPS_ERR_PROTOCOL: more are open than there can be.
 */
bps_status bps_rounds_find(struct bps_rounds *rounds, const struct bps_round_id *id, struct bps_round_base **out,
                           struct bps_key **key);
/* A round of the key is open from now on; and no more, nor is what its failure takes. */
void bps_rounds_add(struct bps_key *key, const struct bps_round_id *id, struct bps_round_base *round);
void bps_rounds_remove(struct bps_round_base *round);
/* Nothing of the key's partition is open, and nobody asks for its past. */
void bps_rounds_forget(struct bps_rounds *rounds, struct bps_key *key);
/* Calls fn for each open round, which may remove it. */
typedef void (*bps_round_base_fn)(struct bps_round_base *round, const void *arg);
void bps_rounds_each(struct bps_rounds *rounds, bps_round_base_fn fn, const void *arg);
/* For the end: all keys are gone, and what failures of open rounds take. */
void bps_rounds_fini(struct bps_rounds *rounds);

/* Notes a failure, in the place of an earlier one. */
void bps_round_set_failure(struct bps_round_base *round, bps_status status, const char *text);

/* What is open has waited `ns` less: we were stopped ourselves. */
void bps_rounds_excuse(struct bps_rounds *rounds, uint64_t ns);

/* How long who is in a round has to wait. */
struct bps_patience {
    uint64_t now, warn, fail; /* ns; warn, fail: 0 for never */
};
/* Whether it has waited too long; whether those who wait are to be reminded. */
bool bps_round_is_overdue(const struct bps_round_base *round, const struct bps_patience *patience);
bool bps_round_is_slow(const struct bps_round_base *round, const struct bps_patience *patience);

#endif
