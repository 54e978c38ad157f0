/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - arrays that grow by doubling. */
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

bool bps_array_grow(void *items, size_t *room, size_t wanted, size_t size)
{
    bps_assert(size > 0 && wanted > *room);
    size_t more = *room < 4 ? 8 : 2 * *room;
    void *memory;
    memcpy(&memory, items, sizeof memory); /* a pointer of any type */
    more = more < wanted ? wanted : more;
    bps_assert(more >= wanted);
    memory = reallocarray(memory, more, size);
    if (memory == NULL) {
        return false;
    }
    memcpy(items, &memory, sizeof memory);
    *room = more;
    return true;
}
