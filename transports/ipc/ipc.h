/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc.h - the transport over shared memory: what its parts share.
 *
 * An instance belongs to the thread that drives its event loop; there are no locks. A callback of the core
 * may drop any channel at any time. So whoever calls back looks afterwards whether the channel is still open; a
 * dropped channel closes its socket at once and is freed, with its mappings, when its turn is over (turn.c).
 *
 * The parts are declared here from the top down: each calls only those below it.
 */
#ifndef IPC_H
#define IPC_H

#include <sys/types.h>

#include "layout.h"
#include "util/util.h"

#define IPC_TURN_BYTES   (4u << 20) /* then the other channels have their turn */
#define IPC_TURN_RECORDS 256
#define IPC_SCRATCH      (256u << 10)
#define IPC_STAGED_FRAME (2u << 20)    /* larger ones leave the cache before the peer comes to them */
#define IPC_STAGED_MOST  (64u << 20)   /* bytes of all arenas together, where there is a way without */
#define IPC_LINGER       5000000000ull /* ns that the end of a channel may take */
#define IPC_ADDRESS_TEXT 108
#define IPC_REGIONS_MAX  16384u /* of one instance, with an arena */
#define IPC_NONE         UINT32_MAX

#define IPC_COPY_AUTO   0u
#define IPC_COPY_REMOTE 1u
#define IPC_COPY_ARENA  2u
#define IPC_COPY_RING   3u

struct ipc_options {
    uint32_t copy; /* IPC_COPY_* */
    uint64_t inline_bytes, ring, arena, window;
    uint64_t timeout; /* ns */
    bool ptracer;
};

/* The ways of a payload. */
enum ipc_way { IPC_BY_INLINE, IPC_BY_REGION, IPC_BY_REMOTE, IPC_BY_ARENA, IPC_BY_STREAM, IPC_WAYS };

struct ipc_counters {
    uint64_t *frames_sent, *frames_received, *wakeups, *loans;
    uint64_t *frames[IPC_WAYS], *bytes[IPC_WAYS];
};

/* A region of the core's. Frames of every channel may point into it. */
struct ipc_own_region {
    TAILQ_ENTRY(ipc_own_region) entry; /* in the order of numbers */
    const struct bps_region *region;
    uint32_t id;
};

/* An instance. */
struct ipc {
    const struct bps_host *host;
    struct ipc_options options;
    struct ipc_counters count;
    int event; /* signalled by the peers while we sleep; -1 before the first listen or dial */
    struct bps_watch *event_watch;
    struct bps_poller *poller;
    uint64_t nonce;
    uint8_t *scratch; /* IPC_SCRATCH bytes, used within one call only; NULL until it is needed */
    struct bps_util_listeners listeners;
    LIST_HEAD(, bps_channel) channels;
    struct bps_util_turns turns;
    uint32_t touched;                /* pages of all arenas */
    bool armed;                      /* the peers have been told that we sleep */
    uint32_t said;                   /* ways that the log has told of, a bit for each */
    struct bps_channel *cursor;      /* the channel that is polled next */
    struct ipc_own_region **regions; /* by address */
    uint32_t nregions, region_room, last_region;
    TAILQ_HEAD(, ipc_own_region) region_list;
};

/* ---- the private view of the rings ---- */

struct ipc_ring {
    struct ipc_shared *shared;
    struct ipc_side *own, *peer;
    uint8_t *out, *in;
    uint32_t bytes;
    uint64_t tail, peer_head; /* of `out`: written; what the peer is known to have taken */
    uint64_t announced;       /* the tail of which the peer was told while it slept */
    uint64_t head, told;      /* of `in`: taken; what the peer was told of that */
};

/* ---- what is under way ---- */

/* A frame whose payload the peer fetches. */
struct ipc_ticket {
    void *cookie, *answer; /* answer NULL: there is none */
    uint64_t start, end;   /* of its record in the ring */
    uint8_t *slot;         /* its copy in the arena, or NULL */
    uint32_t bytes, serial;
    uint32_t next; /* in the queue, or of the free ones */
    bool lendable;
    bool used, taken_up, returned; /* taken_up: the peer's head has passed it */
};

struct ipc_tickets {
    struct ipc_ticket *items;
    uint32_t room, free;
    uint32_t first, last; /* queue of those that the peer has not come to; IPC_NONE: empty */
    uint64_t bytes;       /* of their payloads */
};

struct ipc_arena {
    uint8_t *memory; /* NULL: not made yet */
    uint64_t *used;  /* a bit for each page */
    uint32_t pages, id;
    uint32_t touched; /* pages from the beginning that were ever taken */
    int fd;           /* until the peer has been sent it; -1: none */
    bool failed;
};

