/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_exchange.c - any bytes as what a worker does and what the others of its host send it, when they
 * exchange small tensors.
 *
 * Whatever they send, the worker stays within its blocks, reads only what has come, and each round that it
 * enters ends at most once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/sum_frames.h"
#include "sum/exchange.h"
#include "sum_stubs.h"
#include "wire/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORKERS 3u
#define RANK    1u
#define TENSORS 4u
#define BYTES   256u

static struct worker {
    struct bps_sum *sum; /* its engine */
    struct bps_sum_cursor cursor[WORKERS];
    uint32_t at[WORKERS]; /* bytes of the contribution that have come */
    bool closed[WORKERS]; /* the link has ended */
    struct task {
        struct bps_exchange_round *round; /* NULL: it is in none */
        uint32_t number;                  /* of the next round */
        bool contributed, ready;
        uint8_t *data; /* of its own, so that a sanitizer sees who touches it later */
    } task[TENSORS];
} worker;

/* ---- events ---- */

static void end(struct task *task)
{
    check(task->round != NULL);
    task->round = NULL;
    task->number++;
    free(task->data);
    task->data = NULL;
}

static void on_done(void *owner, void *arg)
{
    struct task *task = arg;
    (void)owner;
    check(task->contributed && task->ready);
    end(task);
}

/* Entering tells at once of a round that has failed before: then there is no round yet. */
static void on_failed(void *owner, const struct bps_notice *notice)
{
    struct task *task = &worker.task[notice->id.tensor % TENSORS];
    (void)owner;
    check(notice->kind == BPS_NOTICE_FAILED && strlen(notice->text) <= BPS_TEXT_LIMIT);
    check(notice->id.round == task->number);
    end(task);
}

static void on_stalled(void *owner, const struct bps_notice *notice)
{
    (void)owner;
    check(notice->kind == BPS_NOTICE_STALLED && notice->text[0] != '\0');
}

static void on_overdue(void *owner, const struct bps_notice *notice)
{
    (void)owner;
    check(notice->kind == BPS_NOTICE_POISON && notice->text[0] != '\0');
    check(bps_sum_poison(worker.sum, RANK, notice) == BPS_OK);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    if (rank != RANK) {
        check(rank < WORKERS && notice->kind == BPS_NOTICE_FAILED && notice->text[0] != '\0');
    } else if (notice->kind == BPS_NOTICE_POISON) {
        on_overdue(owner, notice);
    } else if (notice->kind == BPS_NOTICE_STALLED) {
        on_stalled(owner, notice);
    } else {
        on_failed(owner, notice);
    }
}

/* ---- frames ---- */

/* Each field is small, so that frames meet. */
#define STEP_BYTES 8u

static struct bps_header header_of(const uint8_t *step)
{
    return (struct bps_header){
        .type = BPS_FRAME_PUSH,
        .flags = BPS_FLAG_EXCHANGE ^ (step[1] & 3),
        .dtype = step[1] & 4 ? BPS_FLOAT16 : BPS_UINT8,
        .op = step[1] & 8    ? BPS_WIRE_BROADCAST
              : step[1] & 16 ? BPS_AVERAGE
                             : BPS_SUM,
        .epoch = 1,
        .tensor = step[2] & 7,
        .partition = step[2] >> 7,
        .bytes = step[3],
        .length = step[1] & 32 ? step[4] : step[3],
        .round = step[5] & 3,
        .root = step[6] & 3,
        .prescale = 1.0,
        .postscale = step[6] & 4 ? 0.5 : 1.0,
    };
}

static void end_link(uint32_t rank)
{
    worker.closed[rank] = true;
    bps_sum_abandon(&worker.cursor[rank]);
}

static void feed(uint32_t rank, uint32_t bytes)
{
    static const uint8_t payload[BYTES] = {1, 2, 3, 4};
    struct bps_sum_cursor *cursor = &worker.cursor[rank];
    uint32_t left = cursor->bytes - worker.at[rank], room = 0;
    const void *from = payload;
    bytes = bytes < left ? bytes : left;
    if (worker.closed[rank] || bytes == 0) {
        return;
    }
    void *place = (bytes & 1) != 0 ? cursor->sink.place(&cursor->sink, worker.at[rank], &room) : NULL;
    if (place != NULL) {
        check(room >= bytes);
        memcpy(place, payload, bytes);
        from = place;
    }
    check(cursor->sink.take(&cursor->sink, worker.at[rank], from, bytes) == bytes);
    worker.at[rank] += bytes;
}

