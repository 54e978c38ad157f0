/* SPDX-License-Identifier: Apache-2.0 */
/* timers.h - the timers of one event loop, the earliest deadline first. */
#ifndef BPS_BASE_TIMERS_H
#define BPS_BASE_TIMERS_H

#include <byteps/plugin.h> /* bps_call_fn, struct bps_timer */

#include "base/heap.h"

/* All zero: no timers. */
struct bps_timers {
    struct bps_heap heap;
    uint64_t late; /* ns from the deadline to the call of the timer that was called last */
};

void bps_timers_fini(struct bps_timers *timers);
/* NULL: no memory. */
struct bps_timer *bps_timers_add(struct bps_timers *timers, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                 void *arg);
/* NULL and a one-shot timer within its own callback are allowed. */
void bps_timers_cancel(struct bps_timers *timers, struct bps_timer *timer);
/* The earliest deadline; UINT64_MAX: none. */
uint64_t bps_timers_next(const struct bps_timers *timers);
/* Calls what is due at `now` (bps_now()). Callbacks may add and cancel any timer. */
void bps_timers_fire(struct bps_timers *timers, uint64_t now);

#endif
