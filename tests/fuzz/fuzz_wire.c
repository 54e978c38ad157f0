/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_wire.c - any bytes as what members of a job say to each other.
 *
 * The first byte chooses the kind of message that the rest is read as, or that it is the frames of a whole conversation
 * on a link, from the handshake on. Those with a summation engine are fuzz_sum.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "node/book.h"
#include "node/join.h"
#include "node/late_message.h"
#include "node/unnamed.h"
#include "scheduler/declared.h"
#include "scheduler/rates.h"
#include "scheduler/roster.h"
#include "wire/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* ---- messages ---- */

static void try_header(const uint8_t *data, size_t size)
{
    struct bps_header header;
    uint8_t again[BPS_HEADER_BYTES];
    if (size >= BPS_HEADER_BYTES && bps_header_decode(data, &header) == BPS_OK) {
        bps_header_encode(&header, again);
        check(memcmp(again, data, sizeof again) == 0);
    }
}

static void try_book(const uint8_t *data, size_t size)
{
    struct bps_reader reader;
    struct bps_book book;
    bps_reader_init(&reader, data, size);
    if (bps_book_read(&reader, &book) != BPS_OK) {
        return;
    }
    check(book.workers > 0 && book.workers <= book.members && book.shards > 0);
    check(memchr(book.member[0].host, 0, sizeof book.member[0].host) != NULL);
    uint16_t picked = bps_unnamed_shard(&book, &book, BPS_ID_UNNAMED | book.epoch, 0);
    check(picked < book.shards && book.shard[picked].weight > 0 && book.shard[picked].member < book.members);
    struct bps_writer again;
    bps_writer_init(&again);
    bps_book_write(&book, &again);
    check(again.failed || (again.size == size && memcmp(again.data, data, size) == 0));
    bps_writer_fini(&again);
    bps_book_fini(&book);
}

static void try_join(const uint8_t *data, size_t size)
{
    struct bps_reader reader;
    struct bps_join join;
    struct bps_writer writer;
    bps_reader_init(&reader, data, size);
    if (bps_join_read(&reader, &join) == BPS_OK) {
        bps_writer_init(&writer);
        bps_join_write(&join, &writer);
        check(writer.failed || (writer.size == size && memcmp(writer.data, data, size) == 0));
        bps_writer_fini(&writer);
        bps_join_fini(&join);
    }
}

static void ignore(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *message)
{
    (void)arg;
    (void)rank;
    (void)frame;
    (void)message;
}

/* What is said of a move; with no bytes the scheduler begins one. */
static void try_move(struct bps_declared *declared, const struct bps_book *book, uint32_t rank,
                     struct bps_reader *request)
{
    bool all;
    if (request->at == request->end) {
        bps_declared_move(declared, ignore, NULL);
    } else if (bps_declared_begun(declared, rank, request, &all) == BPS_OK && all) {
        bps_declared_moved(declared, book, ignore, NULL);
    }
}

/* One message of a worker to the scheduler: DECLARE, CHANGE, FORGET or BEGUN. */
static void talk(struct bps_declared *declared, const struct bps_book *book, uint32_t kind, uint32_t rank,
                 const uint8_t *data, size_t size)
{
    struct bps_reader request;
    struct bps_writer reply;
    bps_reader_init(&request, data, size);
    bps_writer_init(&reply);
    if (kind == 0) {
        bps_declared_answer(declared, rank, &request, &reply);
    } else if (kind == 1) {
        bps_declared_change(declared, rank, 1, &request, ignore, NULL);
    } else if (kind == 2) {
        try_move(declared, book, rank, &request);
    } else {
        bps_declared_forget(declared, rank, &request);
    }
    bps_writer_fini(&reply);
}

/* A conversation with one scheduler, which sees what earlier messages have left: kind and rank, size, bytes. */
static void try_declare(const uint8_t *data, size_t size)
{
    struct bps_declared declared;
    struct bps_book_shard shard[] = {{.weight = 3}, {.weight = 1}, {.member = 1, .weight = 5}, {.member = 2}};
    struct bps_book_member member[] = {{.rank = 0}, {.rank = 1}, {.rank = 2, .group = 2}};
    const struct bps_book book = {.workers = 3, .members = 3, .member = member, .shards = 4, .shard = shard};
    if (bps_declared_init(&declared, &book, 1u << 30) != BPS_OK) {
        return;
    }
    while (size >= 2) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        talk(&declared, &book, data[0] / 3 % 4, data[0] % 3, data + 2, n);
        data += 2 + n;
        size -= 2 + n;
    }
    bps_declared_refuse(&declared, BPS_ERR_LOST, "over", ignore, NULL);
    bps_declared_fini(&declared);
}

