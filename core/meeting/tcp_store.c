/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_store.c - the TCPStore of PyTorch, which the agents of torchrun keep for their processes.
 *
 * A connection begins with VALIDATE; a query is a byte and its arguments. Numbers are those of the host, as PyTorch
 * has them; a string is its length and its bytes. Source: TCPStoreBackend.hpp of PyTorch 2.1 and later.
 */
#include "meeting/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/report.h"

#define MAGIC      0x3C85F7CEu
#define RETRY_MS   100
#define KEY_LIMIT  256u
#define HELD_LIMIT (2 * KEY_LIMIT + BPS_NOTE_LIMIT)

/* Of the enumeration QueryType. */
enum query { VALIDATE = 0, SET = 1, GET = 3, CHECK = 5, WAIT = 6 };

/* A connection, and what is about to be sent through it. */
struct store {
    int fd;
    uint64_t until;
    size_t used;
    uint8_t held[HELD_LIMIT];
};

static const char *host_variable(void)
{
    return getenv("MASTER_ADDR");
}

/* Without TORCHELASTIC_USE_AGENT_STORE nobody has begun the store that MASTER_ADDR tells of. */
static bool is_here(void)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return agent != NULL && strcmp(agent, "True") == 0 && host_variable() != NULL && getenv("MASTER_PORT") != NULL;
}

/* ---- waiting ---- */

/* Until the descriptor is ready for `events`. */
static bps_status wait_for(const struct store *store, short events, struct bps_report *report)
{
    struct pollfd ready = {.fd = store->fd, .events = events};
    uint64_t now;
    while ((now = bps_now()) < store->until) {
        int n = poll(&ready, 1, (int)((store->until - now) / BPS_MS) + 1);
        if (n > 0) {
            return BPS_OK;
        }
        if (n < 0 && errno != EINTR) {
            return bps_fail(report, BPS_ERR_IO, "poll: %s", strerror(errno));
        }
    }
    BPS_REPORT(report, "it does not answer");
    return BPS_ERR_TIMEOUT;
}

/* ---- bytes ---- */

static void hold(struct store *store, const void *data, size_t n)
{
    memcpy(store->held + store->used, data, n);
    store->used += n;
}

static void hold_query(struct store *store, enum query query)
{
    uint8_t byte = (uint8_t)query;
    hold(store, &byte, 1);
}

static void hold_number(struct store *store, uint64_t number)
{
    hold(store, &number, sizeof number);
}

static void hold_string(struct store *store, const char *text)
{
    hold_number(store, strlen(text));
    hold(store, text, strlen(text));
}

