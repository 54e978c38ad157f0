/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - the interface for transports.
 *
 * A transport carries frames over channels. A frame is a header of BPS_HEADER_BYTES and a payload; the first
 * four bytes of the header are the length of the payload, little endian. The rest is the core's affair.
 * A channel is reliable; frames arrive whole and in order, or the channel is closed.
 */
#ifndef BYTEPS_TRANSPORT_H
#define BYTEPS_TRANSPORT_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_HEADER_BYTES 96u

struct bps_channel; /* the transport's */

/*
 * Both ends of a channel get the same key, before its first frame, if they know the same secret of the job; it is
 * derived from that, and good for nothing else. All channels of a job have it. A transport may let both ends prove
 * with it that they know it and agree on keys of this channel, as TLS does with a pre-shared key; it must not encrypt
 * with it directly. The handshake of the core goes on above that all the same, so a transport has no need of it.
 * A key is the core's and gone soon; the transport copies what it needs, clears that when the channel has it no
 * longer, and never reveals it, as in a log or a report. NULL instead of a key: the job has no secret. All its members
 * are on this host then.
 */
struct bps_channel_key {
    uint8_t bytes[32];
};

/*
 * The payload of a frame that its sender lends instead of sending its bytes, with room for an answer of as
 * many bytes (often the same memory) or with none. Where the memory is mapped, `data` and `answer` are addresses in
 * this process, and `answer` is NULL if there is none; else both are NULL, and the transport's loan_read and
 * loan_write reach it. A loan is held until a
 * frame returns it (bps_frame.returns) or its channel has ended; `closed` is the last moment to touch it.
 */
struct bps_loan {
    size_t size; /* sizeof(struct bps_loan), set by the transport */
    const void *data;
    void *answer;
    uint32_t bytes;
};

/* A frame to send. Header and payload stay valid until `sent` is called for it, or drop has returned. */
struct bps_frame {
    size_t size;           /* sizeof(struct bps_frame), set by the transport before `next`, which leaves it as it is */
    const uint8_t *header; /* BPS_HEADER_BYTES; its first word is `bytes` */
    const void *payload;
    uint32_t bytes;
    void *cookie;
    /*
     * Not NULL: the receiver will answer this frame with as many bytes, and they belong here; payload and
     * answer may be the same memory. The transport may then lend both to the receiver. If it has, `sent` is
     * called when the loan comes back, just before `header` of the frame that returns it, and the answer is
     * in its place by then.
     */
    void *answer;
    /* Not NULL: this frame has no payload and returns that loan, whose answer has been written. */
    struct bps_loan *returns;
    /* Without an answer the transport may lend the payload, too; as above, but nothing is written. Since ABI 1.1 */
    bool lends;
    uint64_t hints; /* BPS_HINT_*, each of which the transport may ignore. Since ABI 1.2 */
};
#define BPS_HINT_BLANK 1u /* the receiver may see any bytes as the payload, whose memory is for the answer alone */

/*
 * Where the payload of an arriving frame goes. The transport presents the bytes in order, starting at 0, by
 * any mix of two ways, until all are taken:
 *  - place: the core may lend the final memory for the bytes from `offset` on. *bytes is what the transport wants,
 *    at most what is missing, and then what there is room for. The transport reads up to this many straight there and
 *    calls take with that address and what it has read. Where nothing could be read it forgets the place, and asks
 *    again later. NULL: the core has no place for them now; *bytes is undefined.
 *  - take: the core consumes bytes that lie in any memory (a socket buffer, a sender's pages). It returns how
 *    many it took, from the front: all, or fewer by less than BPS_SINK_GRAIN, because an element is
 *    incomplete; the transport keeps those and presents them again, in front of the bytes that follow. Before
 *    the end of the payload nothing else makes it take fewer. A payload consists of elements of one size, which
 *    divides BPS_SINK_GRAIN, from its first byte on. Between place and take no other sink may be called.
 */
#define BPS_SINK_GRAIN 16u
struct bps_sink {
    void *(*place)(struct bps_sink *sink, uint32_t offset, uint32_t *bytes);
    uint32_t (*take)(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes);
    /*
     * Optional. A transport that lends offers the loan of the whole payload here, before place or take.
     * BPS_OK: the core holds it now. BPS_AGAIN: the core wants the bytes; the transport presents them, and
     * the loan is over with the last. An error is one as of `header`.
     */
    bps_status (*lend)(struct bps_sink *sink, struct bps_loan *loan);
    /*
     * Optional, instead of place and take: memory for the whole payload, for a transport that fetches it
     * while further frames come in. It asks before anything else. The memory is the transport's until it
     * calls `placed` with *ticket or the channel has ended; the sink is free for the next frame at once.
     * NULL: the core has no such place now, go on with place and take. A channel has no more than
     * BPS_PLACES_LIMIT open at once.
     */
    void *(*open)(struct bps_sink *sink, void **ticket);
};
#define BPS_PLACES_LIMIT 16u

/*
 * What the core wants to know of a channel; `user` is the pointer given with them. All are called on the loop. From
 * within each of them, and of those of a sink, the core may call kick, finish and drop of this channel or of another
 * one, and dial. The transport asks after each whether its channel is still there.
 */
