/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text that is put together piece by piece, in a buffer of the caller's or in memory that grows. */
#ifndef BPS_BASE_TEXT_H
#define BPS_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* All zero: one that grows, and is freed by bps_text_free(). Then `data` is NULL until something is added. */
struct bps_text {
    char *data; /* ends with a zero */
    size_t length, room;
    bool bounded; /* `data` is the caller's: what has no room is cut */
    bool failed;  /* there was no memory: `data` is NULL, and nothing more is added */
};

/* An empty one, which writes to data[room]; room > 0. */
static inline struct bps_text bps_text_in(char *data, size_t room)
{
    data[0] = '\0';
    return (struct bps_text){.data = data, .room = room, .bounded = true};
}

void bps_text_add(struct bps_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bps_text_vadd(struct bps_text *text, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void bps_text_free(struct bps_text *text);

#endif
