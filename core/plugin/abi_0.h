/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi_0.h - plugins of ABI 0.20, the last one before 1.0, work as they are: all but transports are the same in both.
 */
#ifndef BPS_PLUGIN_ABI_0_H
#define BPS_PLUGIN_ABI_0_H

#include "plugin/check.h"

#define BPS_ABI_0_MINOR 20u

/* Changes what was made of the descriptor of such a plugin, and has been checked. Once for each plugin. */
bps_status bps_abi_0_adapt(struct bps_descriptor *descriptor, struct bps_report *report);

#endif
