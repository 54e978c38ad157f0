/* SPDX-License-Identifier: Apache-2.0 */
/* bits.c - codes to bits and back: all with one width, or gaps and levels as numbers of Elias. */
#include "bits.h"

#include <endian.h>
#include <string.h>

static void store64(uint8_t *to, uint64_t word)
{
    word = htole64(word);
    memcpy(to, &word, sizeof word);
}

static uint64_t load64(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return le64toh(word);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

struct writer {
    uint8_t *at;
    uint64_t bits; /* that are not complete bytes yet, */
    unsigned n;    /* fewer than 8 */
};

/* At most 57 bits. Writes eight bytes, of which what is too much will be overwritten. */
static inline void put(struct writer *to, uint64_t bits, unsigned n)
{
    to->bits |= bits << to->n;
    to->n += n;
    store64(to->at, to->bits);
    to->at += to->n / 8;
    to->bits >>= to->n / 8 * 8;
    to->n %= 8;
}

/* Four codes as 4 * width bits. */
static inline uint64_t join(const uint16_t *codes, unsigned width)
{
    uint64_t low = codes[0] | (uint64_t)codes[1] << width, high = codes[2] | (uint64_t)codes[3] << width;
    return low | high << 2 * width;
}

/* Eight codes are `width` bytes. Sixteen are written, of which what is too much will be overwritten. */
void bps_dithering_put_fixed(const uint16_t *codes, size_t count, unsigned width, uint8_t *dst)
{
    const uint8_t *end = dst + fixed_bytes(count, width);
    for (; end - dst >= 16; count -= 8, codes += 8, dst += width) {
        uint64_t low = join(codes, width), high = join(codes + 4, width);
        store64(dst, low | high << (4 * width - 1) << 1);
        store64(dst + 8, high >> (64 - 4 * width));
    }
    struct writer to = {.at = dst};
    for (; count > 0; count--, codes++) {
        to.bits |= (uint64_t)*codes << to.n;
        for (to.n += width; to.n >= 8; to.n -= 8, to.bits >>= 8) {
            *to.at++ = (uint8_t)to.bits;
        }
    }
    if (to.n > 0) {
        *to.at = (uint8_t)to.bits;
    }
}

/* What precedes the lower bits of a number of N bits, N being the index. */
static const struct {
    uint8_t bits, n;
} elias[] = {{0, 0}, {1, 1},  {2, 3},  {6, 3},  {4, 5},  {12, 5}, {20, 5},  {28, 5},
             {8, 7}, {24, 7}, {40, 7}, {56, 7}, {72, 7}, {88, 7}, {104, 7}, {120, 7}};
#define ELIAS_BITS 15 /* of a number at most */

static inline unsigned length_of(uint32_t x)
{
    return 32 - (unsigned)__builtin_clz(x);
}

/* Elias delta of x, from 1 to 2^15 - 1. */
static inline uint64_t delta(uint32_t x, unsigned *n)
{
    unsigned length = length_of(x);
    *n = elias[length].n + length - 1;
    return elias[length].bits | (uint64_t)(x ^ 1u << (length - 1)) << elias[length].n;
}

/* Where the codes are that are not zero, without a branch that depends on them; how many. */
static size_t find(const uint16_t *codes, size_t count, uint16_t *places)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        places[n] = (uint16_t)i;
        n += codes[i] != 0;
    }
    return n;
}

