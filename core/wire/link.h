/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - a channel to another member of the job: handshake, whole messages, and the way for slices.
 *
 * The acceptor speaks first (CHALLENGE with a fresh nonce). The dialler says who it is, with a nonce of its own, and
 * proves that it knows the key of this link (HELLO); the acceptor lets it in, with a proof of its own (WELCOME), or
 * says why not (REFUSE): without a proof always the same. Until then only small messages are read, so that foreign
 * bytes can neither take memory nor reach the job; a recorded conversation fails at the nonces.
 *
 * A link is embedded in its owner and driven by one loop's thread. Handlers may drop any link at any time.
 */
#ifndef BPS_WIRE_LINK_H
#define BPS_WIRE_LINK_H

#include <sys/queue.h>

#include "plugin/instance.h"
#include "wire/channel_key.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/proof.h"
#include "wire/repeat.h"
#include "wire/spare.h"

#define BPS_MESSAGE_LIMIT   (16u << 20) /* of a message between members */
#define BPS_SLICE_LIMIT     (1u << 30)  /* of a slice that is collected to be checked: of a partition */
#define BPS_HANDSHAKE_LIMIT (64u << 10) /* of a message before the peer is known */
#define BPS_TEXT_LIMIT      1000u       /* of an explanation on the wire */

struct bps_link;

struct bps_link_handler {
    /* Dialler: who are we, and what is the key of this link? An error ends it. */
    bps_status (*introduce)(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *key);
    /* Dialler: the acceptor lets us in, and has proved that it may. */
    void (*welcome)(void *owner, struct bps_link *link);
    /*
     * Acceptor: judge who the dialler claims to be: first bps_link_check(), now or later, then bps_link_welcome(), or
     * an error that refuses it with the report's text.
     */
    bps_status (*hello)(void *owner, struct bps_link *link, const struct bps_claim *claim, struct bps_report *report);
    /* A message has arrived. An error closes the link. */
    bps_status (*message)(void *owner, struct bps_link *link, const struct bps_header *header,
                          struct bps_reader *payload);
    /* A slice arrives; where to? An error closes the link. NULL: no slices on such links. */
    bps_status (*slice)(void *owner, struct bps_link *link, const struct bps_header *header, struct bps_sink **sink);
    /* Which slice next? As in struct bps_channel_events. NULL: no slices. */
    bps_status (*next)(void *owner, struct bps_link *link, struct bps_frame *out);
    void (*sent)(void *owner, struct bps_link *link, void *cookie);
    /* The slice is whole in the place that its sink has opened. NULL: sinks of such links open none. */
    void (*placed)(void *owner, struct bps_link *link, void *ticket);
    /* The link has ended and may be freed; not called after bps_link_drop. */
    void (*closed)(void *owner, struct bps_link *link, bps_status status, const char *text);
};

struct bps_parcel; /* a message on its way out */
STAILQ_HEAD(bps_parcels, bps_parcel);

enum bps_link_state { BPS_LINK_IDLE, BPS_LINK_DIALLING, BPS_LINK_ACCEPTED, BPS_LINK_OPEN, BPS_LINK_REFUSED };

struct bps_link {
    const struct bps_link_handler *handler;
    void *owner;
    const struct bps_instance *transport;
    struct bps_channel *channel; /* NULL: closed */
    enum bps_link_state state;
    bool welcomed;  /* dialler: the acceptor has let it in */
    bool spoilt;    /* a frame, of `header`, does not come as it was sent: the peer is told, and then that is all */
    bool finishing; /* the channel is to finish when all that was sent has been acknowledged */
    struct bps_introduction introduction;
    uint8_t key[BPS_KEY_BYTES];
    struct bps_channel_key channel_key; /* zeros, but while the transport is handed it */
    uint8_t proof[BPS_PROOF_BYTES];     /* acceptor: the dialler's */
    char peer[128];

    struct bps_parcels queue, writing; /* with checksums `writing` is those in order that the peer may not have */
    uint64_t queued;                   /* bytes of memory of all these */
    struct bps_spare spare;            /* that memory, when it is not needed any more */
    struct bps_parcel *again;          /* of `writing`: it is sent again, with all behind it; NULL: none */
    struct bps_repeat repeat;
    struct bps_timer *patience; /* with checksums: looks whether frames are acknowledged; */
    uint32_t quarters;          /* how often none was, of those that the transport has sent; */
    uint64_t acknowledged;      /* and how many were, when it looked */

    struct bps_sink sink; /* collects a message, or a slice that is to be checked */
    struct bps_header header;
    uint8_t *payload;
    bool *ended; /* set when the link ends; NULL: nobody wants to know */

    uint64_t last_sent, last_received; /* ns */
    uint64_t connected;                /* dialler: when it was; 0: not yet */
};

/* Starts to connect. closed or welcome follows. */
bps_status bps_link_dial(struct bps_link *link, const struct bps_link_handler *handler, void *owner,
                         const struct bps_instance *transport, const char *address, uint32_t lane,
                         struct bps_report *report);
/* Takes over an accepted channel and challenges the peer. Returns what bps_accept_fn has to return. */
const struct bps_channel_events *bps_link_accept(struct bps_link *link, const struct bps_link_handler *handler,
                                                 void *owner, const struct bps_instance *transport,
                                                 struct bps_channel *channel, const char *peer, void **user,
                                                 const struct bps_channel_key **key);

/* Acceptor: whether the dialler has proved that it knows this key. BPS_ERR_REFUSED: it has not. */
bps_status bps_link_check(struct bps_link *link, const uint8_t *key, struct bps_report *report);
/* What is told to whoever has no proof that could be looked at. Returns BPS_ERR_REFUSED. */
bps_status bps_link_is_foreign(struct bps_report *report);
/* Acceptor, after that: lets the peer in. Messages may follow at once. */
void bps_link_welcome(struct bps_link *link);

/*
 * Queues a message: `header` names its type and what else it is about; the payload is copied. BPS_ERR_NOMEM: it could
 * not be, and the link ends.
 */
bps_status bps_link_send(struct bps_link *link, const struct bps_header *header, const void *payload, size_t bytes);
/* A message with no other header fields than its type. */
bps_status bps_link_send_message(struct bps_link *link, uint8_t type, const struct bps_writer *payload);
bps_status bps_link_send_text(struct bps_link *link, uint8_t type, const char *text);

/* There are slices for `next`. */
void bps_link_kick(struct bps_link *link);
/* Sends what is queued, then closes; closed follows. */
void bps_link_finish(struct bps_link *link);
/* Ends the link at once. */
void bps_link_drop(struct bps_link *link);

/* Sends a PING if nothing was sent for `quiet` ns. */
void bps_link_keep_alive(struct bps_link *link, uint64_t now, uint64_t quiet);

#endif
