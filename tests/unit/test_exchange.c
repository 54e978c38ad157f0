/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exchange.c - workers that send small tensors to each other: the sums, and how a round ends otherwise.
 * Here all of them are in one process, with a queue from each to each; whatever the order of deliveries, all
 * end every round in the same way.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "checks.h"
#include "base/clock.h"
#include "sum/exchange.h"
#include "sum_rig.h"

#define WORKERS 3u
#define COUNT   1000u /* floats */
#define BYTES   (COUNT * 4u)
#define TENSOR  5u
#define LEADER  1u

/* A frame on its way. */
struct frame {
    STAILQ_ENTRY(frame) entry;
    struct bps_header header;
    char text[BPS_TEXT_LIMIT + 1];
    uint8_t payload[BYTES];
};
STAILQ_HEAD(frames, frame);

static struct worker {
    struct bps_sum *sum; /* its engine */
    struct bps_exchange_round *round;
    struct frames to[WORKERS];
    uint32_t number; /* of its round */
    float data[COUNT], out[COUNT];
    bool waits;
    uint32_t sums, failures, stalls, overdue;
    char text[BPS_TEXT_LIMIT + 1]; /* of the last failure */
    bps_status status;
} worker[WORKERS];

static uint32_t rank_of(const void *owner)
{
    return (uint32_t)((const struct worker *)owner - worker);
}

/* ---- the network ---- */

static void send_frame(uint32_t from, uint32_t to, const struct bps_header *header, const char *text,
                       const void *payload)
{
    struct frame *frame = calloc(1, sizeof *frame);
    ck_assert_ptr_nonnull(frame);
    frame->header = *header;
    snprintf(frame->text, sizeof frame->text, "%s", text);
    if (header->length > 0) {
        memcpy(frame->payload, payload, header->length);
    }
    STAILQ_INSERT_TAIL(&worker[from].to[to], frame, entry);
}

static void send_to_others(uint32_t from, const struct bps_header *header, const char *text, const void *payload)
{
    for (uint32_t to = 0; to < WORKERS; to++) {
        if (to != from) {
            send_frame(from, to, header, text, payload);
        }
    }
}

/* In pieces or whole, to the place or from elsewhere. */
static void feed(struct bps_sum_cursor *cursor, const struct frame *frame)
{
    uint32_t piece = rig_random(2) == 0 ? BYTES : 1 + rig_random(BYTES);
    for (uint32_t at = 0, n; at < frame->header.length; at += n) {
        uint32_t room;
        n = frame->header.length - at < piece ? frame->header.length - at : piece;
        const void *data = frame->payload + at;
        void *place = rig_random(2) == 0 ? cursor->sink.place(&cursor->sink, at, &room) : NULL;
        if (place != NULL) {
            ck_assert_uint_ge(room, n);
            memcpy(place, data, n);
            data = place;
        }
        ck_assert_uint_eq(cursor->sink.take(&cursor->sink, at, data, n), n);
    }
}

/* POISON, FAILED. */
static bps_status hear(struct bps_sum *sum, uint32_t from, const struct bps_header *header, const char *text)
{
    return header->type == BPS_FRAME_POISON ? bps_frame_poison(sum, from, header, text)
                                            : bps_frame_fail(sum, header, text);
}

/* False: there is nothing on this way. */
static bool deliver(uint32_t from, uint32_t to)
{
    struct frame *frame = STAILQ_FIRST(&worker[from].to[to]);
    struct bps_sum *sum = worker[to].sum;
    struct bps_sum_cursor cursor;
    if (frame == NULL) {
        return false;
    }
    STAILQ_REMOVE_HEAD(&worker[from].to[to], entry);
    switch (frame->header.type) {
    case BPS_FRAME_PUSH:
        ck_assert_int_eq(bps_frame_push(sum, from, &frame->header, &cursor), BPS_OK);
        feed(&cursor, frame);
        break;
    case BPS_FRAME_LEAVE:
        bps_sum_leave(sum, from);
        break;
    default:
        ck_assert_int_eq(hear(sum, from, &frame->header, frame->text), BPS_OK);
    }
    free(frame);
    return true;
}

