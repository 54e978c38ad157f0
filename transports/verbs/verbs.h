/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - the transport over RDMA: what its parts share.
 *
 * An instance belongs to the thread of its event loop; there are no locks. A callback of the core may drop
 * any channel at any time. So whoever calls back looks afterwards whether the channel is still open (turn.c). A
 * channel that has ended leaves its queue pair behind, until the device has returned the last work request.
 *
 * The parts are declared here from the top down: each calls only those below it.
 */
#ifndef VERBS_H
#define VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/queue.h>

#include "message.h"

#define VERBS_LINGER      5000000000ull    /* ns that the end of a channel may take */
#define VERBS_FLUSH       1000000000ull    /* ns that the device may take to return what it has not done */
#define VERBS_READS       BPS_PLACES_LIMIT /* RDMA reads of a channel that may be under way, at most */
#define VERBS_BATCH       16u              /* work requests posted by one call, at most */
#define VERBS_POLL        64               /* completions fetched by one call, at most */
#define VERBS_TURN_FRAMES 64u              /* then the other channels have their turn */
#define VERBS_BUCKETS     256u
#define VERBS_RAILS       8u
#define VERBS_TARGETS     16u /* addresses of a peer that are tried, at most */

struct verbs_options {
    struct bps_list device;
    int64_t port, gid_index;
    struct bps_list host;
    uint32_t family; /* BPS_UTIL_FAMILY_* */
    int64_t traffic_class, service_level, ack_timeout, retry_count;
    uint64_t timeout; /* ns */
    uint64_t eager, block, window, arena;
    int64_t credits;
    bool device_memory;
};

struct verbs_counters {
    uint64_t *frames_sent, *frames_received, *bytes_sent, *bytes_received, *bytes_copied, *bytes_in_place;
    uint64_t *bytes_placed, *work_requests, *doorbells;
};

/* ---- arena.c: registered memory in blocks of one size ---- */

#define VERBS_HEAD 64u /* in front of each block: room for the rest of an element */

struct verbs_arena {
    uint8_t *memory;
    uint32_t *free; /* a stack, so that the warmest block is taken first */
    uint32_t block, count, nfree;
};
/* node: the NUMA node that the memory is to be on; -1: any. False: no memory. */
bool verbs_arena_init(struct verbs_arena *arena, const struct bps_host *host, uint64_t bytes, uint32_t block, int node);
void verbs_arena_fini(struct verbs_arena *arena, const struct bps_host *host);
size_t verbs_arena_bytes(const struct verbs_arena *arena);
/* NULL: there is none now. */
uint8_t *verbs_arena_take(struct verbs_arena *arena);
void verbs_arena_give(struct verbs_arena *arena, uint8_t *block);

/* ---- the data ---- */

struct verbs;
struct verbs_listener;

/* A buffer for one arriving message; later, that message, until it has been dealt with. */
struct verbs_slot {
    STAILQ_ENTRY(verbs_slot) entry;
    struct verbs_device *device;
    uint8_t *data;
    uint32_t lkey;
    struct verbs_message message;
    /* Of one that announces a piece of a payload: */
    bool ready;     /* it has been read */
    bool stale;     /* its key was that of a former queue pair's device */
    bool last;      /* of its payload */
    uint8_t *block; /* of the arena, that it is read to; NULL: none */
    uint8_t *place; /* that the core has opened for it; NULL: the sink takes it */
    void *ticket;
};
STAILQ_HEAD(verbs_slots, verbs_slot);

/* Its message announces a piece of a payload, which has to be read. */
static inline bool verbs_has_piece(const struct verbs_slot *slot)
{
    return slot->message.kind == VERBS_BEGIN || slot->message.kind == VERBS_PIECE;
}

/* The receive buffers that were made at once. */
struct verbs_chunk {
    LIST_ENTRY(verbs_chunk) entry;
    struct ibv_mr *mr;
    uint8_t *memory;
    struct verbs_slot *slots;
};

