/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - the tensors of a process by name and by slot, and those without a name, which are used again and again; and
 * the form and the coding of each.
 *
 * What is done with them it does not know: who owns the table keeps more of each, behind a struct bps_named. [app]
 */
#ifndef BPS_NAMES_NAMES_H
#define BPS_NAMES_NAMES_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include <byteps/byteps.h>

#include "graph/graph.h"
#include "node/form.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define BPS_CHUNK_SLOTS  1024u
#define BPS_CHUNKS_LIMIT 1024u

struct bps_named {
    struct bps_names *names; /* [const] the table */
    bps_tensor slot;         /* [const] index in it */
    char *name;              /* [const] unnamed ones have one for messages */
    bool unnamed;
    struct bps_form form; /* as this worker has declared it, or has pushed it last; dtype BPS_DTYPES: unknown */
    _Atomic bool formed;  /* it is known, and changed only by the operation in flight, under the table's lock */
    struct bps_coding *coding, *choice; /* of its form, NULL: none; what its declaration has asked for */
    char *words;                        /* in these words; owned; NULL: the configuration says */
    uint32_t mode;                      /* enum bps_mode, as declared */
    TAILQ_ENTRY(bps_named) unused;
    UT_hash_handle hh;
};
TAILQ_HEAD(bps_named_list, bps_named);

/* What the owner of a table keeps of each. */
struct bps_named_ops {
    size_t bytes; /* with the struct bps_named that it begins with */
    /* It stands for another tensor from now on; fresh: the rest of it is zero. The lock is held. */
    void (*taken)(struct bps_named *named, bool fresh);
    void (*fini)(struct bps_named *named);
};

struct bps_names {
    const struct bps_named_ops *ops;
    struct bps_graph *graph; /* [const] whose configuration says how tensors are coded */
    uint64_t partition;      /* [const] bytes */
    pthread_mutex_t lock;    /* guards all that follows; reading a published slot needs none */
    struct bps_named **chunk[BPS_CHUNKS_LIMIT];
    _Atomic uint32_t count; /* slots published; 0 is not used */
    struct bps_named *by_name;
    struct bps_named_list unused; /* unnamed, and forgotten */
    uint32_t calls, barriers;     /* without a name so far; their order is their identity */
};

/* ---- names.c ---- */
bps_status bps_names_init(struct bps_names *names, const struct bps_named_ops *ops);
void bps_names_fini(struct bps_names *names);
/* Refuses names that are too long, or empty. */
bps_status bps_names_check(const char *name, struct bps_report *report);
/* The tensor of this name; NULL: there is none. The lock is held. */
struct bps_named *bps_names_find(const struct bps_names *names, const char *name);
/*
 * The same, made if there is none. NULL: no memory. The lock is held; when it no longer is, another thread may forget a
 * tensor whose operation was not taken meanwhile.
 */
struct bps_named *bps_names_get(struct bps_names *names, const char *name, struct bps_report *report);
/* A tensor for one call without a name, or barrier, and its number. NULL: no memory. */
struct bps_named *bps_names_next(struct bps_names *names, bool barrier, uint32_t *number);
/* The same for a call that its owner has counted; this name is for messages. */
struct bps_named *bps_names_call(struct bps_names *names, const char *name);
/* Its name is free for another one. The lock is held. */
void bps_names_forget(struct bps_named *named);
/* Nobody knows its form any more; bps_names_put() follows. */
void bps_named_strip(struct bps_named *named);
/* Adds a tensor to those that a further call or name may take. */
void bps_names_put(struct bps_named *named);
/* NULL: there is no such tensor. */
static inline struct bps_named *bps_names_at(const struct bps_names *names, bps_tensor slot)
{
    bool there = slot != 0 && slot < atomic_load_explicit(&names->count, memory_order_acquire);
    return there ? names->chunk[slot / BPS_CHUNK_SLOTS][slot % BPS_CHUNK_SLOTS] : NULL;
}

/* ---- form.c ---- */
/* Refuses types that do not exist, sizes that cannot be, and shapes of another size. */
bps_status bps_names_check_form(const struct bps_names *names, uint32_t dtype, uint64_t count, uint32_t ndim,
                                const int64_t *shape, struct bps_report *report);
/*
 * Takes what a declaration says about its coding: a text, or "" for none. BPS_ERR_MISMATCH: it is known to be another.
 * The lock is held.
 */
bps_status bps_named_choose(struct bps_named *named, const char *coding, struct bps_report *report);
/* The same of its mode. BPS_ERR_INVALID: there is none such. */
bps_status bps_named_choose_mode(struct bps_named *named, uint32_t mode, struct bps_report *report);
/* Fixes the form, or compares it with the one that is known. The lock is held. */
bps_status bps_named_fix(struct bps_named *named, struct bps_form *form, struct bps_report *report);
/* Gives the tensor, whose operation the caller has taken, the form of a request. */
bps_status bps_named_reform(struct bps_named *named, const struct bps_push_pull *request);

#endif