/* All frames, in any order over the ways. */
static void deliver_all(void)
{
    for (uint32_t idle = 0; idle < 1000; idle++) {
        if (deliver(rig_random(WORKERS), rig_random(WORKERS))) {
            idle = 0;
        }
    }
}

/* ---- events ---- */

static void on_done(void *owner, void *task)
{
    struct worker *w = owner;
    ck_assert_ptr_eq(task, w);
    ck_assert(w->waits);
    w->waits = false;
    w->sums++;
}

static void on_failed(void *owner, const struct bps_notice *notice)
{
    struct worker *w = owner;
    ck_assert_uint_eq(notice->kind, BPS_NOTICE_FAILED);
    ck_assert_uint_eq(notice->id.tensor, TENSOR);
    ck_assert_uint_eq(notice->id.round, w->number);
    ck_assert(w->waits);
    w->waits = false;
    w->failures++;
    w->status = notice->status;
    snprintf(w->text, sizeof w->text, "%s", notice->text);
}

static void on_stalled(void *owner, const struct bps_notice *notice)
{
    struct worker *w = owner;
    ck_assert_uint_eq(notice->kind, BPS_NOTICE_STALLED);
    w->stalls++;
    snprintf(w->text, sizeof w->text, "%s", notice->text);
}

static void poison(uint32_t rank, const struct bps_header *header, const char *text)
{
    if (rank == LEADER) {
        ck_assert_int_eq(hear(worker[rank].sum, rank, header, text), BPS_OK);
    } else {
        send_frame(rank, LEADER, header, text, NULL);
    }
}

static void on_overdue(void *owner, const struct bps_notice *notice)
{
    struct worker *w = owner;
    const struct bps_header header = bps_notice_header(notice, 1, 0);
    w->overdue++;
    poison(rank_of(owner), &header, notice->text);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    if (rank != rank_of(owner)) {
        const struct bps_header header = bps_notice_header(notice, 1, 0);
        ck_assert_uint_eq(header.type, BPS_FRAME_FAILED);
        ck_assert_uint_eq(header.flags, BPS_FLAG_EXCHANGE);
        send_frame(rank_of(owner), rank, &header, notice->text, NULL);
    } else if (notice->kind == BPS_NOTICE_POISON) {
        on_overdue(owner, notice);
    } else if (notice->kind == BPS_NOTICE_STALLED) {
        on_stalled(owner, notice);
    } else {
        on_failed(owner, notice);
    }
}

static const struct bps_sum_events events = {.exchanged = on_done, .notice = on_notice};

static void setup(void)
{
    static const uint32_t group[WORKERS];
    rig_open();
    memset(worker, 0, sizeof worker);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        const struct bps_sum_config config = {
            .workers = WORKERS,
            .partition = 1u << 20,
            .slice = 1u << 20,
            .group = group,
            .leader = rank,
            .ops = {[BPS_KEY_EXCHANGE] = &bps_exchange_ops},
            .reducer = rig_reducer,
            .events = &events,
            .owner = &worker[rank],
        };
        ck_assert_int_eq(bps_sum_new(&config, &worker[rank].sum), BPS_OK);
        for (uint32_t to = 0; to < WORKERS; to++) {
            STAILQ_INIT(&worker[rank].to[to]);
        }
    }
}

static void teardown(void)
{
    deliver_all();
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        bps_sum_free(worker[rank].sum);
    }
    rig_close();
}

/* ---- workers ---- */

static struct bps_header push_header(uint32_t rank, uint8_t op, uint32_t root)
{
    struct bps_header h = rig_header(TENSOR, worker[rank].number, BPS_FLOAT32, op, BYTES);
    bool receiver = op == BPS_WIRE_BROADCAST && root != rank;
    h.flags = BPS_FLAG_EXCHANGE | (receiver ? BPS_FLAG_EMPTY : 0);
    h.length = receiver ? 0 : BYTES;
    h.root = root;
    h.priority = (int32_t)rank;
    return h;
}

/* Comes to its round; false if that has failed. */
static bool enter(uint32_t rank, const struct bps_header *header)
{
    struct worker *w = &worker[rank];
    struct bps_contribution own;
    w->waits = true;
    ck_assert_int_eq(bps_frame_contribution(header, &own), BPS_OK);
    ck_assert_int_eq(bps_exchange_enter(w->sum, &own, &w->round), BPS_OK);
    ck_assert(w->waits == (w->round != NULL));
    return w->round != NULL;
}

