/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what happens to tensors in this process, recorded for a timeline.
 *
 * Each thread has a ring of fixed records, which it alone writes, without a lock. The timeline is made of the rings
 * of all threads: when the last step that is recorded has passed, and at the end of the job. A ring keeps the newest
 * million records. Without `trace.file` nothing is recorded, and all that is left is to find that out.
 *
 * Which steps are recorded the worker decides, when an operation begins; what belongs to that operation, wherever it
 * happens, carries the step along. [any thread]
 */
#ifndef BPS_TRACE_TRACE_H
#define BPS_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <byteps/plugin.h> /* struct bps_report */

/* What has a beginning and an end. */
enum bps_trace_kind {
    BPS_TRACE_OPERATION, /* from the call that starts it to its end */
    BPS_TRACE_WAIT,      /* a thread of the program waits for it */
    BPS_TRACE_STAGE,     /* a partition in a step of its way */
    BPS_TRACE_CREDIT,    /* a shard gets nothing, as it has not answered what it got; peer: the shard */
    BPS_TRACE_PUSH,      /* the transport has a slice of a contribution; peer: the shard */
    BPS_TRACE_RESULT,    /* a slice of the result comes; peer: the shard */
    BPS_TRACE_RECEIVE,   /* a shard receives a slice; peer: bps_trace_peer() of the worker */
    BPS_TRACE_GATHER,    /* it has a contribution to a slice, and waits for the others; peer: of no worker */
    BPS_TRACE_SUM,       /* from the last contribution to the result; likewise */
    BPS_TRACE_ANSWER,    /* the result waits for the transport, or it has it; peer: of the worker */
    BPS_TRACE_KINDS,
};

#define BPS_TRACE_NOW  0u
#define BPS_TRACE_ALSO 1u /* when the last record of this thread was, which saves a look at the clock */

/* Beginning and end of the same thing agree in all but `at` and `end`. */
struct bps_trace_record {
    uint64_t at;   /* ns, see bps_now(); or one of the next two */
    uint32_t step; /* of the training, counted from 1; 0: it is not recorded */
    uint32_t tensor, round, partition;
    uint32_t offset; /* of a slice in the partition, bytes */
    uint32_t bytes;
    uint32_t peer;
    uint16_t label; /* see bps_trace_label() */
    uint8_t kind;   /* enum bps_trace_kind */
    bool end;
};

extern atomic_bool bps_trace_on; /* whether anything is recorded: read by bps_trace_is_on() */

static inline bool bps_trace_is_on(void)
{
    return atomic_load_explicit(&bps_trace_on, memory_order_relaxed);
}

/* A shard of this process, and a worker that it serves. */
static inline uint32_t bps_trace_peer(uint32_t shard, uint32_t rank)
{
    return shard << 16 | rank;
}

/*
 * From now on steps from..to, counted from 0, are recorded for this file; "": none is. Where another member of this
 * process has opened it before, nothing changes. BPS_ERR_CONF: the file cannot be written.
 */
bps_status bps_trace_open(const char *file, uint64_t from, uint64_t to, struct bps_report *report);
/* Whose timeline it is: what the file is called, and how processes are told apart. Of several the first counts. */
struct bps_trace_member {
    const char *role; /* "worker", "server" */
    uint32_t rank;    /* among those of its role */
    uint32_t number;  /* among all members */
    const char *host;
    uint64_t job; /* a number that members of this job have, and those of others have not */
};
void bps_trace_identify(const struct bps_trace_member *member);
/* A step has ended. What says so decides alone; until then, each tensor has one operation in a step. */
void bps_trace_step(void);
uint32_t bps_trace_steps_ended(void);
/*
 * An operation begins, the n-th one of its tensor, from 0, which was started when so many steps had ended. Returns the
 * step that it is recorded in; 0: it is not.
 */
uint32_t bps_trace_begin(uint32_t ended, uint32_t n);
void bps_trace_note(const struct bps_trace_record *record);
/* A number for a short text; of which there may be 64, and then 0. */
uint16_t bps_trace_label(const char *text);
/* The name of a tensor, of which there are records. */
void bps_trace_name(uint32_t tensor, const char *name);
/* Makes the timeline of what has been recorded so far, once, on a thread of its own. */
void bps_trace_write_soon(void);
/*
 * A member that has opened it is over, and so are its threads that record. With the last one of the process the
 * timeline is made, and nothing is recorded any more.
 */
void bps_trace_close(void);

#endif
