/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - arrays that grow: the host's allocator has no realloc. */
#include "util.h"

#include <string.h>

void *bps_util_grow(const struct bps_host *host, void *memory, size_t used, size_t bytes, size_t alignment)
{
    void *larger = host->alloc(host, bytes, alignment);
    if (larger == NULL) {
        return NULL;
    }
    if (used > 0) {
        memcpy(larger, memory, used);
    }
    host->release(host, memory);
    return larger;
}
