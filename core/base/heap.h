/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.h - a queue ordered by urgency: larger priority first, then smaller sequence number.
 *
 * Entries are values in one array, which grows and is kept: no allocation in the steady state.
 */
#ifndef BPS_BASE_HEAP_H
#define BPS_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bps_heap_entry {
    int32_t priority;
    uint64_t sequence;
    void *item;
    size_t *place; /* where it stands; NULL: nobody wants to know */
};

struct bps_heap {
    struct bps_heap_entry *entry;
    size_t count, room;
};

void bps_heap_fini(struct bps_heap *heap);
/*
 * `place` is the heap's while the item is in it: by it the item can be removed. NULL: it never is. False: no memory,
 * which cannot be where an item has just left.
 */
bool bps_heap_push(struct bps_heap *heap, int32_t priority, uint64_t sequence, void *item, size_t *place);
/* The most urgent item, or NULL. */
static inline void *bps_heap_top(const struct bps_heap *heap)
{
    return heap->count > 0 ? heap->entry[0].item : NULL;
}
/* The one behind it, or NULL. */
void *bps_heap_second(const struct bps_heap *heap);
/* Removes the most urgent item and returns it, or NULL. */
void *bps_heap_pop(struct bps_heap *heap);
/* Removes the item that was pushed with this place; false if it is not there. */
bool bps_heap_remove(struct bps_heap *heap, const size_t *place);

#endif
