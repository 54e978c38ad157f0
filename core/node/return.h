/* SPDX-License-Identifier: Apache-2.0 */
/*
 * return.h - what a member of a job that runs says to a scheduler that is to take the place of one that was lost.
 */
#ifndef BPS_NODE_RETURN_H
#define BPS_NODE_RETURN_H

#include "node/book.h"
#include "node/join.h"

/* What the scheduler asks of it. */
enum bps_return_word {
    BPS_RETURN_BOOK,  /* its copy of the book */
    BPS_RETURN_TAKEN, /* to go on: whatever was not answered it asks again */
    BPS_RETURN_WORDS
};

/* What a worker says of tensors, in messages KNOWN; the last one is the end. */
enum bps_known_kind {
    BPS_KNOWN_TENSORS,   /* that it has declared, */
    BPS_KNOWN_FORGOTTEN, /* and the next rounds of ids that it has forgotten tensors of */
    BPS_KNOWN_END,
    BPS_KNOWN_KINDS
};

struct bps_return {
    uint32_t epoch, view, rank;
    bool leaves;         /* it has said so to the lost one, or would have */
    uint8_t members[32]; /* a digest of whose job it is, its workers: equal for all views of an epoch */
};

/* Of the member with this rank in its role. BPS_ERR_FAILED: there is no digest. */
bps_status bps_return_of(const struct bps_book *book, uint32_t rank, struct bps_return *out);
/* A message RETURN: that, and what the member has joined with. */
void bps_return_write(const struct bps_return *is, const struct bps_join *join, struct bps_writer *w);
/* BPS_ERR_PROTOCOL; on success the caller ends the join with bps_join_fini(). */
bps_status bps_return_read(struct bps_reader *r, struct bps_return *out, struct bps_join *join);

#endif
