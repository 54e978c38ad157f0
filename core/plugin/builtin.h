/* SPDX-License-Identifier: Apache-2.0 */
/* builtin.h - the modules that were linked into libbyteps, as configured. [any thread] */
#ifndef BPS_PLUGIN_BUILTIN_H
#define BPS_PLUGIN_BUILTIN_H

#include <byteps/plugin.h>

/* The module with this index, counted from 0; NULL after the last one. */
const struct bps_module *bps_builtin_module(size_t index);

#endif
