/* SPDX-License-Identifier: Apache-2.0 */
/* plant.c - errors planted into feedback, views, devices, heirs of servers, survivors, to show that they are found. */
#include "sum/round.h" /* before others that hash */

#include <string.h>

#include "coding/feedback.h"
#include "device_group/devices.h"
#include "node/view.h"
#include "server/sum_frames.h"
#include "simulation.h"

static enum {
    NOTHING,
    TWICE,
    NEVER,
    FAILED,
    UNTOLD,
    INFINITE,
    SERVER,
    RATIO,
    SIZE,
    VIEW,
    EARLY,
    ORDER,
    DIVISOR,
    FINAL,
    HASTY,
    PLANTS
} plant;
static const char *const names[PLANTS] = {
    "nothing",  "twice", /* an error is applied twice */
    "never",             /* a worker's does not move */
    "failed",            /* it moves although the round has failed, */
    "untold",            /* or the server's does, as it is not told */
    "infinite",          /* it moves although the result is not finite */
    "server",            /* the server loses its error */
    "ratio",             /* the error is applied as if learning rates were equal */
    "size",              /* the server's error is kept when the tensor changes its size */
    "view",              /* a worker uses a view before its time */
    "early",             /* nobody waits for a device */
    "order",             /* one of the devices of a group is given steps in another order */
    "divisor",           /* a group's average is not divided, or twice */
    "final",             /* the heir of a server is given another result than a worker has of it */
    "hasty",             /* a round that lacks a worker fails before all others have come */
};

bool sim_plant(const char *name)
{
    uint32_t i = 0;
    while (i < PLANTS && strcmp(names[i], name) != 0) {
        i++;
    }
    plant = i;
    return i < PLANTS;
}

bps_status __real_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes)
{
    return plant == NEVER ? BPS_OK : __real_bps_feedback_move(feedback, slice, g, coded, bytes);
}

bps_status __real_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes)
{
    bps_status status = __real_bps_feedback_move_from(feedback, slice, x, coded, bytes);
    if (plant == SERVER) {
        struct bps_feedback_slice part = *slice;
        part.forgets = true;
        bps_feedback_keep(feedback, &part);
    }
    return status;
}

bool __real_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
bool __wrap_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
bool __wrap_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count)
{
    return plant == INFINITE || __real_bps_feedback_is_finite(type, x, count);
}

void __real_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x);
void __wrap_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x);
void __wrap_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x)
{
    struct bps_feedback_slice part = *slice;
    part.rate = plant == RATIO ? 0 : part.rate;
    part.forgets &= plant != SIZE;
    __real_bps_feedback_apply(feedback, &part, g, x);
    if (plant == TWICE) {
        __real_bps_feedback_apply(feedback, &part, x, x);
    }
}

void __real_bps_feedback_settle(struct bps_feedback *feedback, bool counts);
void __wrap_bps_feedback_settle(struct bps_feedback *feedback, bool counts);
void __wrap_bps_feedback_settle(struct bps_feedback *feedback, bool counts)
{
    __real_bps_feedback_settle(feedback, counts || plant == FAILED);
}

bps_status __real_bps_frame_push_coded(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                       const struct bps_coding *coding, struct bps_sum_cursor *cursor);
bps_status __wrap_bps_frame_push_coded(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                       const struct bps_coding *coding, struct bps_sum_cursor *cursor);
bps_status __wrap_bps_frame_push_coded(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                       const struct bps_coding *coding, struct bps_sum_cursor *cursor)
{
    struct bps_header other = *header;
    other.flags &= plant == UNTOLD ? (uint8_t)~BPS_FLAG_DROPPED : UINT8_MAX;
    return __real_bps_frame_push_coded(sum, rank, &other, coding, cursor);
}

struct bps_view *__real_bps_view_at(struct bps_view *view, uint32_t id);
struct bps_view *__wrap_bps_view_at(struct bps_view *view, uint32_t id);
struct bps_view *__wrap_bps_view_at(struct bps_view *view, uint32_t id)
{
    return plant == VIEW ? view : __real_bps_view_at(view, id);
}

bool sim_marks_early(void)
{
    return plant == EARLY;
}

bps_status __real_bps_devices_run(struct bps_devices *devices, struct bps_reader *order);
bps_status __wrap_bps_devices_run(struct bps_devices *devices, struct bps_reader *order);
bps_status __wrap_bps_devices_run(struct bps_devices *devices, struct bps_reader *order)
{
    uint8_t other[BPS_STEPS_LIMIT * BPS_ORDER_BYTES];
    size_t bytes = (size_t)(order->end - order->at);
    struct bps_reader reader = *order;
    if (plant == ORDER && devices->local->place == 1 && bytes <= sizeof other) {
        for (size_t i = 0; i < bytes; i += BPS_ORDER_BYTES) {
            memcpy(other + i, order->end - i - BPS_ORDER_BYTES, BPS_ORDER_BYTES);
        }
        bps_reader_init(&reader, other, bytes);
    }
    return __real_bps_devices_run(devices, &reader);
}

uint32_t __real_bps_devices_divisor(const struct bps_operation *operation);
uint32_t __wrap_bps_devices_divisor(const struct bps_operation *operation);
uint32_t __wrap_bps_devices_divisor(const struct bps_operation *operation)
{
    uint32_t divisor = __real_bps_devices_divisor(operation);
    return plant == DIVISOR ? 3 - (divisor > 1) : divisor;
}

bps_status __real_bps_sum_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset,
                                bool codes, const void *data, uint32_t bytes);
bps_status __wrap_bps_sum_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset,
                                bool codes, const void *data, uint32_t bytes);
bps_status __wrap_bps_sum_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset,
                                bool codes, const void *data, uint32_t bytes)
{
    static uint8_t other[1u << 16];
    bool is_other = plant == FINAL && bytes > 0 && bytes <= sizeof other;
    if (is_other) {
        memcpy(other, data, bytes);
        other[bytes - 1] ^= 0x40;
    }
    return __real_bps_sum_final(sum, rank, id, offset, codes, is_other ? other : data, bytes);
}

/* Not of who has left, of whom more may be under way. */
static bool lacks_one(const struct bps_round *round, uint32_t *rank)
{
    bool lacks = false;
    for (uint32_t i = 0; i < round->ranks->n && !lacks; i++) {
        *rank = round->ranks->rank[i];
        lacks = bps_bit(round->sum->gone_bits, *rank);
    }
    return lacks;
}

void __real_bps_round_go_on(struct bps_round *round);
void __wrap_bps_round_go_on(struct bps_round *round);
void __wrap_bps_round_go_on(struct bps_round *round)
{
    uint32_t rank;
    if (plant == HASTY && round->base.failure == NULL && round->sum->config.elastic && lacks_one(round, &rank)) {
        bps_round_fail_without(round, rank);
    }
    __real_bps_round_go_on(round);
}
