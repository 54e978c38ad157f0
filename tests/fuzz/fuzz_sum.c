/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_sum.c - any bytes as a conversation of workers with a summation engine.
 *
 * The first byte chooses its kind: a shard's, with groups or without, or an aggregator's, final or partial; and without
 * how many workers rounds end. Some contributions are coded, others rows.
 * Whatever workers send, the engine stays within its blocks and what was lent to it, delivers only whole
 * slices, returns each loan once, and gives back all memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/rows.h"
#include "server/sum_frames.h"
#include "sum_stubs.h"
#include "wire/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORKERS    3u
#define LEADER     2u
#define PARTITION  256u
#define SLICE      64u
#define SENT       (PARTITION + 64u) /* bytes of a contribution, at most */
#define DELIVERIES 4096u

/* ---- the engine and its owner ---- */

/* Memory that a worker has lent; freed when it is returned, so that a sanitizer sees who touches it later. */
struct lent {
    struct bps_loan loan; /* the first, so that the engine's pointer is one to this */
    LIST_ENTRY(lent) entry;
    uint32_t rank;
    bool unreadable, unwritable;
    uint8_t *data, *answer;
};

static struct engine {
    struct bps_sum *sum;
    bool aggregates, partial;
    struct bps_sum_cursor cursor[WORKERS], opened[WORKERS];
    uint32_t at[WORKERS];                    /* bytes of the slice that have come */
    _Alignas(8) uint8_t sent[WORKERS][SENT]; /* what it consists of */
    bool closed[WORKERS];                    /* the link has ended: for a frame that is not allowed, or by itself */
    struct delivery {
        struct bps_sum_slice *slice;
        uint32_t rank;
    } delivery[DELIVERIES];
    uint32_t deliveries;
    struct pending { /* partial sums in the network */
        struct bps_sum_slice *slice;
        struct bps_round_id id;
    } pending[DELIVERIES];
    uint32_t pendings;
    LIST_HEAD(, lent) loans;
    uint8_t seen; /* of all results, so that a sanitizer looks at them */
} engine;

static void see(const void *data, uint32_t bytes)
{
    for (uint32_t k = 0; k < bytes; k++) {
        engine.seen ^= ((const uint8_t *)data)[k];
    }
}

static bool same_round(const struct bps_round_id *a, const struct bps_round_id *b)
{
    return a->tensor == b->tensor && a->partition == b->partition && a->round == b->round;
}

static struct lent *find_lent(const struct bps_loan *loan)
{
    struct lent *lent;
    LIST_FOREACH(lent, &engine.loans, entry) {
        if (&lent->loan == loan) {
            return lent;
        }
    }
    return NULL;
}

static void take_back(struct lent *lent)
{
    check(lent != NULL);
    LIST_REMOVE(lent, entry);
    if (lent->answer != lent->data) {
        free(lent->answer);
    }
    free(lent->data);
    free(lent);
}

static void on_finished(void *owner, struct bps_sum_slice *slice)
{
    (void)owner;
    bps_frame_result(slice, 1, 0);
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    check(rank < WORKERS && engine.deliveries < DELIVERIES);
    engine.delivery[engine.deliveries++] = (struct delivery){slice, rank};
}

static void on_want(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    check(rank < WORKERS && slice->holder == rank + 1 && !engine.aggregates);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    check(rank < WORKERS && strlen(notice->text) <= BPS_TEXT_LIMIT);
    check(notice->kind == BPS_NOTICE_FAILED || notice->kind == BPS_NOTICE_STALLED);
}

static bool on_failed(void *owner, const struct bps_notice *notice)
{
    (void)owner;
    check(notice->kind == BPS_NOTICE_FAILED && strlen(notice->text) <= BPS_TEXT_LIMIT);
    for (uint32_t i = 0; i < engine.pendings; i++) {
        check(!same_round(&engine.pending[i].id, &notice->id)); /* the network has that */
    }
    return false;
}

static bps_status on_read(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, void *to, uint32_t bytes)
{
    struct lent *lent = find_lent(loan);
    (void)owner;
    check(lent != NULL && lent->rank == rank && loan->data == NULL && bytes <= loan->bytes - offset);
    memcpy(to, lent->data + offset, bytes);
    return lent->unreadable ? BPS_ERR_LOST : BPS_OK;
}

