/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spare.h - memory for what a link encrypts, kept for the next frames.
 *
 * Slices are given back many at once, when the peer acknowledges them, and malloc() would return that to the kernel:
 * each page of the next ones would be a fault. Zeros are an empty one. Of the link's thread only.
 */
#ifndef BPS_WIRE_SPARE_H
#define BPS_WIRE_SPARE_H

#include <stddef.h>
#include <sys/queue.h>

struct bps_spare_piece;

struct bps_spare {
    SLIST_HEAD(, bps_spare_piece) pieces;
    size_t bytes; /* of all of them */
};

/* Memory for so many bytes, aligned as by malloc(). NULL: there is none. */
void *bps_spare_take(struct bps_spare *spare, size_t bytes);
/* Gives it back: it is kept as long as all that is kept has at most `limit` bytes. */
void bps_spare_give(struct bps_spare *spare, void *memory, size_t limit);
/* Frees what is kept. */
void bps_spare_fini(struct bps_spare *spare);

#endif
