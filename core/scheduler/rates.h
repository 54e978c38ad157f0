/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.h - what the links of hosts really deliver, and when that asks for other shares.
 *
 * Members say every 0.6 s what each of their channels has delivered, and in how much of the time something was on
 * its way there. From that each host's link is known from below: it carries at least what the host has sent, or got,
 * and at least what one channel carries while it is busy. Where one link is slower than others all hosts go at its
 * pace; then the channels that do not end there are idle most of the time, and what they carry while they are not tells
 * that the other links can do more: how much more is tried step by step.
 *
 * The shares that suit these rates best are taken if they would save some of the time, in several looks in a row: the
 * more often tensors have moved, the more of them. A job whose links are mostly idle keeps its shares: nothing can be
 * known, or won. Nor is anything known from a look in which a member has sent much else than push_pulls, and therefore
 * reports no channels: a gather, say, fills one link alone.
 */
#ifndef BPS_RATES_H
#define BPS_RATES_H

#include "scheduler/weigh.h"
#include "wire/message.h"

struct bps_rate {
    double out, in; /* bytes per second since the last look: what the host has sent to others, and got */
    double fastest; /* of a channel while it was busy */
    double busiest; /* 0..1, of the time: the busiest channel */
    double carried; /* bytes of all its channels, */
    double waited;  /* each times the part of the time in which it was busy */
    double link;    /* what the link carries, from all looks; 0: not known */
};

struct bps_rates {
    struct bps_hosts hosts;
    struct bps_rate *rate;   /* of each host */
    struct bps_rate **order; /* the slowest first */
    uint8_t *reported;       /* by member: bit 0 since the last look, bit 1 in the one before */
    uint32_t members;
    bool uneven;        /* other operations than push_pull had a part in this look */
    uint32_t in_favour; /* looks in a row that other shares would have been better in */
    uint32_t moves;     /* so far */
};

/* For the members and shares of a book. */
bps_status bps_rates_init(struct bps_rates *rates, const struct bps_book *book);
void bps_rates_fini(struct bps_rates *rates);
/*
 * Reads a RATES message. True in *better: other shares are better, as bps_rates_take() sets them. BPS_ERR_PROTOCOL.
 */
bps_status bps_rates_add(struct bps_rates *rates, uint32_t member, struct bps_reader *report, bool *better);
/* Takes the shares that suit the links best, and gives them to the shards of the book. */
bps_status bps_rates_take(struct bps_rates *rates, struct bps_book *book);

#endif