static void begin(uint32_t rank, const struct bps_header *header, bool in_place)
{
    struct worker *w = &worker[rank];
    float *out = in_place ? w->data : w->out;
    if (enter(rank, header)) {
        send_to_others(rank, header, "", w->data);
        ck_assert_int_eq(bps_exchange_contribute(w->round, w->data, out, w, NULL), BPS_OK);
    }
}

/* Its frames are out. */
static void ready(uint32_t rank)
{
    if (worker[rank].waits) {
        bps_exchange_ready(worker[rank].round);
    }
}

static void push(uint32_t rank, uint8_t op, uint32_t root)
{
    const struct bps_header header = push_header(rank, op, root);
    begin(rank, &header, false);
    ready(rank);
}

static void cannot(uint32_t rank, const char *text)
{
    struct bps_header header = push_header(rank, BPS_SUM, 0);
    header.type = BPS_FRAME_POISON;
    header.length = 0;
    header.root = (uint32_t)-BPS_ERR_FAILED;
    if (enter(rank, &header)) {
        poison(rank, &header, text);
    }
}

static void next_round(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ck_assert(!worker[rank].waits);
        worker[rank].number++;
    }
}

static void all_failed(uint32_t failures, bps_status status, const char *text)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ck_assert(!worker[rank].waits);
        ck_assert_uint_eq(worker[rank].failures, failures);
        ck_assert_int_eq(worker[rank].status, status);
        ck_assert_str_eq(worker[rank].text, text);
    }
}

/* ---- sums ---- */

static float expected[COUNT]; /* what an aggregator makes of the same */

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    if (rank == 0) {
        ck_assert_uint_eq(slice->bytes, BYTES);
        memcpy(expected, slice->payload, BYTES);
    }
    bps_sum_delivered(slice);
}

static void expect(uint8_t op, double prescale, double postscale)
{
    static const struct bps_sum_events aggregator = {.result = on_result};
    const uint32_t group[WORKERS] = {0};
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = 1u << 20,
        .slice = 1u << 20,
        .group = group,
        .rank_order = true,
        .reducer = rig_reducer,
        .events = &aggregator,
    };
    struct bps_sum *sum;
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
    for (uint32_t rank = WORKERS; rank-- > 0;) {
        struct bps_header h = rig_header(1, 0, BPS_FLOAT32, op, BYTES);
        h.length = BYTES;
        h.prescale = prescale * (rank + 1);
        h.postscale = postscale;
        ck_assert_int_eq(rig_push(sum, rank, &h, worker[rank].data), BPS_OK);
    }
    bps_sum_free(sum);
}

static void fill(float unit)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            worker[rank].data[i] = (float)rig_random(1u << 20) * unit;
        }
    }
}

START_TEST(test_sum)
{
    const uint8_t op = _i % 2 == 0 ? BPS_SUM : BPS_AVERAGE;
    const double prescale = _i % 3 == 0 ? 0.37 : 1.0, postscale = _i % 4 == 0 ? 1.7 : 1.0;
    for (uint32_t n = 0; n < 20; n++) {
        bool in_place = rig_random(2) == 0;
        fill(op == BPS_AVERAGE && n % 2 == 0 ? 0x1p106f : 1.0f / 77.0f);
        expect(op, prescale, postscale);
        for (uint32_t i = 0; i < COUNT; i++) {
            ck_assert_float_finite(expected[i]);
        }
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            struct bps_header h = push_header(rank, op, 0);
            h.prescale = prescale * (rank + 1);
            h.postscale = postscale;
            begin(rank, &h, in_place);
            while (rig_random(4) != 0) { /* others may be ahead with what they send */
                deliver(rig_random(WORKERS), rig_random(WORKERS));
            }
            ready(rank);
        }
        deliver_all();
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            ck_assert_uint_eq(worker[rank].sums, n + 1);
            ck_assert_mem_eq(in_place ? worker[rank].data : worker[rank].out, expected, BYTES);
        }
        next_round();
    }
}
END_TEST

