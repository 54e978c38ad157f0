/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - small tensors within a host: each worker sends its contribution to all others, and sums for
 * itself.
 *
 * That is one way instead of two, and all do the same at the same time; for few bytes it is worth the copies.
 * Contributions are summed in the order of ranks, so the result is the same bit by bit on all workers. A round
 * ends with the sum of all contributions or with a failure. What everybody sees for himself (contributions
 * that disagree) everybody finds in the same words; all else one worker says for all, whom the others tell what
 * they know.
 *
 * That is a kind of keys in the engine of a group that is the whole job (sum.h; config.leader: who we are). Tensors
 * have a name and one partition. A worker is at most one round of a tensor ahead of another one, except by rounds that
 * have failed.
 *
 * Notices for us: a round that we have entered has failed, and is gone; or waits; or is to be poisoned
 * (BPS_NOTICE_POISON), as it is overdue, or waits for a worker that has left. Those for others: somebody has poisoned a
 * round, tell them that it has failed. bps_sum_poison(): we are the one who says so to all.
 */
#ifndef BPS_SUM_EXCHANGE_H
#define BPS_SUM_EXCHANGE_H

#include "sum/sum.h"

#define BPS_EXCHANGE_BYTES   (16u << 10) /* at most, of a contribution */
#define BPS_EXCHANGE_WORKERS 32u         /* at most */

struct bps_exchange_round;

extern const struct bps_key_ops bps_exchange_ops;

/*
 * We come to the round of this contribution of ours, and leave all earlier ones of the tensor behind.
 * NULL with BPS_OK: it has failed, which `failed` was told.
 */
bps_status bps_exchange_enter(struct bps_sum *sum, const struct bps_contribution *own, struct bps_exchange_round **out);
/*
 * Our contribution to it. It counts with bps_exchange_ready(): until then `from` is still sent, and may not
 * be overwritten, as it is if it is `to`. An error: the reducer cannot do that, and there is none.
 */
bps_status bps_exchange_contribute(struct bps_exchange_round *round, const void *from, void *to, void *task,
                                   struct bps_report *report);
void bps_exchange_ready(struct bps_exchange_round *round);

#endif
