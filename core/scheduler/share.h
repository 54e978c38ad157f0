/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - how much each host should sum, and how long that takes.
 *
 * The workers of a host are summed there first, and one sum crosses the network; where that is not so, each
 * sends its own. A host that sends r of all N contributions sends them for what is summed elsewhere, and for
 * what it sums itself it sends the result to the N - r others. A host without workers sends all N results of
 * what it sums. The shares are those that make the busiest link least busy. On equal links, with servers on
 * all n hosts with workers and on k <= n others, that is the optimum of BytePS (OSDI '20): (n-k)/(n^2+kn-2k)
 * of the bytes for each of the n and 2(n-1)/(n^2+kn-2k) for each of the k. With k >= n the k others share it
 * all.
 */
#ifndef BPS_SHARE_H
#define BPS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct bps_share {
    uint32_t senders; /* contributions that its workers send; 0: it has no workers */
    bool serves;      /* it has servers */
    double bandwidth; /* of its link, relative to the others; above 0 */
    double share;     /* of all bytes: 0..1 */
};

/* Sets the shares of n hosts; those that do not serve get 0. At least one serves. */
void bps_share_set(struct bps_share *host, uint32_t n);

/* How long the link of the i-th host is busy, in units of the time for all bytes on a link of bandwidth 1. */
double bps_share_busy(const struct bps_share *host, uint32_t n, uint32_t i);
/* The same for the busiest link, which is the time for all. */
double bps_share_time(const struct bps_share *host, uint32_t n);

/* A share of a server as the weights of its shards, whole numbers that are the same on every member. */
uint32_t bps_share_weight(double share, uint32_t shards);

/*
 * What "auto" means (BPS_COLOCATED_*) on these n hosts, of which senders and bandwidths are known, where `servers`
 * processes were asked for: servers near the workers, if they relieve the network. Changes what serves, and the shares.
 */
uint32_t bps_share_colocated(uint32_t wanted, struct bps_share *host, uint32_t n, uint32_t servers);

#endif
