/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - messages and terms to bytes and back. Foreign bytes are checked here. */
#include "message.h"

#include <string.h>

#define MAGIC   0x56535042u /* "BPSV" */
#define VERSION 3u

static void put16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *out, uint32_t value)
{
    put16(out, (uint16_t)value);
    put16(out + 2, (uint16_t)(value >> 16));
}

static uint16_t get16(const uint8_t *data)
{
    return (uint16_t)(data[0] | data[1] << 8);
}

static uint32_t get32(const uint8_t *data)
{
    return get16(data) | (uint32_t)get16(data + 2) << 16;
}

static bool has_header(uint8_t kind)
{
    return kind == VERBS_WHOLE || kind == VERBS_BEGIN;
}

static bool has_place(uint8_t kind)
{
    return kind == VERBS_BEGIN || kind == VERBS_PIECE || kind == VERBS_KEY;
}

uint32_t verbs_message_put(const struct verbs_message *message, uint8_t *out)
{
    uint8_t *at = out + VERBS_PREFIX;
    memset(out, 0, VERBS_PREFIX);
    out[0] = message->kind;
    put16(out + 2, message->credits);
    put16(out + 4, message->done);
    if (has_header(message->kind)) {
        memcpy(at, message->header, BPS_HEADER_BYTES);
        at += BPS_HEADER_BYTES;
    }
    if (has_place(message->kind)) {
        put32(at, (uint32_t)message->address);
        put32(at + 4, (uint32_t)(message->address >> 32));
        put32(at + 8, message->rkey);
        put32(at + 12, message->bytes);
        at += VERBS_PLACE_BYTES;
    }
    return (uint32_t)(at - out);
}

bool verbs_message_get(const uint8_t *data, uint32_t bytes, struct verbs_message *out)
{
    uint32_t need = VERBS_PREFIX;
    if (bytes < VERBS_PREFIX) {
        return false;
    }
    *out = (struct verbs_message){.kind = data[0], .credits = get16(data + 2), .done = get16(data + 4)};
    if (out->kind < VERBS_WHOLE || out->kind > VERBS_KEY) {
        return false;
    }
    if (has_header(out->kind)) {
        out->header = data + need;
        need += BPS_HEADER_BYTES;
    }
    const uint8_t *place = data + need;
    need += has_place(out->kind) ? VERBS_PLACE_BYTES : 0;
    if (bytes < need) {
        return false;
    }
    if (has_place(out->kind)) {
        out->address = get32(place) | (uint64_t)get32(place + 4) << 32;
        out->rkey = get32(place + 8);
        out->bytes = get32(place + 12);
    } else if (out->kind == VERBS_WHOLE) {
        out->bytes = bps_util_payload_bytes(out->header);
        return out->bytes == bytes - need;
    }
    return bytes == need;
}

uint32_t verbs_message_bytes(const uint8_t *data)
{
    uint32_t bytes = VERBS_PREFIX;
    bytes += has_header(data[0]) ? BPS_HEADER_BYTES : 0;
    bytes += has_place(data[0]) ? VERBS_PLACE_BYTES : 0;
    return data[0] == VERBS_WHOLE ? bytes + bps_util_payload_bytes(data + VERBS_PREFIX) : bytes;
}

void verbs_message_rekey(uint8_t *data, uint32_t rkey)
{
    put32(data + verbs_message_bytes(data) - VERBS_PLACE_BYTES + 8, rkey);
}

void verbs_terms_put(const struct verbs_terms *terms, uint8_t *out)
{
    put32(out, MAGIC);
    put32(out + 4, VERSION);
    put32(out + 8, terms->credits);
    put32(out + 12, terms->eager);
    put32(out + 16, terms->block);
    put32(out + 20, terms->reads);
    put32(out + 24, (uint32_t)terms->token);
    put32(out + 28, (uint32_t)(terms->token >> 32));
    put32(out + 32, terms->received);
    put32(out + 36, terms->lasting);
}

bool verbs_terms_get(const void *data, size_t bytes, struct verbs_terms *out)
{
    const uint8_t *at = data;
    if (data == NULL || bytes < VERBS_TERMS_BYTES || get32(at) != MAGIC || get32(at + 4) != VERSION) {
        return false;
    }
    *out = (struct verbs_terms){
        .credits = get32(at + 8),
        .eager = get32(at + 12),
        .block = get32(at + 16),
        .reads = get32(at + 20),
        .token = get32(at + 24) | (uint64_t)get32(at + 28) << 32,
        .received = get32(at + 32),
        .lasting = get32(at + 36) != 0,
    };
    return out->credits >= 4 && out->credits <= 1024 && out->block >= 4096 && out->reads >= 1;
}
