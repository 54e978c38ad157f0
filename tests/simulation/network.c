/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - the transport "sim": channels are queues of messages, which come whole or in pieces, soon or late, in
 * their order. It lends what may be lent, sometimes. An instance acts in its own loop only, from its poller.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include <byteps/transport.h>

#include "simulation.h"

#define UNDER_WAY 4u /* messages in a queue before a sender has to wait */

/* A frame on its way, or the end of the channel. */
struct message {
    STAILQ_ENTRY(message) entry;
    bool end;
    uint8_t header[BPS_HEADER_BYTES];
    char *payload;      /* a copy; NULL: it is lent */
    uint32_t bytes, at; /* at: presented so far */
    bool begun;
    struct bps_sink *sink;
    struct lent *lent, *returns;
};

/* What a frame lends: as the receiver sees it, and the sender's cookie. */
struct lent {
    struct bps_loan loan; /* first: it is what comes back */
    void *cookie;
};

struct cookie {
    STAILQ_ENTRY(cookie) entry;
    void *cookie;
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct instance *instance;
    struct bps_channel *peer; /* NULL: it has ended */
    const struct bps_channel_events *events;
    void *user;
    char address[32];
    struct bps_channel_key key; /* of an accepted one, as its dialler has got it */
    bool keyed, dialled, connected, wants, finishing, dropped, refused;
    uint32_t queued;
    STAILQ_HEAD(, message) in;
    STAILQ_HEAD(, cookie) sent; /* to be told later */
};

struct knock {
    STAILQ_ENTRY(knock) entry;
    struct bps_channel *channel;
};

struct instance {
    LIST_ENTRY(instance) entry;
    const struct bps_host *host;
    struct sim_process *process;
    bool local;
    int event;
    struct bps_watch *watch;
    struct bps_poller *poller;
    LIST_HEAD(, bps_channel) channels;
    char address[32];
    bps_accept_fn accept;
    void *accept_arg;
    STAILQ_HEAD(, knock) knocks;
};

static LIST_HEAD(, instance) instances = LIST_HEAD_INITIALIZER(instances);
static uint32_t last_port;

static void wake(const struct instance *instance)
{
    const uint64_t one = 1;
    ssize_t n = write(instance->event, &one, sizeof one);
    (void)n;
}

/* ---- messages ---- */

static void push(struct bps_channel *to, struct message *message)
{
    STAILQ_INSERT_TAIL(&to->in, message, entry);
    to->queued++;
    wake(to->instance);
}

static void free_message(struct message *message)
{
    free(message->payload);
    free(message);
}

static void free_channel(struct bps_channel *channel)
{
    while (!STAILQ_EMPTY(&channel->in)) {
        struct message *message = STAILQ_FIRST(&channel->in);
        STAILQ_REMOVE_HEAD(&channel->in, entry);
        free_message(message);
    }
    while (!STAILQ_EMPTY(&channel->sent)) {
        struct cookie *cookie = STAILQ_FIRST(&channel->sent);
        STAILQ_REMOVE_HEAD(&channel->sent, entry);
        free(cookie);
    }
    LIST_REMOVE(channel, entry);
    free(channel);
}

/* The peer hears of it behind what is under way. */
static void part(struct bps_channel *channel)
{
    struct bps_channel *peer = channel->peer;
    channel->peer = NULL;
    if (peer != NULL) {
        struct message *end = __real_calloc(1, sizeof *end);
        end->end = true;
        peer->peer = NULL;
        push(peer, end);
    }
}

/* What was sent is told before the end. */
static bool tell_one(struct bps_channel *channel)
{
    struct cookie *cookie = STAILQ_FIRST(&channel->sent);
    if (cookie == NULL) {
        return false;
    }
    void *told = cookie->cookie;
    STAILQ_REMOVE_HEAD(&channel->sent, entry);
    free(cookie);
    channel->events->sent(channel->user, told);
    return true;
}

static void end_channel(struct bps_channel *channel, bps_status status, const char *text)
{
    part(channel);
    while (!channel->dropped && channel->events != NULL && tell_one(channel)) {
    }
    bool told = channel->dropped; /* by what it has just heard */
    channel->dropped = true;
    if (!told && channel->events != NULL) {
        channel->events->closed(channel->user, status, text);
    }
}

/* ---- sending ---- */