/* A region of the core's as a device knows it. */
struct verbs_window {
    LIST_ENTRY(verbs_window) entry;
    const struct bps_region *region;
    struct ibv_mr *mr;
};

/* A region that the core has attached. */
struct verbs_region {
    LIST_ENTRY(verbs_region) entry;
    const struct bps_region *region;
};

struct verbs_pair;

/* Work requests that are to be posted by one call. */
struct verbs_batch {
    struct ibv_send_wr wr[VERBS_BATCH];
    struct ibv_sge sge[VERBS_BATCH];
    unsigned count;
    const struct verbs_pair *pair; /* they are of */
};

/* What the channels of a device share. */
struct verbs_device {
    LIST_ENTRY(verbs_device) entry;
    struct verbs *verbs;
    struct ibv_context *context;
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_comp_channel *wake;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct bps_watch *wake_watch, *async_watch;
    int async_fd;                        /* events of the device; -1: none */
    struct ibv_mr *send_mr, *receive_mr; /* the arenas */
    uint32_t cq_room, cq_used;           /* completions: how many fit, how many there may be */
    uint32_t srq_room;                   /* receive buffers that the shared queue can hold */
    uint32_t nslots, promised;           /* receive buffers: that there are, that peers may use */
    struct verbs_slots reposts;          /* to be posted again */
    LIST_HEAD(, verbs_chunk) chunks;
    LIST_HEAD(, verbs_window) windows;
    LIST_HEAD(, verbs_pair) pairs[VERBS_BUCKETS]; /* by number */
    struct ibv_wc *wc; /* room for cq_room; those from `first` on have been fetched and not yet dealt with */
    int first, nwc;
    struct verbs_batch batch; /* of the channel that has its turn */
};

/* A port of a device that the options name. */
struct verbs_rail {
    struct verbs_device *device;
    uint8_t port;
    const char *host; /* own address; "": that of the GID */
};

/* A piece of a payload that the peer has been told of. */
struct verbs_piece {
    const uint8_t *from;
    uint8_t *block; /* the same, of the arena; NULL: it lies in the frame's own memory */
    uint32_t bytes; /* 0: none; the frame waits for those before it */
    void *cookie;
    bool last; /* the frame is sent when this piece has been read */
};

/* A queue pair and what its work requests use. */
struct verbs_pair {
    LIST_ENTRY(verbs_pair) entry;
    struct verbs_device *device;
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    struct bps_channel *channel; /* NULL: it has ended */
    uint32_t number;
    bool connected, probing; /* a probe is under way */
    struct verbs_terms own, peer;
    uint32_t reads_room;                     /* reads that may be under way at once */
    uint32_t depth, posted, retired, silent; /* work requests; `silent` since the last one that is signalled */
    uint32_t inline_bytes;
    uint8_t *memory; /* own messages, a slot for each credit of the peer's; and as many for keys */
    struct ibv_mr *mr;
    uint32_t slot_bytes, slot;     /* messages of the channel */
    struct verbs_slots arrived;    /* messages not dealt with */
    struct verbs_slots reading;    /* those whose piece is being read, or has been */
    uint32_t narrived;             /* of both */
    uint32_t reads;                /* that the device has not returned */
    struct verbs_piece *pieces;    /* a ring of peer.credits */
    uint32_t first_piece, npieces; /* the first one is below peer.credits: see verbs_piece_at() */
};

/* The pieces that the peer has yet to read lie in a ring of as many as it gives credits. */
static inline struct verbs_piece *verbs_piece_at(const struct verbs_pair *pair, uint32_t i)
{
    return &pair->pieces[(pair->first_piece + i) % pair->peer.credits];
}

static inline struct verbs_piece *verbs_piece_take(struct verbs_pair *pair)
{
    struct verbs_piece *piece = verbs_piece_at(pair, 0);
    pair->first_piece = (pair->first_piece + 1) % pair->peer.credits;
    pair->npieces--;
    return piece;
}

