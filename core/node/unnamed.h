/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed.h - which shard sums which partition of an unnamed tensor.
 *
 * Such tensors live for one round. Every worker finds their shards by itself, in the book and by their numbers;
 * those of named tensors it hears from the scheduler.
 */
#ifndef BPS_NODE_UNNAMED_H
#define BPS_NODE_UNNAMED_H

#include "node/book.h"

uint16_t bps_unnamed_shard(const struct bps_book *book, uint32_t id, uint32_t partition);

#endif