static bps_status on_write(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, const void *from,
                           uint32_t bytes)
{
    struct lent *lent = find_lent(loan);
    (void)owner;
    check(lent != NULL && lent->rank == rank && loan->answer == NULL && bytes <= loan->bytes - offset);
    memcpy(lent->answer + offset, from, bytes);
    return lent->unwritable ? BPS_ERR_LOST : BPS_OK;
}

static void on_released(void *owner, uint32_t rank, struct bps_loan *loan)
{
    struct lent *lent = find_lent(loan);
    (void)owner;
    check(lent != NULL && lent->rank == rank);
    take_back(lent);
}

static void on_summed(void *owner, struct bps_sum_slice *slice)
{
    struct pending *pending = &engine.pending[engine.pendings++];
    (void)owner;
    check(engine.pendings < DELIVERIES);
    pending->slice = slice;
    pending->id = slice->id;
    if (slice->payload != NULL) {
        see(slice->payload, slice->payload_bytes);
    }
}

/* What others get may lie in the leader's loan, so of a slice the leader's delivery comes last. */
static uint32_t before_the_leader(uint32_t i)
{
    const struct delivery *leader = &engine.delivery[i];
    for (uint32_t j = 0; j < engine.deliveries && leader->rank == LEADER; j++) {
        if (engine.delivery[j].slice == leader->slice && engine.delivery[j].rank != LEADER) {
            return j;
        }
    }
    return i;
}

static void deliver(uint32_t i)
{
    i = before_the_leader(i);
    struct delivery d = engine.delivery[i];
    struct bps_loan *loan = bps_sum_loan(d.slice, d.rank);
    struct bps_header header;
    engine.delivery[i] = engine.delivery[--engine.deliveries];
    check(bps_header_decode(d.slice->header, &header) == BPS_OK && header.length == d.slice->payload_bytes);
    if (loan != NULL) {
        take_back(find_lent(loan));
    } else if (bps_sum_wants_data(d.slice, d.rank) && d.slice->bytes > 0 && !engine.closed[d.rank]) {
        check(d.slice->payload != NULL);
        see(d.slice->payload, d.slice->payload_bytes);
    }
    bps_sum_delivered(d.slice);
}

static void distribute(uint32_t i)
{
    static const uint8_t result[PARTITION] = {7, 8, 9};
    struct pending pending = engine.pending[i];
    struct bps_loan *loan = bps_sum_loan(pending.slice, LEADER);
    engine.pending[i] = engine.pending[--engine.pendings];
    bps_sum_distribute(pending.slice, result);
    if (loan != NULL && find_lent(loan) != NULL) { /* else it was released */
        take_back(find_lent(loan));
    }
}

/* ---- workers ---- */

static void end_link(uint32_t rank)
{
    if (!engine.closed[rank]) {
        engine.closed[rank] = true;
        bps_sum_abandon(&engine.cursor[rank]);
        bps_sum_abandon(&engine.opened[rank]);
    }
}

static void lose(uint32_t rank)
{
    struct lent *lent, *next;
    end_link(rank);
    bps_sum_gone(engine.sum, rank);
    for (lent = LIST_FIRST(&engine.loans); lent != NULL; lent = next) {
        next = LIST_NEXT(lent, entry);
        if (lent->rank == rank) {
            take_back(lent);
        }
    }
}

/*
 * Lends instead of sending bytes; `how` says whether it is mapped, in place, in reach and of the right size.
 */
static void lend(uint32_t rank, uint32_t bytes, int32_t how)
{
    struct lent *lent = calloc(1, sizeof *lent);
    check(lent != NULL);
    bytes -= (how & 32) != 0 && bytes > 0;
    lent->rank = rank;
    lent->data = calloc(1, bytes + 1);
    lent->answer = (how & 16) != 0 ? lent->data : calloc(1, bytes + 1);
    lent->unreadable = (how & 4) != 0;
    lent->unwritable = (how & 8) != 0;
    lent->loan = (struct bps_loan){.size = sizeof lent->loan, .bytes = bytes};
    if ((how & 2) != 0) {
        lent->loan.data = lent->data;
        lent->loan.answer = lent->answer;
    }
    LIST_INSERT_HEAD(&engine.loans, lent, entry);
    bps_status status = bps_sum_lend(&engine.cursor[rank].sink, &lent->loan);
    if (status == BPS_OK) {
        engine.at[rank] = engine.cursor[rank].bytes;
        return;
    }
    take_back(lent);
    if (status != BPS_AGAIN) {
        end_link(rank);
    }
}

