/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - the messages of `byteps bench transport`, and the waits for them. */
#include "bench/channel.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MAGIC         0x42504221u
#define SILENCE       (10 * BPS_S) /* after which a peer that is there counts as lost */
#define SILENCE_CHECK (500 * BPS_MS)

/* ---- headers ---- */

struct wire {
    uint32_t bytes, magic, kind, zero;
    uint64_t first, second;
    uint8_t rest[BPS_HEADER_BYTES - 32];
};
_Static_assert(sizeof(struct wire) == BPS_HEADER_BYTES, "a header is that long");

static void encode(const struct bps_bench_message *message, uint8_t *header)
{
    const struct wire wire = {
        .bytes = htole32(message->bytes),
        .magic = htole32(MAGIC),
        .kind = htole32(message->kind),
        .first = htole64(message->first),
        .second = htole64(message->second),
    };
    memcpy(header, &wire, sizeof wire);
}

static bps_status decode(const uint8_t *header, struct bps_bench_message *out)
{
    struct wire wire;
    memcpy(&wire, header, sizeof wire);
    uint32_t kind = le32toh(wire.kind);
    *out = (struct bps_bench_message){
        .bytes = le32toh(wire.bytes), .first = le64toh(wire.first), .second = le64toh(wire.second)};
    if (le32toh(wire.magic) != MAGIC || kind < BPS_BENCH_HELLO || kind > BPS_BENCH_DONE ||
        out->bytes > BPS_BENCH_MESSAGE_LIMIT) {
        return BPS_ERR_PROTOCOL;
    }
    out->kind = (enum bps_bench_kind)kind;
    return BPS_OK;
}

/* ---- what the transport calls ---- */

static void on_connected(void *user)
{
    struct bps_bench_channel *channel = user;
    channel->connected = true;
    bps_bench_channel_ready(channel);
}

static bps_status on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct bps_bench_channel *channel = user;
    bps_status status = decode(header, &channel->receiving);
    *sink = &channel->sink;
    if (status == BPS_OK && channel->receiving.bytes == 0) {
        status = channel->arrived(channel, &channel->receiving);
    }
    return status;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    struct bps_bench_channel *channel = user;
    if (channel->unsent == 0 || channel->handed - channel->sent == BPS_BENCH_SLOTS) {
        return BPS_AGAIN;
    }
    struct bps_bench_message *message = &channel->sending;
    uint8_t *header = channel->header[channel->handed++ % BPS_BENCH_SLOTS];
    encode(message, header);
    *out = (struct bps_frame){.header = header, .payload = channel->out, .bytes = message->bytes};
    message->first -= --channel->unsent > 0;
    return BPS_OK;
}

static void on_sent(void *user, void *cookie)
{
    struct bps_bench_channel *channel = user;
    (void)cookie;
    if (channel->handed - channel->sent++ == BPS_BENCH_SLOTS && channel->unsent > 0) {
        channel->ops->kick(channel->channel);
    }
    if (channel->flushing && channel->unsent == 0 && channel->handed == channel->sent) {
        bps_bench_channel_ready(channel);
    }
}

static void on_closed(void *user, bps_status status, const char *text)
{
    struct bps_bench_channel *channel = user;
    channel->channel = NULL;
    snprintf(channel->ended, sizeof channel->ended, "%s",
             text != NULL && text[0] != '\0' ? text : bps_strerror(status));
    bps_loop_stop(channel->loop);
}

static const struct bps_channel_events events = {
    .connected = on_connected,
    .header = on_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
};

static struct bps_bench_channel *of_sink(struct bps_sink *sink)
{
    return (struct bps_bench_channel *)((char *)sink - offsetof(struct bps_bench_channel, sink));
}

static void *place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    (void)bytes; /* there is room for all of them */
    return of_sink(sink)->in + offset;
}

static uint32_t take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_bench_channel *channel = of_sink(sink);
    if (data != channel->in + offset) {
        memcpy(channel->in + offset, data, bytes);
    }
    if (offset + bytes == channel->receiving.bytes && channel->arrived(channel, &channel->receiving) != BPS_OK) {
        snprintf(channel->ended, sizeof channel->ended, "a message was not expected");
        bps_loop_stop(channel->loop);
    }
    return bytes;
}

static const struct bps_channel_events *on_accept(void *arg, struct bps_channel *accepted, const char *peer,
                                                  void **user, const struct bps_channel_key **key)
{
    struct bps_bench_channel *channel = arg;
    if (channel->channel != NULL) {
        return NULL;
    }
    channel->channel = accepted;
    channel->connected = true;
    channel->quiet = 0;
    snprintf(channel->peer, sizeof channel->peer, "%s", peer);
    *user = channel;
    *key = NULL;
    return &events;
}

/* ---- life ---- */

/* The entry of `transports` that is called so, or the first one with this plugin. */
static const struct bps_conf_node *find_entry(const struct bps_conf *conf, const char *name)
{
    const struct bps_conf_node *all = bps_conf_find(conf, "transports");
    const struct bps_conf_node *found = all != NULL ? bps_conf_member(all, name) : NULL;
    for (uint32_t i = 0; found == NULL && all != NULL && i < all->count; i++) {
        const struct bps_conf_node *plugin = bps_conf_member(all->children[i], "plugin");
        if (plugin != NULL && plugin->text != NULL && strcmp(plugin->text, name) == 0) {
            found = all->children[i];
        }
    }
    return found;
}

