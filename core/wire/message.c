/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - writing and reading the payloads of messages. */
#include "wire/message.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/report.h"

void bps_writer_init(struct bps_writer *w)
{
    memset(w, 0, sizeof *w);
}

void bps_writer_fini(struct bps_writer *w)
{
    free(w->data);
    memset(w, 0, sizeof *w);
}

void bps_put_bytes(struct bps_writer *w, const void *data, size_t n)
{
    bps_assert(w->size <= w->room && (n == 0 || data != NULL));
    w->failed = w->failed || !bps_array_reserve(w->data, w->room, w->size + n);
    if (!w->failed && n > 0) {
        memcpy(w->data + w->size, data, n);
        w->size += n;
    }
}

void bps_put_u8(struct bps_writer *w, uint8_t v)
{
    bps_put_bytes(w, &v, 1);
}

void bps_put_u16(struct bps_writer *w, uint16_t v)
{
    v = htole16(v);
    bps_put_bytes(w, &v, 2);
}

void bps_put_u32(struct bps_writer *w, uint32_t v)
{
    v = htole32(v);
    bps_put_bytes(w, &v, 4);
}

void bps_put_u64(struct bps_writer *w, uint64_t v)
{
    v = htole64(v);
    bps_put_bytes(w, &v, 8);
}

void bps_put_string(struct bps_writer *w, const char *text)
{
    size_t n = strlen(text);
    bps_put_u32(w, (uint32_t)n);
    bps_put_bytes(w, text, n);
}

void bps_reader_init(struct bps_reader *r, const void *data, size_t n)
{
    r->at = data;
    r->end = n > 0 ? r->at + n : r->at;
    r->bad = false;
}

void bps_get_bytes(struct bps_reader *r, void *out, size_t n)
{
    bps_assert(r->at <= r->end);
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    if (n > 0) {
        memcpy(out, r->at, n);
        r->at += n;
    }
}

uint8_t bps_get_u8(struct bps_reader *r)
{
    uint8_t v;
    bps_get_bytes(r, &v, 1);
    return v;
}

uint16_t bps_get_u16(struct bps_reader *r)
{
    uint16_t v;
    bps_get_bytes(r, &v, 2);
    return le16toh(v);
}

uint32_t bps_get_u32(struct bps_reader *r)
{
    uint32_t v;
    bps_get_bytes(r, &v, 4);
    return le32toh(v);
}

uint64_t bps_get_u64(struct bps_reader *r)
{
    uint64_t v;
    bps_get_bytes(r, &v, 8);
    return le64toh(v);
}

/* The length of the string that follows, if it is whole, has no zero byte and is at most `limit` long. */
static bool string_length(struct bps_reader *r, size_t limit, size_t *out)
{
    bps_assert(r->at <= r->end);
    uint32_t n = bps_get_u32(r);
    if (r->bad || n > limit || n > (size_t)(r->end - r->at) || memchr(r->at, 0, n) != NULL) {
        r->bad = true;
        return false;
    }
    *out = n;
    return true;
}

void bps_get_string(struct bps_reader *r, char *out, size_t room)
{
    size_t n = 0;
    if (string_length(r, room - 1, &n)) {
        bps_get_bytes(r, out, n);
    }
    out[n] = '\0';
}

char *bps_get_string_new(struct bps_reader *r, size_t limit)
{
    size_t n = 0;
    if (!string_length(r, limit, &n)) {
        return NULL;
    }
    char *text = malloc(n + 1);
    if (text == NULL) {
        r->bad = true;
        return NULL;
    }
    bps_get_bytes(r, text, n);
    text[n] = '\0';
    return text;
}

void bps_get_text(struct bps_reader *r, char *out, size_t room)
{
    size_t n = (size_t)(r->end - r->at);
    n = n < room - 1 ? n : room - 1;
    bps_get_bytes(r, out, n);
    out[n] = '\0';
    bps_make_printable(out);
    r->at = r->end;
}

bool bps_reader_done(const struct bps_reader *r)
{
    return !r->bad && r->at == r->end;
}
