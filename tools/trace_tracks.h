/* SPDX-License-Identifier: Apache-2.0 */
/* trace_tracks.h - where a viewer draws each event of a trace: in which process, and in which row of it. */
#ifndef BPS_CMD_TRACE_TRACKS_H
#define BPS_CMD_TRACE_TRACKS_H

#include "tools/trace_read.h"

struct bps_cmd_trace_place {
    uint32_t pid, tid;
};

/* A further row of a thread, whose events overlap. */
struct bps_cmd_trace_lane {
    struct bps_cmd_trace_place place;
    const char *name; /* of the thread; lives as long as the trace */
    uint32_t number;  /* from 2 on */
};

struct bps_cmd_trace_tracks {
    struct bps_cmd_trace_place *place; /* of each event */
    int64_t *pid;                      /* of each member; -1: none */
    struct bps_cmd_trace_lane *lane;
    size_t lanes;
};

/* No two files share a pid. Events of a thread lie in or beside each other, as viewers want it. Sorts the threads. */
void bps_cmd_trace_tracks_make(struct bps_cmd_trace *trace, struct bps_cmd_trace_tracks *out);
void bps_cmd_trace_tracks_fini(struct bps_cmd_trace_tracks *tracks);

#endif
