/* SPDX-License-Identifier: Apache-2.0 */
/* trace_steps.h - where the time of each step of each worker went. Pure: events in, nanoseconds out. */
#ifndef BPS_CMD_TRACE_STEPS_H
#define BPS_CMD_TRACE_STEPS_H

#include "tools/trace_read.h"

enum bps_cmd_trace_part {
    BPS_CMD_TRACE_COMPUTING, /* the threads of the program wait for nothing */
    BPS_CMD_TRACE_STAGES,    /* all others: what holds the operation that they wait for, and of it the last slice */
    BPS_CMD_TRACE_QUEUE,
    BPS_CMD_TRACE_CREDITS,
    BPS_CMD_TRACE_WIRE,
    BPS_CMD_TRACE_OTHERS,
    BPS_CMD_TRACE_SUMMING,
    BPS_CMD_TRACE_UNKNOWN, /* of that operation there are no events */
    BPS_CMD_TRACE_PARTS
};

struct bps_cmd_trace_row {
    uint32_t rank;
    uint64_t step;
    int64_t begin, end;                /* nanoseconds */
    int64_t part[BPS_CMD_TRACE_PARTS]; /* the sum is end - begin */
};

struct bps_cmd_trace_steps {
    size_t rows;
    struct bps_cmd_trace_row *row; /* by rank, then by step */
    size_t slices, unserved;       /* that ended what was waited for; of which no server tells */
};

/* Memory that is missing ends the program. */
void bps_cmd_trace_steps_make(const struct bps_cmd_trace *trace, struct bps_cmd_trace_steps *out);
void bps_cmd_trace_steps_fini(struct bps_cmd_trace_steps *steps);

/* ---- trace_index.c: events by what they are about ---- */

/* A time in which a shard has something of a worker that others have not contributed to. */
struct bps_cmd_trace_held {
    uint32_t rank, shard;
    int64_t begin, end;
};

struct bps_cmd_trace_index {
    size_t n, helds;
    const struct bps_cmd_trace_event **event; /* by kind, rank, tensor, round, partition, offset, end */
    struct bps_cmd_trace_held *held;          /* by rank, shard, begin; those of one place do not overlap */
};

struct bps_cmd_trace_range {
    const struct bps_cmd_trace_event **event;
    size_t n;
};

enum bps_cmd_trace_depth {
    BPS_CMD_TRACE_OF_RANK,
    BPS_CMD_TRACE_OF_ROUND,
    BPS_CMD_TRACE_OF_PARTITION,
    BPS_CMD_TRACE_OF_SLICE
};

void bps_cmd_trace_index_make(const struct bps_cmd_trace *trace, struct bps_cmd_trace_index *out);
void bps_cmd_trace_index_fini(struct bps_cmd_trace_index *index);
/* Those of this kind that are about the same as `like`, down to its rank, round, partition or slice. */
struct bps_cmd_trace_range bps_cmd_trace_index_find(const struct bps_cmd_trace_index *index, uint32_t kind,
                                                    uint32_t rank, const struct bps_cmd_trace_event *like,
                                                    enum bps_cmd_trace_depth depth);
/* The last one about the same slice as `like`, which may have been sent again; or NULL. */
const struct bps_cmd_trace_event *bps_cmd_trace_index_slice(const struct bps_cmd_trace_index *index, uint32_t kind,
                                                            const struct bps_cmd_trace_event *like);

/* ---- trace_held.c: when a worker waits for others though it does not know ---- */

void bps_cmd_trace_held_make(struct bps_cmd_trace_index *index);
/* How much of this time, nanoseconds, something of the worker is held at the shard. */
int64_t bps_cmd_trace_held_in(const struct bps_cmd_trace_index *index, uint32_t rank, uint32_t shard, int64_t begin,
                              int64_t end);

/* ---- trace_way.c: what an operation was held by, and when ---- */

enum { BPS_CMD_TRACE_MOMENTS = 6 };

#define BPS_CMD_TRACE_NEIGHBOURS 64u

/* The other workers of a host, as many as count: they push parts of what all of them sum there. */
struct bps_cmd_trace_neighbours {
    uint32_t n, rank[BPS_CMD_TRACE_NEIGHBOURS];
};

/* The way of the last slice of an operation. */
struct bps_cmd_trace_way {
    bool known, slice, served; /* there is anything of it; its last slice; what a server tells of that */
    /* begin of push_pull, and of its push; end of receive, gather and sum on the server, and of its result */
    int64_t moment[BPS_CMD_TRACE_MOMENTS];
    uint32_t shard, rank; /* which worker pushed it where */
};

void bps_cmd_trace_way_find(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_event *operation,
                            const struct bps_cmd_trace_neighbours *neighbours, struct bps_cmd_trace_way *out);
/* Adds what held the way from `begin` to `end`, nanoseconds, to the parts. */
void bps_cmd_trace_way_divide(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_way *way,
                              int64_t begin, int64_t end, int64_t part[BPS_CMD_TRACE_PARTS]);

/* How much of two intervals is the same. */
static inline int64_t bps_cmd_trace_overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end)
{
    int64_t begin = a > b ? a : b, end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

#endif