static void try_rates(const uint8_t *data, size_t size)
{
    struct bps_book_shard shard[] = {{.weight = 3, .until = 3}, {.member = 2, .weight = 1, .until = 4}};
    struct bps_book_member member[] = {{.host_id = 1}, {.rank = 1, .group = 1, .host_id = 2}, {.host_id = 3}};
    const struct bps_book book = {.workers = 2, .members = 3, .member = member, .shards = 2, .shard = shard};
    struct bps_rates rates;
    struct bps_reader report;
    bool better;
    if (bps_rates_init(&rates, &book) == BPS_OK) {
        for (uint32_t i = 0; i < 8; i++) {
            bps_reader_init(&report, data, size);
            bps_rates_add(&rates, i % 2, &report, &better);
        }
        bps_rates_fini(&rates);
    }
}

static void try_lateness(const uint8_t *data, size_t size)
{
    struct bps_lateness lateness;
    struct bps_reader report;
    struct bps_usual usual;
    bps_lateness_init(&lateness, 3);
    bps_reader_init(&report, data, size);
    bps_lateness_read(&report, &lateness);
    check(!bps_lateness_usual(&lateness, &usual) || usual.who < 6);
    bps_lateness_fini(&lateness);
}

static void try_text(const uint8_t *data, size_t size)
{
    struct bps_reader reader;
    char text[32];
    bps_reader_init(&reader, data, size);
    bps_get_string(&reader, text, sizeof text);
    bps_get_text(&reader, text, sizeof text);
    check(strlen(text) < sizeof text && (reader.bad || reader.at == reader.end));
}

/* ---- a link, over a channel that goes nowhere; both ends know the key of zeros ---- */

static const uint8_t key[BPS_KEY_BYTES];
static struct bps_channel *const channel = (struct bps_channel *)&key;

static void no_channel(struct bps_channel *ended)
{
    (void)ended;
}

static bps_status dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *channel_key,
                       const struct bps_channel_events *events, void *user, struct bps_channel **out,
                       struct bps_report *report)
{
    const struct bps_channel_events **told = instance;
    (void)address;
    (void)lane;
    (void)channel_key;
    (void)user;
    (void)report;
    *told = events;
    *out = channel;
    return BPS_OK;
}

static void query(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    (void)out;
}

static const struct bps_transport_ops nowhere = {
    .size = sizeof nowhere, .query = query, .dial = dial, .kick = no_channel, .finish = no_channel, .drop = no_channel};

static bps_status introduce(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *out)
{
    (void)owner;
    (void)link;
    *claim = (struct bps_claim){.purpose = BPS_LINK_DATA};
    memcpy(out, key, sizeof key);
    return BPS_OK;
}

static bps_status on_hello(void *owner, struct bps_link *link, const struct bps_claim *claim, struct bps_report *report)
{
    (void)owner;
    (void)claim;
    bps_status status = bps_link_check(link, key, report);
    if (status == BPS_OK) {
        bps_link_welcome(link);
    }
    return status;
}

static void on_welcome(void *owner, struct bps_link *link)
{
    (void)owner;
    check(link->state == BPS_LINK_OPEN);
}

static bps_status on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_reader *payload)
{
    (void)owner;
    check(link->state == BPS_LINK_OPEN && header->length == (size_t)(payload->end - payload->at));
    return BPS_OK;
}

static uint32_t take_all(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    (void)sink;
    (void)data;
    check(offset == 0); /* as a whole, after it has been checked */
    return bytes;
}