/* Who has the sum begins the next round while others still wait for frames of this one. */
START_TEST(test_ahead)
{
    for (uint32_t step = 0; step < 3000; step++) {
        uint32_t rank = rig_random(WORKERS);
        if (!worker[rank].waits) {
            worker[rank].number = worker[rank].sums;
            worker[rank].data[0] = (float)(worker[rank].number + rank);
            push(rank, BPS_SUM, 0);
        }
        for (uint32_t n = 0; n < 3; n++) {
            uint32_t sums = worker[rank].sums;
            deliver(rig_random(WORKERS), rank);
            if (worker[rank].sums > sums) {
                ck_assert_float_eq(worker[rank].out[0], 3.0f * (float)worker[rank].number + 3.0f);
            }
        }
    }
    ck_assert_uint_gt(worker[0].sums, 100);
    ck_assert_uint_eq(worker[0].failures + worker[1].failures + worker[2].failures, 0);
}
END_TEST

START_TEST(test_broadcast)
{
    fill(1.0f);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        push(rank, BPS_WIRE_BROADCAST, 2);
    }
    deliver_all();
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ck_assert_uint_eq(worker[rank].sums, 1);
        ck_assert(rank == 2 || memcmp(worker[rank].out, worker[2].data, BYTES) == 0);
    }
}
END_TEST

/* ---- failures ---- */

START_TEST(test_mismatch)
{
    for (uint32_t n = 1; n <= 20; n++) {
        push(0, BPS_SUM, 0);
        push(1, BPS_MAX, 0);
        push(2, BPS_SUM, 0);
        deliver_all();
        all_failed(n, BPS_ERR_MISMATCH,
                   "worker 1 pushed 1000 float32 (max), workers 0 and 2 pushed 1000 float32 (sum)");
        next_round();
    }
    push(0, BPS_WIRE_BROADCAST, 7);
    push(1, BPS_WIRE_BROADCAST, 7);
    push(2, BPS_WIRE_BROADCAST, 7);
    deliver_all();
    all_failed(21, BPS_ERR_INVALID, "root 7 is not a worker of this job (0..2)");
}
END_TEST

/* One or more cannot contribute, in any order: all get the words of one, and the next round is right. */
START_TEST(test_poison)
{
    for (uint32_t n = 1; n <= 50; n++) {
        uint32_t first = rig_random(WORKERS), who = 1u << rig_random(WORKERS) | 1u << rig_random(WORKERS);
        for (uint32_t i = 0; i < WORKERS; i++) {
            uint32_t rank = (first + i) % WORKERS;
            if ((who >> rank & 1) != 0) {
                cannot(rank, rank == 0 ? "a" : rank == 1 ? "b" : "c");
            } else {
                push(rank, BPS_SUM, 0);
            }
            if (rig_random(2) == 0) {
                deliver_all();
            }
        }
        deliver_all();
        all_failed(n, BPS_ERR_FAILED, worker[0].text);
        ck_assert((who >> (worker[0].text[0] - 'a') & 1) != 0);
        next_round();
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            push(rank, BPS_SUM, 0);
        }
        deliver_all();
        ck_assert_uint_eq(worker[0].sums + worker[1].sums + worker[2].sums, WORKERS * n);
        next_round();
    }
}
END_TEST

/* Two are many rounds ahead, because all of these fail. Whoever comes late hears of each. */
START_TEST(test_late)
{
    for (uint32_t n = 0; n < 50; n++) {
        cannot(0, "no");
        push(1, BPS_SUM, 0);
        deliver_all();
        ck_assert(!worker[0].waits && !worker[1].waits);
        worker[0].number++;
        worker[1].number++;
    }
    for (uint32_t n = 1; n <= 50; n++) {
        push(2, BPS_SUM, 0);
        ck_assert_uint_eq(worker[2].failures, n);
        deliver_all();
        worker[2].number++;
    }
    all_failed(50, BPS_ERR_FAILED, "no");
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        push(rank, BPS_SUM, 0);
    }
    deliver_all();
    ck_assert_uint_eq(worker[0].sums + worker[1].sums + worker[2].sums, WORKERS);
}
END_TEST