/* The channel's instance tells it when it comes to it. */
static void tell_later(struct bps_channel *channel, void *cookie)
{
    struct cookie *later = __real_calloc(1, sizeof *later);
    later->cookie = cookie;
    STAILQ_INSERT_TAIL(&channel->sent, later, entry);
    wake(channel->instance);
}

static void tell_sent(struct bps_channel *channel, void *cookie)
{
    if (sim_chance(50)) {
        channel->events->sent(channel->user, cookie);
    } else {
        tell_later(channel, cookie);
    }
}

static void send_frame(struct bps_channel *channel, const struct bps_frame *frame)
{
    struct message *message = __real_calloc(1, sizeof *message);
    memcpy(message->header, frame->header, BPS_HEADER_BYTES);
    message->bytes = frame->bytes;
    message->returns = (struct lent *)frame->returns;
    if (channel->instance->local && frame->answer != NULL && frame->bytes > 0 && sim_chance(70)) {
        message->lent = __real_calloc(1, sizeof *message->lent);
        *message->lent =
            (struct lent){{sizeof(struct bps_loan), frame->payload, frame->answer, frame->bytes}, frame->cookie};
        push(channel->peer, message);
        return;
    }
    if (frame->bytes > 0) {
        message->payload = __real_calloc(1, frame->bytes);
        memcpy(message->payload, frame->payload, frame->bytes);
    }
    push(channel->peer, message);
    tell_sent(channel, frame->cookie);
}

static bool may_send(const struct bps_channel *channel)
{
    return channel->connected && channel->wants && channel->peer != NULL && channel->peer->queued < UNDER_WAY;
}

static void send_one(struct bps_channel *channel)
{
    struct bps_frame frame = {.size = sizeof frame};
    channel->wants = false; /* unless it is kicked meanwhile */
    bps_status status = channel->events->next(channel->user, &frame);
    if (channel->dropped) {
        return;
    }
    if (status == BPS_OK) {
        channel->wants = true;
        send_frame(channel, &frame);
        return;
    }
    if (channel->wants) {
        return;
    }
    if (channel->finishing && STAILQ_EMPTY(&channel->sent)) {
        end_channel(channel, BPS_OK, "finished");
    } else if (channel->finishing) {
        channel->wants = true;
    }
}

/* ---- receiving ---- */

static const char *bytes_of(const struct message *message)
{
    return message->payload != NULL ? message->payload : message->lent->loan.data;
}

/* A piece of the payload, in the place that the core has for it or from where it lies. */
static bool present(struct message *message)
{
    uint32_t left = message->bytes - message->at, room = left;
    struct bps_sink *sink = message->sink;
    const char *from = bytes_of(message) + message->at;
    void *place = sim_chance(60) ? sink->place(sink, message->at, &room) : NULL;
    uint32_t n = place != NULL && room < left ? room : left;
    n = sim_chance(50) ? n : 1 + sim_random(n);
    if (place != NULL) {
        memcpy(place, from, n);
    }
    uint32_t taken = sink->take(sink, message->at, place != NULL ? place : from, n);
    message->at += taken;
    return taken <= n && (taken + BPS_SINK_GRAIN > n) && (taken == n || n < left || message->at < message->bytes);
}

static void finish_message(struct bps_channel *channel, struct message *message)
{
    STAILQ_REMOVE_HEAD(&channel->in, entry);
    channel->queued--;
    if (channel->peer != NULL) {
        wake(channel->peer->instance);
    }
    free_message(message);
}

/* A lent payload of which the core wants the bytes is over with the last of them. */
static void return_lent(struct bps_channel *channel, struct message *message)
{
    if (message->lent != NULL && channel->peer != NULL) {
        tell_later(channel->peer, message->lent->cookie);
    }
    free(message->lent);
    message->lent = NULL;
}

static bool begin_message(struct bps_channel *channel, struct message *message)
{
    if (message->returns != NULL) {
        channel->events->sent(channel->user, message->returns->cookie);
        free(message->returns);
        if (channel->dropped) {
            return false;
        }
    }
    bps_status status = channel->events->header(channel->user, message->header, &message->sink);
    if (channel->dropped) {
        return false;
    }
    if (status != BPS_OK) {
        end_channel(channel, status, "the peer sent what cannot be");
        return false;
    }
    message->begun = true;
    if (message->lent != NULL && message->sink->lend != NULL && sim_chance(80)) {
        status = message->sink->lend(message->sink, &message->lent->loan);
        if (status == BPS_OK) {
            message->at = message->bytes; /* the core has it; it comes back by a frame */
            message->lent = NULL;
        }
    }
    return true;
}

