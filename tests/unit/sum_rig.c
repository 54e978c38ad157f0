/* SPDX-License-Identifier: Apache-2.0 */
#include "checks.h"
#include "sum_rig.h"

#include <stdlib.h>
#include <string.h>

#include "../../tools/check/reducer_oracle.h"

struct bps_instance *rig_reducer;
static struct bps_conf *conf;
static struct bps_loop *loop;

void rig_open(void)
{
    struct bps_report report = {""};
    static const char *const settings[] = {"cluster.workers=1"};
    ck_assert_msg(bps_conf_load(NULL, settings, 1, &conf, &report) == BPS_OK, "%s", report.text);
    loop = bps_loop_new();
    ck_assert_msg(
        bps_instance_open(BPS_KIND_REDUCER, "cpu", "sum", NULL, "reducers.sum", loop, &rig_reducer, &report) == BPS_OK,
        "%s", report.text);
    srand(17);
}

void rig_close(void)
{
    bps_instance_close(rig_reducer);
    bps_loop_free(loop);
    bps_conf_free(conf);
}

uint32_t rig_random(uint32_t n)
{
    return (uint32_t)rand() % n;
}

void rig_fill(uint8_t dtype, void *data, size_t count)
{
    size_t size = oracle_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint8_t *to = (uint8_t *)data + i * size;
        uint32_t v = dtype == BPS_BOOL ? rig_random(2) : 1u << rig_random(2);
        if (oracle_accumulator(dtype) == BPS_FLOAT32) {
            float wide = (float)v;
            oracle_finish(dtype, to, &wide, 1, 1.0, 1);
        } else if (dtype == BPS_FLOAT64) {
            double wide = (double)v;
            memcpy(to, &wide, sizeof wide);
        } else {
            memset(to, 0, size);
            *to = (uint8_t)v; /* little endian */
        }
    }
}

struct bps_header rig_header(uint32_t id, uint32_t round, uint8_t dtype, uint8_t op, uint64_t bytes)
{
    return (struct bps_header){.type = BPS_FRAME_PUSH,
                               .dtype = dtype,
                               .op = op,
                               .epoch = 1,
                               .tensor = id,
                               .bytes = bytes,
                               .size = (uint32_t)bytes,
                               .round = round,
                               .prescale = 1.0,
                               .postscale = 1.0};
}

void rig_finished(void *owner, struct bps_sum_slice *slice)
{
    (void)owner;
    bps_frame_result(slice, 1, 0);
}

bps_status rig_begin(struct rig_frame *frame, struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                     const void *payload)
{
    *frame = (struct rig_frame){.payload = payload, .length = header->length};
    return bps_frame_push(sum, rank, header, &frame->cursor);
}

bool rig_feed(struct rig_frame *frame, uint32_t most)
{
    static const uint8_t zeros[1u << 16];
    uint32_t n = frame->length - frame->at, room = 0;
    n = n < most ? n : most;
    const uint8_t *data = frame->payload != NULL ? frame->payload + frame->at : zeros;
    n = frame->payload != NULL || n < sizeof zeros ? n : (uint32_t)sizeof zeros;
    uint8_t *place = n > 0 ? frame->cursor.sink.place(&frame->cursor.sink, frame->at, &room) : NULL;
    if (place != NULL) {
        n = n < room ? n : room;
        memcpy(place, data, n);
        data = place;
    }
    uint32_t taken = frame->cursor.sink.take(&frame->cursor.sink, frame->at, data, n);
    ck_assert_uint_le(taken, n);
    ck_assert_uint_gt(taken + BPS_SINK_GRAIN, n);
    frame->at += taken;
    return frame->at == frame->length;
}

bps_status rig_push(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, const void *payload)
{
    struct rig_frame frame;
    bps_status status = rig_begin(&frame, sum, rank, header, payload);
    while (status == BPS_OK && !rig_feed(&frame, UINT32_MAX)) {
    }
    return status;
}

void rig_lend(struct rig_loan *loan, void *data, void *answer, uint32_t bytes, bool mapped)
{
    *loan = (struct rig_loan){.data = data, .answer = answer, .loan = {.size = sizeof loan->loan, .bytes = bytes}};
    if (mapped) {
        loan->loan.data = data;
        loan->loan.answer = answer;
    }
}

/* Nobody may touch what was given back. */
static struct rig_loan *reach(struct bps_loan *loan, uint32_t offset, uint32_t bytes)
{
    struct rig_loan *rig = (struct rig_loan *)loan;
    ck_assert_uint_eq(rig->returned + rig->released, 0);
    ck_assert_uint_le(offset, loan->bytes);
    ck_assert_uint_le(bytes, loan->bytes - offset);
    return rig;
}

bps_status rig_loan_read(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, void *to, uint32_t bytes)
{
    struct rig_loan *rig = reach(loan, offset, bytes);
    (void)owner;
    (void)rank;
    if (rig->unreadable) {
        return BPS_ERR_LOST;
    }
    memcpy(to, rig->data + offset, bytes);
    return BPS_OK;
}

bps_status rig_loan_write(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, const void *from,
                          uint32_t bytes)
{
    struct rig_loan *rig = reach(loan, offset, bytes);
    (void)owner;
    (void)rank;
    if (rig->unwritable) {
        return BPS_ERR_LOST;
    }
    memcpy(rig->answer + offset, from, bytes);
    return BPS_OK;
}
