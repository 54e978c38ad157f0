/* SPDX-License-Identifier: Apache-2.0 */
/* repeat.c - see repeat.h. */
#include "wire/repeat.h"

#include "wire/message.h"

/* Of the number in the checksum of an ACK, or by which it is encrypted, so that no two frames have the same one. */
#define OF_ACKS (UINT64_C(1) << 63)
#define STRIKES 3u

/* Nobody can know which of all ACK this one is but from itself. */
static uint64_t number_of_ack(const struct bps_header *header, const void *payload)
{
    struct bps_reader reader;
    bps_reader_init(&reader, payload, BPS_ACK_BYTES);
    return (header->length > BPS_ACK_BYTES ? header->checksum : bps_get_u64(&reader)) | OF_ACKS;
}

enum bps_arrival bps_repeat_judge(struct bps_repeat *repeat, struct bps_header *header, const void *payload, void *out)
{
    uint32_t bytes_of_ack = BPS_ACK_BYTES + bps_checksum_grows(repeat->receiving);
    bool ack = header->type == BPS_FRAME_ACK && header->length == bytes_of_ack;
    uint8_t bytes[BPS_HEADER_BYTES];
    if (repeat->lost && !ack) {
        return BPS_PASSED_OVER;
    }
    uint64_t number = ack ? number_of_ack(header, payload) : repeat->received;
    bps_header_encode(header, bytes);
    bool fits = bps_checksum_fits(repeat->receiving, number, bytes, payload, header->length, out);
    (void)bps_header_decode(bytes, header); /* whoever has got it asks whether it is one */
    if (!fits) {
        repeat->lost = repeat->tells = true;
        repeat->asked++;
        return ++repeat->strikes[ack] < STRIKES ? BPS_SPOILT : BPS_HOPELESS;
    }
    repeat->strikes[ack] = 0;
    if (ack) {
        return BPS_ARRIVED_ACK;
    }
    repeat->received++;
    repeat->owed++;
    return BPS_ARRIVED;
}

/* Whoever gets a frame for whose checksum there was no memory finds that it does not match. */
uint64_t bps_repeat_seal(struct bps_repeat *repeat, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                         uint32_t bytes, void *out)
{
    (void)bps_checksum_put(repeat->sending, repeat->sent, header, payload, bytes, out);
    return repeat->sent++;
}

void bps_repeat_write(struct bps_repeat *repeat, uint8_t header[BPS_HEADER_BYTES], uint8_t *payload)
{
    const uint64_t values[] = {++repeat->acks_sent, repeat->received, repeat->asked, repeat->answered};
    for (uint32_t i = 0; i < BPS_ACK_BYTES; i++) {
        payload[i] = (uint8_t)(values[i / 8] >> i % 8 * 8);
    }
    bps_header_encode(&(struct bps_header){.type = BPS_FRAME_ACK, .length = BPS_ACK_BYTES}, header);
    (void)bps_checksum_put(repeat->sending, repeat->acks_sent | OF_ACKS, header, payload, BPS_ACK_BYTES, payload);
    repeat->owed = 0;
    repeat->tells = false;
}

bps_status bps_repeat_read(struct bps_repeat *repeat, const void *payload, bool *again)
{
    struct bps_reader reader;
    bps_reader_init(&reader, payload, BPS_ACK_BYTES);
    uint64_t number = bps_get_u64(&reader), received = bps_get_u64(&reader);
    uint64_t asked = bps_get_u64(&reader), answered = bps_get_u64(&reader);
    if (number <= repeat->acks_received || received < repeat->acknowledged || received > repeat->sent ||
        asked < repeat->answered || answered > repeat->asked) {
        return BPS_ERR_PROTOCOL;
    }
    repeat->acks_received = number;
    repeat->acknowledged = received;
    repeat->lost = repeat->lost && answered < repeat->asked;
    *again = asked > repeat->answered;
    repeat->tells = repeat->tells || *again;
    repeat->answered = asked;
    return BPS_OK;
}

void bps_repeat_fini(struct bps_repeat *repeat)
{
    bps_checksum_free(repeat->sending);
    bps_checksum_free(repeat->receiving);
    repeat->sending = repeat->receiving = NULL;
}
