/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi_0.c - see abi_0.h. Frames and loans of transports had no size then. So the callbacks of the core stand behind
 * others, which pass frames on as they were and never a loan: such a transport works, but sends what it could lend.
 */
#include "plugin/abi_0.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/container.h"
#include "base/report.h"

struct frame_0 {
    const uint8_t *header;
    const void *payload;
    uint32_t bytes;
    void *cookie;
    void *answer;
    void *returns;
    bool lends;
};

/* A channel, as its transport knows it; or, with accept, an address at which it listens. */
struct guest {
    LIST_ENTRY(guest) entry;
    const void *at; /* the channel, or the instance that listens */
    const struct bps_channel_events *events;
    void *user;
    bps_accept_fn accept;
    struct bps_sink sink, *real; /* of the frame that arrives */
    unsigned inside;             /* callbacks that are running */
    bool over;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, guest) guests = LIST_HEAD_INITIALIZER(guests); /* under the lock */

static void guest_add(struct guest *guest, const void *at)
{
    pthread_mutex_lock(&lock);
    guest->at = at;
    LIST_INSERT_HEAD(&guests, guest, entry);
    pthread_mutex_unlock(&lock);
}

static void guest_forget(struct guest *guest)
{
    pthread_mutex_lock(&lock);
    LIST_REMOVE(guest, entry);
    pthread_mutex_unlock(&lock);
    guest->over = true;
}

static struct guest *guest_find(const void *at)
{
    struct guest *guest;
    pthread_mutex_lock(&lock);
    LIST_FOREACH(guest, &guests, entry) {
        if (guest->at == at) {
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return guest;
}

/* The core may drop the channel from any callback; the last one frees it then. */
static void guest_enter(struct guest *guest)
{
    guest->inside++;
}

static void guest_leave(struct guest *guest)
{
    if (--guest->inside == 0 && guest->over) {
        free(guest);
    }
}

static void guest_end(struct guest *guest)
{
    guest_enter(guest);
    guest_forget(guest);
    guest_leave(guest);
}

/* ---- sinks ---- */

static struct bps_sink *guest_sink(struct bps_sink *sink)
{
    return bps_container(sink, struct guest, sink)->real;
}

static void *guest_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    return guest_sink(sink)->place(guest_sink(sink), offset, bytes);
}

static uint32_t guest_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    return guest_sink(sink)->take(guest_sink(sink), offset, data, bytes);
}

static void *guest_open(struct bps_sink *sink, void **ticket)
{
    return guest_sink(sink)->open(guest_sink(sink), ticket);
}

/* ---- callbacks of a channel ---- */

static void guest_on_connected(void *user)
{
    struct guest *guest = user;
    guest->events->connected(guest->user);
}

static bps_status guest_on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct guest *guest = user;
    guest_enter(guest);
    bps_status status = guest->events->header(guest->user, header, &guest->real);
    if (status == BPS_OK && guest->real != NULL) {
        const struct bps_sink *real = guest->real;
        guest->sink = (struct bps_sink){.place = real->place != NULL ? guest_place : NULL,
                                        .take = real->take != NULL ? guest_take : NULL,
                                        .open = real->open != NULL ? guest_open : NULL};
    }
    *sink = &guest->sink;
    guest_leave(guest);
    return status;
}

static bps_status guest_on_next(void *user, struct bps_frame *out)
{
    const struct guest *guest = user;
    struct bps_frame frame = {.size = sizeof frame};
    bps_status status = guest->events->next(guest->user, &frame);
    if (status == BPS_OK) {
        *(struct frame_0 *)(void *)out = (struct frame_0){
            .header = frame.header, .payload = frame.payload, .bytes = frame.bytes, .cookie = frame.cookie};
    }
    return status;
}

static void guest_on_sent(void *user, void *cookie)
{
    const struct guest *guest = user;
    guest->events->sent(guest->user, cookie);
}

static void guest_on_closed(void *user, bps_status status, const char *text)
{
    struct guest *guest = user;
    guest_enter(guest);
    guest_forget(guest);
    guest->events->closed(guest->user, status, text);
    guest_leave(guest);
}

static void guest_on_placed(void *user, void *ticket)
{
    const struct guest *guest = user;
    guest->events->placed(guest->user, ticket);
}

