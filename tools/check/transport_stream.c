/* SPDX-License-Identifier: Apache-2.0 */
/* transport_stream.c - frames whose sizes, headers and bytes follow from a seed. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/transport.h"
#include "tools/check/values.h"

static uint64_t mix(uint64_t seed, uint64_t index)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + index;
    return bps_check_random(&state);
}

/* Half of them are small, as most that a job sends are. */
uint32_t bps_stream_bytes(const struct bps_stream *stream, uint32_t index)
{
    uint64_t random = mix(stream->seed, index);
    uint32_t number = (uint32_t)(random >> 8), most = stream->largest + 1;
    if (stream->sizes != NULL) {
        return stream->sizes[index % stream->nsizes];
    }
    switch (random % 8) {
    case 0:
        return 0;
    case 1:
    case 2:
    case 3:
        return number % (most < 300 ? most : 300);
    default:
        return number % most;
    }
}

bool bps_stream_answers(const struct bps_stream *stream, uint32_t index)
{
    return bps_stream_bytes(stream, index) > 0 && mix(stream->seed, index) / 8 % 8 < stream->answers;
}

/* ---- payloads: parts of one long row of random bytes ---- */

enum { STARTS = 1 << 20 };
static uint64_t *row;
static size_t row_words;

static void make_row(struct bps_check *check, size_t bytes)
{
    size_t words = bytes / sizeof *row + 1;
    if (words <= row_words) {
        return;
    }
    row = realloc(row, words * sizeof *row);
    BPS_CHECK(check, row != NULL, "out of memory for payloads");
    for (size_t i = row_words; i < words; i++) {
        uint64_t state = i;
        row[i] = bps_check_random(&state);
    }
    row_words = words;
}

const uint8_t *bps_stream_payload(struct bps_check *check, const struct bps_stream *stream, uint32_t index)
{
    make_row(check, (size_t)stream->largest + STARTS);
    return (const uint8_t *)row + mix(stream->seed, ~(uint64_t)index) % STARTS;
}

/* ---- headers ---- */

static uint32_t word_of(const uint8_t *header, size_t index)
{
    uint32_t word;
    memcpy(&word, header + 4 * index, sizeof word);
    return le32toh(word);
}

void bps_stream_header(const struct bps_stream *stream, uint32_t index, enum bps_stream_type type, uint8_t *header)
{
    uint32_t bytes = type == BPS_STREAM_FRAME ? bps_stream_bytes(stream, index) : 0;
    const uint32_t words[] = {htole32(bytes), htole32(index), htole32((uint32_t)type)};
    for (uint32_t i = 0; i < BPS_HEADER_BYTES; i++) {
        header[i] = (uint8_t)mix(stream->seed + index, i);
    }
    memcpy(header, words, sizeof words);
}

uint32_t bps_header_bytes(const uint8_t *header)
{
    return word_of(header, 0);
}

uint32_t bps_header_index(const uint8_t *header)
{
    return word_of(header, 1);
}

uint32_t bps_header_type(const uint8_t *header)
{
    return word_of(header, 2);
}
