/* SPDX-License-Identifier: Apache-2.0 */
/* missing.h - what to say when there is no such plugin: where it was looked for and what there is instead. */
#ifndef BPS_PLUGIN_MISSING_H
#define BPS_PLUGIN_MISSING_H

#include "plugin/search.h"

void bps_report_missing(uint32_t kind, const char *name, const struct bps_dirs *dirs,
                        struct bps_report *report);

#endif