/* A region of the peer's, mapped here. */
struct ipc_region {
    uint32_t id;
    uint32_t loans; /* that lie in it */
    uint8_t *memory;
    uint64_t bytes;
    bool populate; /* at the first use */
};

/* A payload that the peer has lent. */
struct ipc_loan {
    struct bps_loan loan; /* first: the core has its address */
    LIST_ENTRY(ipc_loan) entry;
    struct bps_channel *channel;
    uint32_t ticket, serial;
    uint32_t region, answer_region; /* IPC_NONE: not mapped */
    uint64_t at, answer;            /* addresses in the peer, if not mapped */
};

/* A message that the socket had no room for. */
struct ipc_post {
    STAILQ_ENTRY(ipc_post) entry;
    struct ipc_message message;
    int fd; /* of the region, which has it open; -1: none */
};

/* IPC_ENDING: it has been noted that the channel is to end; its turn does that. */
enum ipc_state { IPC_DIALLING, IPC_GREETING, IPC_OPEN, IPC_ENDING, IPC_DEAD };

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct bps_util_turn turn;
    struct bps_util_forked forked;
    struct ipc *ipc;
    enum ipc_state state;
    int fd, event;        /* the socket; the peer's eventfd; -1: none */
    int fds[IPC_FDS_MAX]; /* that came with a message, or go with one; -1: none */
    unsigned holders;
    struct bps_watch *watch;
    struct bps_timer *timer; /* of the handshake, or of the end */
    const struct bps_channel_events *events;
    void *user;
    bps_accept_fn accept; /* until an accepted channel is open */
    void *accept_arg;
    char address[IPC_ADDRESS_TEXT]; /* that is dialled */
    uint64_t deadline;              /* of dialling */
    char failure[160];              /* why dialling has failed */
    pid_t pid;
    uint64_t nonce_at, nonce;  /* of the peer, by which its process is known */
    char peer[32];             /* for messages */
    uint32_t reach;            /* 0: the peer can reach memory here, or the errno with which it cannot */
    bool readable;             /* the socket has more to read */
    bool kicked;               /* the core may have frames */
    bool sends;                /* a turn is under way that will ask for them */
    bool starved;              /* sending waits for the peer to take what is there */
    bool finishing, shut, eof; /* finish was called; our end is closed; the peer's end is closed */
    uint64_t seen;             /* what the peer had taken when the timer was set */
    bps_status status;         /* with which it is to end */
    const char *reason;        /* NULL: nobody is to be told */
    uint32_t said;             /* as in struct ipc, for this peer */
    struct ipc_ring ring;

    /* sending */
    uint32_t inline_max, piece; /* bytes */
    struct bps_frame stream;    /* under way in pieces; header NULL: none */
    uint32_t streamed;
    struct ipc_tickets tickets;
    struct ipc_arena arena;
    STAILQ_HEAD(, ipc_post) posts;
    uint32_t announced; /* regions up to this number are known to the peer */
    bool mute;          /* no more regions can be announced */

    /* receiving */
    struct bps_sink *sink; /* of a stream; NULL: none */
    uint32_t length, offset;
    uint64_t taken;             /* bytes of payloads in this turn */
    struct ipc_region *regions; /* by number */
    uint32_t nregions, region_room, last_region;
    LIST_HEAD(, ipc_loan) loans;
};

/* ---- listen.c, dial.c ---- */

bps_status ipc_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                      struct bps_report *report);
bps_status ipc_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                    const struct bps_channel_events *events, void *user, struct bps_channel **out,
                    struct bps_report *report);

/* ---- start.c ---- */

/* Gets what an instance with channels needs: the eventfd, the poller. */
bps_status ipc_start(struct ipc *ipc, struct bps_report *report);
void ipc_stop(struct ipc *ipc);

/* ---- poll.c: looking at the rings, going to sleep ---- */

bool ipc_poll(void *arg);
bool ipc_arm(void *arg);

/* ---- turn.c: life of a channel, and the turns of those that have work ---- */

/* Fork is held. */
struct bps_channel *ipc_channel_new(struct ipc *ipc);
/* Gives the channel its socket and watches it; fork is held. */
bool ipc_channel_attach(struct bps_channel *channel, int fd);
/* A queued turn. */
void ipc_channel_work(void *arg);
/* Does what there is to do for an open channel. */
void ipc_channel_turn(struct bps_channel *channel);
/* NULL is allowed. */
void ipc_drop(struct bps_channel *channel);

