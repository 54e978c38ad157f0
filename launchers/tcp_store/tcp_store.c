/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_store.c - the TCPStore of PyTorch, which the agents of torchrun keep for their processes.
 *
 * A connection begins with VALIDATE; a query is a byte and its arguments. Numbers are those of the host, as PyTorch
 * has them; a string is its length and its bytes. Source: TCPStoreBackend.hpp of PyTorch 2.1 and later.
 */
#include "util/util.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/stream.h"

#define MAGIC      0x3C85F7CEu
#define RETRY_MS   100
#define KEY_LIMIT  256u
#define HELD_LIMIT (2 * KEY_LIMIT + BPS_LAUNCHER_NOTE_BYTES + 64) /* what a query has at most */

/* Of the enumeration QueryType. */
enum query { VALIDATE = 0, SET = 1, GET = 3, CHECK = 5, WAIT = 6 };

/* A connection, and what is about to be sent through it. */
struct store {
    struct launcher_stream stream;
    size_t used;
    uint8_t held[HELD_LIMIT];
};

static const char *host_variable(void)
{
    return getenv("MASTER_ADDR");
}

static const char *direction(void *instance)
{
    (void)instance;
    return host_variable();
}

/* Without TORCHELASTIC_USE_AGENT_STORE nobody has begun the store that MASTER_ADDR tells of. */
static bool recognise(void)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return agent != NULL && strcmp(agent, "True") == 0 && host_variable() != NULL && getenv("MASTER_PORT") != NULL;
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
    size_t n = store->used;
    store->used = 0;
    return launcher_stream_send(&store->stream, store->held, n, report);
}

static bps_status receive(struct store *store, void *data, size_t n, struct bps_report *report)
{
    bps_status status = launcher_stream_receive(&store->stream, data, n, report);
    return status == BPS_ERR_IO ? launcher_fail(report, status, "no TCPStore of PyTorch 2.1 or later answers there")
                                : status;
}

/* ---- connecting ---- */

/* The store may begin a little later than its clients. */
static bps_status open_store(struct store *store, uint64_t until, struct bps_report *report)
{
    const uint32_t magic = MAGIC;
    store->used = 0;
    bps_status status;
    while ((status = launcher_stream_open(&store->stream, host_variable(), getenv("MASTER_PORT"), until, report)) ==
               BPS_ERR_IO &&
           launcher_now() < until) {
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
    launcher_stream_close(&store->stream);
    if (status != BPS_OK && report != NULL) {
        snprintf(why, sizeof why, "%.255s", report->text);
        BPS_REPORT(report, "the store of torchrun at %.100s:%.10s: %s", host_variable(), getenv("MASTER_PORT"), why);
    }
    return status;
}

/* ---- the place ---- */

static bps_status leave(void *instance, const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
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

static bps_status get(struct store *store, const char *name, char note[BPS_LAUNCHER_NOTE_BYTES],
                      struct bps_report *report)
{
    uint64_t n = 0;
    hold_query(store, GET);
    hold_string(store, name);
    bps_status status = send_held(store, report);
    if (status == BPS_OK) {
        status = receive(store, &n, sizeof n, report);
    }
    if (status == BPS_OK && n >= BPS_LAUNCHER_NOTE_BYTES) {
        return launcher_fail(report, BPS_ERR_PROTOCOL, "it has %llu bytes for a note of at most %u",
                             (unsigned long long)n, BPS_LAUNCHER_NOTE_BYTES - 1);
    }
    if (status == BPS_OK) {
        status = receive(store, note, n, report);
        note[n] = '\0';
    }
    return status;
}

static bps_status find(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
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
            BPS_REPORT(report, "worker 0 has not stored a note there");
        }
    }
    if (status == BPS_OK) {
        status = get(&store, name, note, report);
    }
    return finish(&store, status, report);
}

static const struct bps_launcher_ops ops = {
    .size = sizeof ops,
    .open = launcher_open_nothing,
    .close = launcher_close_nothing,
    .order = 100,
    .place = "the store of torchrun",
    .recognise = recognise,
    .leave = leave,
    .find = find,
    .direction = direction,
};

BPS_LAUNCHER_NOTE("TORCHELASTIC_USE_AGENT_STORE");
BPS_PLUGIN_MODULE(BPS_KIND_LAUNCHER, "tcp_store", PLUGIN_VERSION, "Apache-2.0", .summary = "the TCPStore of torchrun",
                  .ops = &ops, .format = 1);
