/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - the tests of stages that are in files of their own. */
#ifndef BPS_TOOLS_CHECK_STAGE_H
#define BPS_TOOLS_CHECK_STAGE_H

#include "tools/check/check.h"

/* Of stages that take whole rounds (stage_all.c). */
void bps_check_run_all(struct bps_check *check);

#endif
