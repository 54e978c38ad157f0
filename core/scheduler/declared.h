/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared.h - the scheduler's table of declared tensors: name to id, form and placement.
 *
 * The first worker that declares a name decides its form; the others are told and compare. All of them together
 * can change it. A tensor lives until all workers that have declared it have forgotten it.
 * Placement (placement.h) is twofold: which shard sums a partition, and which worker of a group leads it, that is,
 * sums it for the group and speaks with the shard. Groups of the same size have the same leaders. What is declared at
 * once is placed by size.
 */
#ifndef BPS_DECLARED_H
#define BPS_DECLARED_H

#include "node/book.h"
#include "scheduler/change.h"
#include "scheduler/placement.h"
#include "wire/message.h"

/* Out of memory in a hash table must be an error, not an exit. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct bps_declared_tensor {
    char *name;
    uint32_t id;
    uint32_t round; /* in which a worker that declares it now begins */
    struct bps_form form;
    struct bps_layout layout;
    struct bps_layout before; /* until round `from`; empty: nobody needs it */
    uint32_t from;
    struct bps_begun {
        uint32_t workers, least, most; /* who have said it, and the fewest and the most rounds */
    } begun;                           /* while tensors are about to move */
    uint32_t slice;                    /* bytes of the slices of its partitions, at most */
    uint32_t users;                    /* workers that have declared it and not forgotten it */
    uint64_t *user_bits;               /* a bit for each of the job's workers */
    struct bps_change *change;         /* of its form, under way; or NULL */
    uint32_t formed; /* reports of rounds before that are answered with the form that it has: that answer was lost */
    bool entered;    /* while it is put together what workers know: one of them is in `layout` */
    char *overdue;   /* the last one that not all have reported, in these words; owned; NULL: there is none */
    uint32_t overdue_round;
    UT_hash_handle by_name, by_id;
};

/* An id that no worker knows any more. */
struct bps_free_id {
    uint32_t id;
    uint32_t round; /* in which it is used next */
};

struct bps_declared {
    struct bps_declared_tensor *names, *ids;
    struct bps_placement placement;
    uint16_t *group;    /* by rank: the index of its group's size in a placement */
    uint64_t partition; /* bytes */
    uint32_t workers, groups;
    uint32_t last;            /* the largest id so far */
    struct bps_free_id *free; /* a stack */
    uint32_t frees;
    size_t free_room;
    uint32_t changes; /* under way */
    char closed[80];  /* why rounds of no other tensor can end; "": they can */
    struct bps_declared_move {
        uint32_t number;                     /* of those so far */
        uint32_t waits;                      /* workers that have not answered; 0: none is under way */
        uint32_t numbers[BPS_UNNAMED_KINDS]; /* of calls without a name: the first that nobody has begun */
        bool *asked;                         /* by rank: it has not */
    } move;
};

bps_status bps_declared_init(struct bps_declared *declared, const struct bps_book *book, uint64_t partition);
void bps_declared_fini(struct bps_declared *declared);
/*
 * Answers the DECLARE message of a worker: reads all names, places the new ones, writes the DECLARED message. New ones
 * are refused when it is closed: one of those who would have to take part is not there any more. It may have heard an
 * id from a scheduler that was lost, and have pushed under it what must not be mixed with anything else.
 */
bps_status bps_declared_answer(struct bps_declared *declared, uint32_t rank, struct bps_reader *request,
                               struct bps_writer *reply);

/* Reads a worker's FORGET message: what no worker knows any more is gone, and its id is free. */
bps_status bps_declared_forget(struct bps_declared *declared, uint32_t rank, struct bps_reader *request);

/* ---- for declared_change.c, declared_move.c and declared_known.c ---- */

/* A tensor that is not placed yet. Takes over name and form. NULL: no memory, or no such id. */
struct bps_declared_tensor *bps_declared_add(struct bps_declared *declared, char *name, struct bps_form *form,
                                             uint32_t id, uint32_t round);
/* This worker has declared it. */
void bps_declared_use(struct bps_declared_tensor *tensor, uint32_t rank);
/* A worker that tells no shape takes part in the form that others tell. */
bps_status bps_declared_learn(struct bps_declared_tensor *tensor, const struct bps_form *form);
/* No worker knows the id any more. BPS_ERR_NOMEM. */
bps_status bps_declared_free_id(struct bps_declared *declared, uint32_t id, uint32_t round);
/* Takes the tensor's place from it, for another form, or for good. */
void bps_declared_unplace(struct bps_declared *declared, struct bps_declared_tensor *tensor);
/* Places tensors that have no place, and sorts them. BPS_ERR_NOMEM: not all of them. */
bps_status bps_declared_place(struct bps_declared *declared, struct bps_declared_tensor **fresh, uint32_t n);
/* What DECLARED and CHANGED tell about a tensor. */
void bps_declared_write(const struct bps_declared *declared, uint32_t rank, const struct bps_declared_tensor *tensor,
                        struct bps_writer *w);
/* A layout of theirs, as this worker needs it. */
void bps_declared_write_layout(const struct bps_declared *declared, uint32_t rank, const struct bps_layout *layout,
                               struct bps_writer *w);

/* ---- declared_change.c ---- */

/* Sends a message to a worker. */
typedef void (*bps_declared_send_fn)(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *message);
/*
 * Reads a worker's CHANGE message. With the last one of a round the change is settled, and all workers are told:
 * if all have the same new form, where it is placed from now on, otherwise who has pushed what.
 */
bps_status bps_declared_change(struct bps_declared *declared, uint32_t rank, uint64_t now, struct bps_reader *request,
                               bps_declared_send_fn send, void *arg);
/* Fails all changes under way with these words. */
void bps_declared_refuse(struct bps_declared *declared, bps_status status, const char *text, bps_declared_send_fn send,
                         void *arg);
/* Reminds of changes that wait for longer than `warn` ns, fails those older than `limit` ns (0: never). */
void bps_declared_check_stalls(struct bps_declared *declared, uint64_t now, uint64_t warn, uint64_t limit,
                               bps_declared_send_fn send, void *arg);
/* All changes under way are `ns` younger: the time in which this process was stopped counts against nobody. */
void bps_declared_excuse(struct bps_declared *declared, uint64_t ns);

/* ---- declared_move.c ---- */

/*
 * Tensors are about to move to other shards: asks all workers, which begin no further rounds meanwhile, for the rounds
 * that they have begun. False: not now.
 */
bool bps_declared_move(struct bps_declared *declared, bps_declared_send_fn send, void *arg);
/* Reads a worker's BEGUN message. True in *all: it was the last one. BPS_ERR_PROTOCOL. */
bps_status bps_declared_begun(struct bps_declared *declared, uint32_t rank, struct bps_reader *answer, bool *all);
/* Then: whether no tensor that is on shards without a weight in the book has to stay there. */
bool bps_declared_can_leave(const struct bps_declared *declared, const struct bps_book *book);
/*
 * Places all tensors anew by the weights of the book, from the first round on that no worker has begun. What is
 * coded stays, as its shard has what was lost of it. BPS_ERR_NOMEM.
 */
bps_status bps_declared_moved(struct bps_declared *declared, const struct bps_book *book, bps_declared_send_fn send,
                              void *arg);
/* ---- declared_lost.c ---- */

/* Partitions of shards that are lost in this book go to their heirs, as workers find them, too. */
void bps_declared_inherit(struct bps_declared *declared, const struct bps_book *book);

/* ---- declared_move.c, again ---- */

/* If a move is under way, nothing moves, and workers go on. */
void bps_declared_stay(struct bps_declared *declared, bps_declared_send_fn send, void *arg);

#endif
