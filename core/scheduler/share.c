/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - the least busy links: how hosts share the summation. */
#include "scheduler/share.h"

#include <math.h>

#include "conf/conf.h"

#define WEIGHT_UNIT 0x1p30 /* of a share of 1: the sum of all weights stays below 2^32 */
#define LEAST_SHARE 1e-9   /* less is nothing */

static double all_senders(const struct bps_share *host, uint32_t n)
{
    double all = 0;
    for (uint32_t i = 0; i < n; i++) {
        all += host[i].senders;
    }
    return all;
}

/* What its link carries in each direction, in units of all bytes, is `own` and `more` times its share. */
static double own(const struct bps_share *host)
{
    return host->senders;
}

static double more(const struct bps_share *host, double all)
{
    return all - 2.0 * host->senders;
}

/* How much it can sum until t. */
static double capacity(const struct bps_share *host, double all, double t)
{
    double free = t * host->bandwidth - own(host);
    return host->serves && free > 0 ? free / more(host, all) : 0;
}

double bps_share_busy(const struct bps_share *host, uint32_t n, uint32_t i)
{
    return (own(&host[i]) + more(&host[i], all_senders(host, n)) * host[i].share) / host[i].bandwidth;
}

double bps_share_time(const struct bps_share *host, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, bps_share_busy(host, n, i));
    }
    return most;
}

/*
 * What hosts sum that send half of all contributions costs their links nothing: what they push less, they
 * answer more. The others take what they can while every host is busy with its own workers; the rest is
 * spread over those hosts.
 */
static void share_freely(struct bps_share *host, uint32_t n, double all)
{
    double t = 0, others = 0, speed = 0;
    for (uint32_t i = 0; i < n; i++) {
        t = fmax(t, own(&host[i]) / host[i].bandwidth);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool costs_nothing = host[i].serves && more(&host[i], all) == 0;
        host[i].share = costs_nothing ? 0 : capacity(&host[i], all, t);
        others += host[i].share;
        speed += costs_nothing ? host[i].bandwidth : 0;
    }
    double rest = fmax(0, 1 - others);
    for (uint32_t i = 0; i < n; i++) {
        bool costs_nothing = host[i].serves && more(&host[i], all) == 0;
        host[i].share = costs_nothing ? rest * host[i].bandwidth / speed : host[i].share / fmax(1, others);
    }
}

/*
 * The least t in which all can be summed is found by leaving out, until there are none, the hosts whose links
 * are busy with their own workers for longer than the t of all that are left.
 */
static void share_by_time(struct bps_share *host, uint32_t n, double all)
{
    double t = INFINITY;
    uint32_t before, taking = UINT32_MAX;
    do {
        double speed = 0, late = 0;
        before = taking;
        taking = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (capacity(&host[i], all, t) > 0) {
                speed += host[i].bandwidth / more(&host[i], all);
                late += own(&host[i]) / more(&host[i], all);
                taking++;
            }
        }
        t = (1 + late) / speed;
    } while (taking < before);
    for (uint32_t i = 0; i < n; i++) {
        host[i].share = capacity(&host[i], all, t);
    }
}

void bps_share_set(struct bps_share *host, uint32_t n)
{
    double all = all_senders(host, n);
    uint32_t most = 0; /* which serving host sends most */
    for (uint32_t i = 0; i < n; i++) {
        host[i].share = 0;
        most = host[i].serves && (!host[most].serves || host[i].senders > host[most].senders) ? i : most;
    }
    if (more(&host[most], all) < 0) {
        host[most].share = 1; /* the more it sums, the less its link has to do */
    } else if (more(&host[most], all) == 0) {
        share_freely(host, n, all);
    } else {
        share_by_time(host, n, all);
    }
}

uint32_t bps_share_weight(double share, uint32_t shards)
{
    double weight = share * WEIGHT_UNIT / shards;
    return share <= LEAST_SHARE ? 0 : weight < 1 ? 1 : (uint32_t)lround(weight);
}

uint32_t bps_share_colocated(uint32_t wanted, struct bps_share *host, uint32_t n, uint32_t servers)
{
    uint32_t with_workers = 0;
    double near = 0;
    if (wanted != BPS_COLOCATED_AUTO) {
        return wanted;
    }
    for (uint32_t i = 0; i < n; i++) {
        with_workers += host[i].senders > 0;
        host[i].serves = true;
    }
    if (with_workers < 2) {
        return servers == 0 ? BPS_COLOCATED_FIRST : BPS_COLOCATED_NONE;
    }
    bps_share_set(host, n);
    for (uint32_t i = 0; i < n; i++) {
        near += host[i].senders > 0 ? host[i].share : 0;
    }
    return near > LEAST_SHARE ? BPS_COLOCATED_HOSTS : BPS_COLOCATED_NONE;
}
