/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_read.h - the timelines of the members of a job, read from their files. The bytes of a file are not trusted:
 * what is no event of BytePS is left out and counted.
 */
#ifndef BPS_CMD_TRACE_READ_H
#define BPS_CMD_TRACE_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/trace_text.h"

enum bps_cmd_trace_kind {
    BPS_CMD_TRACE_OPERATION,
    BPS_CMD_TRACE_WAIT,
    BPS_CMD_TRACE_STAGE,
    BPS_CMD_TRACE_CREDIT,
    BPS_CMD_TRACE_PUSH,
    BPS_CMD_TRACE_RESULT, /* up to here a worker's, from here on a server's */
    BPS_CMD_TRACE_RECEIVE,
    BPS_CMD_TRACE_GATHER,
    BPS_CMD_TRACE_SUM,
    BPS_CMD_TRACE_ANSWER,
    BPS_CMD_TRACE_OTHER, /* passed on only */
    BPS_CMD_TRACE_ARROW, /* made by an earlier merge */
};

#define BPS_CMD_TRACE_NO_SHARD UINT32_MAX

struct bps_cmd_trace_event {
    int64_t begin, end; /* nanoseconds, the same clock for all members */
    uint64_t tensor, round, step, offset;
    uint32_t kind;
    uint32_t rank; /* of the worker that it is about: its own, or that of the other end; 0 for sums */
    uint32_t partition, shard;
    uint32_t file, pid, tid;
    bool lasts;     /* it has a duration */
    bool push_pull; /* the stage of that name */
    bool unnamed;   /* its name is the tensor's number */
    struct bps_cmd_trace_span span;
};

struct bps_cmd_trace_file {
    char *path, *text, *job;
    size_t size;
    bool merged;
    uint64_t ignored;
    const char *why; /* the first was ignored, which stands there */
    size_t where;
};

struct bps_cmd_trace_member {
    char *name, *host;
    uint32_t rank, file;
    int64_t pid; /* -1: not known, as there are no events */
    bool worker;
    double clock_error; /* microseconds */
    uint64_t lost;
};

/* What the track of a thread is called. */
struct bps_cmd_trace_thread {
    uint32_t file, pid, tid;
    char *name;
};

struct bps_cmd_trace_tensor; /* number and name */

struct bps_cmd_trace {
    uint32_t files, members, threads;
    struct bps_cmd_trace_file *file;
    struct bps_cmd_trace_member *member;
    struct bps_cmd_trace_thread *thread;
    struct bps_cmd_trace_tensor *tensors;
    size_t events;
    struct bps_cmd_trace_event *event;
};

/* Adds a file. Prints what is wrong with it; returns an exit status. */
int bps_cmd_trace_read(struct bps_cmd_trace *trace, const char *path);
void bps_cmd_trace_fini(struct bps_cmd_trace *trace);
/* NULL: none knows it. */
const char *bps_cmd_trace_tensor_name(const struct bps_cmd_trace *trace, uint64_t id);
/* All names by number, new. */
json_t *bps_cmd_trace_tensors_json(const struct bps_cmd_trace *trace);
/* The first name of a number holds. */
void bps_cmd_trace_tensor_add(struct bps_cmd_trace *trace, uint64_t id, const char *name);
/* Room for one more element than `n`: the array, or another one twice as large instead. */
void *bps_cmd_trace_grow(void *array, size_t n, size_t size);
/* Of a place in a file, from 1 on. */
size_t bps_cmd_trace_line(const struct bps_cmd_trace_file *file, size_t at);

/* ---- trace_event.c ---- */

/* Reads one event, but for `file` and `span`, and `rank` of a worker's own. Returns why it cannot be one, or NULL. */
const char *bps_cmd_trace_event_read(const json_t *event, struct bps_cmd_trace_event *out);
/* A whole number of an object, from 0 to `most`. */
bool bps_cmd_trace_whole(const json_t *object, const char *key, uint64_t most, uint64_t *out);

/* ---- trace_header.c ---- */

/* Takes job, members and tensors from what the file says under "byteps". Prints what is wrong; an exit status. */
int bps_cmd_trace_header_read(struct bps_cmd_trace *trace, uint32_t file, const json_t *header);

#endif