static void receive_one(struct bps_channel *channel)
{
    struct message *message = STAILQ_FIRST(&channel->in);
    if (message->end) {
        end_channel(channel, BPS_ERR_LOST, "connection closed by peer");
        return;
    }
    if (!message->begun && !begin_message(channel, message)) {
        return;
    }
    if (message->at < message->bytes && !present(message)) {
        end_channel(channel, BPS_ERR_PROTOCOL, "the sink did not take what it has to");
        return;
    }
    if (!channel->dropped && message->at == message->bytes) {
        return_lent(channel, message);
        finish_message(channel, message);
    }
}

/* ---- turns ---- */

/* Both ends of a channel get the same key, or none. */
static void check_key(const struct bps_channel *channel, const struct bps_channel_key *key)
{
    if (channel->keyed != (key != NULL) || (key != NULL && memcmp(key, &channel->key, sizeof *key) != 0)) {
        fprintf(stderr, "a channel: its ends have been handed different keys\n");
        abort();
    }
}

static void let_in(struct instance *instance)
{
    struct knock *knock = STAILQ_FIRST(&instance->knocks);
    struct bps_channel *channel = knock->channel;
    STAILQ_REMOVE_HEAD(&instance->knocks, entry);
    free(knock);
    if (channel->peer == NULL) {
        channel->dropped = true;
        return;
    }
    const struct bps_channel_key *key;
    channel->events = instance->accept(instance->accept_arg, channel, "sim", &channel->user, &key);
    channel->connected = true;
    if (channel->events != NULL) {
        check_key(channel, key);
    }
    if (channel->events == NULL) {
        part(channel);
        channel->dropped = true;
    }
}

/* True if there is something to do for a channel; it may be done. */
static bool step(struct bps_channel *channel)
{
    if (channel->dropped) {
        return false;
    }
    if (channel->refused) {
        end_channel(channel, BPS_ERR_LOST, "nobody listens there");
        return true;
    }
    if (channel->dialled && !channel->connected) {
        if (sim_chance(30)) {
            channel->connected = true;
            channel->events->connected(channel->user);
        }
        return true;
    }
    if (!channel->connected) {
        return false;
    }
    bool tells = !STAILQ_EMPTY(&channel->sent);
    if (tells && sim_chance(30)) {
        return tell_one(channel);
    }
    bool receives = !STAILQ_EMPTY(&channel->in), sends = may_send(channel);
    if (receives && (!sends || sim_chance(50))) {
        receive_one(channel);
    } else if (sends) {
        send_one(channel);
    }
    return tells || receives || sends;
}

static void sweep(struct instance *instance)
{
    struct bps_channel *channel = LIST_FIRST(&instance->channels);
    while (channel != NULL) {
        struct bps_channel *next = LIST_NEXT(channel, entry);
        if (channel->dropped) {
            free_channel(channel);
        }
        channel = next;
    }
}

static bool poll_instance(void *arg)
{
    struct instance *instance = arg;
    bool busy = false;
    if (!STAILQ_EMPTY(&instance->knocks)) {
        let_in(instance);
        busy = true;
    }
    struct bps_channel *channel;
    LIST_FOREACH(channel, &instance->channels, entry) {
        busy = step(channel) || busy;
    }
    sweep(instance);
    return busy;
}

static bool has_work(const struct bps_channel *channel)
{
    return !channel->dropped && (channel->refused || (channel->dialled && !channel->connected) ||
                                 (channel->connected &&
                                  (!STAILQ_EMPTY(&channel->in) || !STAILQ_EMPTY(&channel->sent) || may_send(channel))));
}

/* New work writes to the event. */
static bool arm(void *arg)
{
    const struct instance *instance = arg;
    const struct bps_channel *channel;
    if (!STAILQ_EMPTY(&instance->knocks)) {
        return false;
    }
    LIST_FOREACH(channel, &instance->channels, entry) {
        if (has_work(channel)) {
            return false;
        }
    }
    return true;
}

