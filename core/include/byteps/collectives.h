/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.h - operations of all workers beside push_pull and broadcast, under the names that MPI gave them.
 *
 * Each tensor is made of blocks, which lie one after the other. n is the number of workers, r the rank of this one.
 *
 *                       in                         out
 *     reduce            1 block                    on the root 1 block, the op over those of all workers
 *     reduce_scatter    n blocks, one for each     1 block: the op over all workers' blocks r
 *     all_gather        1 block                    n blocks, those of all workers
 *     gather            1 block                    on the root n blocks
 *     scatter           on the root n blocks       1 block: that for r
 *     all_to_all        n blocks, one for each     n blocks, one from each
 *
 * In a process group (groups.h) n is its size, and ranks are those in the group.
 *
 * A block has `count` elements. Blocks of different sizes have counts[n], one for each rank, on those that have all n:
 * in_counts of n blocks in `in`, out_counts of n blocks in `out`. The single block on the other side has counts[r]
 * elements, or `count` in a gather and a scatter, where only the root has counts. Blocks may be empty.
 *
 * In place: reduce with out = in; reduce_scatter with out = where block r of `in` lies; all_gather, and gather on the
 * root, with in = where block r of `out` lies; scatter on the root with out = where block r of `in` lies. in and out
 * must not overlap otherwise.
 *
 * The operations have no names: the i-th call of a worker, push_pulls and broadcasts without a name counted, meets the
 * i-th of the others; those of each process group, its barriers too, are counted apart. If kind, type, op, root or
 * sizes differ it ends with BPS_ERR_MISMATCH, and a text that names the odd one out, on all workers; where root and
 * another worker, or two workers of an all_to_all, differ about the size of a block that only they have, on these.
 * Workers of one host do not sum among themselves first, and neither stages of worker.graph nor codings work on blocks.
 * Tensors on a device are copied to the host and back, behind what its stream has been given.
 */
#ifndef BYTEPS_COLLECTIVES_H
#define BYTEPS_COLLECTIVES_H

#include <byteps/byteps.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set what you do not need to 0. */
struct bps_collective {
    size_t size; /* sizeof(struct bps_collective) */
    const void *in;
    void *out;                              /* not used where a worker gets nothing */
    uint64_t count;                         /* elements of a block, where there are no counts */
    const uint64_t *in_counts, *out_counts; /* as above; read before the call returns */
    uint32_t dtype;
    uint32_t op;                /* of reduce and reduce_scatter */
    uint32_t root;              /* of reduce, gather and scatter */
    int32_t priority;           /* as in struct bps_push_pull, as are all that follow */
    double prescale, postscale; /* of reduce and reduce_scatter; both 0: none */
    bps_done_fn done;
    void *arg;
    struct bps_device device;
    uint32_t group; /* 0: all workers; or from bps_group_new(). Since ABI 1.1 */
    uint32_t tag;   /* of bps_send() and bps_recv(). Since ABI 1.1 */
};

/* Each starts the operation and returns at once, as bps_push_pull_async() does, with the same errors. */
BPS_API bps_status bps_reduce_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
BPS_API bps_status bps_reduce_scatter_async(const struct bps_collective *request, bps_handle *out,
                                            struct bps_report *report);
BPS_API bps_status bps_all_gather_async(const struct bps_collective *request, bps_handle *out,
                                        struct bps_report *report);
BPS_API bps_status bps_gather_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
BPS_API bps_status bps_scatter_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
BPS_API bps_status bps_all_to_all_async(const struct bps_collective *request, bps_handle *out,
                                        struct bps_report *report);

/* Each starts the operation and waits for it, as bps_push_pull() does, without a time-out. `done` must be NULL. */
BPS_API bps_status bps_reduce(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_reduce_scatter(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_all_gather(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_gather(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_scatter(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_all_to_all(const struct bps_collective *request, struct bps_report *report);

#ifdef __cplusplus
}
#endif

#endif