static bps_status send_held(struct store *store, struct bps_report *report)
{
    for (size_t sent = 0; sent < store->used;) {
        ssize_t n = send(store->fd, store->held + sent, store->used - sent, MSG_NOSIGNAL);
        bool full = n < 0 && (errno == EAGAIN || errno == EINTR);
        bps_status status = full ? wait_for(store, POLLOUT, report) : BPS_OK;
        if (status != BPS_OK) {
            return status;
        }
        if (n < 0 && !full) {
            return bps_fail(report, BPS_ERR_IO, "send: %s", strerror(errno));
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    store->used = 0;
    return BPS_OK;
}

static bps_status receive(struct store *store, void *data, size_t n, struct bps_report *report)
{
    for (size_t got = 0; got < n;) {
        bps_status status = wait_for(store, POLLIN, report);
        if (status != BPS_OK) {
            return status;
        }
        ssize_t more = recv(store->fd, (uint8_t *)data + got, n - got, 0);
        if (more == 0 || (more < 0 && errno == ECONNRESET)) {
            return bps_fail(report, BPS_ERR_IO, "it has hung up; expected a TCPStore of PyTorch 2.1 or later");
        }
        if (more < 0 && errno != EAGAIN && errno != EINTR) {
            return bps_fail(report, BPS_ERR_IO, "receive: %s", strerror(errno));
        }
        got += more > 0 ? (size_t)more : 0;
    }
    return BPS_OK;
}

/* ---- connecting ---- */

static bps_status connect_to(struct store *store, const struct addrinfo *at, struct bps_report *report)
{
    int error = 0;
    socklen_t size = sizeof error;
    store->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (store->fd < 0) {
        return bps_fail(report, BPS_ERR_IO, "socket: %s", strerror(errno));
    }
    if (connect(store->fd, at->ai_addr, at->ai_addrlen) == 0) {
        return BPS_OK;
    }
    bps_status status = errno == EINPROGRESS ? wait_for(store, POLLOUT, report) : BPS_ERR_IO;
    if (status == BPS_OK && getsockopt(store->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        return BPS_OK;
    }
    if (status != BPS_ERR_TIMEOUT) {
        BPS_REPORT(report, "connect: %s", strerror(status == BPS_OK ? error : errno));
    }
    close(store->fd);
    store->fd = -1;
    return status == BPS_OK ? BPS_ERR_IO : status;
}

static bps_status connect_once(struct store *store, struct bps_report *report)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(host_variable(), getenv("MASTER_PORT"), &hints, &found);
    if (error != 0) {
        return bps_fail(report, BPS_ERR_IO, "%s", gai_strerror(error));
    }
    bps_status status = BPS_ERR_IO;
    for (const struct addrinfo *at = found; at != NULL && status == BPS_ERR_IO; at = at->ai_next) {
        status = connect_to(store, at, report);
    }
    freeaddrinfo(found);
    return status;
}

/* The store may begin a little later than its clients. */
static bps_status open_store(struct store *store, uint64_t until, struct bps_report *report)
{
    const uint32_t magic = MAGIC;
    *store = (struct store){.fd = -1, .until = until};
    bps_status status;
    while ((status = connect_once(store, report)) == BPS_ERR_IO && bps_now() < until) {
        poll(NULL, 0, RETRY_MS);
    }
    if (status == BPS_OK) {
        hold_query(store, VALIDATE);
        hold(store, &magic, sizeof magic);
    }
    return status == BPS_ERR_IO ? BPS_ERR_TIMEOUT : status;
}

/*
 * Several jobs may share a store. PyTorch has a slash before each key. The attempt of an elastic job is no part of it,
 * as agents count theirs apart: a note of the attempt before is found out when nobody answers there.
 */
static void full_key(const char *key, char *out)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    snprintf(out, KEY_LIMIT, "/%.100s/%.100s", key, run != NULL ? run : "");
}

static bps_status finish(struct store *store, bps_status status, struct bps_report *report)
{
    char why[256];
    if (store->fd >= 0) {
        close(store->fd);
    }
    if (status != BPS_OK && report != NULL) {
        snprintf(why, sizeof why, "%.255s", report->text);
        BPS_REPORT(report, "the store of torchrun at %.100s:%.10s: %s", host_variable(), getenv("MASTER_PORT"), why);
    }
    return status;
}

/* ---- the place ---- */

static bps_status leave(const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    struct store store;
    char name[KEY_LIMIT];
    uint8_t there = 0;
    full_key(key, name);
    bps_status status = open_store(&store, until, report);
    if (status == BPS_OK) {
        hold_query(&store, SET); /* is not answered, but what follows is */
        hold_string(&store, name);
        hold_string(&store, note);
        hold_query(&store, CHECK);
        hold_number(&store, 1);
        hold_string(&store, name);
        status = send_held(&store, report);
    }
    if (status == BPS_OK) {
        status = receive(&store, &there, 1, report);
    }
    return finish(&store, status, report);
}

static bps_status get(struct store *store, const char *name, char note[BPS_NOTE_LIMIT], struct bps_report *report)
{
    uint64_t n = 0;
    hold_query(store, GET);
    hold_string(store, name);
    bps_status status = send_held(store, report);
    if (status == BPS_OK) {
        status = receive(store, &n, sizeof n, report);
    }
    if (status == BPS_OK && n >= BPS_NOTE_LIMIT) {
        return bps_fail(report, BPS_ERR_PROTOCOL, "it has %llu bytes for a note of at most %u", (unsigned long long)n,
                        BPS_NOTE_LIMIT - 1);
    }
    if (status == BPS_OK) {
        status = receive(store, note, n, report);
        note[n] = '\0';
    }
    return status;
}

static bps_status find(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until, struct bps_report *report)
{
    struct store store;
    char name[KEY_LIMIT];
    uint8_t there = 0;
    full_key(key, name);
    bps_status status = open_store(&store, until, report);
    if (status == BPS_OK) {
        hold_query(&store, WAIT);
        hold_number(&store, 1);
        hold_string(&store, name);
        status = send_held(&store, report);
    }
    if (status == BPS_OK) {
        status = receive(&store, &there, 1, report);
        if (status == BPS_ERR_TIMEOUT) {
            BPS_REPORT(report, "worker 0 has left no note there");
        }
    }
    if (status == BPS_OK) {
        status = get(&store, name, note, report);
    }
    return finish(&store, status, report);
}

const struct bps_meeting_place bps_meeting_tcp_store = {
    .name = "the store of torchrun",
    .is_here = is_here,
    .direction = host_variable,
    .leave = leave,
    .find = find,
};