/* ---- a coding: a byte for each element, which are not decoded for all numbers of them ---- */

static size_t fake_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count : 0;
}

static size_t fake_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    (void)instance;
    (void)dtype;
    (void)random;
    see(src, (uint32_t)(count * sizeof(float)));
    memset(dst, 1, count);
    return count - count / 5;
}

static bps_status fake_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    (void)instance;
    (void)dtype;
    see(src, (uint32_t)bytes);
    for (size_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (char *)dst + i * sizeof x, sizeof x);
        x += 1;
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);
    }
    return bytes < count - count / 5 ? BPS_ERR_PROTOCOL : BPS_OK;
}

static bps_status fake_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    memset(dst, 0, count * sizeof(float));
    return fake_decode_add(instance, dtype, src, bytes, dst, count);
}

static const struct bps_compressor_ops fake_ops = {
    .bound = fake_bound, .encode = fake_encode, .decode = fake_decode, .decode_add = fake_decode_add};
static struct bps_instance fake = {.ops = &fake_ops};
static const struct bps_coding codings[] = {
    {.text = "one", .compressor = &fake, .ops = &fake_ops, .feedback = true, .narrow = 32, .wide = 16},
    {.text = "two", .compressor = &fake, .ops = &fake_ops, .narrow = 24, .wide = 16},
    {.text = "three", .problem = "there is no such compressor"},
};

static const uint8_t payload[PARTITION] = {1, 2, 3, 4};

/* How many rows of a partition are sent: a few, or all. */
static uint32_t rows_count(const struct bps_header *header)
{
    uint32_t count = (uint32_t)header->priority >> 1 & 7;
    return count < 7 ? count : bps_rows_limit(header->size, header->slice);
}

/* Rows of a partition, some of which there cannot be. */
static void make_rows(uint32_t rank, const struct bps_header *header)
{
    uint8_t *to = engine.sent[rank];
    uint32_t limit = bps_rows_limit(header->size, header->slice), count = rows_count(header);
    memset(to, 0, SENT);
    bps_rows_begin((char *)to, count, limit);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = i * (1 + ((uint32_t)header->priority >> 5 & 3)) - ((uint32_t)header->priority >> 7 & i);
        bps_rows_name((char *)to, count, limit, i, bps_rows_by_bits(count, limit) ? row % 64 : row);
    }
}

/* Some of the slice on its way, as a transport gives it: into the place that the engine names, or copied. */
static void feed(uint32_t rank, uint32_t bytes)
{
    struct bps_sum_cursor *cursor = &engine.cursor[rank];
    uint32_t left = cursor->bytes - engine.at[rank], room = left;
    const uint8_t *from = engine.sent[rank] + engine.at[rank] % SENT;
    bytes = bytes < left ? bytes : left;
    if (engine.closed[rank] || bytes == 0) {
        return;
    }
    void *place = bps_sum_place(&cursor->sink, engine.at[rank], &room);
    if (place != NULL) {
        check(room >= 1 && room <= left);
        bytes = bytes < room ? bytes : room;
        memcpy(place, from, bytes);
        from = place;
    }
    engine.at[rank] += bps_sum_take(&cursor->sink, engine.at[rank], from, bytes);
}

/* The slice that was opened is whole. */
static void place(uint32_t rank)
{
    struct bps_sum_cursor *opened = &engine.opened[rank];
    if (opened->block != NULL) {
        memcpy(opened->block, engine.sent[rank], opened->bytes);
        bps_sum_placed(opened);
    }
}

static bps_status begin(uint32_t rank, const struct bps_header *header)
{
    struct bps_sum_cursor *cursor = &engine.cursor[rank];
    const struct bps_coding *coding = &codings[header->coding % (sizeof codings / sizeof codings[0])];
    return header->coding == 0 ? bps_frame_push(engine.sum, rank, header, cursor)
                               : bps_frame_push_coded(engine.sum, rank, header, coding, cursor);
}

