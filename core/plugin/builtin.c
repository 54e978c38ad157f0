/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builtin.c - the modules that were linked into libbyteps. configure writes their list.
 */
#include "plugin/builtin.h"

#include "plugin/builtin_table.h"

typedef const struct bps_module *(*entry_fn)(void);

#define DECLARE(entry) extern const struct bps_module *entry(void);
#define ROW(entry)     entry,

BPS_BUILTIN_MODULES(DECLARE)

static const entry_fn entries[] = {BPS_BUILTIN_MODULES(ROW) NULL};

const struct bps_module *bps_builtin_module(size_t index)
{
    return index + 1 < sizeof entries / sizeof entries[0] ? entries[index]() : NULL;
}
