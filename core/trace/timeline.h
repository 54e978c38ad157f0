/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h - spans as a file that Perfetto and Chrome show. */
#ifndef BPS_TRACE_TIMELINE_H
#define BPS_TRACE_TIMELINE_H

#include <stdio.h>

#include "trace/span.h"

/* What the spans have numbers for. */
struct bps_trace_words {
    const struct bps_trace_member *member;
    const char *(*tensor)(uint32_t id); /* NULL: it is not known */
    const char *(*label)(uint16_t label);
    void (*each_tensor)(void (*fn)(void *arg, uint32_t id, const char *name), void *arg);
    uint64_t lost; /* records */
};

/* JSON as docs/timeline.md has it, one event in each line. */
void bps_trace_print(FILE *file, const struct bps_trace_spans *spans, const struct bps_trace_words *words);

#endif
