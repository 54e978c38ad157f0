/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_peer.h - for the tests of transports between hosts: peers that send and check numbered frames.
 *
 * What frame i of a stream contains follows from the stream's seed, so that the receiver checks every byte.
 */
#ifndef TCP_PEER_H
#define TCP_PEER_H

#include "checks.h"
#include "conf/conf.h"
#include "side.h"

#define DEADLINE (120ull * 1000000000ull) /* ns after which a test has failed */

struct stream {
    uint32_t seed;
    uint32_t frames;  /* how many */
    uint32_t largest; /* bytes of a payload */
    uint32_t grain;   /* bytes of an element, and of every payload's multiple */
};

#define PLACES 16u

/* How the receiver takes payloads. */
#define TAKE_PLACED 0u /* always into its own memory */
#define TAKE_COPIED 1u /* never */
#define TAKE_MIXED  2u /* now and then, and only a part */
#define TAKE_OPENED 3u /* into places, several at once, where the transport asks for them */

struct peer;
typedef void (*peer_fn)(struct peer *peer);

struct peer {
    struct side *side;
    struct bps_channel *channel; /* NULL: none or ended */
    uint32_t lane;               /* that it dials */
    struct stream out, in;
    uint32_t take;
    uint32_t handed, sent, received; /* frames */
    bool connected, kick_late;
    bool finish_when_complete; /* all is handed over and all has been received */
    uint32_t closed;           /* calls */
    bps_status status;
    char text[256];
    uint32_t nexts;      /* calls of next */
    uint32_t callbacks;  /* of any kind */
    uint32_t drop_at;    /* drops the victim in this callback, counted from 1; 0: never */
    uint32_t finish_at;  /* the same with finish */
    struct peer *victim; /* itself, unless changed */
    bool ended;          /* dropped or closed: no callback may follow */
    peer_fn on_next;     /* before the answer */
    peer_fn on_received; /* after each frame */
    peer_fn on_closed;
    void *arg;

    /* sending */
    uint8_t headers[64][BPS_HEADER_BYTES];
    /* receiving */
    struct bps_sink sink;
    uint8_t *memory;
    uint8_t *placed;
    uint32_t size, offset, random;
    uint32_t begun;         /* frames whose header has come */
    struct bps_region room; /* for PLACES places */
    struct peer_place {
        uint8_t *memory;
        uint32_t frame;
        bool open;
    } places[PLACES];
};

extern const struct bps_channel_events peer_events;

void peer_init(struct peer *peer, struct side *side, const struct stream *out, const struct stream *in);
void peer_fini(struct peer *peer);
/* Listens on `address`; the one channel that comes is `peer`'s. */
void peer_listen(struct peer *peer, const char *address, char *actual, size_t n);
void peer_dial(struct peer *peer, const char *address);
/* For transports that accept into a peer. */
const struct bps_channel_events *peer_accept(void *arg, struct bps_channel *channel, const char *from, void **user,
                                             const struct bps_channel_key **key);

/* Bytes of the header and of the payload of a frame. */
uint32_t stream_size(const struct stream *stream, uint32_t index);
/* Where all payloads lie. */
#define PATTERN_BYTES (8u << 20)
const uint8_t *stream_pattern(void);
const uint8_t *stream_payload(const struct stream *stream, uint32_t index);
void stream_header(const struct stream *stream, uint32_t index, uint8_t *header);

/* Ends the channel at once, forgets its memory, and calls on_closed. */
void peer_drop(struct peer *peer);

/* Runs the loop until something stops it; fails the test after DEADLINE. */
void run_loop(struct bps_loop *loop);

#endif
