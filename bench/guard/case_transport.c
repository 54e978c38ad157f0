/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_transport.c - a frame from one instance of a transport to another on the same loop, and the answer to
 * it. How the kernel cuts a stream into pieces is not in our hand, so payloads over TCP are small enough to
 * come whole.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <byteps/transport.h>

#include "hot_paths.h"

struct way {
    const char *plugin, *name, *path, *address;
    uint32_t bytes;
    bool lend; /* in memory that both have mapped, and the answer is the return of the loan */
};

struct peer {
    const struct bps_transport_ops *ops;
    void *self;
    struct bps_channel *channel;
    bool connected, to_send;
    uint8_t header[BPS_HEADER_BYTES]; /* of what it sends */
    struct bps_frame frame;
    struct bps_sink sink;
    uint8_t *place; /* of room bytes: where payloads go */
    uint32_t room;
};

static struct bps_loop *loop;
static struct peer asking, answering;
static uint32_t answers;

static void send_frame(struct peer *peer)
{
    peer->to_send = true;
    peer->ops->kick(peer->channel);
}

/* ---- what the transport calls ---- */

static void on_connected(void *user)
{
    ((struct peer *)user)->connected = true;
    bps_loop_stop(loop);
}

static bps_status on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct peer *peer = user;
    (void)header;
    if (peer == &asking) {
        answers++;
        bps_loop_stop(loop);
    } else {
        *sink = &peer->sink;
    }
    return BPS_OK;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    struct peer *peer = user;
    if (!peer->to_send) {
        return BPS_AGAIN;
    }
    peer->to_send = false;
    *out = peer->frame;
    return BPS_OK;
}

static void on_sent(void *user, void *cookie)
{
    (void)user;
    (void)cookie;
}

static void on_closed(void *user, bps_status status, const char *text)
{
    (void)user;
    (void)status;
    hot_path_need(false, "a channel was closed: %s", text);
}

static const struct bps_channel_events events = {
    .connected = on_connected,
    .header = on_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
};

static const struct bps_channel_events *on_accept(void *arg, struct bps_channel *channel, const char *from, void **user,
                                                  const struct bps_channel_key **key)
{
    (void)arg;
    (void)from;
    answering.channel = channel;
    *user = &answering;
    *key = NULL;
    return &events;
}

static void *place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    (void)sink;
    *bytes = answering.room - offset;
    return answering.place + offset;
}

static uint32_t take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    (void)sink;
    (void)data;
    if (offset + bytes == answering.room) {
        send_frame(&answering);
    }
    return bytes;
}

static bps_status lend(struct bps_sink *sink, struct bps_loan *loan)
{
    (void)sink;
    hot_path_need(loan->data != NULL, "a loan is not mapped");
    answering.frame.returns = loan;
    send_frame(&answering);
    return BPS_OK;
}

/* ---- the case ---- */

static void open_peer(struct peer *peer, const struct way *way)
{
    struct bps_instance *instance;
    struct bps_report report = {""};
    bps_status status =
        bps_instance_open(BPS_KIND_TRANSPORT, way->plugin, way->name, NULL, way->path, loop, &instance, &report);
    hot_path_need(status == BPS_OK, "%s", report.text);
    peer->ops = instance->ops;
    peer->self = instance->self;
    peer->frame.header = peer->header;
}

/* Memory that the other instance can map. */
static void *new_payload(const struct peer *peer, const struct way *way)
{
    static struct bps_region region;
    struct bps_report report = {""};
    region.bytes = way->bytes;
    region.fd = memfd_create("payload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool ready = ftruncate(region.fd, way->bytes) == 0 && fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    hot_path_need(ready, "memfd: %m");
    region.memory = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
    hot_path_need(region.memory != MAP_FAILED, "mmap: %m");
    if (way->lend) {
        hot_path_need(peer->ops->attach(peer->self, &region, &report) == BPS_OK, "%s", report.text);
    }
    return memset(region.memory, 0x3c, region.bytes);
}

static void open_way(const void *arg)
{
    const struct way *way = arg;
    char address[128];
    struct bps_report report = {""};
    loop = bps_loop_new();
    hot_path_need(loop != NULL, "no loop");
    open_peer(&asking, way);
    open_peer(&answering, way);

    void *payload = new_payload(&asking, way);
    asking.frame.payload = payload;
    asking.frame.answer = way->lend ? payload : NULL;
    asking.frame.bytes = way->bytes;
    memcpy(asking.header, &(uint32_t){htole32(way->bytes)}, 4);
    answering.place = malloc(way->bytes);
    answering.room = way->bytes;
    hot_path_need(answering.place != NULL, "out of memory");
    answering.sink = (struct bps_sink){.place = place, .take = take, .lend = way->lend ? lend : NULL};

    bps_status status =
        answering.ops->listen(answering.self, way->address, on_accept, NULL, address, sizeof address, &report);
    hot_path_need(status == BPS_OK, "%s", report.text);
    status = asking.ops->dial(asking.self, address, 0, NULL, &events, &asking, &asking.channel, &report);
    hot_path_need(status == BPS_OK, "%s", report.text);
    while (!asking.connected || answering.channel == NULL) {
        bps_loop_run(loop);
    }
}

static void ask(void)
{
    answers = 0;
    send_frame(&asking);
    bps_loop_run(loop);
    hot_path_need(answers == 1, "%u answers", answers);
}

static const struct way tcp_small = {"tcp", "net", "transports.net", "127.0.0.1:0", 1024, false};
static const struct way tcp_large = {"tcp", "net", "transports.net", "127.0.0.1:0", 32768, false};
static const struct way ipc_small = {"ipc", "local", "transports.local", "", 1024, false};
static const struct way ipc_lent = {"ipc", "local", "transports.local", "", 65536, true};

const struct hot_path hot_paths_transport[] = {
    {"tcp-1KiB", 200, open_way, ask, &tcp_small},
    {"tcp-32KiB", 200, open_way, ask, &tcp_large},
    {"ipc-1KiB", 200, open_way, ask, &ipc_small},
    {"ipc-64KiB-lent", 200, open_way, ask, &ipc_lent},
    {NULL, 0, NULL, NULL, NULL},
};
