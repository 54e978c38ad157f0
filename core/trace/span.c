/* SPDX-License-Identifier: Apache-2.0 */
/* span.c - beginnings and ends to spans. An end without a beginning, which the ring has lost, is left out. */
#include "trace/span.h"

#include <stdlib.h>

#include "base/array.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* What beginning and end of a span have alike. */
struct key {
    uint32_t tensor, round, partition, offset, peer, kind_and_label;
};

/* A span that has not ended. */
struct open {
    struct key key;
    uint32_t span;
    UT_hash_handle hh;
};

struct track {
    struct key key; /* but tensor, round, partition and offset */
    uint32_t lanes, unused;
    size_t room;
    uint32_t *lane; /* those that nothing is on */
    UT_hash_handle hh;
};

struct pairing {
    struct bps_trace_spans *out;
    size_t lanes_room;
    struct open *open, *entries;
    struct track *tracks;
    bool short_of_memory;
};

static struct key span_key_of(const struct bps_trace_record *r)
{
    return (struct key){r->tensor, r->round, r->partition, r->offset, r->peer, (uint32_t)r->kind << 16 | r->label};
}

/* Operations have labels, too, but one track. */
static struct track *track_of(struct pairing *p, const struct bps_trace_record *r)
{
    const struct key key = {.peer = r->peer,
                            .kind_and_label = (uint32_t)r->kind << 16 | (r->kind == BPS_TRACE_STAGE ? r->label : 0u)};
    struct track *track;
    HASH_FIND(hh, p->tracks, &key, sizeof key, track);
    if (track == NULL && (track = calloc(1, sizeof *track)) != NULL) {
        track->key = key;
        HASH_ADD(hh, p->tracks, key, sizeof key, track);
        if (track->hh.tbl == NULL) {
            free(track);
            track = NULL;
        }
    }
    return track;
}

/* A lane of the track that nothing is on; UINT32_MAX: no memory. */
static uint32_t take_lane(struct pairing *p, struct track *track, const struct bps_trace_record *r)
{
    struct bps_trace_spans *out = p->out;
    if (track->unused > 0) {
        return track->lane[--track->unused];
    }
    if (!bps_array_reserve(track->lane, track->room, track->lanes + 1) ||
        !bps_array_reserve(out->lane, p->lanes_room, out->lanes + 1)) {
        return UINT32_MAX;
    }
    out->lane[out->lanes] = (struct bps_trace_lane){.of = *r, .number = track->lanes++};
    return (uint32_t)out->lanes++;
}

static void span_end(struct pairing *p, struct open *open, uint64_t at, bool finished)
{
    struct bps_trace_span *span = &p->out->span[open->span];
    struct track *track = track_of(p, &span->begin);
    span->until = at;
    span->finished = finished;
    if (track != NULL) {
        track->lane[track->unused++] = span->lane;
    }
    HASH_DEL(p->open, open);
}

static void span_begin(struct pairing *p, const struct bps_trace_record *r)
{
    struct track *track = track_of(p, r);
    uint32_t lane = track != NULL ? take_lane(p, track, r) : UINT32_MAX;
    if (lane == UINT32_MAX) {
        p->short_of_memory = true;
        return;
    }
    struct open *open = &p->entries[p->out->n];
    *open = (struct open){.key = span_key_of(r), .span = (uint32_t)p->out->n};
    p->out->span[p->out->n++] = (struct bps_trace_span){.begin = *r, .lane = lane};
    HASH_ADD(hh, p->open, key, sizeof open->key, open);
    p->short_of_memory |= open->hh.tbl == NULL;
}

static void span_add(struct pairing *p, const struct bps_trace_record *r)
{
    const struct key key = span_key_of(r);
    struct open *open;
    HASH_FIND(hh, p->open, &key, sizeof key, open);
    if (open != NULL) {
        span_end(p, open, r->at, r->end); /* not by a second beginning */
    }
    if (!r->end) {
        span_begin(p, r);
    }
}

bps_status bps_trace_pair(const struct bps_trace_record *record, size_t n, uint64_t now, struct bps_trace_spans *out)
{
    *out = (struct bps_trace_spans){.span = calloc(n + 1, sizeof *out->span)};
    struct pairing p = {.out = out, .entries = calloc(n + 1, sizeof *p.entries)};
    struct open *open, *next_open;
    struct track *track, *next_track;
    p.short_of_memory = out->span == NULL || p.entries == NULL;
    for (size_t i = 0; i < n && !p.short_of_memory; i++) {
        span_add(&p, &record[i]);
    }
    HASH_ITER(hh, p.open, open, next_open) {
        span_end(&p, open, now, false);
    }
    HASH_ITER(hh, p.tracks, track, next_track) {
        HASH_DEL(p.tracks, track);
        free(track->lane);
        free(track);
    }
    free(p.entries);
    return p.short_of_memory ? BPS_ERR_NOMEM : BPS_OK;
}

void bps_trace_spans_free(struct bps_trace_spans *spans)
{
    free(spans->span);
    free(spans->lane);
}
