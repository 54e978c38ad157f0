/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - the records of all threads. */
#ifndef BPS_TRACE_RING_H
#define BPS_TRACE_RING_H

#include <stddef.h>

#include "trace/trace.h"

/* [any thread] To the ring of this thread. */
void bps_ring_put(const struct bps_trace_record *record);
/*
 * All records of all threads, by time; owned by the caller. NULL: there are none, or there is no memory. *lost: how
 * many newer ones have replaced, or found no memory.
 */
struct bps_trace_record *bps_ring_all(size_t *n, uint64_t *lost);

#endif
