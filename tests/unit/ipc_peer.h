/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_peer.h - for the tests of the transport over shared memory: instances, and peers that send, lend and
 * answer numbered frames.
 *
 * What frame i of a stream contains follows from the stream's seed, so that the receiver checks every byte.
 * The answer to a frame is its payload with all bits turned.
 */
#ifndef IPC_PEER_H
#define IPC_PEER_H

#include "checks.h"
#include "conf/conf.h"
#include "must.h"
#include "side.h"

#define DEADLINE (120ull * 1000000000ull) /* ns after which a test has failed */
#define SLOTS    24u                      /* frames that a peer has under way at most */

struct stream {
    uint32_t seed;
    uint32_t frames;  /* how many */
    uint32_t largest; /* bytes of a payload */
    uint32_t answers; /* of 8 frames, so many have room for an answer */
    bool same;        /* all payloads are the largest */
};

/* How the receiver takes payloads. */
#define TAKE_PLACED 0u /* always into its own memory */
#define TAKE_COPIED 1u /* never */
#define TAKE_MIXED  2u /* now and then, and only a part */

/* What it does with loans. */
#define LEND_NEVER  0u /* has no lend */
#define LEND_REFUSE 1u
#define LEND_ALWAYS 2u
#define LEND_MIXED  3u

struct slot {
    bool used, answered;
    uint32_t index; /* of the frame */
    uint8_t header[BPS_HEADER_BYTES];
};

struct held {
    struct bps_loan *loan;
    uint32_t index;
};

struct peer;
typedef void (*peer_fn)(struct peer *peer);

struct peer {
    struct side *side;
    struct bps_channel *channel; /* NULL: none or ended */
    struct stream out, in;
    uint32_t take, lend;
    uint32_t hold;         /* returns loans only when it holds so many, or nothing else can come */
    bool silent;           /* both ends: what could be answered is lent without a place for that */
    bool in_place, region; /* answers overwrite payloads; all lies in an attached region */
    bool connected, kick_late, keep_loans;
    bool finish_when_complete;
    uint32_t handed, sent, received, lent, returned, answers; /* answers: that have come home */
    uint32_t closed;                                          /* calls */
    bps_status status;
    char text[256];
    uint32_t callbacks;  /* of any kind */
    uint32_t drop_at;    /* drops the victim in this callback, counted from 1; 0: never */
    uint32_t finish_at;  /* the same with finish */
    struct peer *victim; /* itself, unless changed */
    bool ended;          /* dropped or closed: no callback may follow */
    peer_fn on_next, on_progress, on_closed;
    void *arg;

    /* sending */
    struct slot slots[SLOTS];
    struct bps_region memory; /* payloads, then answers */
    uint32_t last_sent;       /* slot */
    uint8_t return_headers[SLOTS][BPS_HEADER_BYTES];
    uint32_t returning;
    /* receiving */
    struct held held[SLOTS];
    uint32_t nheld;
    struct bps_sink sink;
    uint8_t *place, *scratch;
    bool placed;
    uint32_t size, offset, random, current;
};

void peer_init(struct peer *peer, struct side *side, const struct stream *out, const struct stream *in);
/* Puts what it sends into a region that the instance knows. */
void peer_use_region(struct peer *peer);
void peer_fini(struct peer *peer);
/* Listens; the one channel that comes is `peer`'s. */
void peer_listen(struct peer *peer, char *actual, size_t n);
void peer_dial(struct peer *peer, const char *address);
const struct bps_channel_events *peer_accept(void *arg, struct bps_channel *channel, const char *from, void **user,
                                             const struct bps_channel_key **key);
/* All has been sent, received and returned. */
bool peer_is_complete(const struct peer *peer);
/* Ends the channel at once, forgets its memory, and calls on_closed. */
void peer_drop(struct peer *peer);

uint32_t mix(uint32_t x);
/* Makes what streams are made of, before there are threads. */
void make_pattern(void);
/* One turn of the loop, without waiting. */
void turn(struct bps_loop *loop);
/* Runs the loop until something stops it; fails the test after DEADLINE. */
void run_loop(struct bps_loop *loop);

#endif