/* VERBS_ENDING: it has been noted that the channel is to end; its turn does that. */
enum verbs_state { VERBS_DIALLING, VERBS_ACCEPTING, VERBS_OPEN, VERBS_SUSPENDED, VERBS_ENDING, VERBS_DEAD };

/* Attempts to connect: from each rail to each address of the peer. */
struct verbs_dial {
    struct sockaddr_storage targets[VERBS_TARGETS];
    uint32_t ntargets, lane;
    uint32_t attempt, left; /* the one that is under way; so many may be made, with it */
    char failure[256];      /* of the last one */
};

struct verbs_incoming {
    uint32_t length, fetched; /* of the payload; what has been read, or is being read */
    uint8_t *place;           /* for it; NULL: the sink takes it */
    void *ticket;
    struct bps_sink *sink; /* NULL: none has to take anything more */
    uint32_t offset, kept; /* what it has taken; what it was too little for an element of */
    uint8_t keep[BPS_SINK_GRAIN];
    uint32_t announced; /* of the last frame: bytes whose pieces have not been announced yet */
    bool last;          /* FINISH has come */
};

struct verbs_outgoing {
    uint32_t credits;       /* messages that the peer has room for */
    uint32_t owed;          /* messages of the peer's that have been dealt with and that it has not been told of */
    uint32_t done;          /* the same for its pieces */
    uint32_t held;          /* frames that are announced and not yet `sent` */
    uint64_t in_flight;     /* bytes of pieces that the peer has not read yet */
    uint64_t read;          /* bytes of those that it has */
    uint64_t since, waited; /* ns: when there was something to read again, and how long there was before that */
    struct bps_frame frame; /* that is being sent, from `offset` on */
    bool busy;
    uint32_t offset;
    const struct ibv_mr *window; /* of the frame's own memory; NULL: it is copied */
    bool kicked;
    bool finished, finish_done; /* FINISH was posted; the peer has it */
    bool lost;                  /* the connection has ended: nothing can be posted */
    int error;                  /* of the last post; 0: none */
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    TAILQ_ENTRY(bps_channel) starving;
    struct bps_util_turn turn;
    struct verbs *verbs;
    enum verbs_state state;
    unsigned holders;
    struct rdma_cm_id *id;
    struct verbs_pair *pair;   /* NULL: none yet */
    bool lasting;              /* there are several ways to the peer */
    uint64_t token;            /* by which another queue pair may take over; 0: none may */
    struct verbs_pair *former; /* lost; the next one takes over from it; NULL: none */
    char lost[160];            /* why */
    uint32_t received;         /* messages */
    struct bps_timer *timer;   /* of an attempt to connect, or of the end */
    const struct bps_channel_events *events;
    void *user;
    struct verbs_dial *dial;
    bps_accept_fn accept; /* of an accepted channel */
    void *accept_arg;
    bool starved;        /* in verbs->starved */
    bool finishing, eof; /* finish was called; the peer's last message has come */
    bool progress;       /* since the timer was set */
    struct verbs_incoming in;
    struct verbs_outgoing out;
    bps_status status; /* with which it is to end */
    char reason[420];
};

static inline bool verbs_is_over(const struct bps_channel *channel)
{
    return channel->state == VERBS_ENDING || channel->state == VERBS_DEAD;
}

/* An instance. */
struct verbs {
    const struct bps_host *host;
    struct verbs_options options;
    struct verbs_counters count;
    struct rdma_event_channel *manager;
    struct bps_watch *manager_watch;
    struct bps_poller *poller;
    struct ibv_context **contexts; /* of all devices, and NULL */
    struct bps_util_forked forked;
    struct verbs_rail rails[VERBS_RAILS];
    uint32_t nrails; /* at least 1 */
    LIST_HEAD(, verbs_device) devices;
    struct verbs_arena send, receive;  /* blocks that all devices know, near the first one */
    TAILQ_HEAD(, bps_channel) starved; /* channels that wait for a block */
    LIST_HEAD(, verbs_region) regions;
    uint32_t device_regions; /* of them those that the host cannot touch */
    LIST_HEAD(, verbs_listener) listeners;
    LIST_HEAD(, bps_channel) channels;
    struct bps_util_turns turns;
    struct bps_timer *probe; /* NULL: nobody has to be probed */
    /* What device.c calls: */
    bool (*poll)(void *instance);             /* there are completions */
    void (*leave_ports)(struct verbs *verbs); /* a port may be down */
};

