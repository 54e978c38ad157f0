/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coding.h - how the slices of a tensor are coded on the network: by a compressor with its options, and with what is
 * done about what it loses.
 *
 * A coding has one text that stands for it in all processes, so that whoever has the text can code alike:
 *
 *   plugin=onebit; feedback=true; momentum=none; mu=0.9; seed=0; min_bytes=0; start=0; auto=false;
 *   scaling=true; version=0.1.0 format 0
 *
 * Compressors get elements of float32 or float64. The 16-bit types are widened to float32; what is no floating point
 * is never coded.
 */
#ifndef BPS_CODING_CODING_H
#define BPS_CODING_CODING_H

#include <pthread.h>
#include <stdatomic.h>

#include <byteps/compressor.h>

#include "coding/trial.h"
#include "conf/conf.h"
#include "plugin/instance.h"

#define BPS_CODING_TEXT   512u /* bytes of a text, at most */
#define BPS_CODINGS_LIMIT 64u  /* that a worker can use beside each other */

/* Immutable but for what is counted, and the same for all threads: compressors keep nothing between two calls. */
struct bps_coding {
    struct bps_coding *next;
    uint32_t number; /* among the codings of its owner, from 1 */
    char text[BPS_CODING_TEXT];
    char problem[BPS_CODING_TEXT];   /* why this process cannot code so; "": it can */
    struct bps_instance *compressor; /* NULL: there is a problem */
    const struct bps_compressor_ops *ops;
    bool feedback;                             /* what coding has lost is added to the next round's contribution */
    bool momentum;                             /* of Nesterov, before that, by the worker */
    double mu;                                 /* its factor */
    uint64_t seed;                             /* of what a method draws */
    uint64_t min_bytes;                        /* of a tensor that is coded: smaller ones lose nothing */
    uint32_t start;                            /* rounds of a tensor that are exact: coding begins behind them */
    bool automatic;                            /* rounds are coded only where that pays, as `trial` finds: */
    struct bps_trial trial;                    /* [core] of the worker that speaks for rank 0 */
    uint32_t narrow;                           /* elements of a slice: of float32, */
    uint32_t wide;                             /* and of float64 */
    _Atomic uint64_t plain_bytes, coded_bytes; /* that a worker has sent: before and after coding */
};

/* The codings of a process that is a worker, or of a shard. Thread-safe. */
struct bps_codings {
    pthread_mutex_t lock;
    uint64_t slice; /* bytes that a slice has on the network, if the method allows */
    struct bps_coding *first;
    uint32_t count;
};

void bps_codings_init(struct bps_codings *codings, uint64_t slice);
void bps_codings_fini(struct bps_codings *codings);
/*
 * The coding that a group of the configuration describes; `path` stands for it in errors. With `automatic` it is so,
 * whatever the group says.
 */
bps_status bps_codings_of_group(struct bps_codings *codings, const struct bps_conf_node *group, const char *path,
                                bool automatic, struct bps_coding **out, struct bps_report *report);
/* The same of a text, which need not be complete: "plugin=onebit". */
bps_status bps_codings_of_text(struct bps_codings *codings, const char *text, struct bps_coding **out,
                               struct bps_report *report);
/* The coding of a peer's text; where this process cannot code so, one with a problem. NULL: no memory. */
struct bps_coding *bps_codings_of_peer(struct bps_codings *codings, const char *text);

/* The coding of that number, which there is. */
const struct bps_coding *bps_codings_at(struct bps_codings *codings, uint32_t number);

/* The type of the elements that a compressor gets of a tensor; BPS_DTYPES: it is not coded. */
uint32_t bps_coding_type(uint32_t dtype);
/* Whether tensors of this type are coded so. */
bool bps_coding_takes(const struct bps_coding *coding, uint32_t dtype);
/* Bytes of such a tensor that make a slice: as many as fit when they are coded. */
uint32_t bps_coding_slice(const struct bps_coding *coding, uint32_t dtype);
/*
 * What codes a round, for the instance of the coding's compressor. An exact one loses nothing: its elements are as they
 * are.
 */
const struct bps_compressor_ops *bps_coding_ops(const struct bps_coding *coding, bool exact);
/* Bytes that so many elements of the tensor need at most when coded. */
size_t bps_coding_bound(const struct bps_coding *coding, bool exact, uint32_t dtype, size_t count);

/* A worker has sent so many bytes coded, of so many plain ones. */
void bps_coding_count(struct bps_coding *coding, uint64_t plain, uint64_t coded);
/* Of all codings that this process has had: what was sent coded, and in *plain what that was before. */
uint64_t bps_coding_total(uint64_t *plain);

#define BPS_CODING_SERVER UINT32_MAX
/* What is drawn for a slice of a round, by the worker of this rank or by the server. */
struct bps_random bps_coding_random(const struct bps_coding *coding, uint32_t tensor, uint32_t partition,
                                    uint32_t round, uint32_t slice, uint32_t rank);

#endif
