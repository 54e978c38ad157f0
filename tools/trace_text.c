/* SPDX-License-Identifier: Apache-2.0 */
/* trace_text.c - where the parts of a JSON text begin and end. */
#include "tools/trace_text.h"

#include <string.h>

size_t bps_cmd_trace_skip_space(const char *text, size_t size, size_t at)
{
    while (at < size && memchr(" \t\r\n", text[at], 4) != NULL) {
        at++;
    }
    return at;
}

/* After the string whose first quotation mark is there; `size` if it does not end. */
static size_t skip_string(const char *text, size_t size, size_t at)
{
    for (at++; at < size && text[at] != '"'; at++) {
        if (text[at] == '\\') {
            at++;
        }
    }
    return at < size ? at + 1 : size;
}

/* After the value that begins there; `size` if it does not end. */
static size_t skip_value(const char *text, size_t size, size_t at)
{
    size_t depth = 0;
    while (at < size) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, size, at);
        } else if (c == '{' || c == '[') {
            depth++;
            at++;
        } else if (depth == 0) {
            while (at < size && memchr(",]} \t\r\n", text[at], 7) == NULL) {
                at++;
            }
        } else {
            depth -= c == '}' || c == ']';
            at++;
        }
        if (depth == 0) {
            return at;
        }
    }
    return size;
}

bool bps_cmd_trace_walk_begin(struct bps_cmd_trace_walk *walk, const char *text, size_t size, size_t at)
{
    at = bps_cmd_trace_skip_space(text, size, at);
    *walk = (struct bps_cmd_trace_walk){.text = text, .size = size, .at = at, .first = true};
    if (at == size || (text[at] != '{' && text[at] != '[')) {
        return false;
    }
    walk->object = text[at] == '{';
    walk->at++;
    return true;
}

/* Takes this character, which may come after space. */
static bool take(struct bps_cmd_trace_walk *walk, char c)
{
    walk->at = bps_cmd_trace_skip_space(walk->text, walk->size, walk->at);
    if (walk->at == walk->size || walk->text[walk->at] != c) {
        return false;
    }
    walk->at++;
    return true;
}

static bool take_key(struct bps_cmd_trace_walk *walk)
{
    size_t at = bps_cmd_trace_skip_space(walk->text, walk->size, walk->at);
    if (at == walk->size || walk->text[at] != '"') {
        walk->at = at;
        return false;
    }
    walk->at = skip_string(walk->text, walk->size, at);
    walk->key = (struct bps_cmd_trace_span){at, walk->at - at};
    return take(walk, ':');
}

enum bps_cmd_trace_found bps_cmd_trace_walk_next(struct bps_cmd_trace_walk *walk)
{
    if (take(walk, walk->object ? '}' : ']')) {
        return BPS_CMD_TRACE_END;
    }
    if ((!walk->first && !take(walk, ',')) || (walk->object && !take_key(walk))) {
        return BPS_CMD_TRACE_MALFORMED;
    }
    walk->first = false;
    size_t at = bps_cmd_trace_skip_space(walk->text, walk->size, walk->at);
    walk->at = skip_value(walk->text, walk->size, at);
    walk->value = (struct bps_cmd_trace_span){at, walk->at - at};
    return walk->value.length == 0 || walk->at == walk->size ? BPS_CMD_TRACE_MALFORMED : BPS_CMD_TRACE_ITEM;
}

bool bps_cmd_trace_walk_is(const struct bps_cmd_trace_walk *walk, const char *key)
{
    size_t n = strlen(key);
    return walk->key.length == n + 2 && memcmp(walk->text + walk->key.at + 1, key, n) == 0;
}
