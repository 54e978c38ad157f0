/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - what two ends of a channel send each other, as bytes. Everything is little endian.
 *
 * A message takes one receive buffer of the peer's. It says how many of the peer's messages have been dealt
 * with (credits: as many buffers are free again) and how many announced pieces have been read (done).
 */
#ifndef VERBS_MESSAGE_H
#define VERBS_MESSAGE_H

#include "util/util.h"

#define VERBS_WHOLE  1u /* a frame with its payload */
#define VERBS_BEGIN  2u /* a frame, and where the first piece of its payload may be read */
#define VERBS_PIECE  3u /* where the next piece of the payload may be read */
#define VERBS_CREDIT 4u /* nothing but credits and done */
#define VERBS_FINISH 5u /* the last message */
#define VERBS_KEY    6u /* the new key of a piece that was announced; takes no credit */

#define VERBS_PREFIX      8u
#define VERBS_PLACE_BYTES 16u
#define VERBS_MESSAGE_MIN (VERBS_PREFIX + BPS_HEADER_BYTES + VERBS_PLACE_BYTES)
#define VERBS_WHOLE_BYTES (VERBS_PREFIX + BPS_HEADER_BYTES) /* and the payload */

struct verbs_message {
    uint8_t kind;
    uint16_t credits, done;
    const uint8_t *header; /* WHOLE, BEGIN: BPS_HEADER_BYTES in the message */
    uint64_t address;      /* BEGIN, PIECE, KEY: the sender's memory */
    uint32_t rkey, bytes;  /* WHOLE: of the payload, which follows the header */
};

/* Writes all but header and payload; the bytes of the message, for WHOLE without the payload. */
uint32_t verbs_message_put(const struct verbs_message *message, uint8_t *out);
/* False: the bytes are no message. */
bool verbs_message_get(const uint8_t *data, uint32_t bytes, struct verbs_message *out);
/* Of a message that we have written: its bytes, with the payload; and a new key for the piece. */
uint32_t verbs_message_bytes(const uint8_t *data);
void verbs_message_rekey(uint8_t *data, uint32_t rkey);

/* What both ends say when they connect. */
#define VERBS_TERMS_BYTES 40u
struct verbs_terms {
    uint32_t credits; /* messages that may be under way to me */
    uint32_t eager;   /* largest payload of WHOLE */
    uint32_t block;   /* largest piece */
    uint32_t reads;   /* pieces that may be read from me at once */
    /* Where there are several ways to the peer: */
    uint64_t token;    /* of the channel, which the accepting side gives it; 0: it has none yet */
    uint32_t received; /* messages of the channel */
    bool lasting;      /* it is to outlive its queue pair */
};
void verbs_terms_put(const struct verbs_terms *terms, uint8_t *out);
/* False: these are no terms, or impossible ones. */
bool verbs_terms_get(const void *data, size_t bytes, struct verbs_terms *out);

#endif