size_t bps_dithering_put_elias(const uint16_t *codes, size_t count, uint8_t *dst, size_t room)
{
    uint16_t places[CODES_LIMIT];
    size_t found = find(codes, count, places);
    struct writer to = {.at = dst};
    uint32_t next = 0; /* the place from which distances count, and 1 */
    unsigned n, more;
    for (size_t i = 0; i < found; i++) {
        uint32_t place = places[i], code = codes[place];
        uint64_t bits = delta(place + 1 - next, &n);
        bits |= (uint64_t)(code & 1) << n++;
        bits |= delta(code >> 1, &more) << n;
        if ((size_t)(to.at - dst) + 8 > room) {
            return 0;
        }
        put(&to, bits, n + more);
        next = place + 1;
    }
    if ((size_t)(to.at - dst) + 8 > room) {
        return 0;
    }
    uint64_t bits = delta((uint32_t)count + 1 - next, &n);
    put(&to, bits, n);
    size_t bytes = (size_t)(to.at - dst) + (to.n > 0);
    return bytes + ELIAS_MARGIN <= room ? bytes : 0;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* At least 57 bits from that one on; behind the last byte there are zeros. */
static inline uint64_t peek(const uint8_t *src, size_t bytes, size_t at)
{
    uint8_t rest[8] = {0};
    size_t byte = at / 8;
    if (byte + 8 <= bytes) {
        return load64(src + byte) >> at % 8;
    }
    if (byte < bytes) {
        memcpy(rest, src + byte, bytes - byte);
    }
    return load64(rest) >> at % 8;
}

/* The inverse of join. */
static inline void split(uint64_t bits, unsigned width, uint16_t *codes)
{
    uint64_t mask = (1u << width) - 1, high = bits >> 2 * width;
    codes[0] = (uint16_t)(bits & mask);
    codes[1] = (uint16_t)(bits >> width & mask);
    codes[2] = (uint16_t)(high & mask);
    codes[3] = (uint16_t)(high >> width & mask);
}

bool bps_dithering_get_fixed(const uint8_t *src, unsigned width, uint16_t *codes, size_t count)
{
    size_t bytes = fixed_bytes(count, width), done = 0, at = 0;
    for (; bytes >= 16; bytes -= width, src += width, done += 8) {
        uint64_t low = load64(src), high = load64(src + 8);
        split(low, width, codes + done);
        split(low >> (4 * width - 1) >> 1 | high << (64 - 4 * width), width, codes + done + 4);
    }
    for (size_t i = done; i < count; i++, at += width) {
        codes[i] = (uint16_t)(peek(src, bytes, at) & ((1u << width) - 1));
    }
    return peek(src, bytes, at) == 0;
}

/* Takes Elias delta from the lower end of the bits; 0: it is none of a number below 2^15. */
static inline uint32_t take(uint64_t *bits, size_t *at)
{
    unsigned zeros = *bits != 0 ? (unsigned)__builtin_ctzll(*bits) : 64;
    if (zeros > 3) {
        return 0;
    }
    unsigned more = (1u << zeros | (unsigned)(*bits >> (zeros + 1) & ((1u << zeros) - 1))) - 1;
    *bits >>= 2 * zeros + 1;
    uint32_t x = 1u << more | (uint32_t)(*bits & ((1u << more) - 1));
    *bits >>= more;
    *at += 2 * zeros + 1 + more;
    return x;
}

size_t bps_dithering_get_elias(const uint8_t *src, size_t bytes, uint32_t levels, uint16_t *codes, size_t count)
{
    size_t at = 0, next = 0;
    memset(codes, 0, count * sizeof *codes);
    for (;;) {
        uint64_t bits = peek(src, bytes, at);
        uint32_t distance = take(&bits, &at);
        next += distance;
        if (distance == 0 || next > count) {
            break;
        }
        uint32_t sign = bits & 1;
        bits >>= 1;
        at++;
        uint32_t level = take(&bits, &at);
        if (level == 0 || level > levels) {
            return 0;
        }
        codes[next - 1] = (uint16_t)(level << 1 | sign);
    }
    /* Where the source ends too early, zeros were read, up to a place that is behind its end. */
    size_t used = (at + 7) / 8;
    bool complete = next == count + 1 && used <= bytes;
    return complete && (at % 8 == 0 || src[used - 1] >> at % 8 == 0) ? used : 0;
}
