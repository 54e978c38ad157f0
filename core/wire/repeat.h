/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat.h - which frames of a link with checksums have come as they were sent, and from which one on they are sent
 * again: the numbers that both ends tell each other in ACK frames.
 *
 * Frames are numbered in each direction, but for ACK. Of the first one that does not match, and of all behind it,
 * nothing is used; its receiver asks for it, and whoever has sent it begins again there. An ACK says everything anew:
 * what came of one that was lost is in the next one.
 */
#ifndef BPS_WIRE_REPEAT_H
#define BPS_WIRE_REPEAT_H

#include "wire/checksum.h"
#include "wire/frame.h"

#define BPS_ACK_BYTES   32u
#define BPS_REPEAT_OWED 8u /* after so many frames the peer is told of them, though there is something to send */

struct bps_repeat {
    struct bps_checksum *sending, *receiving; /* NULL: frames have none, or none yet */
    uint64_t sent, acknowledged;              /* frames of this end: all, and those that the peer has */
    uint64_t received;                        /* of the peer, as they were sent */
    uint64_t asked, answered; /* how often frames were to be sent again: by the peer, and of those it asked for */
    uint64_t acks_sent, acks_received;
    uint32_t owed;       /* frames received that the peer has not been told of */
    uint32_t strikes[2]; /* since the last frame that was right; and of ACK, since the last one of these */
    bool lost;           /* what comes is passed over, until the peer begins again */
    bool tells;          /* an ACK is to be sent at once */
};

enum bps_arrival {
    BPS_ARRIVED,     /* as the next one of all */
    BPS_ARRIVED_ACK, /* of an ACK, which bps_repeat_read() is to read */
    BPS_PASSED_OVER,
    BPS_SPOILT,  /* it does not match; the peer is asked again */
    BPS_HOPELESS /* and was too often */
};

/*
 * What a frame is that is whole: counted if it has arrived. Of one that is encrypted the header then is as it was
 * before, and so is the payload, in `out`, which may be where it lies.
 */
enum bps_arrival bps_repeat_judge(struct bps_repeat *repeat, struct bps_header *header, const void *payload, void *out);
/* Gives the next frame its number, and its checksum; or encrypts it, the payload to `out`. */
uint64_t bps_repeat_seal(struct bps_repeat *repeat, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                         uint32_t bytes, void *out);
/* An ACK, likewise; there is room for BPS_ACK_BYTES, and for what they grow by. */
void bps_repeat_write(struct bps_repeat *repeat, uint8_t header[BPS_HEADER_BYTES], uint8_t *payload);
/* *again: all frames that are not acknowledged are to be sent again, behind an ACK. BPS_ERR_PROTOCOL. */
bps_status bps_repeat_read(struct bps_repeat *repeat, const void *payload, bool *again);
/* Frees the checksums. */
void bps_repeat_fini(struct bps_repeat *repeat);

#endif