static bool push(uint32_t rank, const struct bps_header *header)
{
    feed(rank, UINT32_MAX); /* a link sends one slice after the other */
    if (engine.closed[rank]) {
        return true;
    }
    engine.at[rank] = 0;
    if ((header->flags & BPS_FLAG_ROWS) != 0 && header->coding == 0 && header->slice > 0) {
        make_rows(rank, header);
    } else {
        memcpy(engine.sent[rank], payload, sizeof payload);
    }
    if (begin(rank, header) != BPS_OK) {
        end_link(rank);
        return true;
    }
    if (engine.aggregates && (header->priority & 1) != 0) {
        uint32_t bytes = header->size;
        lend(rank, bytes, header->priority);
    } else if ((header->priority & 1) != 0 && engine.opened[rank].block == NULL) {
        bps_sum_open(&engine.cursor[rank], &engine.opened[rank]);
    } else if (header->length == 0) {
        bps_sum_take(&engine.cursor[rank].sink, 0, NULL, 0);
    }
    return header->length <= SENT;
}

/*
 * One step of a conversation: an action with its rank, and for a frame the fields that matter, each small so
 * that frames meet. The rest of the header is what a worker would send, unless bit 7 of the action asks for
 * raw bytes.
 */
#define STEP_BYTES 12u
static bool frame_of(const uint8_t *step, size_t size, struct bps_header *out)
{
    if ((step[0] & 0x80) != 0) {
        return size >= 1 + BPS_HEADER_BYTES && bps_header_decode(step + 1, out) == BPS_OK;
    }
    *out = (struct bps_header){
        .type = BPS_FRAME_PUSH,
        .flags = (step[1] & 1) | (step[1] >> 3 & BPS_FLAG_GROUP) | (step[10] & BPS_FLAG_BRINGS),
        .dtype = step[1] & 2   ? BPS_FLOAT16
                 : step[1] & 4 ? step[2] % (BPS_DTYPES + 1)
                               : BPS_UINT8,
        .op = (uint8_t)(step[8] >> 5 > 1 ? step[8] >> 5 << 3 | (step[2] >> 4 & 7) : step[2] >> 4),
        .epoch = 1,
        .tensor = step[3] & 4 ? BPS_ID_UNNAMED | (step[3] & 3) : step[3] & 3,
        .bytes = (uint64_t)step[4] << (step[3] >> 4),
        .partition = (step[5] & 15) | ((step[5] & 0x40) != 0 ? BPS_BLOCKS : 0),
        .round = step[6] & 7,
        .offset = (step[7] & 7) * SLICE + (step[7] >> 6),
        .root = (step[8] & 3) | (step[8] >> 2 & 7u) << 16,
        .length = step[9],
        .prescale = step[10] & 32 ? -1.0 : 1.0,
        .postscale = step[10] & 1 ? 0.5 : 1.0,
        .coding = step[10] >> 1 & 3,
        .priority = step[11],
    };
    out->size = bps_partition_bytes(out->bytes, PARTITION, step[5] & 15) - (step[7] >> 4 & 2);
    if ((step[10] & 0x40) != 0) {
        out->flags |= BPS_FLAG_ROWS;
        out->slice = 4u << (step[10] >> 7);
        uint32_t count = rows_count(out), limit = bps_rows_limit(out->size, out->slice);
        uint32_t whole = (uint32_t)bps_rows_before(count, limit) + count * out->slice;
        out->length = (step[10] & 0x10) != 0 ? step[9] : whole;
    }
    return true;
}

/* The round is about to fail, and its slice to vanish. */
static void forget_pending(const struct bps_header *header)
{
    const struct bps_round_id id = bps_frame_round(header);
    for (uint32_t i = engine.pendings; i-- > 0;) {
        if (same_round(&engine.pending[i].id, &id)) {
            engine.pending[i] = engine.pending[--engine.pendings];
        }
    }
}

/* What only the owner of an aggregator does. */
static size_t act_on_aggregator(const uint8_t *step, size_t size)
{
    struct bps_header header;
    uint32_t rank = (step[0] >> 3 & 3) % WORKERS;
    switch (step[0] & 0x60) {
    case 0x20:
        if (engine.pendings > 0) {
            distribute(step[1] % engine.pendings);
        }
        return 2;
    case 0x40: /* where there is no network, nothing of it fails there */
        if (engine.partial && frame_of(step, size, &header)) {
            forget_pending(&header);
            bps_frame_fail(engine.sum, &header, "planted");
        }
        return (step[0] & 0x80) != 0 ? 1 + BPS_HEADER_BYTES : STEP_BYTES;
    default:
        if (rank != LEADER) { /* whose process this is */
            lose(rank);
        }
        return 1;
    }
}

