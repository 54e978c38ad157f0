/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - the transport over TCP: what its parts share.
 *
 * An instance belongs to the thread of its event loop; there are no locks. A callback of the core may drop
 * any channel at any time. So whoever calls back looks afterwards whether the channel is still open; a dropped
 * channel closes its socket at once and is freed by its last holder (turn.c).
 *
 * The parts are declared here from the top down: each calls only those below it.
 */
#ifndef TCP_H
#define TCP_H

#include "util/util.h"

#define TCP_BATCH_FRAMES 64
#define TCP_BATCH_BYTES  (128 << 10)   /* enough for one system call */
#define TCP_BULK         (32u << 10)   /* payloads from this size on are read straight into their place */
#define TCP_SCRATCH      (128u << 10)  /* stays in the second-level cache */
#define TCP_SCRATCH_HEAD 64u           /* before it, room for the rest of an element */
#define TCP_TURN_BYTES   (1u << 20)    /* then the other channels have their turn */
#define TCP_LINGER       5000000000ull /* ns that the end of a channel may take */

struct addrinfo;

struct tcp_options {
    struct bps_list interface;
    const char *host;
    int64_t streams;
    const char *congestion;
    uint64_t notsent_lowat;
    uint64_t send_buffer, receive_buffer;
    uint64_t keepalive, user_timeout; /* ns */
    uint32_t family;                  /* BPS_UTIL_FAMILY_* */
    bool multipath;
};

struct tcp_counters {
    uint64_t *bytes_sent, *bytes_received, *frames_sent, *frames_received, *send_calls, *receive_calls;
};

/* An instance. */
struct tcp {
    const struct bps_host *host;
    struct tcp_options options;
    struct tcp_counters count;
    char congestion[32]; /* in force; set on every socket if it is the wanted one */
    bool set_congestion;
    char other_congestion[32]; /* for long paths that lose (path.c); "": none */
    uint8_t *scratch;          /* TCP_SCRATCH_HEAD + TCP_SCRATCH bytes, used within one call only */
    struct bps_util_listeners listeners;
    LIST_HEAD(, bps_channel) channels;
    struct bps_util_turns turns;
    void (*on_event)(void *arg, uint32_t events); /* of the socket of a channel */
    struct bps_timer *silence; /* looks for peers that are gone; NULL: not yet, or nobody wants to know */
};

/* TCP_ENDING: it has been noted that the channel is to end; its turn does that. */
enum tcp_state { TCP_DIALLING, TCP_OPEN, TCP_ENDING, TCP_DEAD };

/* An attempt to connect. */
struct tcp_dial {
    struct addrinfo *list, *at; /* resolved addresses; the one that is tried; NULL: none is left */
    uint32_t lane;
    char failure[256]; /* of the last attempt */
};

/* What is known of the path to the peer. */
struct tcp_path {
    uint64_t looked; /* ns */
    uint32_t lost;   /* segments */
    int verdict;     /* looks at which the queue did not cover what was lost, less those at which it did */
    bool changed;    /* to the other congestion control */
};

/* The frame that is arriving. */
struct tcp_incoming {
    uint8_t header[BPS_HEADER_BYTES];
    uint32_t have;           /* bytes of the header, while length is 0 */
    uint32_t length, offset; /* of the payload; what the sink has taken */
    uint32_t kept;           /* bytes behind offset that have come but are not a whole element yet */
    uint8_t keep[BPS_SINK_GRAIN];
    struct bps_sink *sink;
    bool bulk; /* the payload is, or was, large */
};

/* Frames that the core has handed over and that the kernel has not wholly accepted. */
struct tcp_outgoing {
    struct bps_frame frames[TCP_BATCH_FRAMES];
    uint32_t first, count;
    uint64_t written; /* bytes of the first frame */
    uint64_t sent;    /* bytes of all frames so far */
    int64_t room;     /* bytes that the kernel is known to have room for */
    bool writable;    /* an event will tell when it becomes true */
    bool kicked;      /* the core may have frames */
    int error;        /* of the last write; 0: none */
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct bps_util_turn turn;
    struct tcp *tcp;
    enum tcp_state state;
    int fd; /* -1: none */
    unsigned holders;
    struct bps_watch *watch;
    struct bps_timer *timer; /* of an attempt to connect, or of the end */
    const struct bps_channel_events *events;
    void *user;
    struct tcp_dial *dial;
    bool readable;             /* the socket has more to read */
    bool hangup;               /* the peer has closed its end, or an error: only reading on tells */
    bool finishing, shut, eof; /* finish was called; our end is closed; the peer's end is closed */
    bool progress;             /* since the timer was set */
    int left;                  /* bytes that the peer had not acknowledged then */
    uint64_t silent_since;     /* ns: bytes wait for an acknowledgement, and none has come; 0: none wait */
    uint64_t acknowledged;     /* over several paths: up to here */
    struct tcp_path path;
    struct tcp_incoming in;
    struct tcp_outgoing out;
    bps_status status; /* with which it is to end */
    char reason[256];
};

/* ---- listen.c ---- */

bps_status tcp_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                      struct bps_report *report);

/* ---- dial.c ---- */

bps_status tcp_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                    const struct bps_channel_events *events, void *user, struct bps_channel **out,
                    struct bps_report *report);

/* ---- turn.c: life of a channel, and the turns of those that have work ---- */

