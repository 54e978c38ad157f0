/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_wire.c - any bytes as what members of a job say to each other.
 *
 * The first byte chooses the kind of message that the rest is read as. Conversations with a summation engine
 * are fuzz_sum.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "node/book.h"
#include "node/join.h"
#include "node/unnamed.h"
#include "tools/scheduler/declared.h"
#include "tools/scheduler/roster.h"

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
    struct bps_book book, copy;
    bps_reader_init(&reader, data, size);
    if (bps_book_read(&reader, &book) != BPS_OK) {
        return;
    }
    check(book.workers > 0 && book.workers <= book.members && book.shards > 0);
    check(memchr(book.member[0].host, 0, sizeof book.member[0].host) != NULL);
    uint16_t picked = bps_unnamed_shard(&book, BPS_ID_UNNAMED | book.epoch, 0);
    check(picked < book.shards && book.shard[picked].weight > 0 && book.shard[picked].member < book.members);
    if (bps_book_copy(&book, &copy) == BPS_OK) {
        check(copy.epoch == book.epoch && copy.members == book.members && copy.shards == book.shards);
        bps_book_fini(&copy);
    }
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
        free(join.agreement);
    }
}

static void ignore(void *arg, uint32_t rank, const struct bps_writer *changed)
{
    (void)arg;
    (void)rank;
    (void)changed;
}

/* One message of a worker to the scheduler: DECLARE, CHANGE or FORGET. */
static void talk(struct bps_declared *declared, uint32_t kind, uint32_t rank, const uint8_t *data, size_t size)
{
    struct bps_reader request;
    struct bps_writer reply;
    bps_reader_init(&request, data, size);
    bps_writer_init(&reply);
    if (kind == 0) {
        bps_declared_answer(declared, rank, &request, &reply);
    } else if (kind == 1) {
        bps_declared_change(declared, rank, 1, &request, ignore, NULL);
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
        talk(&declared, data[0] / 3 % 3, data[0] % 3, data + 2, n);
        data += 2 + n;
        size -= 2 + n;
    }
    bps_declared_refuse(&declared, BPS_ERR_LOST, "over", ignore, NULL);
    bps_declared_fini(&declared);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {try_header, try_book, try_join, try_declare, try_text};
    if (size > 0) {
        tries[data[0] % (sizeof tries / sizeof *tries)](data + 1, size - 1);
    }
    return 0;
}