struct bps_channel_events {
    /* An outgoing channel is usable. */
    void (*connected)(void *user);
    /*
     * A header has arrived. *sink receives the place for its payload; it is ignored when that is empty. An
     * error means that the peer is not trusted: the transport discards the channel and calls closed with that
     * status. The core may call drop on this channel from here.
     */
    bps_status (*header)(void *user, const uint8_t *header, struct bps_sink **sink);
    /*
     * The transport can send now: which frame? BPS_AGAIN: none; the core will kick when there is one, maybe from
     * within this call. It returns nothing but these two. Ask as late as possible, when the bytes can really leave, so
     * that the most urgent frame goes first.
     */
    bps_status (*next)(void *user, struct bps_frame *out);
    /* The memory of a frame is no longer needed by the transport. */
    void (*sent)(void *user, void *cookie);
    /*
     * The channel has ended, by the peer or an error; text has the reason. Frames not yet sent are forgotten: no
     * `sent` for them, while it has been called for all that were. The channel is freed when this returns.
     * Never called after drop. BPS_OK: finish has ended it, and all was sent; BPS_ERR_IO: the peer has closed it, has
     * refused it, or a system call failed; BPS_ERR_TIMEOUT; or what `header` has returned. Before the handshake
     * of the core is over, that dials again for a while, unless it is BPS_ERR_REFUSED.
     */
    void (*closed)(void *user, bps_status status, const char *text);
    /* A payload is whole in the place that its sink has opened. Later frames may have come before. */
    void (*placed)(void *user, void *ticket);
};

/*
 * A peer has connected. Returns the events and, in *user, their argument; or NULL to refuse. `peer` is the
 * peer's address for messages. *key is the channel's, or NULL; it is there until the transport calls the core again.
 */
typedef const struct bps_channel_events *(*bps_accept_fn)(void *arg, struct bps_channel *channel, const char *peer,
                                                          void **user, const struct bps_channel_key **key);

struct bps_transport_attr {
    uint32_t lanes; /* how many channels to each peer pay (streams, interfaces); 1 to 64. The core has 16 at most */
    bool local;     /* reaches only processes of the same host: the core encrypts nothing there */
    /*
     * Not 0: regions on devices can be attached. Payloads of this many bytes and more may then lie there, and
     * for such ones that arrive, the sink is asked to open a place, which may lie there, too.
     */
    uint32_t device_bytes;
};

struct bps_transport_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance); /* all channels have been dropped before */
    void (*query)(void *instance, struct bps_transport_attr *out);
    /*
     * Accepts channels on an address "host:port"; port 0 is any free port, an empty host is the instance's
     * own choice (its configured interface, else loopback). actual[n] receives the address that peers can
     * dial. BPS_ERR_BUSY: somebody has this port; the core may try another one.
     */
    bps_status (*listen)(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                         struct bps_report *report);
    /*
     * Starts to connect; connected or closed follows, never from within this call. `lane` counts from 0. `key` is the
     * channel's, or NULL; it is there during this call.
     * The core calls it again after a refusal if it wants to.
     */
    bps_status (*dial)(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                       const struct bps_channel_events *events, void *user, struct bps_channel **out,
                       struct bps_report *report);
    void (*kick)(struct bps_channel *channel); /* `next` has frames now; cheap, may be called often */
    /* Sends what `next` still gives until BPS_AGAIN, then closes; closed follows, never from within this call. */
    void (*finish)(struct bps_channel *channel);
    /* Ends the channel now. No callback follows, no memory of frames, sinks or places is used any more. */
    void (*drop)(struct bps_channel *channel);
    /*
     * Where other members can reach this host, IPv6 in brackets: the instance's configured host, else the host
     * part of the channel's own address. host + ":0" is good for listen.
     */
    void (*local_host)(struct bps_channel *channel, char *host, size_t n);
    /* Optional: one line about the instance for `byteps graph --explain`. */
    void (*describe)(void *instance, char *text, size_t n);
    /*
     * With loans: copies between a loan that is not mapped and memory
     * here. An error means that the peer is lost.
     */
    bps_status (*loan_read)(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to,
                            uint32_t bytes);
    bps_status (*loan_write)(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, const void *from,
                             uint32_t bytes);
    /*
     * Optional. Frames and places may lie in this region from now on, so that the transport can prepare for
     * it; without attach they may as well, but not on a device. detach: none does any more. The region is the
     * core's and stays in its place in between.
     */
    bps_status (*attach)(void *instance, const struct bps_region *region, struct bps_report *report);
    void (*detach)(void *instance, const struct bps_region *region);
    /*
     * Optional: how long a byte takes to the peer and its answer back where no queue is in the way, in ns, as far as
     * is known; 0: it is not. This much may be under way besides what queues hold. Cheap: called some hundred times a
     * second.
     */
    uint64_t (*round_trip)(struct bps_channel *channel);
    /*
     * Optional: what the peer has got so far, in bytes, and how long something was on its way to it, in ns: both only
     * grow. Bytes by that time are what the path carries while it has something to carry. False: not known.
     */
    bool (*delivered)(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy);
    /* Optional: Mbit/s of the device that the channel goes through, as it reports; 0: not known. */
    uint32_t (*speed)(struct bps_channel *channel);
};

#ifdef __cplusplus
}
#endif
#endif
