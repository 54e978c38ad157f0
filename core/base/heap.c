/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - a binary heap of small values. */
#include "base/heap.h"

#include <stdlib.h>

static bool before(const struct bps_heap_entry *a, const struct bps_heap_entry *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->sequence < b->sequence;
}

void bps_heap_fini(struct bps_heap *heap)
{
    free(heap->entry);
    *heap = (struct bps_heap){NULL, 0, 0};
}

bool bps_heap_reserve(struct bps_heap *heap, size_t count)
{
    if (count <= heap->room) {
        return true;
    }
    size_t room = heap->room < 64 ? 64 : heap->room;
    while (room < count) {
        room *= 2;
    }
    struct bps_heap_entry *grown = realloc(heap->entry, room * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    heap->entry = grown;
    heap->room = room;
    return true;
}

/* Moves an entry up from the hole at i to where it belongs. */
static void rise(struct bps_heap *heap, size_t i, struct bps_heap_entry moving)
{
    while (i > 0 && before(&moving, &heap->entry[(i - 1) / 2])) {
        heap->entry[i] = heap->entry[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->entry[i] = moving;
}

/* Fills the hole at i with the last entry of the heap. */
static void fill(struct bps_heap *heap, size_t i)
{
    const struct bps_heap_entry last = heap->entry[--heap->count];
    for (size_t child = 2 * i + 1; child < heap->count; child = 2 * i + 1) {
        if (child + 1 < heap->count && before(&heap->entry[child + 1], &heap->entry[child])) {
            child++;
        }
        if (!before(&heap->entry[child], &last)) {
            break;
        }
        heap->entry[i] = heap->entry[child];
        i = child;
    }
    if (i < heap->count) {
        rise(heap, i, last);
    }
}

bool bps_heap_push(struct bps_heap *heap, int32_t priority, uint64_t sequence, void *item)
{
    if (!bps_heap_reserve(heap, heap->count + 1)) {
        return false;
    }
    rise(heap, heap->count++, (struct bps_heap_entry){priority, sequence, item});
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
        fill(heap, 0);
    }
    return item;
}

bool bps_heap_remove(struct bps_heap *heap, const void *item)
{
    for (size_t i = 0; i < heap->count; i++) {
        if (heap->entry[i].item == item) {
            fill(heap, i);
            return true;
        }
    }
    return false;
}
