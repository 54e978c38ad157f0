/* SPDX-License-Identifier: Apache-2.0 */
/* trace/clock.h - this host's clock beside the one that the timelines of a job have in common: the scheduler's. */
#ifndef BPS_TRACE_CLOCK_H
#define BPS_TRACE_CLOCK_H

#include <stdint.h>

/*
 * The other clock was asked at `asked`, said `told`, and was heard at `heard`: it was read somewhere between the two,
 * so half of what lies between them is the error. [any thread]
 */
void bps_trace_clock_compare(uint64_t asked, uint64_t told, uint64_t heard);
/* Another job begins, perhaps with another clock. */
void bps_trace_clock_forget(void);
/* A time of this host as the common clock has it; without a comparison they are taken for the same. [any thread] */
uint64_t bps_trace_clock_common(uint64_t at);
/* ns by which that may be wrong: the largest error of a comparison that counts. */
uint64_t bps_trace_clock_error(void);

#endif