/* With checksums only; without them the transport has to do with the sink, and there is none. */
static bps_status on_slice(void *owner, struct bps_link *link, const struct bps_header *header, struct bps_sink **sink)
{
    static struct bps_sink all = {.take = take_all};
    (void)owner;
    check(link->state == BPS_LINK_OPEN && header->checksum == 0);
    *sink = &all;
    return link->repeat.receiving != NULL ? BPS_OK : BPS_ERR_PROTOCOL;
}

static void on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    (void)owner;
    check(link->channel == NULL && status != BPS_OK && text != NULL);
}

static const struct bps_link_handler handler = {.introduce = introduce,
                                                .hello = on_hello,
                                                .welcome = on_welcome,
                                                .message = on_message,
                                                .slice = on_slice,
                                                .closed = on_closed};

#define CHALLENGE_BEGINS 48u

/*
 * A frame as a transport hands it over; what all versions have of a CHALLENGE in its header is at the end of its
 * payload as well. False: the link has ended.
 */
static bool receive(struct bps_link *link, const struct bps_channel_events *events, uint8_t type, const uint8_t *data,
                    uint32_t size)
{
    const struct bps_header header = {.type = type, .length = size};
    uint8_t bytes[BPS_HEADER_BYTES], *sealed = malloc(size + BPS_CIPHER_TAG);
    struct bps_sink *sink = NULL;
    check(sealed != NULL);
    bps_header_encode(&header, bytes);
    if (type == BPS_FRAME_CHALLENGE && size >= CHALLENGE_BEGINS) {
        memcpy(bytes + 8, data + size - CHALLENGE_BEGINS, CHALLENGE_BEGINS);
    }
    if (link->repeat.receiving != NULL && (link->repeat.received + 1) % 8 != 0) { /* else it does not match */
        struct bps_checksum *checksum = link->repeat.receiving;
        check(bps_checksum_put(checksum, link->repeat.received, bytes, data, size, sealed) == BPS_OK);
        data = bps_checksum_grows(checksum) > 0 ? sealed : data;
        size += bps_checksum_grows(checksum);
    }
    bool known = events->header(link, bytes, &sink) == BPS_OK;
    for (uint32_t at = 0; known && sink != NULL && at < size && link->channel != NULL;) {
        uint32_t room = 0;
        void *place = sink->place(sink, at, &room);
        check(place != NULL && room == size - at);
        memcpy(place, data + at, room);
        at += sink->take(sink, at, place, room);
    }
    free(sealed);
    return known && link->channel != NULL;
}

/*
 * Which end this is, and which checksums it has, or that it encrypts; then the frames: type, length in two bytes,
 * payload. What an end draws is zeros.
 */
static void try_link(const uint8_t *data, size_t size)
{
    const struct bps_channel_events *events = NULL;
    const uint32_t kind = size > 0 ? data[0] / 2 % 4 : BPS_CHECKSUM_NONE;
    const struct bps_conf conf = {.cluster.checksum = kind % BPS_CHECKSUM_ENCRYPT,
                                  .cluster.encrypt = kind == BPS_CHECKSUM_ENCRYPT};
    const struct bps_instance transport = {.ops = &nowhere, .self = &events, .conf = &conf};
    const struct bps_channel_key *channel_key;
    struct bps_link link;
    void *user;
    bool accepts = size > 0 && data[0] % 2 == 0;
    bps_log_set_level(0);
    if (accepts) {
        events = bps_link_accept(&link, &handler, NULL, &transport, channel, "nobody", &user, &channel_key);
    } else {
        bps_link_dial(&link, &handler, NULL, &transport, "nobody", 0, NULL);
    }
    bool open = events != NULL;
    for (size_t at = 1; open && at + 3 <= size;) {
        uint32_t length = data[at + 1] | (uint32_t)data[at + 2] << 8;
        length = length < size - at - 3 ? length : (uint32_t)(size - at - 3);
        memset(accepts ? link.introduction.challenge : link.introduction.response, 0, BPS_NONCE_BYTES);
        open = receive(&link, events, data[at], data + at + 3, length);
        at += 3 + length;
    }
    if (events != NULL) {
        bps_link_drop(&link);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {try_header, try_book, try_join,  try_declare,
                                                             try_text,   try_link, try_rates, try_lateness};
    if (size > 0) {
        tries[data[0] % (sizeof tries / sizeof *tries)](data + 1, size - 1);
    }
    return 0;
}
