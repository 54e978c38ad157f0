/* SPDX-License-Identifier: Apache-2.0 */
/* rates.c - shares that follow what links deliver. */
#include "scheduler/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BUSY 0.5  /* of the time: a link that others wait for is busy */
#define FULL       0.85 /* of the time of the busiest host: the link has nothing left */
#define STEP       1.25 /* so many times what was seen may go through one that has */
#define CHANGED    1.1  /* times what was known */
#define GAP        1.15
#define LEAST_GAIN 1.05 /* worth moving tensors for */
#define LOOKS      2u
#define RECORD     20u /* bytes, of a channel in a report */
#define TIMED      0.1 /* s that a channel was busy, before its rate says anything: kernels count in some ms */

bps_status bps_rates_init(struct bps_rates *rates, const struct bps_book *book)
{
    *rates = (struct bps_rates){.members = book->members};
    bps_status status = bps_hosts_init(&rates->hosts, book);
    if (status != BPS_OK) {
        return status;
    }
    rates->rate = calloc(rates->hosts.count, sizeof *rates->rate);
    rates->order = calloc(rates->hosts.count, sizeof(*rates->order));
    rates->reported = calloc(book->members, sizeof *rates->reported);
    if (rates->rate == NULL || rates->order == NULL || rates->reported == NULL) {
        bps_rates_fini(rates);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void bps_rates_fini(struct bps_rates *rates)
{
    bps_hosts_fini(&rates->hosts);
    free(rates->rate);
    free(rates->order);
    free(rates->reported);
    *rates = (struct bps_rates){.members = 0};
}

/* ---- looks ---- */

/* What a link has carried in this look; 0: it was not used. */
static double seen_of(const struct bps_rate *rate)
{
    return fmax(fmax(rate->out, rate->in), rate->fastest);
}

/* In how much of the time its channels are busy, on average, by what they carry. */
static double busy_of(const struct bps_rate *rate)
{
    return rate->carried > 0 ? rate->waited / rate->carried : 0;
}

/* Half of what is known comes from this look; but a link that carries more than was known has changed. */
static double learn_link(const struct bps_rate *rate, double most, double busiest)
{
    double seen = seen_of(rate);
    if (busy_of(rate) < FULL * busiest) {
        seen *= STEP;
    } else if (rate->link > 0 && seen > CHANGED * rate->link) {
        return most;
    }
    return seen == 0 || rate->link == 0 ? fmax(seen, rate->link) : (rate->link + seen) / 2;
}

static int by_link(const void *left, const void *right)
{
    const struct bps_rate *a = *(struct bps_rate *const *)left, *b = *(struct bps_rate *const *)right;
    return a->link < b->link ? -1 : a->link > b->link;
}

/*
 * Small differences are chance, and shares follow them with leverage, as what a host sends of its own takes most of its
 * link. So links are thought to be equal that no gap parts.
 */
static void rates_set_bandwidths(struct bps_rates *rates)
{
    uint32_t n = rates->hosts.count;
    for (uint32_t h = 0; h < n; h++) {
        rates->order[h] = &rates->rate[h];
    }
    qsort(rates->order, n, sizeof(*rates->order), by_link);
    for (uint32_t first = 0, next; first < n; first = next) {
        double sum = rates->order[first]->link;
        for (next = first + 1; next < n && rates->order[next]->link < GAP * rates->order[next - 1]->link; next++) {
            sum += rates->order[next]->link;
        }
        for (uint32_t i = first; i < next; i++) {
            rates->hosts.share[rates->order[i] - rates->rate].bandwidth = sum / (next - first);
        }
    }
}

/* False: of some link nothing is known, or none is busy enough to be what all wait for. */
static bool rates_learn(struct bps_rates *rates)
{
    bool known = true, bound = false;
    double most = 0, busiest = 0;
    for (uint32_t h = 0; h < rates->hosts.count; h++) {
        most = fmax(most, seen_of(&rates->rate[h]));
        busiest = fmax(busiest, busy_of(&rates->rate[h]));
    }
    for (uint32_t h = 0; h < rates->hosts.count; h++) {
        struct bps_rate *rate = &rates->rate[h];
        rate->link = learn_link(rate, most, busiest);
        known &= rate->link > 0;
        bound |= rate->busiest >= LEAST_BUSY;
    }
    rates_set_bandwidths(rates);
    return known && bound;
}

/* How many times faster a round would be. */
static double gain(const struct bps_rates *rates)
{
    uint32_t n = rates->hosts.count;
    struct bps_share *best = malloc(n * sizeof *best);
    double now = bps_share_time(rates->hosts.share, n), then = now;
    if (best != NULL) {
        memcpy(best, rates->hosts.share, n * sizeof *best);
        bps_share_set(best, n);
        then = bps_share_time(best, n);
    }
    free(best);
    return now / then;
}

/* The end of one. It says nothing if it was uneven, or somebody has not reported who had in the one before. */
static bool rates_look(struct bps_rates *rates)
{
    bool complete = !rates->uneven;
    rates->uneven = false;
    for (uint32_t i = 0; i < rates->members; i++) {
        complete &= rates->reported[i] != 2;
        rates->reported[i] = (uint8_t)(rates->reported[i] << 1 & 2);
    }
    if (complete) {
        rates->in_favour = rates_learn(rates) && gain(rates) >= LEAST_GAIN ? rates->in_favour + 1 : 0;
    }
    for (uint32_t h = 0; h < rates->hosts.count; h++) {
        rates->rate[h] = (struct bps_rate){.link = rates->rate[h].link};
    }
    return rates->in_favour >= LOOKS + rates->moves / 2;
}

/* ---- reports ---- */

/* One of the hosts at the ends of a channel. */
static void add_end(struct bps_rate *rate, double seconds, double bytes, double busy)
{
    rate->fastest = fmax(rate->fastest, busy >= TIMED ? bytes / busy : 0);
    rate->busiest = fmax(rate->busiest, busy / seconds);
    rate->carried += bytes;
    rate->waited += bytes * busy / seconds;
}

static void add_channel(struct bps_rates *rates, uint32_t from, uint32_t to, double seconds, double bytes, double busy)
{
    struct bps_rate *source = &rates->rate[rates->hosts.of[from]], *target = &rates->rate[rates->hosts.of[to]];
    source->out += bytes / seconds;
    target->in += bytes / seconds;
    add_end(source, seconds, bytes, busy);
    add_end(target, seconds, bytes, busy);
}

bps_status bps_rates_add(struct bps_rates *rates, uint32_t member, struct bps_reader *report, bool *better)
{
    double seconds = (double)bps_get_u64(report) / 1e9;
    uint32_t n = bps_get_u32(report);
    if (report->bad || seconds <= 0 || (size_t)(report->end - report->at) / RECORD < n) {
        return BPS_ERR_PROTOCOL;
    }
    *better =
        (rates->reported[member] & 1) != 0 && rates_look(rates); /* the second of one: all had time for their first */
    rates->reported[member] |= 1;
    rates->uneven |= n == 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t peer = bps_get_u32(report);
        uint64_t bytes = bps_get_u64(report), busy = bps_get_u64(report);
        if (report->bad || peer >= rates->members) {
            return BPS_ERR_PROTOCOL;
        }
        if (rates->hosts.of[peer] != rates->hosts.of[member]) {
            add_channel(rates, member, peer, seconds, (double)bytes, (double)busy / 1e9);
        }
    }
    return bps_reader_done(report) ? BPS_OK : BPS_ERR_PROTOCOL;
}

bps_status bps_rates_take(struct bps_rates *rates, struct bps_book *book)
{
    rates->in_favour = 0;
    rates->moves++;
    bps_share_set(rates->hosts.share, rates->hosts.count);
    return bps_hosts_weigh(&rates->hosts, book);
}