static void on_event(void *arg, uint32_t events)
{
    const struct instance *instance = arg;
    uint64_t count;
    (void)events;
    ssize_t n = read(instance->event, &count, sizeof count);
    (void)n;
}

/* ---- the plugin ---- */

struct options {
    bool local;
};

static const struct bps_option options[] = {
    BPS_OPTION(struct options, local, BOOL, 0, "false", NULL, "Between processes of a host."),
    {0},
};

static bps_status sim_open(const struct bps_host *host, const void *given, void **out, struct bps_report *report)
{
    struct instance *instance = __real_calloc(1, sizeof *instance);
    (void)report;
    instance->host = host;
    instance->process = sim_self();
    instance->local = ((const struct options *)given)->local;
    instance->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    LIST_INIT(&instance->channels);
    STAILQ_INIT(&instance->knocks);
    instance->watch = host->watch(host, instance->event, on_event, instance);
    instance->poller = host->poller(host, poll_instance, arm, instance);
    if (instance->watch == NULL || instance->poller == NULL) {
        if (instance->watch != NULL) {
            host->unwatch(host, instance->watch);
        }
        if (instance->poller != NULL) {
            host->unpoll(host, instance->poller);
        }
        close(instance->event);
        free(instance);
        return BPS_ERR_NOMEM;
    }
    LIST_INSERT_HEAD(&instances, instance, entry);
    *out = instance;
    return BPS_OK;
}

static void free_instance(struct instance *instance)
{
    while (!LIST_EMPTY(&instance->channels)) {
        free_channel(LIST_FIRST(&instance->channels));
    }
    while (!STAILQ_EMPTY(&instance->knocks)) {
        struct knock *knock = STAILQ_FIRST(&instance->knocks);
        STAILQ_REMOVE_HEAD(&instance->knocks, entry);
        free(knock);
    }
    close(instance->event);
    LIST_REMOVE(instance, entry);
    free(instance);
}

static void sim_close(void *self)
{
    struct instance *instance = self;
    struct bps_channel *channel;
    LIST_FOREACH(channel, &instance->channels, entry) {
        part(channel);
    }
    instance->host->unpoll(instance->host, instance->poller);
    instance->host->unwatch(instance->host, instance->watch);
    free_instance(instance);
}

static void sim_query(void *self, struct bps_transport_attr *out)
{
    const struct instance *instance = self;
    *out = (struct bps_transport_attr){.lanes = 1, .local = instance->local};
}

static bps_status sim_listen(void *self, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                             struct bps_report *report)
{
    struct instance *instance = self;
    const char *colon = strrchr(address, ':');
    (void)report;
    if (colon != NULL && strcmp(colon, ":0") != 0) {
        snprintf(instance->address, sizeof instance->address, "%s", address);
    } else {
        snprintf(instance->address, sizeof instance->address, "127.0.0.1:%u", 1 + last_port++ % 19999);
    }
    instance->accept = accept;
    instance->accept_arg = arg;
    snprintf(actual, n, "%s", instance->address);
    return BPS_OK;
}

static struct bps_channel *new_channel(struct instance *instance)
{
    struct bps_channel *channel = __real_calloc(1, sizeof *channel);
    channel->instance = instance;
    STAILQ_INIT(&channel->in);
    STAILQ_INIT(&channel->sent);
    LIST_INSERT_HEAD(&instance->channels, channel, entry);
    return channel;
}

static struct instance *listener_at(const struct instance *from, const char *address)
{
    struct instance *instance;
    LIST_FOREACH(instance, &instances, entry) {
        bool reached = !from->local || strcmp(instance->process->host, from->process->host) == 0;
        if (!instance->process->dead && reached && instance->local == from->local &&
            strcmp(instance->address, address) == 0) {
            return instance;
        }
    }
    return NULL;
}

static bps_status sim_dial(void *self, const char *address, uint32_t lane, const struct bps_channel_key *key,
                           const struct bps_channel_events *events, void *user, struct bps_channel **out,
                           struct bps_report *report)
{
    struct bps_channel *channel = new_channel(self);
    struct instance *listener = listener_at(self, address);
    (void)lane;
    (void)report;
    channel->events = events;
    channel->user = user;
    channel->dialled = true;
    channel->refused = listener == NULL;
    if (listener != NULL) {
        struct knock *knock = __real_calloc(1, sizeof *knock);
        channel->peer = new_channel(listener);
        channel->peer->peer = channel;
        channel->peer->keyed = key != NULL;
        channel->peer->key = key != NULL ? *key : (struct bps_channel_key){{0}};
        knock->channel = channel->peer;
        STAILQ_INSERT_TAIL(&listener->knocks, knock, entry);
        wake(listener);
    }
    wake(channel->instance);
    *out = channel;
    return BPS_OK;
}

