/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - memory for the tensors in flight, the same again in each step. */
#ifndef BYTEPS_JAX_ARENA_H
#define BYTEPS_JAX_ARENA_H

#include <stddef.h>

struct chunk;

struct block {
    void *memory;        /* aligned to 64 bytes; not zeroed */
    struct chunk *chunk; /* it is a part of this */
};

/* Both are thread-safe. NULL memory: there is no more. */
struct block arena_take(size_t bytes);
void arena_give(struct block block);

#endif
