/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_text.h - where the parts of a JSON text begin and end. So a timeline is read one event at a time, and an event
 * is changed without writing the rest of it anew. It looks no deeper than it must: what it finds is to be parsed.
 */
#ifndef BPS_CMD_TRACE_TEXT_H
#define BPS_CMD_TRACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct bps_cmd_trace_span {
    size_t at, length;
};

/* Goes through the elements of an array or the members of an object. */
struct bps_cmd_trace_walk {
    const char *text;
    size_t size, at;
    bool object, first;
    struct bps_cmd_trace_span key, value; /* the key with its quotation marks; none in an array */
};

enum bps_cmd_trace_found {
    BPS_CMD_TRACE_ITEM,
    BPS_CMD_TRACE_END,       /* `at` is after the last bracket */
    BPS_CMD_TRACE_MALFORMED, /* `at` is where */
};

/* False: neither an object nor an array begins there, after space. */
bool bps_cmd_trace_walk_begin(struct bps_cmd_trace_walk *walk, const char *text, size_t size, size_t at);
enum bps_cmd_trace_found bps_cmd_trace_walk_next(struct bps_cmd_trace_walk *walk);
/* The key is this word. */
bool bps_cmd_trace_walk_is(const struct bps_cmd_trace_walk *walk, const char *key);
/* The first place that is no space. */
size_t bps_cmd_trace_skip_space(const char *text, size_t size, size_t at);

#endif