/* A worker that has contributed may leave before the others have the sum. They get it. The next fails. */
START_TEST(test_leave)
{
    const struct bps_header leave = {.type = BPS_FRAME_LEAVE};
    push(0, BPS_SUM, 0);
    push(1, BPS_SUM, 0);
    deliver_all();
    push(2, BPS_SUM, 0);
    ck_assert_uint_eq(worker[2].sums, 1);
    send_to_others(2, &leave, "", NULL);
    worker[0].number++;
    deliver(2, 1);
    deliver(2, 0);
    ck_assert_uint_eq(worker[0].sums + worker[1].sums, 2);
    worker[1].number++;
    push(0, BPS_SUM, 0); /* before it has heard of it, */
    deliver_all();
    push(1, BPS_SUM, 0); /* and after that */
    for (uint32_t rank = 0; rank < 2; rank++) {
        ck_assert_uint_eq(worker[rank].failures, 1);
        ck_assert_int_eq(worker[rank].status, BPS_ERR_LOST);
        ck_assert_str_eq(worker[rank].text, "worker 2 has left the job");
    }
}
END_TEST

/* A worker says that it cannot, and leaves once the leader has told the others: on another way than its farewell. */
START_TEST(test_leave_after_words)
{
    const struct bps_header leave = {.type = BPS_FRAME_LEAVE};
    bool first = _i == 0; /* the other one has come to the round before */
    if (first) {
        push(0, BPS_SUM, 0);
    }
    cannot(2, "no");
    deliver(2, LEADER);
    deliver(LEADER, 2);
    ck_assert_uint_eq(worker[2].failures, 1);
    send_to_others(2, &leave, "", NULL);
    deliver(2, 0);
    if (!first) {
        push(0, BPS_SUM, 0);
    }
    deliver_all();
    push(LEADER, BPS_SUM, 0);
    all_failed(1, BPS_ERR_FAILED, "no");
}
END_TEST

START_TEST(test_stall)
{
    push(0, BPS_SUM, 0);
    push(1, BPS_SUM, 0);
    deliver_all();
    bps_sum_check_stalls(worker[0].sum, bps_now() + 2 * BPS_S, BPS_S, 3 * BPS_S);
    bps_sum_check_stalls(worker[2].sum, bps_now() + 9 * BPS_S, BPS_S, 3 * BPS_S);
    ck_assert_uint_eq(worker[0].stalls, 1);
    ck_assert_uint_eq(worker[2].stalls + worker[2].overdue, 0); /* it does not wait */
    ck_assert_str_eq(worker[0].text, "has waited 2 s for worker 2");
    bps_sum_check_stalls(worker[0].sum, bps_now() + 4 * BPS_S, BPS_S, 3 * BPS_S);
    bps_sum_check_stalls(worker[0].sum, bps_now() + 4 * BPS_S, BPS_S, 3 * BPS_S);
    ck_assert_uint_eq(worker[0].overdue, 1);
    ck_assert(worker[0].waits); /* until the leader has said so */
    deliver_all();
    ck_assert(!worker[0].waits && !worker[1].waits);
    push(2, BPS_SUM, 0);
    all_failed(1, BPS_ERR_TIMEOUT, "worker 2 did not contribute within 3 s (cluster.stall_timeout)");
}
END_TEST

START_TEST(test_excuse)
{
    push(0, BPS_SUM, 0);
    bps_sum_excuse(worker[0].sum, 9 * BPS_S);
    bps_sum_check_stalls(worker[0].sum, bps_now() + 9 * BPS_S, BPS_S, 3 * BPS_S);
    ck_assert_uint_eq(worker[0].stalls + worker[0].overdue, 0);
    bps_sum_check_stalls(worker[0].sum, bps_now() + 13 * BPS_S, BPS_S, 3 * BPS_S);
    ck_assert_uint_eq(worker[0].overdue, 1);
}
END_TEST

/* Who has said that it cannot contribute waits for nobody's contribution. */
START_TEST(test_no_stall_of_a_poisoner)
{
    cannot(0, "no");
    ck_assert(worker[0].waits);
    bps_sum_check_stalls(worker[0].sum, bps_now() + 9 * BPS_S, BPS_S, 3 * BPS_S);
    ck_assert_uint_eq(worker[0].stalls + worker[0].overdue, 0);
    deliver_all();
    ck_assert_str_eq(worker[0].text, "no");
}
END_TEST

