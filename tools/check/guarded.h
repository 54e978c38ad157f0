/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guarded.h - memory between pages that cannot be touched: who reads or writes beyond it ends the test, which says
 * where.
 */
#ifndef BPS_TOOLS_CHECK_GUARDED_H
#define BPS_TOOLS_CHECK_GUARDED_H

#include "tools/check/check.h"

struct bps_guarded {
    uint8_t *at; /* `bytes` of them: none lies before at_front, or none behind */
    size_t bytes;
    uint8_t *map;
    size_t mapped;
    const char *name; /* "dst", for messages */
    bool forbidden;
};

/*
 * `at` begins where a page begins, or ends where one ends, so that it has any alignment. Without memory the test fails.
 */
enum bps_guarded_end { BPS_GUARDED_FRONT, BPS_GUARDED_BACK };
struct bps_guarded bps_guarded_new(struct bps_check *check, const char *name, size_t bytes, enum bps_guarded_end end);
/* Nobody may write it from now on; or they may again. */
void bps_guarded_read_only(const struct bps_guarded *memory, bool read_only);
/* Nobody may touch it from now on. */
void bps_guarded_forbid(const struct bps_guarded *memory);
void bps_guarded_free(struct bps_guarded *memory);

/* "4 bytes beyond the end of dst" of the address that a fault tells; false: it is not near such memory. */
bool bps_guarded_place(const void *address, char *text, size_t n);

#endif
