/* SPDX-License-Identifier: Apache-2.0 */
/* sum_rig.h - what the tests of the summation engine share: the reducer cpu, numbers, frames, and senders. */
#ifndef BPS_TEST_SUM_RIG_H
#define BPS_TEST_SUM_RIG_H

#include "server/sum_frames.h"
#include "wire/link.h"

extern struct bps_instance *rig_reducer;

/* Fixtures: open and close the reducer; restart the random numbers. */
void rig_open(void);
void rig_close(void);

/* One of 0 .. n-1. */
uint32_t rig_random(uint32_t n);
/* Small whole numbers of a type, whose sums and products are exact in any order. */
void rig_fill(uint8_t dtype, void *data, size_t count);

/* A PUSH of a tensor of one partition; the caller adds offset and length, or sets another partition and its size. */
struct bps_header rig_header(uint32_t id, uint32_t round, uint8_t dtype, uint8_t op, uint64_t bytes);

/* Event: the headers of a slice, in epoch 1. */
void rig_finished(void *owner, struct bps_sum_slice *slice);

/* A frame whose payload is on its way. */
struct rig_frame {
    struct bps_sum_cursor cursor;
    const uint8_t *payload;
    uint32_t length, at;
};

/* Pushes a frame; what the engine says. */
bps_status rig_begin(struct rig_frame *frame, struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                     const void *payload);
/*
 * Gives the engine at most so many bytes, as a socket would: into its place, or from ours. True: that was the
 * last.
 */
bool rig_feed(struct rig_frame *frame, uint32_t most);
/* Pushes a frame with all of its payload, which is zeros if it is NULL. */
bps_status rig_push(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, const void *payload);

/* A contribution in memory of its owner's that an aggregator can borrow. */
struct rig_loan {
    struct bps_loan loan; /* the first, so that the events find the rest */
    uint8_t *data, *answer;
    uint32_t returned, released;
    bool unreadable, unwritable; /* its owner is lost */
};

void rig_lend(struct rig_loan *loan, void *data, void *answer, uint32_t bytes, bool mapped);
/* Events: loan_read and loan_write. They fail where the loan says so. */
bps_status rig_loan_read(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, void *to, uint32_t bytes);
bps_status rig_loan_write(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, const void *from,
                          uint32_t bytes);

#endif