/* ---- manager.c: events of the connection manager ---- */

bps_status verbs_manager_open(struct verbs *verbs, struct bps_report *report);
void verbs_manager_close(struct verbs *verbs);

/* ---- listen.c, dial.c ---- */

bps_status verbs_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                        struct bps_report *report);
void verbs_listeners_close(struct verbs *verbs);
/* Whether it is the id of a listener, not that of a channel. */
bool verbs_listens_by(const struct verbs *verbs, const struct rdma_cm_id *id);
/* A peer wants to connect; `data` is what it says. */
void verbs_listen_request(struct verbs *verbs, struct verbs_listener *listener, struct rdma_cm_id *id, const void *data,
                          size_t bytes);
bps_status verbs_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                      const struct bps_channel_events *events, void *user, struct bps_channel **out,
                      struct bps_report *report);

/* ---- complete.c ---- */

bool verbs_poll(void *instance);
bool verbs_arm(void *instance);

/* ---- probe.c ---- */

/* Own ports may be down: suspends the channels there that this side can connect again, from another one. */
void verbs_leave_ports(struct verbs *verbs);
void verbs_probe_start(struct verbs *verbs);
void verbs_probe_stop(struct verbs *verbs);

/* ---- turn.c: life of a channel, and the turns of those that have work ---- */

struct bps_channel *verbs_channel_new(struct verbs *verbs);
void verbs_turns_init(struct verbs *verbs);
/* Between these two the channel is not freed; the second ends it if it is to end. */
void verbs_hold(struct bps_channel *channel);
void verbs_leave(struct bps_channel *channel);
/* The connection of an accepted channel stands: asks the core. */
void verbs_welcome(struct bps_channel *channel);
/* The connection has ended. What has come before may explain it, and is handed over first. The channel is held. */
void verbs_channel_lost(struct bps_channel *channel, bps_status status, const char *text);
/* The same, unless there are other ways to the peer. */
void verbs_channel_broken(struct bps_channel *channel, bps_status status, const char *text);
/* The same where the peer has ended it. */
void verbs_channel_closed(struct bps_channel *channel);
/* NULL is allowed. */
void verbs_drop(struct bps_channel *channel);

/* ---- suspend.c: channels that outlive their queue pairs ---- */

/* ns: how long packets are sent again before the device gives up; devices take up to four times that. */
uint64_t verbs_patience(const struct verbs_options *o);
/* False: there is no other way to the peer. */
bool verbs_suspend(struct bps_channel *channel, const char *text);

/* ---- connect.c ---- */

/* Makes attempts until one is under way. */
void verbs_connect_begin(struct bps_channel *channel);
void verbs_connect_event(struct bps_channel *channel, const struct rdma_cm_event *event, const void *data,
                         size_t bytes);
/* No address is left to try. */
void verbs_connect_lost(struct bps_channel *channel);
/* Tries all ways again, the next one first. */
void verbs_connect_again(struct bps_channel *channel);
void verbs_connect_free(struct bps_channel *channel);

/* ---- resume.c ---- */

/* Of a suspended channel that nothing resumes. */
bps_status verbs_status_of_loss(const struct bps_channel *channel);
/* A new queue pair stands. */
void verbs_resume(struct bps_channel *channel);

/* ---- receive.c ---- */

/* A message has come. */
void verbs_receive_message(struct bps_channel *channel, struct verbs_slot *slot, uint32_t bytes);
/* The oldest read has completed. */
void verbs_receive_read(struct verbs_pair *pair);
/* Hands over what has come, and reads what has been announced. True: there is more to do. */
bool verbs_receive(struct bps_channel *channel);

