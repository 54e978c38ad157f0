/* SPDX-License-Identifier: Apache-2.0 */
/* guarded.c - see guarded.h. */
#include "tools/check/guarded.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIVE = 256 };
/* What there is, for the handler of a fault. */
static struct bps_guarded live[LIVE];

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

struct bps_guarded bps_guarded_new(struct bps_check *check, const char *name, size_t bytes, enum bps_guarded_end end)
{
    size_t page = page_size(), room = (bytes + page - 1) / page * page;
    struct bps_guarded out = {.bytes = bytes, .mapped = room + 2 * page, .name = name};
    out.map = mmap(NULL, out.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool there = out.map != MAP_FAILED && (room == 0 || mprotect(out.map + page, room, PROT_READ | PROT_WRITE) == 0);
    BPS_CHECK(check, there, "out of memory for %zu bytes of %s", bytes, name);
    out.at = end == BPS_GUARDED_FRONT ? out.map + page : out.map + page + room - bytes;
    for (size_t i = 0; i < LIVE; i++) {
        if (live[i].map == NULL) {
            live[i] = out;
            break;
        }
    }
    return out;
}

void bps_guarded_read_only(const struct bps_guarded *memory, bool read_only)
{
    size_t page = page_size();
    if (memory->bytes > 0) {
        mprotect(memory->map + page, memory->mapped - 2 * page, read_only ? PROT_READ : PROT_READ | PROT_WRITE);
    }
}

void bps_guarded_forbid(const struct bps_guarded *memory)
{
    mprotect(memory->map, memory->mapped, PROT_NONE);
    for (size_t i = 0; i < LIVE; i++) {
        live[i].forbidden |= live[i].map == memory->map;
    }
}

void bps_guarded_free(struct bps_guarded *memory)
{
    for (size_t i = 0; i < LIVE; i++) {
        if (live[i].map == memory->map) {
            live[i].map = NULL;
        }
    }
    munmap(memory->map, memory->mapped);
    *memory = (struct bps_guarded){0};
}

bool bps_guarded_place(const void *address, char *text, size_t n)
{
    const uint8_t *at = address;
    for (size_t i = 0; i < LIVE; i++) {
        const struct bps_guarded *one = &live[i];
        if (one->map == NULL || at < one->map || at >= one->map + one->mapped) {
            continue;
        }
        if (at < one->at) {
            snprintf(text, n, "touches memory %zu bytes before %s", (size_t)(one->at - at), one->name);
        } else if (at >= one->at + one->bytes) {
            snprintf(text, n, "touches memory %zu bytes beyond the end of %s, which has %zu bytes",
                     (size_t)(at - one->at) - one->bytes + 1, one->name, one->bytes);
        } else if (one->forbidden) {
            snprintf(text, n, "touches byte %zu of %s, which it may no longer use", (size_t)(at - one->at), one->name);
        } else {
            snprintf(text, n, "writes to byte %zu of %s, which it may only read", (size_t)(at - one->at), one->name);
        }
        return true;
    }
    return false;
}
