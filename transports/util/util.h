/* SPDX-License-Identifier: Apache-2.0 */
/*
 * util.h - what several transports need in the same way. It is linked into each of them; nothing here knows
 * what a channel is made of.
 */
#ifndef BPS_UTIL_H
#define BPS_UTIL_H

#include <byteps/transport.h>

#include <netinet/in.h>
#include <sys/queue.h>
#include <sys/socket.h>

/* Bytes of the payload that the header of a frame announces. */
static inline uint32_t bps_util_payload_bytes(const uint8_t *h)
{
    return (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
}

/* *timer NULL: there is none; afterwards it is. */
static inline void bps_util_cancel(const struct bps_host *host, struct bps_timer **timer)
{
    if (*timer != NULL) {
        host->cancel(host, *timer);
        *timer = NULL;
    }
}

/* ---- turns.c: channels that have work which need not wait for an event take turns ---- */

struct bps_util_turn {
    TAILQ_ENTRY(bps_util_turn) entry;
    void *arg; /* for `work` */
    bool queued;
};

struct bps_util_turns {
    const struct bps_host *host;
    bps_call_fn work;  /* one turn */
    bps_call_fn after; /* called after those that had work, with `arg`; NULL: nothing is */
    void *arg;
    TAILQ_HEAD(, bps_util_turn) ready;
    size_t nready;
    bool deferred; /* a round over `ready` is coming */
};

void bps_util_turns_init(struct bps_util_turns *turns, const struct bps_host *host, bps_call_fn work, bps_call_fn after,
                         void *arg);
/* A turn after the events; if it is queued already, it stays where it is. */
void bps_util_turn_queue(struct bps_util_turns *turns, struct bps_util_turn *turn);
/* There will be none. */
void bps_util_turn_remove(struct bps_util_turns *turns, struct bps_util_turn *turn);
/* One turn for each that is queued now. */
void bps_util_turns_run(struct bps_util_turns *turns);

/* ---- fork.c: forked children keep no descriptor ---- */

/* What has descriptors that are not watched: a child closes them. */
struct bps_util_forked {
    LIST_ENTRY(bps_util_forked) entry;
    bps_call_fn in_child;
    void *arg;
};

void bps_util_fork_init(void);
/* Between these two nobody forks: while a descriptor is open and not watched. They do not nest. */
void bps_util_fork_hold(void);
void bps_util_fork_release(void);
/* Between those two: children call in_child(arg) from now on; from now on no more. */
void bps_util_fork_add(struct bps_util_forked *forked);
void bps_util_fork_remove(struct bps_util_forked *forked);

/* ---- listen.c: listening sockets, and accepting with a pause when there is no descriptor left ---- */

struct bps_util_listener;

struct bps_util_acceptor {
    /*
     * A channel with this socket, while fork is held. Where there is no memory the socket is closed, and the
     * channel is NULL or has none.
     */
    struct bps_channel *(*adopt)(void *instance, int fd);
    /* It was not NULL; fork is not held any more. */
    void (*welcome)(struct bps_util_listener *listener, struct bps_channel *channel, const struct sockaddr *peer);
};

struct bps_util_listener {
    LIST_ENTRY(bps_util_listener) entry;
    const struct bps_host *host;
    const struct bps_util_acceptor *acceptor;
    void *instance; /* for adopt */
    int fd;
    bps_accept_fn accept; /* of the core */
    void *arg;
    struct bps_watch *watch;
    struct bps_timer *pause;
    bool deferred; /* a turn of accepting is coming */
    bool starved;  /* has warned that there are no descriptors */
};
LIST_HEAD(bps_util_listeners, bps_util_listener);

/* Binds the socket and listens. False, errno, and the socket is closed. */
bool bps_util_bind_and_listen(int fd, const struct sockaddr *address, socklen_t length, int backlog);
/* Accepts with a copy of `like`, whose upper half is set; fork is held. False: no memory. */
bool bps_util_listener_add(struct bps_util_listeners *listeners, const struct bps_util_listener *like);
void bps_util_listeners_close(struct bps_util_listeners *listeners);
/* Those that were added after this one was the first; NULL: all. */
void bps_util_listeners_close_until(struct bps_util_listeners *listeners, const struct bps_util_listener *first);
/* Why, and the remedy. BPS_ERR_BUSY: the port is taken. `elsewhere` says that the address is none of this host. */
bps_status bps_util_listen_failed(const struct sockaddr *address, int error, const char *elsewhere,
                                  struct bps_report *report);

/* ---- address.c: Internet addresses as text and as the kernel has them ---- */

#define BPS_UTIL_ADDRESS_TEXT 128 /* "[IPv6%interface]:port" */

/* An option "auto|ipv4|ipv6". */
#define BPS_UTIL_FAMILY_AUTO 0u
#define BPS_UTIL_FAMILY_IPV4 1u
#define BPS_UTIL_FAMILY_IPV6 2u
/* As an AF_*; auto: AF_UNSPEC. */
int bps_util_family(uint32_t option);

struct bps_util_target {
    char host[256]; /* without brackets */
    uint16_t port;
};
/* "host:port", "[ipv6]:port", ":port". */
bps_status bps_util_target_parse(const char *text, struct bps_util_target *out, struct bps_report *report);
/* Refuses an own host that has a port or brackets, which are for addresses to dial. */
bps_status bps_util_host_check(const char *host, struct bps_report *report);
/* As bps_util_target_parse(), where host and port must be given. */
bps_status bps_util_target_parse_peer(const char *text, struct bps_util_target *out, struct bps_report *report);
/* For freeaddrinfo. A number is never looked up, so that it does not block; a name may. NULL and the reason. */
struct addrinfo *bps_util_resolve(const struct bps_util_target *target, uint32_t family, struct bps_report *report);
/* "10.0.0.7:9000", "[::1]:9000" */
void bps_util_address_text(const struct sockaddr *address, char *text, size_t n);
/* The same without the port: "10.0.0.7", "[::1]". */
void bps_util_host_text(const struct sockaddr *address, char *text, size_t n);
/* That without brackets. */
void bps_util_number_text(const struct sockaddr *address, char *text, size_t n);
uint16_t bps_util_port(const struct sockaddr *address);
void bps_util_set_port(struct sockaddr *address, uint16_t port);
socklen_t bps_util_address_length(const struct sockaddr *address);
void bps_util_address_copy(const struct sockaddr *address, struct sockaddr_storage *out);
bool bps_util_is_loopback(const struct sockaddr *address);
bool bps_util_is_wildcard(const struct sockaddr *address);

/* ---- file.c, memory.c, text.c ---- */

bool bps_util_nonblock(int fd);
/* The first line of a file of the kernel; "": it cannot be read. */
void bps_util_read_line(const char *path, char *text, size_t n);
/* The memory with its first `used` bytes, larger, elsewhere. NULL: there is none, and all is as it was. */
void *bps_util_grow(const struct bps_host *host, void *memory, size_t used, size_t bytes, size_t alignment);
/* Appends to the text what there is room for. */
__attribute__((format(printf, 3, 4))) void bps_util_append(char *text, size_t n, const char *format, ...);

#endif
