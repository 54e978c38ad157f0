/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span.h - records of beginnings and ends to spans of time on tracks. Pure.
 *
 * Spans of one kind and peer, or label, are on one track; those of them that overlap are on different lanes of it.
 */
#ifndef BPS_TRACE_SPAN_H
#define BPS_TRACE_SPAN_H

#include <stddef.h>

#include "trace/trace.h"

struct bps_trace_lane {
    struct bps_trace_record of; /* the first that was on it: kind, peer and label are those of all */
    uint32_t number;            /* within its track, from 0 */
};

struct bps_trace_span {
    struct bps_trace_record begin;
    uint64_t until; /* ns */
    bool finished;
    uint32_t lane; /* index into the lanes */
};

struct bps_trace_spans {
    size_t n, lanes;
    struct bps_trace_span *span; /* by their beginning */
    struct bps_trace_lane *lane;
};

/* Of records that are ordered by time; what has not ended does so `now`. BPS_ERR_NOMEM. Freed in any case. */
bps_status bps_trace_pair(const struct bps_trace_record *record, size_t n, uint64_t now, struct bps_trace_spans *out);
void bps_trace_spans_free(struct bps_trace_spans *spans);

#endif
