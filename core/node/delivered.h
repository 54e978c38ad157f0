/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delivered.h - what the channels of this process have delivered: the scheduler gives tensors places by that.
 *
 * The loop that a channel is on looks at it from time to time; the member's loop reports. See scheduler/rates.h.
 */
#ifndef BPS_NODE_DELIVERED_H
#define BPS_NODE_DELIVERED_H

#include <stdatomic.h>

#include "wire/link.h"

#define BPS_RATES_EVERY (600 * BPS_MS)

/* To one peer, since it was reported last. */
struct bps_delivered {
    atomic_uint_least64_t bytes, busy; /* busy: ns */
};

/* What was seen of a channel when it was looked at last. */
struct bps_delivered_mark {
    uint64_t bytes, busy;
};

/* Adds what the link has delivered since the last look; nothing if its transport does not know. [its loop] */
void bps_delivered_look(struct bps_delivered *delivered, struct bps_delivered_mark *mark, const struct bps_link *link);
/* Writes it as a RATES message has it, and begins anew. Returns how many entries: 0, nothing was delivered, or 1. */
uint32_t bps_delivered_report(struct bps_delivered *delivered, uint32_t member, struct bps_writer *w);

#endif
