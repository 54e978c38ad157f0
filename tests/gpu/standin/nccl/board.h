/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board.h - what the ranks of a stand-in communicator share: a board in shared memory, where each has a seat.
 *
 * An operation is cut into turns. In each of them everybody says what it is about to do and shows its part of
 * the data, sees that all do the same, takes what it needs, and says so.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/gpu/standin/nccl/mail.h"

#define BOARD_SEATS 8
#define BOARD_CHUNK (256u << 10)

/* What all ranks must do alike. */
struct board_step {
    unsigned kind, type, op, root;
    uint64_t count;
};

struct board_seat {
    atomic_bool here, left;
    char device[16];
    _Atomic uint64_t shown, taken; /* turns */
    struct board_step step;
    unsigned char data[BOARD_CHUNK];
};

struct board {
    struct board_seat seat[BOARD_SEATS];
    struct mail_box box[BOARD_SEATS][BOARD_SEATS]; /* from, to */
};

/* The board of that name, made by whoever comes first. */
struct board *board_open(const char *name);
void board_close(struct board *board, const char *name);
/* True if the first `n` are all here, or have all left. */
bool board_complete(const struct board *board, unsigned n);
bool board_deserted(const struct board *board, unsigned n);
/* True if two of them have the same device. */
bool board_shares(const struct board *board, unsigned n);

/*
 * Takes part in a turn: shows `bytes` of `from`, and waits for the others. False: they do something else, or
 * `stop` was set. Between begin and end the data of all lie at their seats.
 */
bool board_begin(struct board *board, unsigned rank, unsigned n, uint64_t turn, const struct board_step *step,
                 const void *from, size_t bytes, const atomic_bool *stop);
void board_end(struct board *board, unsigned rank, uint64_t turn);

#endif
