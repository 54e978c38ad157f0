/* SPDX-License-Identifier: Apache-2.0 */
/* indices.c - writes and reads indices as a string of bits. */
#include "indices.h"

#include <endian.h>
#include <string.h>

#define LOW_LIMIT 32u /* so that a word has room for what is pending and for those of an index */

struct indices indices_layout(size_t count, size_t kept)
{
    struct indices out = {.count = count, .kept = kept};
    if (kept > 0) {
        out.low = 63 - (unsigned)__builtin_clzll(count / kept);
        out.low = out.low < LOW_LIMIT ? out.low : LOW_LIMIT;
        out.row = ((count - 1) >> out.low) + kept;
        out.bytes = (out.row + kept * out.low + 7) / 8;
    }
    return out;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static inline uint64_t low_mask(unsigned bits)
{
    return ((uint64_t)1 << bits) - 1;
}

/* Nothing but zeros was there, or the end of the row. */
static inline void put_low(struct index_writer *writer, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, writer->low, bytes);
    word |= htole64(writer->pending);
    memcpy(writer->low, &word, bytes);
}

struct index_writer indices_begin(const struct indices *indices, uint8_t *string)
{
    memset(string, 0, indices->bytes);
    return (struct index_writer){
        .indices = *indices, .string = string, .low = string + indices->row / 8, .bits = indices->row % 8};
}

void indices_put(struct index_writer *writer, size_t first, const uint16_t *places, size_t n)
{
    struct index_writer w = *writer;
    for (size_t i = 0; i < n; i++) {
        size_t index = first + places[i], one = (index >> w.indices.low) + w.written++;
        w.string[one / 8] |= (uint8_t)(1u << one % 8);
        w.pending |= (index & low_mask(w.indices.low)) << w.bits;
        w.bits += w.indices.low;
        if (w.bits >= 32) {
            put_low(&w, 4);
            w.low += 4;
            w.pending >>= 32;
            w.bits -= 32;
        }
    }
    *writer = w;
}

void indices_end(struct index_writer *writer)
{
    put_low(writer, (writer->bits + 7) / 8);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

/* Eight bytes, or as many as there are. */
static inline uint64_t get_word(const uint8_t *at, const uint8_t *end)
{
    uint64_t word = 0;
    if (end - at >= 8) {
        memcpy(&word, at, 8);
    } else {
        memcpy(&word, at, (size_t)(end - at));
    }
    return le64toh(word);
}

static inline size_t low_bits(const struct indices *indices, const uint8_t *string, size_t j)
{
    size_t low = indices->row + j * indices->low;
    return get_word(string + low / 8, string + indices->bytes) >> low % 8 & low_mask(indices->low);
}

static bool has_clean_end(const struct indices *indices, const uint8_t *string)
{
    unsigned used = (indices->row + indices->kept * indices->low) % 8;
    return used == 0 || string[indices->bytes - 1] >> used == 0;
}

static inline void assign(uint8_t *dst, const uint8_t *value, size_t size, bool add)
{
    if (!add) {
        memcpy(dst, value, size);
    } else if (size == 4) {
        float x, y;
        memcpy(&x, dst, 4);
        memcpy(&y, value, 4);
        x += y;
        memcpy(dst, &x, 4);
    } else {
        double x, y;
        memcpy(&x, dst, 8);
        memcpy(&y, value, 8);
        x += y;
        memcpy(dst, &x, 8);
    }
}

/* Each one of the row is an index; a word of it at once. */
static inline __attribute__((always_inline)) bool scatter(const struct indices *indices, const uint8_t *string,
                                                          const uint8_t *values, uint8_t *dst, size_t size, bool add)
{
    size_t found = 0, least = 0;
    for (size_t first = 0; first < indices->row; first += 64) {
        uint64_t word = get_word(string + first / 8, string + indices->bytes);
        word &= indices->row - first < 64 ? low_mask((unsigned)(indices->row - first)) : UINT64_MAX;
        for (; word != 0; word &= word - 1) {
            if (found == indices->kept) {
                return false;
            }
            size_t high = first + (unsigned)__builtin_ctzll(word) - found;
            size_t index = high << indices->low | low_bits(indices, string, found);
            if (index < least || index >= indices->count) {
                return false;
            }
            assign(dst + index * size, values + found * size, size, add);
            least = index + 1;
            found++;
        }
    }
    return found == indices->kept && has_clean_end(indices, string);
}

bool indices_assign32(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst)
{
    return scatter(indices, string, values, dst, 4, false);
}

bool indices_assign64(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst)
{
    return scatter(indices, string, values, dst, 8, false);
}

bool indices_add32(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst)
{
    return scatter(indices, string, values, dst, 4, true);
}

bool indices_add64(const struct indices *indices, const uint8_t *string, const uint8_t *values, uint8_t *dst)
{
    return scatter(indices, string, values, dst, 8, true);
}
