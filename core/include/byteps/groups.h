/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h - process groups: operations of some of the workers; and messages from one worker to another.
 *
 * Requests of byteps.h and collectives.h have a `group`. Its members alone take part; ranks, roots and counts of blocks
 * in it are by the order in which bps_group_new() was given them. Each group has its own order of operations, which
 * have no names: threads may use different groups at the same time. A group costs neither a connection nor a thread.
 * Members on one host do all of it among themselves, and so do two of one host that send to each other: this does not
 * touch the network (docs/collectives.md has when). Of members on several hosts, shards sum, those of members that host
 * any; members of one host do not sum among themselves first. Stages of worker.graph and codings do not work on it.
 *
 * A server that is lost and has summed for a group ends the job. Groups end with the job, or with bps_reform().
 */
#ifndef BYTEPS_GROUPS_H
#define BYTEPS_GROUPS_H

#include <byteps/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a group of n different workers of the job. All workers of the job call this, members or not, in the same order
 * and with the same ranks: it returns when all have, with BPS_ERR_MISMATCH on all of them if they differ. *out is a
 * number other than 0.
 */
BPS_API bps_status bps_group_new(const uint32_t *ranks, uint32_t n, uint32_t *out, struct bps_report *report);
/*
 * The same, called by the members alone, which have agreed on a number for the group: below BPS_GROUP_NUMBERS,
 * and of no other group in the life of the job. It returns at once. Members with different ranks end the job.
 */
BPS_API bps_status bps_group_open(uint32_t number, const uint32_t *ranks, uint32_t n, uint32_t *out,
                                  struct bps_report *report);
#define BPS_GROUP_NUMBERS (1u << 30)
/*
 * This worker begins nothing in the group any more; operations in flight go on. BPS_ERR_INVALID: there is none such.
 * Each worker frees it for itself, at any time.
 */
BPS_API bps_status bps_group_free(uint32_t group, struct bps_report *report);
/* Its size, and the rank of this worker in it; UINT32_MAX: it is no member. Of 0: the job's. BPS_ERR_INVALID. */
BPS_API bps_status bps_group_place(uint32_t group, uint32_t *rank, uint32_t *size, struct bps_report *report);
/* Returns when all members have called it. */
BPS_API bps_status bps_group_barrier(uint32_t group, struct bps_report *report);
BPS_API bps_status bps_group_barrier_async(uint32_t group, bps_done_fn done, void *arg, bps_handle *out,
                                           struct bps_report *report);

#define BPS_TAGS 1024u

/*
 * Sends `count` elements of `in` to the worker `root`, or receives them from it in `out`. The n-th message to a worker
 * meets the n-th that this receives from the sender, of each tag (below BPS_TAGS) apart. Type and count must be equal:
 * else both get BPS_ERR_MISMATCH. A send has ended when its message is received. In a process group `root` is a rank of
 * it, and its messages are in one order with all others of these two workers.
 */
BPS_API bps_status bps_send_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
BPS_API bps_status bps_recv_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
/* The same, and wait. `done` must be NULL. */
BPS_API bps_status bps_send(const struct bps_collective *request, struct bps_report *report);
BPS_API bps_status bps_recv(const struct bps_collective *request, struct bps_report *report);

#ifdef __cplusplus
}
#endif

#endif
