/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - payloads of messages: numbers, strings and bytes, written in order and read back in order.
 *
 * Writer and reader remember the first failure, so that a sequence of calls is checked once at its end.
 */
#ifndef BPS_WIRE_MESSAGE_H
#define BPS_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bps_writer {
    uint8_t *data; /* owned by the writer until bps_writer_fini */
    size_t size, room;
    bool failed; /* no memory */
};

void bps_writer_init(struct bps_writer *w);
void bps_writer_fini(struct bps_writer *w);
void bps_put_u8(struct bps_writer *w, uint8_t v);
void bps_put_u16(struct bps_writer *w, uint16_t v);
void bps_put_u32(struct bps_writer *w, uint32_t v);
void bps_put_u64(struct bps_writer *w, uint64_t v);
void bps_put_bytes(struct bps_writer *w, const void *data, size_t n);
void bps_put_string(struct bps_writer *w, const char *text);

struct bps_reader {
    const uint8_t *at, *end;
    bool bad; /* a read went past the end, or a string was too long or had a zero in it */
};

void bps_reader_init(struct bps_reader *r, const void *data, size_t n);
uint8_t bps_get_u8(struct bps_reader *r);
uint16_t bps_get_u16(struct bps_reader *r);
uint32_t bps_get_u32(struct bps_reader *r);
uint64_t bps_get_u64(struct bps_reader *r);
void bps_get_bytes(struct bps_reader *r, void *out, size_t n);
/* Copies a string of less than `room` bytes; out is terminated in any case. */
void bps_get_string(struct bps_reader *r, char *out, size_t room);
/* A string on the heap, at most `limit` bytes; NULL (and bad) otherwise. The caller frees it. */
char *bps_get_string_new(struct bps_reader *r, size_t limit);
/* The rest of the payload as text, cut to what fits; bytes that are not printable become '?'. */
void bps_get_text(struct bps_reader *r, char *out, size_t room);
/* True if nothing went wrong and nothing is left. */
bool bps_reader_done(const struct bps_reader *r);

#endif