/* ---- send.c ---- */

void verbs_send(struct bps_channel *channel);
/*
 * A new queue pair begins: new keys for what was announced, and the last messages once more. False: the
 * device has none for this memory.
 */
bool verbs_send_again(struct bps_channel *channel, uint32_t messages);
/* The peer has dealt with messages, and has read pieces. False: it cannot have. */
bool verbs_send_news(struct bps_channel *channel, uint32_t credits, uint32_t done);

/* ---- pair.c ---- */

/* Gives the connection a queue pair; NULL and the reason. It belongs to the channel. */
struct verbs_pair *verbs_pair_new(struct bps_channel *channel, struct bps_report *report);
/* The peer's side of the connection is known: the queue pair may send. False: errno says why. */
bool verbs_pair_ready(struct verbs_pair *pair);
/* The peer's terms are known. */
void verbs_pair_agree(struct verbs_pair *pair, const struct verbs_terms *peer);
/* Ends the work of the queue pair, which is destroyed where the device does not return its reads. */
void verbs_pair_halt(struct verbs_pair *pair);
/* Takes over all that is under way. */
void verbs_pair_inherit(struct verbs_pair *pair, struct verbs_pair *former);
/* The channel has ended: the pair goes when the device has returned its work requests. */
void verbs_pair_leave(struct verbs_pair *pair);
void verbs_pair_free(struct verbs_pair *pair);
/* All that are left. */
void verbs_pairs_free(struct verbs *verbs);
/* Takes the connection of a channel away. */
void verbs_channel_disconnect(struct bps_channel *channel);
struct verbs_pair *verbs_pair_find(const struct verbs_device *device, uint32_t number);
/* The parameters to connect or accept with; `terms` has VERBS_TERMS_BYTES. */
void verbs_pair_parameters(const struct verbs_pair *pair, uint8_t *terms, struct rdma_conn_param *out);

/* ---- device.c ---- */

bool verbs_port_is_active(struct ibv_context *context, int64_t number);
/* Finds the devices of the options and prepares them. */
bps_status verbs_devices_open(struct verbs *verbs, struct bps_report *report);
void verbs_devices_close(struct verbs *verbs);
/* The device of a context, prepared; NULL and the reason. */
struct verbs_device *verbs_device_of(struct verbs *verbs, struct ibv_context *context, struct bps_report *report);
/* Makes room for the completions and the messages of one more channel. */
bps_status verbs_device_reserve(struct verbs_device *device, uint32_t completions, struct bps_report *report);
void verbs_device_unreserve(struct verbs_device *device, uint32_t completions);

/* ---- post.c: work requests, gathered and posted by one call; verbs_post_flush ends a turn ---- */

#define VERBS_MESSAGE_SENT 0u
#define VERBS_PIECE_READ   1u
#define VERBS_FINISH_SENT  2u
#define VERBS_DRAINED      3u
#define VERBS_PROBED       4u
/* An identifier of a completion: odd for those of work requests, else the address of a receive buffer. */
static inline uint64_t verbs_wr_id(uint64_t kind, uint32_t sequence)
{
    return kind << 33 | (uint64_t)sequence << 1 | 1;
}
static inline bool verbs_wr_is_own(uint64_t id)
{
    return (id & 1) != 0;
}
static inline uint64_t verbs_wr_kind(uint64_t id)
{
    return id >> 33;
}
static inline uint32_t verbs_wr_sequence(uint64_t id)
{
    return (uint32_t)(id >> 1);
}

