/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_hostile.c - bytes that no encode has made: decode reads and writes nothing beyond its memory, and takes
 * them or says BPS_ERR_PROTOCOL.
 */
#include <string.h>

#include "base/clock.h"
#include "tools/check/compressor.h"
#include "tools/check/values.h"

enum { MOST = 1000, MUTATIONS = 100000 };

struct message {
    const struct bps_coder *coder;
    struct bps_guarded dst; /* of MOST elements */
    uint8_t bytes[3 * MOST * sizeof(double)];
    size_t length;
    struct bps_guarded src; /* where a message ends at the end of a page */
};

static void make(struct message *message, const struct bps_coder *coder, size_t count, uint64_t seed)
{
    struct bps_random random = {.shared = seed, .own = seed + 1, .round = seed};
    double elements[MOST];
    bps_check_fill(coder->dtype, elements, count, seed, seed % 4 == 0 ? BPS_CHECK_SPECIAL : BPS_CHECK_ORDINARY);
    BPS_CHECK(coder->check, bps_coder_bound(coder, count) <= sizeof message->bytes,
              "it needs more than three times the bytes of the elements");
    message->length = bps_coder_encode(coder, elements, count, &random, message->bytes);
}

static struct message *open_message(const struct bps_coder *coder)
{
    static struct message message;
    message.coder = coder;
    message.dst = bps_guarded_new(coder->check, "dst", MOST * coder->size, BPS_GUARDED_BACK);
    message.src = bps_guarded_new(coder->check, "src", sizeof message.bytes, BPS_GUARDED_BACK);
    return &message;
}

static void close_message(struct message *message)
{
    bps_guarded_free(&message->dst);
    bps_guarded_free(&message->src);
}

/* Gives the bytes to decode or decode_add as such ones of `count` elements. */
static void give(struct message *message, size_t count, bool adds)
{
    const struct bps_coder *coder = message->coder;
    const struct bps_compressor_ops *ops = coder->instance->ops;
    uint8_t *src = message->src.at + message->src.bytes - message->length;
    uint8_t *dst = message->dst.at + message->dst.bytes - count * coder->size;
    memcpy(src, message->bytes, message->length);
    memset(dst, 0, count * coder->size);
    bps_status status =
        (adds ? ops->decode_add : ops->decode)(coder->instance->self, coder->dtype, src, message->length, dst, count);
    BPS_CHECK(coder->check, status == BPS_OK || status == BPS_ERR_PROTOCOL,
              "it returns %d for foreign bytes; allowed are BPS_OK and BPS_ERR_PROTOCOL", status);
}

/* ---- cut ---- */

static void cut(struct bps_coder *coder)
{
    struct message *message = open_message(coder);
    for (size_t count = 1; count <= 300; count = count * 3 + 1) {
        make(message, coder, count, count);
        for (size_t whole = message->length; message->length > 0; message->length--) {
            bps_check_at(coder->check, "decode, %s, %zu elements, the first %zu of %zu bytes",
                         bps_dtype_name(coder->dtype), count, message->length - 1, whole);
            give(message, count, false);
            give(message, count, true);
        }
        give(message, count, false); /* no byte at all */
    }
    close_message(message);
}

void bps_check_cut_bytes(struct bps_check *check)
{
    bps_coder_each(check, cut);
}

/* ---- mutated ---- */

static void mutate(struct message *message, uint64_t *random)
{
    size_t length = message->length > 0 ? message->length : 1;
    uint64_t draw = bps_check_random(random);
    size_t at = (size_t)(draw >> 8) % length;
    switch (draw % 8) {
    case 0: /* a length or an index is likely to lie in front */
        at %= 16 < length ? 16 : length;
        message->bytes[at] ^= (uint8_t)(1u << (draw >> 60) % 8);
        break;
    case 1:
        message->bytes[at] = (uint8_t)(draw >> 40);
        break;
    case 2:
        memset(message->bytes + at, 0xff, length - at < 8 ? length - at : 8);
        break;
    case 3:
        memset(message->bytes + at, 0, length - at < 8 ? length - at : 8);
        break;
    case 4:
        message->length = at;
        break;
    case 5: {
        size_t more = (size_t)(draw >> 40) % 32;
        message->length += message->length + more <= sizeof message->bytes ? more : 0;
        break;
    }
    case 6:
        for (size_t i = 0; i < length; i++) {
            message->bytes[i] = (uint8_t)bps_check_random(random);
        }
        break;
    default:
        memmove(message->bytes + at / 2, message->bytes + at, length - at);
        break;
    }
}

static void mutate_many(struct bps_coder *coder)
{
    struct message *message = open_message(coder);
    uint64_t random = 1, begun = bps_now();
    unsigned made = 0;
    for (; made < MUTATIONS && (double)(bps_now() - begun) < coder->check->limit / 3 * 1e9; made++) {
        size_t count = 1 + (size_t)(bps_check_random(&random) % (made % 16 == 0 ? MOST : 40));
        make(message, coder, count, made);
        for (uint64_t times = bps_check_random(&random) % 3; times < 3; times++) {
            mutate(message, &random);
        }
        bool other = bps_check_random(&random) % 8 == 0;
        count = other ? 1 + (size_t)(bps_check_random(&random) % MOST) : count;
        bps_check_at(coder->check, "decode, %s, %zu elements, mutated message %u of %zu bytes",
                     bps_dtype_name(coder->dtype), count, made, message->length);
        give(message, count, made % 2 == 0);
    }
    bps_check_note(coder->check, "%s: %u messages", bps_dtype_name(coder->dtype), made);
    close_message(message);
}

void bps_check_mutated_bytes(struct bps_check *check)
{
    bps_coder_each(check, mutate_many);
}