bps_status bps_bench_channel_open(struct bps_bench_channel *channel, const struct bps_conf *conf, const char *name,
                                  struct bps_report *report)
{
    memset(channel, 0, sizeof *channel);
    channel->sink = (struct bps_sink){.place = place, .take = take};
    channel->loop = bps_loop_new();
    channel->in = calloc(1, BPS_BENCH_MESSAGE_LIMIT);
    channel->out = malloc(BPS_BENCH_MESSAGE_LIMIT);
    if (channel->loop == NULL || channel->in == NULL || channel->out == NULL) {
        BPS_REPORT(report, "no memory or no descriptor");
        return BPS_ERR_NOMEM;
    }
    memset(channel->out, 0x3c, BPS_BENCH_MESSAGE_LIMIT);
    bps_loop_spin(channel->loop, BPS_LOOP_SPIN); /* as workers and shards do */

    const struct bps_conf_node *entry = find_entry(conf, name);
    const char *instance = entry != NULL ? entry->name : name;
    char path[128];
    snprintf(path, sizeof path, "transports.%s", instance);
    bps_status status = bps_instance_open(BPS_KIND_TRANSPORT, entry == NULL ? name : NULL, instance, entry, path,
                                          channel->loop, &channel->transport, report);
    channel->ops = status == BPS_OK ? channel->transport->ops : NULL;
    return status;
}

void bps_bench_channel_drop(struct bps_bench_channel *channel)
{
    if (channel->channel != NULL) {
        channel->ops->drop(channel->channel);
    }
    channel->channel = NULL;
    channel->connected = false;
    channel->unsent = 0;
    channel->handed = channel->sent = 0;
    channel->ended[0] = '\0';
}

void bps_bench_channel_close(struct bps_bench_channel *channel)
{
    if (channel->transport != NULL) {
        bps_bench_channel_drop(channel);
    }
    bps_instance_close(channel->transport);
    bps_loop_free(channel->loop);
    free(channel->in);
    free(channel->out);
}

bps_status bps_bench_channel_listen(struct bps_bench_channel *channel, const char *address, char *actual, size_t n,
                                    struct bps_report *report)
{
    return channel->ops->listen(channel->transport->self, address, on_accept, channel, actual, n, report);
}

bps_status bps_bench_channel_dial(struct bps_bench_channel *channel, const char *address, struct bps_report *report)
{
    snprintf(channel->peer, sizeof channel->peer, "%s", address);
    bps_status status =
        channel->ops->dial(channel->transport->self, address, 0, NULL, &events, channel, &channel->channel, report);
    return status == BPS_OK ? bps_bench_channel_wait(channel, report) : status;
}

/* ---- sending and waiting ---- */

void bps_bench_channel_send(struct bps_bench_channel *channel, const struct bps_bench_message *message, uint64_t count)
{
    channel->sending = *message;
    channel->unsent = count;
    if (count > 1) {
        channel->sending.first = count - 1;
    }
    if (channel->channel != NULL) {
        channel->ops->kick(channel->channel);
    }
}

static void check_silence(void *arg)
{
    struct bps_bench_channel *channel = arg;
    uint64_t moved = bps_bench_channel_count(channel, "");
    channel->quiet = moved == channel->moved && channel->channel != NULL ? channel->quiet + SILENCE_CHECK : 0;
    channel->moved = moved;
    if (channel->quiet >= SILENCE) {
        channel->silent = true;
        bps_loop_stop(channel->loop);
    }
}

bps_status bps_bench_channel_wait(struct bps_bench_channel *channel, struct bps_report *report)
{
    struct bps_timer *timer = bps_loop_timer(channel->loop, SILENCE_CHECK, SILENCE_CHECK, check_silence, channel);
    if (timer == NULL) {
        BPS_REPORT(report, "no memory");
        return BPS_ERR_NOMEM;
    }
    channel->quiet = 0;
    channel->silent = false;
    while (!channel->ready && !channel->silent && channel->ended[0] == '\0') {
        bps_loop_run(channel->loop);
    }
    bps_loop_cancel(channel->loop, timer);
    bool ready = channel->ready;
    channel->ready = false;
    if (ready) {
        return BPS_OK;
    }
    if (channel->silent) {
        BPS_REPORT(report, "%s: nothing has come or gone for %llu s: is the other end alive?", channel->peer,
                   SILENCE / BPS_S);
        return BPS_ERR_TIMEOUT;
    }
    BPS_REPORT(report, "%s: %s", channel->peer, channel->ended);
    return BPS_ERR_LOST;
}

bps_status bps_bench_channel_flush(struct bps_bench_channel *channel, struct bps_report *report)
{
    bps_status status = BPS_OK;
    channel->flushing = channel->unsent > 0 || channel->handed != channel->sent;
    if (channel->flushing) {
        status = bps_bench_channel_wait(channel, report);
    }
    channel->flushing = false;
    return status;
}

void bps_bench_channel_ready(struct bps_bench_channel *channel)
{
    channel->ready = true;
    bps_loop_stop(channel->loop);
}

/* ---- about the transport ---- */

struct sum {
    const char *ending;
    uint64_t value;
};

static void add_counter(void *arg, const char *name, const char *help, uint64_t value)
{
    struct sum *sum = arg;
    size_t n = strlen(name), end = strlen(sum->ending);
    (void)help;
    if (n >= end && strcmp(name + n - end, sum->ending) == 0) {
        sum->value += value;
    }
}

uint64_t bps_bench_channel_count(const struct bps_bench_channel *channel, const char *ending)
{
    struct sum sum = {ending, 0};
    bps_host_counters(channel->transport->host, add_counter, &sum);
    return sum.value;
}

bool bps_bench_channel_is_local(const struct bps_bench_channel *channel)
{
    return channel->transport->attr.transport.local != 0;
}
