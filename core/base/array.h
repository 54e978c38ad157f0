/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - arrays that grow. */
#ifndef BPS_BASE_ARRAY_H
#define BPS_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether `items`, a variable with memory of malloc() or NULL, has room for `wanted` items, or gets it. `room`, a
 * variable of type size_t, is the number that it has room for. False: no memory, and nothing is changed.
 */
#define bps_array_reserve(items, room, wanted)                                                                         \
    ((wanted) <= (room) || bps_array_grow(&(items), &(room), (wanted), sizeof *(items)))

/* Of bps_array_reserve() alone: the address of the variable, and the bytes of an item. */
bool bps_array_grow(void *items, size_t *room, size_t wanted, size_t size);

#endif
