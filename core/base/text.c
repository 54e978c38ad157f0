/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - text that is put together piece by piece. */
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"

void bps_text_free(struct bps_text *text)
{
    free(text->data);
    *text = (struct bps_text){0};
}

static void text_grow(struct bps_text *text, size_t more, const char *format, va_list args)
{
    if (bps_array_reserve(text->data, text->room, text->length + more + 1)) {
        vsnprintf(text->data + text->length, more + 1, format, args);
        text->length += more;
    } else {
        bps_text_free(text);
        text->failed = true;
    }
}

void bps_text_vadd(struct bps_text *text, const char *format, va_list args)
{
    bps_assert(text->failed ? text->data == NULL : text->room == 0 || text->length < text->room);
    bps_assert(!text->bounded || text->room > 0);
    const size_t left = text->room - text->length;
    va_list again;
    va_copy(again, args);
    int n = text->failed ? -1 : vsnprintf(text->data + text->length, left, format, args);
    if (n >= 0 && ((size_t)n < left || text->bounded)) {
        text->length += (size_t)n < left ? (size_t)n : left - 1;
    } else if (n >= 0) {
        text_grow(text, (size_t)n, format, again);
    }
    bps_assert(text->data == NULL || text->length < text->room);
    va_end(again);
}

void bps_text_add(struct bps_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bps_text_vadd(text, format, args);
    va_end(args);
}