/* There is a free work request. */
bool verbs_post_room(const struct verbs_pair *pair);
void verbs_post_message(struct verbs_pair *pair, const uint8_t *data, uint32_t bytes, uint64_t kind);
void verbs_post_read(struct verbs_pair *pair, uint8_t *to, uint32_t lkey, const struct verbs_message *from);
void verbs_post_flush(struct verbs_pair *pair);
/* A write of no bytes: it fails if the peer cannot be reached. */
void verbs_post_probe(struct verbs_pair *pair);
/* What has been gathered is not posted any more. */
void verbs_post_forget(struct verbs_pair *pair);
/* The last work request of a connection that has ended. False: it was refused. */
bool verbs_post_drain(struct verbs_pair *pair);

/* ---- fetch.c: completions of a device ---- */

/* Whether there are some that have not been dealt with. */
bool verbs_fetch(struct verbs_device *device);
/* Waits until the device has returned all reads of a pair in the error state. False: it does not. */
bool verbs_await_reads(struct verbs_pair *pair);

/* ---- channel.c: what every part may do with a channel ---- */

void verbs_channel_open(struct bps_channel *channel);
/* Gives the channel a turn. */
void verbs_channel_queue(struct bps_channel *channel);
void verbs_channel_wait(struct bps_channel *channel); /* for a block */
/* All blocks that have become free are for those that wait. */
void verbs_wake_starved(struct verbs *verbs);
/*
 * The channel is to end, and the core to be told, when its turn is over; who is in none gives it one. The first reason
 * counts.
 */
void verbs_channel_end(struct bps_channel *channel, bps_status status, const char *reason);
/* The channel has no connection any more, which goes on by itself. */
void verbs_channel_detach(struct bps_channel *channel);
void verbs_kick(struct bps_channel *channel);
void verbs_finish(struct bps_channel *channel);

/* ---- slot.c: receive buffers ---- */

uint32_t verbs_slot_bytes(const struct verbs_options *options);
void verbs_slot_free(struct verbs_slot *slot);
/* Posts the receive buffers again whose messages have been dealt with. */
void verbs_slots_repost(struct verbs_device *device);
/* More for the shared queue. */
bool verbs_slots_add(struct verbs_device *device, uint32_t count);
void verbs_slots_close(struct verbs_device *device);

/* ---- region.c ---- */

/* Why memory could not be registered, and the remedy. */
void verbs_register_failed(uint64_t bytes, int error, struct bps_report *report);
bps_status verbs_attach(void *instance, const struct bps_region *region, struct bps_report *report);
void verbs_detach(void *instance, const struct bps_region *region);
/* A new device learns of all regions. */
void verbs_windows_open(struct verbs_device *device);
void verbs_windows_close(struct verbs_device *device);
void verbs_regions_free(struct verbs *verbs);
/* The host cannot touch this memory, nor copy it. */
bool verbs_is_on_device(const struct verbs *verbs, const void *memory);
/* The registration that has all of these bytes; NULL: none. */
const struct ibv_mr *verbs_window_find(const struct verbs_device *device, const void *memory, uint32_t bytes);

/* ---- address.c ---- */

/*
 * "host:port", "[ipv6]:port", ":port", "host,host:port" to addresses, at most VERBS_TARGETS. Their number; 0
 * and the reason in the report.
 */
uint32_t verbs_resolve(const struct verbs *verbs, const char *text, struct sockaddr_storage *out,
                       struct bps_report *report);
/* Refuses what is no address to dial. */
bps_status verbs_check_target(const char *text, struct bps_report *report);
/* The own address of a rail for a family (AF_UNSPEC: any). False: there is none. */
bool verbs_own_address(const struct verbs *verbs, const struct verbs_rail *rail, int family,
                       struct sockaddr_storage *out);
/* The address that a GID stands for, where it is one. */
bool verbs_gid_address(const union ibv_gid *gid, struct sockaddr_storage *out);
void verbs_local_host(struct bps_channel *channel, char *host, size_t n);

/* ---- speed.c ---- */

bool verbs_delivered(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy);
uint32_t verbs_speed(struct bps_channel *channel);

/* ---- fork.c ---- */

void verbs_fork_init(void);
/* While fork is held: from now on children close the descriptors of its contexts. */
void verbs_fork_add(struct verbs *verbs);

#endif
