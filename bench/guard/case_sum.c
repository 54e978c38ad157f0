/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_sum.c - the summation engine: a slice of a shard, of which one contribution lands and the others are
 * added, and the pass of a group over memory that its members have lent. Slices are small: the engine's own
 * instructions shall not vanish among those of the kernels, which have cases of their own.
 */
#include <string.h>

#include "hot_paths.h"
#include "server/sum_frames.h"

#define WORKERS 4u
#define BYTES   4096u /* of the tensor: one slice, one partition */
#define PIECE   1024u /* that a socket gives at once */

static struct bps_sum *sum;
static struct bps_header header = {
    .length = BYTES,
    .type = BPS_FRAME_PUSH,
    .op = BPS_AVERAGE,
    .epoch = 1,
    .tensor = 1,
    .bytes = BYTES,
    .size = BYTES,
    .prescale = 1.0,
    .postscale = 1.0,
};
static uint8_t data[WORKERS][BYTES];
static struct bps_loan loan[WORKERS];
static uint32_t results;

static void on_finished(void *owner, struct bps_sum_slice *slice)
{
    (void)owner;
    bps_frame_result(slice, 1, 0);
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    (void)rank;
    results++;
    bps_sum_delivered(slice);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    hot_path_need(false, "worker %u: %s", rank, notice->text);
}

static const struct bps_sum_events events = {.finished = on_finished, .result = on_result, .notice = on_notice};

static void open_engine(const struct bps_sum_config *config, uint8_t dtype)
{
    hot_path_need(bps_sum_new(config, &sum) == BPS_OK, "no engine");
    memset(data, 0x3c, sizeof data);
    header.dtype = dtype;
}

/* arg: the type */
static void open_shard(const void *arg)
{
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = BYTES,
        .slice = BYTES,
        .only = BPS_SUM_ALL,
        .reducer = hot_path_reducer(),
        .events = &events,
    };
    open_engine(&config, *(const uint8_t *)arg);
}

/* A piece is read to where the engine wants it; which bytes they are does not matter to it. */
static void push_slice(uint32_t rank)
{
    struct bps_sum_cursor cursor;
    hot_path_need(bps_frame_push(sum, rank, &header, &cursor) == BPS_OK, "a slice was refused");
    for (uint32_t at = 0; at < BYTES; at += PIECE) {
        uint32_t room = PIECE;
        const void *place = bps_sum_place(&cursor.sink, at, &room);
        uint32_t taken = bps_sum_take(&cursor.sink, at, place != NULL ? place : data[rank] + at, PIECE);
        hot_path_need(taken == PIECE, "the engine took %u of %u bytes", taken, PIECE);
    }
}

static void sum_slice(void)
{
    results = 0;
    header.round++;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        push_slice(rank);
    }
    hot_path_need(results == WORKERS, "%u results for %u workers", results, WORKERS);
}

static void open_group(const void *arg)
{
    static const uint32_t group[WORKERS] = {0, 0, 0, 0};
    const struct bps_sum_config config = {
        .workers = WORKERS,
        .partition = BYTES,
        .slice = BYTES,
        .group = group,
        .only = 0,
        .reducer = hot_path_reducer(),
        .events = &events,
    };
    open_engine(&config, *(const uint8_t *)arg);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        loan[rank] =
            (struct bps_loan){.size = sizeof loan[rank], .data = data[rank], .answer = data[rank], .bytes = BYTES};
    }
}

static void sum_loans(void)
{
    struct bps_sum_cursor cursor;
    results = 0;
    header.round++;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        hot_path_need(bps_frame_push(sum, rank, &header, &cursor) == BPS_OK, "a partition was refused");
        hot_path_need(bps_sum_lend(&cursor.sink, &loan[rank]) == BPS_OK, "a loan was refused");
    }
    hot_path_need(results == WORKERS, "%u results for %u workers", results, WORKERS);
}

static const uint8_t float32 = BPS_FLOAT32, float16 = BPS_FLOAT16;

const struct hot_path hot_paths_sum[] = {
    {"sum-slice-float32", 100, open_shard, sum_slice, &float32},
    {"sum-slice-float16", 100, open_shard, sum_slice, &float16},
    {"sum-group-float32", 100, open_group, sum_loans, &float32},
    {NULL, 0, NULL, NULL, NULL},
};
