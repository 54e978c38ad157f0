/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.h - what an engine keeps of a partition, and what it asks of a key of any kind: for the files of this folder, and
 * for those that add a kind.
 *
 * A kind is a table of functions in a file of its own (rounds.c, exchange.c). The engine finds or makes the key that a
 * frame is about, walks over all that wait, and knows none of the kinds. Most keys have open rounds, and some several:
 * who is ahead begins the next one, and rounds that have failed wait for those who have not come to them yet.
 */
#ifndef BPS_SUM_KEY_H
#define BPS_SUM_KEY_H

#define HASH_NONFATAL_OOM 1
/* Ids have 64 bits; the golden ratio spreads them over the upper half. */
#define HASH_FUNCTION(id, length, hash) ((hash) = (unsigned)(*(id) * 0x9e3779b97f4a7c15u >> 32))
#include <uthash.h>

#include "coding/feedback.h"
#include "sum/sum.h"

/* The first member of a round. */
struct bps_round_base {
    struct bps_round_base *next; /* of the key */
    struct bps_key *key;
    struct bps_round_id id;
    uint32_t holds;           /* cursors that point here, functions that are at work on it */
    uint64_t begun, reminded; /* ns */
    bps_status verdict;       /* BPS_OK, or how it failed */
    bool overdue;             /* that was said */
    char *failure;            /* why it failed; NULL: it has not */
};

/* A kind of keys. */
struct bps_key_ops {
    size_t bytes; /* of a key, whose first member is a struct bps_key; the rest is zero at first */
    /* Whether there can be this partition, so large, of a tensor of so many bytes. */
    bool (*has)(const struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size);
    /* As bps_sum_push(), _poison() and _fail(). The rank contributes here, and type and operation are known ones. */
    bps_status (*push)(struct bps_key *key, uint32_t rank, const struct bps_contribution *c,
                       struct bps_sum_cursor *cursor);
    bps_status (*poison)(struct bps_key *key, uint32_t rank, const struct bps_notice *poison);
    bps_status (*fail)(struct bps_key *key, const struct bps_notice *failed);
    void (*fini)(struct bps_key *key); /* optional: it is about to be freed */

    /* Of rounds; NULL, all these: its keys open none. What comes first opens one; NULL: no memory. */
    struct bps_round_base *(*open)(struct bps_key *key, const struct bps_contribution *c);
    /* A worker has left, or its link is lost: what the engine notes. */
    void (*leave)(struct bps_round_base *round, uint32_t rank);
    /* Who is missing, in words, and "" or what else there is to say of them. False: nobody waits. */
    bool (*missing)(const struct bps_round_base *round, char *text, size_t n, char *late, size_t room);
    /* Those who wait are told these words, or it ends with them. */
    void (*stalled)(struct bps_round_base *round, bool overdue, const char *text);
    /* Frees it, unless it is needed, or held. */
    void (*collect)(struct bps_round_base *round);

    /* Of slices, as bps_sum_wants_data() and bps_sum_delivered(); NULL, both: it passes none to events->result. */
    bool (*wants)(const struct bps_sum_slice *slice, uint32_t rank);
    void (*delivered)(struct bps_sum_slice *slice);
};

/* What a worker has of a round whose shard was lost: held.c. */
struct bps_held_note {
    struct bps_held_note *next; /* of the key */
    uint32_t rank, round, size, grid;
    bool for_group, applied;
    uint8_t bits[]; /* of its slices */
};

struct bps_key {
    uint64_t id; /* tensor << 32 | partition */
    const struct bps_key_ops *ops;
    struct bps_sum *sum;
    struct bps_round_base *rounds; /* that are open, the latest first */
    uint32_t open;                 /* how many these are */
    uint32_t done;                 /* rounds below this number are over, unless they are open */
    struct bps_feedback feedback;  /* of coded results */
    struct bps_held_note *notes;   /* what workers have of rounds: held.c */
    UT_hash_handle hh;
};

/* The key of a round; NULL: nothing has been heard of it. */
struct bps_key *bps_key_known(const struct bps_sum *sum, const struct bps_round_id *id);
/* The same, made if need be. BPS_ERR_PROTOCOL: this engine has none such. */
bps_status bps_key_find(struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size,
                        struct bps_key **out);
/* Nothing of the key is open, and nobody asks for its past. */
void bps_key_forget(struct bps_key *key, uint32_t kind);
/* For the end: all keys are gone, and what failures of open rounds take. */
void bps_keys_fini(struct bps_sum *sum);

/*
 * The round of a contribution, opened if need be. NULL with BPS_OK: it is over. BPS_ERR_PROTOCOL: more are open than
 * there can be.
 */
bps_status bps_key_round(struct bps_key *key, const struct bps_contribution *c, struct bps_round_base **out);
/* The open round of this number; NULL: there is none. */
struct bps_round_base *bps_key_open_round(const struct bps_key *key, uint32_t number);
/* The one that ends so. What it sums does not matter: it is going to fail. */
bps_status bps_key_ending(struct bps_key *key, const struct bps_notice *notice, struct bps_round_base **out);
/* A round of the key is open from now on; and no more, nor is what its failure takes. */
void bps_key_add(struct bps_key *key, const struct bps_round_id *id, struct bps_round_base *round);
void bps_key_remove(struct bps_round_base *round);
/* Calls fn for each open round of all keys; none is collected before all are through. */
typedef void (*bps_round_base_fn)(struct bps_round_base *round, const void *arg);
void bps_rounds_walk(struct bps_sum *sum, bps_round_base_fn fn, const void *arg);

/* Notes of rounds before this number are not needed any more. */
void bps_key_drop_notes(struct bps_key *key, uint32_t before);

/* Notes a failure, in the place of an earlier one. */
void bps_round_set_failure(struct bps_round_base *round, bps_status status, const char *text);

#endif