static void push(uint32_t rank, const struct bps_header *header)
{
    feed(rank, BYTES); /* a link sends one contribution after the other */
    if (worker.closed[rank]) {
        return;
    }
    worker.at[rank] = 0;
    if (bps_frame_push(worker.sum, rank, header, &worker.cursor[rank]) != BPS_OK) {
        end_link(rank);
    }
}

/* ---- what the worker itself does ---- */

static void enter(struct bps_header *header)
{
    struct task *task = &worker.task[header->tensor % TENSORS];
    struct bps_exchange_round *round;
    struct bps_contribution own;
    bool receiver = header->op == BPS_WIRE_BROADCAST && header->root != RANK;
    header->tensor = header->tensor % TENSORS + TENSORS;
    if (task->round != NULL) {
        return;
    }
    header->partition = 0;
    header->bytes &= ~1ull;
    header->round = task->number;
    header->length = receiver ? 0 : (uint32_t)header->bytes;
    header->flags = BPS_FLAG_EXCHANGE | (receiver ? BPS_FLAG_EMPTY : 0);
    task->contributed = task->ready = false;
    task->data = calloc(1, BYTES);
    task->round = (struct bps_exchange_round *)task; /* some, for on_failed */
    check(task->data != NULL);
    check(bps_frame_contribution(header, &own) == BPS_OK);
    check(bps_exchange_enter(worker.sum, &own, &round) == BPS_OK);
    check((round != NULL) == (task->round != NULL));
    task->round = round;
}

static void contribute(struct task *task)
{
    if (task->round != NULL && !task->contributed) {
        task->contributed = bps_exchange_contribute(task->round, task->data, task->data, task, NULL) == BPS_OK;
    } else if (task->round != NULL && !task->ready) {
        task->ready = true;
        bps_exchange_ready(task->round);
    }
}

static void act(const uint8_t *step)
{
    struct bps_header header = header_of(step);
    struct bps_notice notice;
    uint32_t rank = (step[0] >> 4 & 1) * 2; /* another one than ours */
    switch (step[0] & 15) {
    case 0:
    case 1:
    case 2:
        push(rank, &header);
        break;
    case 3:
        feed(rank, step[1]);
        break;
    case 4:
    case 5:
        enter(&header);
        break;
    case 6:
    case 7:
        contribute(&worker.task[step[2] % TENSORS]);
        break;
    case 8:
    case 9:
        header.root = (uint32_t)-BPS_ERR_FAILED;
        if (bps_frame_notice(&header, "planted", &notice) == BPS_OK) {
            (step[0] & 1) == 0 ? bps_sum_fail(worker.sum, &notice) : bps_sum_poison(worker.sum, rank, &notice);
        }
        break;
    case 10:
        bps_sum_leave(worker.sum, rank);
        break;
    case 11:
        end_link(rank);
        break;
    default:
        bps_sum_check_stalls(worker.sum, bps_now() + BPS_S, 1, step[1] & 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct bps_sum_events events = {.exchanged = on_done, .notice = on_notice};
    static const uint32_t group[WORKERS];
    static const struct bps_reducer_ops ops = {.kernels = stub_kernels};
    static struct bps_instance reducer = {.ops = &ops};
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = BYTES,
        .slice = BYTES,
        .group = group,
        .leader = RANK,
        .ops = {[BPS_KEY_EXCHANGE] = &bps_exchange_ops},
        .reducer = &reducer,
        .events = &events,
    };
    memset(&worker, 0, sizeof worker);
    check(bps_sum_new(&config, &worker.sum) == BPS_OK);
    for (size_t at = 0; at + STEP_BYTES <= size; at += STEP_BYTES) {
        act(data + at);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        end_link(rank);
    }
    bps_sum_free(worker.sum);
    for (uint32_t i = 0; i < TENSORS; i++) {
        free(worker.task[i].data);
    }
    return 0;
}
