/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ipc.c - any bytes as what a peer does over shared memory: messages on the socket, records in the ring,
 * indices.
 *
 * The input is a list of steps, each a byte that chooses one and the bytes it needs. Meanwhile the core's end
 * sends frames, lends payloads, keeps loans and returns them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/transport.h>

#include "../unit/ipc_raw.h"
#include "base/log.h"
#include "base/loop.h"
#include "conf/conf.h"
#include "plugin/instance.h"

#define LOANS 16
#define LARGE 20000u /* bytes of a payload that is not inline */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    struct bps_loop *loop;
    struct bps_instance *instance;
    const struct bps_transport_ops *ops;
    char address[128];
} own;

static struct {
    struct bps_channel *channel;
    struct bps_sink sink;
    uint32_t length, offset, to_send;
    struct bps_loan *loans[LOANS];
    uint32_t nloans, to_return;
} core;

static uint8_t payload[LARGE], answer[LARGE];

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* ---- the core's end ---- */

static void *no_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    (void)sink;
    check(offset == core.offset && *bytes == core.length - offset);
    return NULL;
}

/* Reads every byte, so that a wrong address shows. */
static uint32_t take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    static volatile uint8_t sum;
    (void)sink;
    check(offset == core.offset && bytes <= core.length - offset);
    for (uint32_t i = 0; i < bytes; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    }
    core.offset += bytes;
    return bytes;
}

static void touch(const struct bps_loan *loan)
{
    if (loan->answer != NULL && loan->bytes > 0) {
        memmove(loan->answer, loan->data, loan->bytes);
    }
}

static bps_status lend(struct bps_sink *sink, struct bps_loan *loan)
{
    (void)sink;
    check(loan->bytes == core.length && (loan->data == NULL) == (loan->answer == NULL));
    if (core.nloans == LOANS || core.length % 2 != 0) {
        return BPS_AGAIN;
    }
    touch(loan);
    core.loans[core.nloans++] = loan;
    return BPS_OK;
}

static bps_status on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    (void)user;
    memcpy(&core.length, header, sizeof core.length);
    core.offset = 0;
    if (core.length > 1u << 20) {
        return BPS_ERR_PROTOCOL;
    }
    core.sink = (struct bps_sink){.place = no_place, .take = take, .lend = core.length % 3 != 0 ? lend : NULL};
    *sink = &core.sink;
    return BPS_OK;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    static uint8_t header[BPS_HEADER_BYTES];
    static const uint32_t large = LARGE;
    (void)user;
    if (core.to_return > 0 && core.nloans > 0) {
        static const uint8_t empty[BPS_HEADER_BYTES];
        core.to_return--;
        *out = (struct bps_frame){.header = empty, .returns = core.loans[--core.nloans]};
        return BPS_OK;
    }
    if (core.to_send == 0) {
        return BPS_AGAIN;
    }
    core.to_send--;
    memcpy(header, &large, sizeof large);
    *out = (struct bps_frame){
        .header = header,
        .payload = payload,
        .bytes = LARGE,
        .answer = core.to_send % 2 == 0 ? answer : NULL,
    };
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
    check(status != BPS_OK && text[0] != '\0');
    for (uint32_t i = 0; i < core.nloans; i++) {
        touch(core.loans[i]);
    }
    core.channel = NULL;
    core.nloans = 0;
}

static const struct bps_channel_events *on_accept(void *arg, struct bps_channel *channel, const char *peer, void **user,
                                                  const struct bps_channel_key **key)
{
    static const struct bps_channel_events events = {
        .header = on_header, .next = on_next, .sent = on_sent, .closed = on_closed};
    (void)arg;
    (void)peer;
    core.channel = channel;
    *user = NULL;
    *key = NULL;
    return &events;
}

static void turn(void)
{
    bps_loop_stop(own.loop);
    bps_loop_run(own.loop);
}

static void open_once(void)
{
    const struct bps_conf_node group = {.kind = BPS_CONF_GROUP, .origin = "fuzz"};
    struct bps_report report = {""};
    if (own.loop != NULL) {
        return;
    }
    bps_log_set_level(BPS_LOG_ERROR);
    own.loop = bps_loop_new();
    check(bps_instance_open(BPS_KIND_TRANSPORT, "ipc", "local", &group, "local", own.loop, &own.instance, &report) ==
          BPS_OK);
    own.ops = own.instance->ops;
    check(own.ops->listen(own.instance->self, "", on_accept, NULL, own.address, sizeof own.address, &report) == BPS_OK);
}

