/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h - an end of a channel over which `byteps bench transport` measures: messages of its own,
 * carried by the frames of a transport, and calls that wait for them.
 *
 * One end asks, the other one answers. A message is complete when all of its payload has arrived; the handler
 * hears of it then, within the event loop, and may answer at once.
 */
#ifndef BPS_BENCH_CHANNEL_H
#define BPS_BENCH_CHANNEL_H

#include <byteps/transport.h>

#include "bench/bench.h"
#include "plugin/instance.h"

/* Kinds of messages. Those of the asking end come first. */
enum bps_bench_kind {
    BPS_BENCH_HELLO = 1,     /* first: version, answered by HELLO */
    BPS_BENCH_ECHO,          /* answered by ECHOED, as large */
    BPS_BENCH_STREAM,        /* first: how many follow; the last one is answered by DONE */
    BPS_BENCH_SOCKET,        /* answered by SOCKET, first: the port of a plain socket, second: what to say there */
    BPS_BENCH_SOCKET_ECHO,   /* echo `first` pieces of `second` bytes on that socket */
    BPS_BENCH_SOCKET_STREAM, /* read as much there, and say when it is all */
    BPS_BENCH_BYE,
    BPS_BENCH_ECHOED,
    BPS_BENCH_DONE,
};

struct bps_bench_message {
    enum bps_bench_kind kind;
    uint32_t bytes; /* of the payload */
    uint64_t first, second;
};

struct bps_bench_channel;
/* A message has arrived. An error ends the channel: the peer is not one of us. */
typedef bps_status (*bps_bench_arrived_fn)(struct bps_bench_channel *channel, const struct bps_bench_message *message);

#define BPS_BENCH_SLOTS 64u /* frames that the transport may hold */

struct bps_bench_channel {
    struct bps_loop *loop;
    struct bps_instance *transport;
    const struct bps_transport_ops *ops;
    struct bps_channel *channel; /* NULL: closed */
    bps_bench_arrived_fn arrived;
    void *user;
    uint8_t *out, *in; /* payloads, BPS_BENCH_MESSAGE_LIMIT each */

    struct bps_bench_message sending; /* `first` counts down */
    uint64_t unsent;                  /* frames like it that are to go */
    uint32_t handed, sent;            /* frames, modulo 2^32 */
    uint8_t header[BPS_BENCH_SLOTS][BPS_HEADER_BYTES];

    struct bps_bench_message receiving;
    struct bps_sink sink;

    bool connected, ready, flushing;
    bool silent;    /* the wait has ended because nothing moved */
    uint64_t moved; /* sum of the transport's counters when last looked at */
    uint64_t quiet; /* ns since they have changed */
    char peer[128];
    char ended[256]; /* why the channel has closed; "": it has not */
};

/*
 * Opens the entry of `transports` that is called `name` or names this plugin; else the plugin with its
 * defaults. After an error, too, bps_bench_channel_close() is due.
 */
bps_status bps_bench_channel_open(struct bps_bench_channel *channel, const struct bps_conf *conf, const char *name,
                                  struct bps_report *report);
void bps_bench_channel_close(struct bps_bench_channel *channel);
/* Ends the connection, but not the transport. */
void bps_bench_channel_drop(struct bps_bench_channel *channel);

/* Waits for one peer at a time; others are refused. */
bps_status bps_bench_channel_listen(struct bps_bench_channel *channel, const char *address, char *actual, size_t n,
                                    struct bps_report *report);
/* Returns when the channel is usable. */
bps_status bps_bench_channel_dial(struct bps_bench_channel *channel, const char *address, struct bps_report *report);

/* Starts to send a message `count` times; `first` of the last one is 0 if there are several. None is under
 * way. */
void bps_bench_channel_send(struct bps_bench_channel *channel, const struct bps_bench_message *message, uint64_t count);
/*
 * Drives the loop until bps_bench_channel_ready(), which a handler calls. An error with its text: the channel
 * has ended, or nothing has moved for a while although a peer is there.
 */
bps_status bps_bench_channel_wait(struct bps_bench_channel *channel, struct bps_report *report);
void bps_bench_channel_ready(struct bps_bench_channel *channel);
/* The same until the transport has sent everything. */
bps_status bps_bench_channel_flush(struct bps_bench_channel *channel, struct bps_report *report);

/* The sum of the transport's counters whose name ends so; "": of all. */
uint64_t bps_bench_channel_count(const struct bps_bench_channel *channel, const char *ending);
/* The transport reaches only processes of this host. */
bool bps_bench_channel_is_local(const struct bps_bench_channel *channel);

#endif