/* ---- connect.c, handshake.c ---- */

/* A turn of a channel that is not connected yet. */
void ipc_connect_continue(struct bps_channel *channel);
/* The dialler's first message. 0, or an errno. */
int ipc_handshake_begin(struct bps_channel *channel);
/* A turn of a channel that is not open yet. */
void ipc_handshake_continue(struct bps_channel *channel);

/* ---- end.c: the end in order ---- */

void ipc_finish(struct bps_channel *channel);
/* The peer has closed its end, or ours is to be closed: does what is possible of that now. */
void ipc_end_continue(struct bps_channel *channel);

/* ---- receive.c, send.c ---- */

/* False: the channel is not open any more. */
bool ipc_receive(struct bps_channel *channel);
void ipc_send(struct bps_channel *channel);

/* ---- ticket.c: frames whose payload the peer fetches ---- */

/* A ticket for a frame; IPC_NONE: no memory. */
uint32_t ipc_ticket_new(struct bps_channel *channel, const struct bps_frame *frame, uint8_t *slot);
/* Its record is in the ring. */
void ipc_ticket_queue(struct bps_channel *channel, uint32_t ticket, uint64_t start, uint64_t end);
/* Looks how far the peer has come, and tells the core what was sent. False: the channel is not open any more. */
bool ipc_reap(struct bps_channel *channel);
/* The peer returns a loan: the answer goes to its place. BPS_ERR_PROTOCOL: there is no such loan. */
bps_status ipc_ticket_return(struct bps_channel *channel, uint32_t ticket, uint32_t serial);
void ipc_tickets_free(struct bps_channel *channel);

/* ---- loan.c: payloads that the peer has lent ---- */

/* Offers a payload to the sink as a loan. BPS_OK: lent, BPS_AGAIN: not. */
bps_status ipc_loan_offer(struct bps_channel *channel, struct bps_sink *sink, const struct ipc_record *record,
                          uint32_t bytes);
/* Ends a loan of this channel after its return was sent. */
void ipc_loan_end(struct ipc_loan *loan);
void ipc_loans_free(struct bps_channel *channel);
bps_status ipc_loan_read(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to, uint32_t bytes);
bps_status ipc_loan_write(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, const void *from,
                          uint32_t bytes);

/* ---- peer_region.c: regions of the peer ---- */

/* Reads the messages that have come. False: the channel is to end. */
bool ipc_messages_receive(struct bps_channel *channel);
struct ipc_region *ipc_region_get(const struct bps_channel *channel, uint32_t id);
/* The address of `bytes` at `at` of a region; NULL: there is no such memory. */
void *ipc_region_address(struct bps_channel *channel, uint32_t id, uint64_t at, uint32_t bytes);
void ipc_peer_regions_free(struct bps_channel *channel);

/* ---- arena.c ---- */

/* Memory that the peer can reach; NULL: none is free, or all arenas together would have touched more than `most`. */
uint8_t *ipc_arena_take(struct bps_channel *channel, uint32_t bytes, uint64_t most);
void ipc_arena_give(struct bps_channel *channel, const uint8_t *slot, uint32_t bytes);
void ipc_arena_free(struct bps_channel *channel);

/* ---- region.c: regions of the core, and how peers learn of them ---- */

bps_status ipc_attach(void *instance, const struct bps_region *region, struct bps_report *report);
void ipc_detach(void *instance, const struct bps_region *region);
/* The region that has all of this memory; NULL: none. */
const struct ipc_own_region *ipc_region_find(const struct ipc *ipc, const void *memory, uint32_t bytes);
/* Tells the peer of all regions. */
void ipc_regions_announce(struct bps_channel *channel);
void ipc_regions_free(struct ipc *ipc);
void ipc_region_announce(struct bps_channel *channel, uint32_t id, int fd, uint64_t bytes, uint64_t offset);
/* Sends what waits for the socket. */
void ipc_posts_flush(struct bps_channel *channel);
void ipc_posts_free(struct bps_channel *channel);

/* ---- wake.c: telling peers what is new, and waking them ---- */

/* Tells the peer what was taken, and wakes it if it sleeps and there is news for it. */
void ipc_flush(struct bps_channel *channel);
/* Whether something waits for the peer to take what is there. */
bool ipc_waits(const struct bps_channel *channel);

/* ---- channel.c: what every part may do with a channel ---- */

/* Gives the channel a turn after the events. */
void ipc_channel_queue(struct bps_channel *channel);
void ipc_kick(struct bps_channel *channel);
/*
 * The channel is to end, and the core to be told, when its turn is over; who is in none gives it one. The first reason
 * counts. It is not copied; NULL: the core knows, and nobody else has to.
 */