/* The leader may have the sum already when somebody says that it cannot wait any longer. */
START_TEST(test_overdue_elsewhere)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        push(rank, BPS_SUM, 0);
    }
    while (deliver(0, LEADER) || deliver(2, LEADER) || deliver(LEADER, 0)) {
    }
    ck_assert_uint_eq(worker[LEADER].sums, 1);
    bps_sum_check_stalls(worker[0].sum, bps_now() + 4 * BPS_S, 0, 3 * BPS_S);
    while (deliver(0, LEADER) || deliver(LEADER, 0)) {
    }
    ck_assert_uint_eq(worker[0].failures, 1);
    ck_assert_uint_eq(worker[LEADER].failures, 0);
    deliver_all();
}
END_TEST

/* The link ends in the middle of a contribution. */
START_TEST(test_abandon)
{
    struct bps_sum_cursor cursor;
    struct bps_header h = push_header(1, BPS_SUM, 0);
    push(0, BPS_SUM, 0);
    ck_assert_int_eq(bps_frame_push(worker[0].sum, 1, &h, &cursor), BPS_OK);
    cursor.sink.take(&cursor.sink, 0, worker[1].data, 8);
    if (_i == 0) {
        bps_sum_abandon(&cursor);
    }
    bps_sum_leave(worker[0].sum, 2);
    while (deliver(0, LEADER) || deliver(LEADER, 0)) { /* which says so to all */
    }
    ck_assert_str_eq(worker[0].text, "worker 2 has left the job");
    if (_i == 1) {
        cursor.sink.take(&cursor.sink, 8, worker[1].data + 2, BYTES - 8);
    }
    bps_sum_abandon(&cursor);
    ck_assert_ptr_null(cursor.round);
}
END_TEST

START_TEST(test_frames_that_nobody_sends)
{
    struct bps_sum *sum = worker[0].sum;
    struct bps_sum_cursor cursor = {0};
    const struct bps_header good = push_header(1, BPS_SUM, 0);
    struct bps_header bad[12];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i] = good;
    }
    bad[0].flags |= BPS_FLAG_BRINGS;
    bad[1].flags |= BPS_FLAG_EMPTY;
    bad[2].flags |= BPS_FLAG_GROUP;
    bad[3].length = BYTES - 4;
    bad[4].bytes = bad[4].length = BPS_EXCHANGE_BYTES + 4;
    bad[5].bytes = bad[5].length = BYTES - 1;
    bad[6].partition = 1;
    bad[7].offset = 4;
    bad[8].tensor = 0;
    bad[9].tensor = BPS_ID_UNNAMED | 3;
    bad[10].dtype = BPS_DTYPES;
    bad[11].prescale = (double)1e300 * 1e300;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(bps_frame_push(sum, 1, &bad[i], &cursor), BPS_ERR_PROTOCOL);
        ck_assert_ptr_null(cursor.round);
    }
    ck_assert_int_eq(bps_frame_push(sum, 0, &good, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_push(sum, WORKERS, &good, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(bps_frame_push(sum, 1, &good, &cursor), BPS_OK);
    bps_sum_abandon(&cursor);
    ck_assert_int_eq(bps_frame_push(sum, 1, &good, &cursor), BPS_ERR_PROTOCOL);
    bad[8].type = bad[9].type = BPS_FRAME_POISON;
    ck_assert_int_eq(hear(sum, 1, &bad[8], "no"), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(hear(sum, 1, &bad[9], "no"), BPS_ERR_PROTOCOL);
    bad[9].type = BPS_FRAME_FAILED;
    ck_assert_int_eq(hear(sum, 1, &bad[9], "no"), BPS_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tests = tcase_create("exchange");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_sum, 0, 12);
    tcase_add_test(tests, test_ahead);
    tcase_add_test(tests, test_broadcast);
    tcase_add_test(tests, test_mismatch);
    tcase_add_test(tests, test_poison);
    tcase_add_test(tests, test_late);
    tcase_add_test(tests, test_leave);
    tcase_add_loop_test(tests, test_leave_after_words, 0, 2);
    tcase_add_test(tests, test_stall);
    tcase_add_test(tests, test_excuse);
    tcase_add_test(tests, test_no_stall_of_a_poisoner);
    tcase_add_test(tests, test_overdue_elsewhere);
    tcase_add_loop_test(tests, test_abandon, 0, 2);
    tcase_add_test(tests, test_frames_that_nobody_sends);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
