/* SPDX-License-Identifier: Apache-2.0 */
/* value_key.h - a key that keeps a value, for the files that make one: value.c, value_rows.c, value_heir.c. */
#ifndef BPS_SUM_VALUE_KEY_H
#define BPS_SUM_VALUE_KEY_H

#include "sum/round.h"
#include "sum/value.h"

/* A slice of the value, as it is or was; behind it what bps_value_tail() has. */
struct bps_value_version {
    uint32_t uses; /* the key's, if it is the newest, and those of answers */
    uint32_t bytes;
    bool sealed;     /* what is behind it is there */
    char unused[55]; /* blocks of the pool are aligned to a cache line, and so is what follows */
    char data[];
};

/* What is in a slice of a worker. */
struct bps_value_count {
    uint32_t next;   /* rounds of it before this one are, or are not to be added any more */
    uint32_t pushes; /* that have come */
};

struct bps_value_slice {
    struct bps_value_version *now;
    uint64_t number; /* of the version */
    uint32_t set;    /* the number of the broadcast that it is from; 0: it has no value */
    /* Of a slice that another shard had, which is lost: */
    bool unknown;   /* this one does not know yet what it was, */
    bool fresh;     /* or does now, and has not told those who wait */
    bool gone;      /* nobody who is there has it any more */
    uint32_t asked; /* 1 + the worker that is to tell; 0: nobody */
};

struct bps_value {
    struct bps_key key; /* the first member */
    struct bps_spec spec;
    struct bps_kernels kernels;
    const struct bps_instance *reducer;
    uint32_t size, grid, slices; /* bytes of the partition, and of its slices but the last; 0, 0, 0: nobody has come */
    struct bps_value_slice *slice;
    struct bps_value_count *counts; /* by slice, then by rank */
    struct bps_value_worker {
        uint32_t next;       /* the round that it may begin */
        uint32_t broadcasts; /* that it has begun here, */
        uint32_t ended;      /* and ended at a shard that is lost */
        bool held;           /* it has told what it has from a shard that is lost */
    } *worker;
    uint32_t view;    /* all have to tell what they have since the loss in it; 0: there was none */
    uint32_t unknown; /* slices */
    uint64_t *held;   /* by slice, then by rank: the numbers of the versions that workers have; NULL: none has told */
};

#define BPS_VALUE_NOBODY UINT32_MAX

static inline struct bps_value_count *bps_value_counts(const struct bps_value *v, uint32_t index)
{
    return v->counts + (size_t)index * v->key.sum->config.workers;
}

/* ---- value_key.c ---- */
/*
 * The first that is heard of it, from who knows of a loss in this view; 0: of none. If there was one, the value is not
 * known yet. BPS_ERR_NOMEM.
 */
bps_status bps_value_begin(struct bps_value *v, const struct bps_spec *spec, uint32_t size, uint32_t grid,
                           uint32_t view);
void bps_value_fini(struct bps_key *key);
/* Of so many bytes of a slice; NULL: no memory. */
struct bps_value_version *bps_value_version(struct bps_value *v, uint32_t bytes);
/* One use less of it. */
void bps_value_put(struct bps_value *v, struct bps_value_version *version);
/* Writes the tail of a slice as it is now; the one of its newest version, unless it is there; and reads one. */
void bps_value_put_tail(const struct bps_value *v, uint32_t index, char *to);
void bps_value_seal(struct bps_value *v, uint32_t index);
void bps_value_unseal(struct bps_value *v, uint32_t index, const char *tail);

/* ---- value_rows.c ---- */
/* Whether they are, of a slice of so many bytes. */
bool bps_value_are_rows(const void *data, uint32_t bytes, uint32_t size, const struct bps_spec *spec);
/* Makes a version of another one and of rows, times a scale, which are some; it may be the same. */
void bps_value_add_rows(const struct bps_value *v, const struct bps_value_version *from, struct bps_value_version *to,
                        uint32_t row, double scale, const void *rows, uint32_t bytes);
/* What rows are now takes the place of what was pushed to them. */
void bps_value_read_rows(const struct bps_value *v, uint32_t index, uint32_t row, void *rows, uint32_t bytes);

/* ---- value_heir.c ---- */
/* Who sends something knows of a loss in this view: what is not known yet waits until all have told of that. */
void bps_value_needs(struct bps_value *v, uint32_t view);
/* Something has changed: asks for what is to be known, if all have told. */
void bps_value_look(struct bps_value *v);
/* A FINAL. */
bps_status bps_value_restore(struct bps_value *v, uint32_t rank, uint32_t offset, const void *data, uint32_t bytes);
/* Of a slice that is not known yet: a worker that it waits for. */
uint32_t bps_value_lacks(const struct bps_value *v, uint32_t index);

#endif