/* ---- the peer's steps ---- */

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t byte(struct input *input)
{
    if (input->size == 0) {
        return 0;
    }
    input->size--;
    return *input->data++;
}

static uint32_t word(struct input *input)
{
    uint32_t low = byte(input);
    return low | (uint32_t)byte(input) << 8;
}

static void greet(struct raw *raw, uint32_t reach)
{
    const struct ipc_message hello = raw_hello(raw);
    const struct ipc_message ready = {.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_READY, .reach = reach};
    const int fds[2] = {raw->memory, raw->event};
    if (raw_send(raw, &hello, sizeof hello, fds, 2) && raw_send(raw, &ready, sizeof ready, NULL, 0)) {
        turn();
        turn();
        turn();
    }
}

static void send_message(struct raw *raw, struct input *input)
{
    struct ipc_message message = raw_hello(raw);
    uint8_t how = byte(input);
    message.type = byte(input);
    message.region = byte(input);
    message.ring = word(input) << 8;
    message.bytes = (uint64_t)byte(input) << 12;
    message.offset = (uint64_t)byte(input) << (how & 16 ? 12 : 3);
    int fds[3] = {raw_memory((uint64_t)byte(input) << 12, (how & 4) == 0), raw->event, raw->fd};
    if (fds[0] >= 0) {
        raw_send(raw, &message, how & 8 ? byte(input) % sizeof message : sizeof message, fds, how % 4);
        close(fds[0]);
    }
}

static void write_record(struct raw *raw, struct input *input)
{
    uint16_t kind = byte(input);
    uint32_t size = (1 + byte(input) % 40u) * IPC_LINE, length = word(input);
    struct ipc_record *record = raw_record(raw, size, kind);
    if (record == NULL) {
        record = raw_record(raw, raw->bytes - (uint32_t)(raw->tail % raw->bytes), IPC_PAD);
        raw_publish(raw, record);
        return;
    }
    record->flags = byte(input) & IPC_LENDABLE;
    record->bytes = word(input);
    record->ticket = byte(input);
    record->serial = byte(input);
    record->region = byte(input);
    record->answer_region = byte(input);
    record->at = word(input);
    record->answer = word(input);
    if (size > IPC_LINE) {
        memcpy(record + 1, &length, sizeof length);
    }
    raw_publish(raw, record);
}

static void scribble(struct raw *raw, struct input *input)
{
    uint32_t at = word(input) % raw->bytes;
    for (uint32_t n = byte(input); n > 0 && at < raw->bytes; n--) {
        raw->out[at++] = byte(input);
    }
}

static void step(struct raw *raw, struct input *input)
{
    switch (byte(input) % 10) {
    case 0:
    case 1:
    case 2:
        write_record(raw, input);
        break;
    case 3:
        send_message(raw, input);
        break;
    case 4:
        scribble(raw, input);
        break;
    case 5:
        atomic_store(&raw->shared->side[0].tail, raw->tail + word(input));
        break;
    case 6:
        atomic_store(&raw->shared->side[0].head, (uint64_t)word(input) * IPC_LINE);
        break;
    case 7:
        core.to_send += byte(input) % 8;
        core.to_return += byte(input) % 4;
        if (core.channel != NULL) {
            own.ops->kick(core.channel);
        }
        break;
    case 8: /* what the peer says of a payload that was lent to it */
        ((struct ipc_record *)(raw->in + (size_t)(word(input) % (raw->bytes / IPC_LINE)) * IPC_LINE))->verdict =
            byte(input);
        break;
    default:
        turn();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct raw raw;
    open_once();
    memset(&core, 0, sizeof core);
    check(raw_open(&raw, own.address));
    uint8_t begin = byte(&input);
    if (begin % 8 != 0) {
        greet(&raw, begin / 8 % 2);
        check(core.channel != NULL);
    }
    while (input.size > 0) {
        step(&raw, &input);
    }
    turn();
    turn();
    raw_close(&raw);
    while (core.channel != NULL) {
        turn(); /* its end is seen */
    }
    return 0;
}
