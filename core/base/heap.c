/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - a binary heap of small values. */
#include "base/heap.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"

static bool before(const struct bps_heap_entry *a, const struct bps_heap_entry *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->sequence < b->sequence;
}

/* What always holds of an entry and its neighbours. */
static void check_entry(const struct bps_heap *heap, size_t i)
{
    const struct bps_heap_entry *own = &heap->entry[i];
    bps_assert(heap->count <= heap->room && i < heap->count && own->item != NULL);
    bps_assert(i == 0 || !before(own, &heap->entry[(i - 1) / 2]));
    bps_assert(2 * i + 1 >= heap->count || !before(&heap->entry[2 * i + 1], own));
    bps_assert(2 * i + 2 >= heap->count || !before(&heap->entry[2 * i + 2], own));
    bps_assert(own->place == NULL || *own->place == i);
}

void bps_heap_fini(struct bps_heap *heap)
{
    free(heap->entry);
    *heap = (struct bps_heap){NULL, 0, 0};
}

static void heap_put(struct bps_heap *heap, size_t i, const struct bps_heap_entry *entry)
{
    heap->entry[i] = *entry;
    if (entry->place != NULL) {
        *entry->place = i;
    }
}

/* Moves an entry up from the hole at i to where it belongs. */
static void rise(struct bps_heap *heap, size_t i, struct bps_heap_entry moving)
{
    for (; i > 0 && before(&moving, &heap->entry[(i - 1) / 2]); i = (i - 1) / 2) {
        heap_put(heap, i, &heap->entry[(i - 1) / 2]);
    }
    heap_put(heap, i, &moving);
}

/*
 * Moves the hole at i down to the leaves, where the last entry most likely belongs, and fills it with that. Until then
 * the last one stands behind the others; it may be the second child of the hole, and goes up like any other.
 */
static void heap_fill(struct bps_heap *heap, size_t i)
{
    const size_t count = --heap->count;
    for (size_t child = 2 * i + 1; child < count; child = 2 * i + 1) {
        child += before(&heap->entry[child + 1], &heap->entry[child]);
        heap_put(heap, i, &heap->entry[child]);
        i = child;
    }
    if (i < count) {
        rise(heap, i, heap->entry[count]);
    }
}

bool bps_heap_push(struct bps_heap *heap, int32_t priority, uint64_t sequence, void *item, size_t *place)
{
    if (!bps_array_reserve(heap->entry, heap->room, heap->count + 1)) {
        return false;
    }
    rise(heap, heap->count++, (struct bps_heap_entry){priority, sequence, item, place});
    bps_check(check_entry(heap, 0));
    return true;
}

void *bps_heap_second(const struct bps_heap *heap)
{
    size_t second = heap->count > 2 && before(&heap->entry[2], &heap->entry[1]) ? 2 : 1;
    return heap->count > second ? heap->entry[second].item : NULL;
}

void *bps_heap_pop(struct bps_heap *heap)
{
    void *item = bps_heap_top(heap);
    if (item != NULL) {
        heap_fill(heap, 0);
        bps_check(heap->count > 0 ? check_entry(heap, 0) : (void)0);
    }
    return item;
}

bool bps_heap_remove(struct bps_heap *heap, const size_t *place)
{
    bool there = *place < heap->count && heap->entry[*place].place == place; /* a place outlasts the stay in the heap */
    if (there) {
        bps_check(check_entry(heap, *place));
        heap_fill(heap, *place);
    }
    return there;
}