/* A worker has results of a shard that is lost, or gives one: with some bytes behind the frame. */
static size_t act_on_held(const uint8_t *step, size_t size)
{
    struct bps_header header;
    struct bps_reader r;
    uint32_t rank = (step[0] >> 3 & 3) % WORKERS;
    size_t used = (step[0] & 0x80) != 0 ? 1 + BPS_HEADER_BYTES : STEP_BYTES;
    bool is_final = (step[0] & 0x20) != 0;
    if (engine.closed[rank] || !frame_of(step, size, &header)) {
        return used;
    }
    if ((step[0] & 0x80) == 0) {
        static const uint32_t slices[] = {SLICE, 2 * SLICE, SLICE / 2, SLICE + SLICE / 2};
        header.slice = slices[step[7] & 3];
    }
    uint32_t bytes = is_final ? header.length : (uint32_t)step[11] >> 5;
    bytes = bytes < PARTITION ? bytes : PARTITION;
    bps_reader_init(&r, is_final ? payload : &step[11], is_final || bytes == 0 ? bytes : 1);
    bps_status status =
        is_final ? bps_frame_final(engine.sum, rank, &header, &r) : bps_frame_held(engine.sum, rank, &header, &r);
    if (status != BPS_OK) {
        end_link(rank);
    }
    return used;
}

static size_t act(const uint8_t *step, size_t size)
{
    struct bps_header header;
    uint32_t rank = (step[0] >> 3 & 3) % WORKERS;
    size_t used = (step[0] & 0x80) != 0 ? 1 + BPS_HEADER_BYTES : STEP_BYTES;
    if (engine.aggregates && (step[0] & 0x60) != 0) {
        return act_on_aggregator(step, size);
    }
    if ((step[0] & 0x40) != 0) {
        return act_on_held(step, size);
    }
    switch (step[0] & 7) {
    case 0:
    case 1:
        return frame_of(step, size, &header) && push(rank, &header) ? used : size;
    case 2:
        feed(rank, step[1]);
        if ((step[1] & 1) != 0) {
            place(rank);
        }
        return 2;
    case 3:
        if (engine.deliveries > 0) {
            deliver(step[1] % engine.deliveries);
        }
        return 2;
    case 4:
        if (!engine.closed[rank] && frame_of(step, size, &header)) {
            feed(rank, UINT32_MAX);
            if (bps_frame_poison(engine.sum, rank, &header, "planted") != BPS_OK) {
                end_link(rank);
            }
        }
        return used;
    case 5:
        feed(rank, UINT32_MAX);
        bps_sum_leave(engine.sum, rank);
        return 1;
    case 6:
        bps_sum_check_stalls(engine.sum, bps_now() + BPS_S, 1, step[1] & 1);
        return 2;
    default:
        end_link(rank);
        return 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct bps_sum_events events = {
        .finished = on_finished,
        .result = on_result,
        .want = on_want,
        .notice = on_notice,
        .loan_read = on_read,
        .loan_write = on_write,
        .released = on_released,
        .summed = on_summed,
        .failed = on_failed,
    };
    static const struct bps_reducer_ops ops = {.kernels = stub_kernels};
    static struct bps_instance reducer = {.ops = &ops};
    static const uint32_t groups[4][WORKERS] = {{0, 1, 2}, {0, 1, 0}, {0, 1, 0}, {0, 0, 0}};
    uint32_t kind = size > 0 ? data[0] >> 1 & 3 : 0;
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = PARTITION,
        .slice = SLICE,
        .group = groups[kind],
        .backups = size > 0 ? data[0] >> 3 & 3 : 0,
        .only = kind < 2 ? BPS_SUM_ALL : 0,
        .leader = LEADER,
        .partial = kind == 2,
        .rank_order = size > 0 && (data[0] & 1) != 0,
        .reducer = &reducer,
        .events = &events,
    };
    memset(&engine, 0, sizeof engine);
    engine.aggregates = kind >= 2;
    engine.partial = kind == 2;
    if (bps_sum_new(&config, &engine.sum) != BPS_OK) {
        return 0;
    }
    for (size_t at = 1; at + STEP_BYTES <= size && engine.deliveries + engine.pendings + 64 < DELIVERIES;) {
        at += act(data + at, size - at);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        end_link(rank);
    }
    while (engine.deliveries > 0) {
        deliver(engine.deliveries - 1);
    }
    bps_sum_free(engine.sum);
    while (!LIST_EMPTY(&engine.loans)) {
        take_back(LIST_FIRST(&engine.loans));
    }
    return 0;
}
