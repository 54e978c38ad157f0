/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_core.c - the header of a frame to bytes and back; the queue from which a worker takes the most urgent
 * task.
 */
#include "base/heap.h"
#include "hot_paths.h"
#include "wire/frame.h"

#define TASKS 256 /* in the queue; a model of 1 GiB has as many partitions */

static uint8_t bytes[BPS_HEADER_BYTES];
static struct bps_header header = {
    .length = 65536,
    .type = BPS_FRAME_PUSH,
    .epoch = 1,
    .tensor = 17,
    .bytes = 1 << 20,
    .partition = 3,
    .round = 5,
    .offset = 65536,
    .prescale = 1.0,
    .postscale = 0.5,
    .priority = -17,
};
static struct bps_heap queue;
static uint64_t sequence;
static char task[TASKS];
static size_t place[TASKS];

static void open_header(const void *arg)
{
    (void)arg;
    bps_header_encode(&header, bytes);
}

static void encode(void)
{
    bps_header_encode(&header, bytes);
}

static void decode(void)
{
    struct bps_header out;
    hot_path_need(bps_header_decode(bytes, &out) == BPS_OK, "a header was not understood");
}

/* Priorities as a backward pass has them, but out of order, as threads may bring them. */
static void push(size_t i)
{
    hot_path_need(bps_heap_push(&queue, -(int32_t)(i * 97 % TASKS), sequence++, &task[i], &place[i]), "out of memory");
}

static void open_queue(const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < TASKS; i++) {
        push(i);
    }
}

/* All of them leave and come again. */
static void requeue(void)
{
    for (size_t i = 0; i < TASKS; i++) {
        hot_path_need(bps_heap_pop(&queue) != NULL, "a task was lost");
    }
    open_queue(NULL);
}

const struct hot_path hot_paths_core[] = {
    {"header-encode", 1000, open_header, encode, NULL},
    {"header-decode", 1000, open_header, decode, NULL},
    {"queue-256-tasks", 10, open_queue, requeue, NULL},
    {NULL, 0, NULL, NULL, NULL},
};