void ipc_channel_end(struct bps_channel *channel, bps_status status, const char *reason);
/* Limits the time of a handshake. */
void ipc_channel_hurry(struct bps_channel *channel);
/* ipc_message_receive() into channel->fds, which the caller closes. */
bps_status ipc_channel_receive(struct bps_channel *channel, struct ipc_message *message);
void ipc_channel_close_fds(struct bps_channel *channel);

/* ---- ring.c ---- */

void ipc_ring_init(struct ipc_ring *ring, void *shared, uint32_t bytes, bool dialler);
uint64_t ipc_ring_size(uint32_t bytes); /* of the file */
/* Room for a record of `size` bytes; NULL: not now. */
struct ipc_record *ipc_ring_reserve(struct ipc_ring *ring, uint32_t size);
void ipc_ring_publish(struct ipc_ring *ring, const struct ipc_record *record);
/* Reads how far the peer has come. False: nonsense. */
bool ipc_ring_refresh(struct ipc_ring *ring);
/* Whether the peer has come further than is known here. */
bool ipc_ring_moved(const struct ipc_ring *ring);
/* Whether there are records. */
bool ipc_ring_ready(const struct ipc_ring *ring);
/* BPS_OK: *copy is the next record, and *place where it lies; BPS_AGAIN: none; BPS_ERR_PROTOCOL: nonsense. */
bps_status ipc_ring_peek(const struct ipc_ring *ring, struct ipc_record *copy, uint8_t **place);
void ipc_ring_consume(struct ipc_ring *ring, uint32_t size);
/* Tells the peer what has been consumed. False: nothing new. */
bool ipc_ring_tell(struct ipc_ring *ring);

/* ---- remote.c: the memory of another process ---- */

/* 0, or the errno with which the peer's memory cannot be read. */
uint32_t ipc_remote_try(pid_t pid, uint64_t nonce_at, uint64_t nonce);
bps_status ipc_remote_read(const struct bps_channel *channel, uint64_t address, void *to, uint32_t bytes);
bps_status ipc_remote_write(const struct bps_channel *channel, uint64_t address, const void *from, uint32_t bytes);
/*
 * Tells the peer that the channel ends, and waits while it writes to memory here. One that does so for seconds is
 * killed.
 */
void ipc_remote_end(const struct bps_channel *channel);
/* What the kernel's settings say about it, for people. */
void ipc_remote_describe(char *text, size_t n);

/* ---- fork.c ---- */

/* While fork is held: from now on a child closes the channel's event, its fds and its arena's. */
void ipc_fork_add(struct bps_channel *channel);
/* Closes one of those. -1: there is none. */
void ipc_fork_close(int *fd);

/* ---- socket.c: addresses, credentials, messages with descriptors ---- */

struct sockaddr_un;
/* "@name": an abstract address. False: it is none. */
bool ipc_address_parse(const char *text, struct sockaddr_un *address, socklen_t *length);
/* A name that nobody else has. */
bool ipc_address_make(char *text, size_t n);
/* Non-blocking, closed on exec; -1 and errno. */
int ipc_socket(void);
/* Who is at the other end. False: a stranger, who must not be talked to. */
bool ipc_credentials(int fd, pid_t *pid, uid_t *uid);
/* 0, or an errno. */
int ipc_message_send(int fd, const struct ipc_message *message, const int *fds, unsigned nfds);
/*
 * BPS_OK, BPS_AGAIN: there is none; BPS_ERR_IO: the peer has closed its end; BPS_ERR_PROTOCOL: nonsense;
 * BPS_ERR_NOMEM: there is no room for its descriptors. The caller closes those; ones that were not received
 * are -1.
 */
bps_status ipc_message_receive(int fd, struct ipc_message *message, int fds[IPC_FDS_MAX]);

/* ---- memory.c: files of memory ---- */

/* A sealed file of `bytes`, mapped here; false and errno. `fd` is one that a child closes (fork.c). */
bool ipc_memory_make(const char *name, uint64_t bytes, int *fd, void **memory);
/* Maps what a peer has sent; NULL and errno: EINVAL, it is not sealed or too short; ENOMEM, no memory. */
void *ipc_memory_map(int fd, uint64_t bytes, uint64_t offset, bool *allocated);
void ipc_memory_unmap(void *memory, uint64_t bytes);
/* Whether nobody can make the file shorter. */
bool ipc_memory_is_sealed(int fd);

#endif