static void sim_kick(struct bps_channel *channel)
{
    channel->wants = true;
    wake(channel->instance);
}

static void sim_finish(struct bps_channel *channel)
{
    channel->finishing = true;
    sim_kick(channel);
}

static void sim_drop(struct bps_channel *channel)
{
    part(channel);
    channel->dropped = true;
    wake(channel->instance);
}

static void sim_local_host(struct bps_channel *channel, char *host, size_t n)
{
    (void)channel;
    snprintf(host, n, "127.0.0.1");
}

static void sim_describe(void *self, char *text, size_t n)
{
    (void)self;
    snprintf(text, n, "queues");
}

static bps_status sim_loan_read(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to,
                                uint32_t bytes)
{
    (void)channel;
    memcpy(to, (const char *)loan->data + offset, bytes);
    return BPS_OK;
}

static bps_status sim_loan_write(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, const void *from,
                                 uint32_t bytes)
{
    (void)channel;
    memcpy((char *)loan->answer + offset, from, bytes);
    return BPS_OK;
}

static const struct bps_transport_ops ops = {
    .size = sizeof ops,
    .open = sim_open,
    .close = sim_close,
    .query = sim_query,
    .listen = sim_listen,
    .dial = sim_dial,
    .kick = sim_kick,
    .finish = sim_finish,
    .drop = sim_drop,
    .local_host = sim_local_host,
    .describe = sim_describe,
    .loan_read = sim_loan_read,
    .loan_write = sim_loan_write,
};

static const struct bps_plugin plugin = {
    .size = sizeof plugin,
    .kind = BPS_KIND_TRANSPORT,
    .name = "sim",
    .summary = "queues",
    .options = options,
    .options_size = sizeof(struct options),
    .ops = &ops,
};

static const struct bps_plugin *const plugins[] = {&plugin};

const struct bps_module sim_network = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof sim_network,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "sim",
    .version = "1",
    .license = "Apache-2.0",
    .nplugins = 1,
    .plugins = plugins,
};

/* ---- ends ---- */

void sim_disconnect(const struct sim_process *process)
{
    struct instance *instance;
    LIST_FOREACH(instance, &instances, entry) {
        struct bps_channel *channel;
        for (channel = instance->process == process ? LIST_FIRST(&instance->channels) : NULL; channel != NULL;
             channel = LIST_NEXT(channel, entry)) {
            part(channel);
        }
    }
}

/* The last message of a channel, if nothing of it has arrived. */
static struct message *last_of(const struct bps_channel *channel)
{
    struct message *message, *last = NULL;
    STAILQ_FOREACH(message, &channel->in, entry) {
        last = message;
    }
    return last != NULL && !last->begun ? last : NULL;
}

uint32_t sim_sending(const struct sim_process *process)
{
    const struct instance *instance;
    uint32_t n = 0;
    LIST_FOREACH(instance, &instances, entry) {
        const struct bps_channel *channel;
        LIST_FOREACH(channel, &instance->channels, entry) {
            bool from = channel->peer != NULL && channel->peer->instance->process == process;
            n += from && last_of(channel) != NULL;
        }
    }
    return n;
}

void sim_lose_sent(const struct sim_process *process)
{
    struct instance *instance;
    LIST_FOREACH(instance, &instances, entry) {
        struct bps_channel *channel;
        LIST_FOREACH(channel, &instance->channels, entry) {
            bool from = channel->peer != NULL && channel->peer->instance->process == process;
            struct message *last;
            while (from && (last = last_of(channel)) != NULL && sim_chance(50)) {
                STAILQ_REMOVE(&channel->in, last, message, entry);
                channel->queued--;
                free_message(last);
            }
        }
    }
}

/* Instances of processes that were killed. */
void sim_network_reset(void)
{
    last_port = 0;
    while (!LIST_EMPTY(&instances)) {
        free_instance(LIST_FIRST(&instances));
    }
}