static const struct bps_channel_events events_0 = {
    .connected = guest_on_connected,
    .header = guest_on_header,
    .next = guest_on_next,
    .sent = guest_on_sent,
    .closed = guest_on_closed,
    .placed = guest_on_placed,
};

static const struct bps_channel_events *guest_on_accept(void *arg, struct bps_channel *channel, const char *peer,
                                                        void **user, const struct bps_channel_key **key)
{
    const struct guest *listener = arg;
    struct guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        return NULL;
    }
    guest->events = listener->accept(listener->user, channel, peer, &guest->user, key);
    if (guest->events == NULL) {
        free(guest);
        return NULL;
    }
    guest_add(guest, channel);
    *user = guest;
    return &events_0;
}

/* ---- operations: those that the core calls, for a plugin each ---- */

static bps_status guest_listen(const struct bps_transport_ops *ops, void *instance, const char *address,
                               bps_accept_fn accept, void *arg, char *actual, size_t n, struct bps_report *report)
{
    struct guest *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        return bps_out_of_memory(report);
    }
    listener->accept = accept;
    listener->user = arg;
    bps_status status = ops->listen(instance, address, guest_on_accept, listener, actual, n, report);
    if (status != BPS_OK) {
        free(listener);
        return status;
    }
    guest_add(listener, instance);
    return BPS_OK;
}

static bps_status guest_dial(const struct bps_transport_ops *ops, void *instance, const char *address, uint32_t lane,
                             const struct bps_channel_key *key, const struct bps_channel_events *events, void *user,
                             struct bps_channel **out, struct bps_report *report)
{
    struct guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        return bps_out_of_memory(report);
    }
    guest->events = events;
    guest->user = user;
    bps_status status = ops->dial(instance, address, lane, key, &events_0, guest, out, report);
    if (status != BPS_OK) {
        free(guest);
        return status;
    }
    guest_add(guest, *out);
    return BPS_OK;
}

static void guest_drop(const struct bps_transport_ops *ops, struct bps_channel *channel)
{
    struct guest *guest = guest_find(channel);
    ops->drop(channel);
    if (guest != NULL) {
        guest_end(guest);
    }
}

static void guest_close(const struct bps_transport_ops *ops, void *instance)
{
    struct guest *listener;
    ops->close(instance);
    while ((listener = guest_find(instance)) != NULL) {
        guest_end(listener);
    }
}

#define PLUGINS 2 /* for transports.net and transports.local */
static struct bps_transport_ops own[PLUGINS];
static unsigned plugins; /* the registry opens one plugin at a time */

#define OPERATIONS(i)                                                                                                  \
    static bps_status listen_##i(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,   \
                                 size_t n, struct bps_report *report)                                                  \
    {                                                                                                                  \
        return guest_listen(&own[i], instance, address, accept, arg, actual, n, report);                               \
    }                                                                                                                  \
    static bps_status dial_##i(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,  \
                               const struct bps_channel_events *events, void *user, struct bps_channel **out,          \
                               struct bps_report *report)                                                              \
    {                                                                                                                  \
        return guest_dial(&own[i], instance, address, lane, key, events, user, out, report);                           \
    }                                                                                                                  \
    static void drop_##i(struct bps_channel *channel)                                                                  \
    {                                                                                                                  \
        guest_drop(&own[i], channel);                                                                                  \
    }                                                                                                                  \
    static void close_##i(void *instance)                                                                              \
    {                                                                                                                  \
        guest_close(&own[i], instance);                                                                                \
    }
OPERATIONS(0)
OPERATIONS(1)

bps_status bps_abi_0_adapt(struct bps_descriptor *descriptor, struct bps_report *report)
{
    struct bps_transport_ops *ops = &descriptor->tables.ops.transport;
    if (descriptor->plugin.kind != BPS_KIND_TRANSPORT) {
        return BPS_OK;
    }
    if (plugins == PLUGINS) {
        return bps_refuse(report, "it has ABI 0.%u, and at most %u transports of a process may; rebuild the plugin",
                          BPS_ABI_0_MINOR, PLUGINS);
    }
    own[plugins] = *ops;
    ops->listen = plugins == 0 ? listen_0 : listen_1;
    ops->dial = plugins == 0 ? dial_0 : dial_1;
    ops->drop = plugins == 0 ? drop_0 : drop_1;
    ops->close = plugins == 0 ? close_0 : close_1;
    plugins++;
    return BPS_OK;
}