struct bps_channel *tcp_channel_new(struct tcp *tcp);
/* A turn of a channel. */
void tcp_channel_work(void *arg);
/* The socket of a channel has an event. */
void tcp_channel_event(void *arg, uint32_t events);
/* Between these two a channel is not freed. */
void tcp_hold(struct bps_channel *channel);
void tcp_release(struct bps_channel *channel);
/* NULL is allowed. */
void tcp_drop(struct bps_channel *channel);

/* ---- connect.c ---- */

/* The connection stands: frames may travel. */
void tcp_channel_open(struct bps_channel *channel);
/* Goes through the addresses until one connects or is under way. */
void tcp_connect_begin(struct bps_channel *channel);
/* The socket has an event, or no address is left to try. */
void tcp_connect_continue(struct bps_channel *channel);
void tcp_connect_free(struct bps_channel *channel);

/* ---- receive.c, send.c ---- */

void tcp_receive(struct bps_channel *channel);
void tcp_send(struct bps_channel *channel);
/* The kernel has room again. */
void tcp_send_room(struct bps_channel *channel);

/* ---- end.c ---- */

void tcp_finish(struct bps_channel *channel);
/* From now on, or anew, the peer has a limited time. */
void tcp_linger(struct bps_channel *channel);

/* ---- silence.c ---- */

/* From now on the open channels are looked after, if they are not yet. */
void tcp_silence_watch(struct tcp *tcp);
void tcp_silence_unwatch(struct tcp *tcp);

/* ---- path.c ---- */

/* Bytes were sent: looks from time to time whether another congestion control suits the path. */
void tcp_path_look(struct bps_channel *channel);
/* ns there and back without queues; 0: not known. */
uint64_t tcp_round_trip(struct bps_channel *channel);
/* Bytes that were acknowledged, and ns in which some were not yet. */
bool tcp_delivered(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy);

/* ---- channel.c: what every part may do with a channel ---- */

/* Gives the channel its socket and watches it. */
bool tcp_channel_attach(struct bps_channel *channel, int fd);
/* Takes the socket away and closes it. */
void tcp_channel_detach(struct bps_channel *channel);
/* Gives the channel a turn after the events. */
void tcp_channel_queue(struct bps_channel *channel);
void tcp_kick(struct bps_channel *channel);
/*
 * The channel is to end, and the core to be told, when its turn is over; who is in none gives it one. The first reason
 * counts.
 */
void tcp_channel_end(struct bps_channel *channel, bps_status status, const char *reason);
/* The same because of an error of a system call. */
void tcp_channel_fail(struct bps_channel *channel, const char *call, int error);

/* ---- addresses.c: a member with several interfaces has several addresses, "10.1.0.7:7000,10.2.0.7:7000" ---- */

/* "10.1.0.7,10.2.0.7": of all interfaces, if the channel's own address is that of one of them. */
void tcp_local_host(struct bps_channel *channel, char *host, size_t n);
/* The host number i of "host,host:port" with the port; false: there are not so many. */
bool tcp_addresses_split(const char *text, uint32_t i, char *out, size_t n);
/* The address that a lane dials. */
void tcp_addresses_pick(const char *text, uint32_t lane, char *out, size_t n);
/* Warns once if the lanes to that peer leave addresses or interfaces out. */
void tcp_addresses_compare(const struct tcp *tcp, const char *text, uint32_t lane);
/* How many connections to each peer the core is asked for. */
uint32_t tcp_lanes(const struct tcp *tcp);
/* Refuses interfaces without an address; warns once of those that are in one subnet. */
bps_status tcp_addresses_check(const struct tcp *tcp, struct bps_report *report);

/* ---- speed.c ---- */

/* Mbit/s of the network device; 0: not known. */
uint32_t tcp_speed(struct bps_channel *channel);

/* ---- socket.c: options of sockets ---- */

/* BPS_ERR_UNSUPPORTED, with the remedy: the kernel has no connections over several paths. */
bps_status tcp_multipath_check(struct bps_report *report);
/* Non-blocking, closed on exec, with all options; -1 and errno. */
int tcp_socket(const struct tcp *tcp, int family);
/* What an accepted socket does not inherit. */
void tcp_socket_tune(const struct tcp *tcp, int fd);
/* Which congestion control will be in force; warns once if it is not the wanted one. */
void tcp_choose_congestion(struct tcp *tcp);
/* "Connection reset by peer" */
void tcp_reason(const struct tcp *tcp, int error, char *text, size_t n);

/* ---- interface.c ---- */

/*
 * `interface` is a name, an address or a subnet. An address of that one (NULL: of any that is not loopback) in this
 * family (AF_UNSPEC: IPv4 first).
 */
bool tcp_interface_address(const char *interface, int family, struct sockaddr_storage *out);
/*
 * The address that a connection to the peer leaves from: of an interface in whose subnet the peer is, else of the one
 * whose turn it is. There is one interface at least.
 */
bool tcp_interface_towards(const struct bps_list *interfaces, uint32_t lane, const struct sockaddr *peer,
                           struct sockaddr_storage *out);
/* Whether two of them are in one subnet, and which. */
bool tcp_interfaces_share_link(const struct bps_list *interfaces, int family, uint32_t *first, uint32_t *second);
/* Refuses what this host has no interface for. */
bps_status tcp_interface_check(const char *interface, struct bps_report *report);

#endif
