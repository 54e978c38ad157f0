/* SPDX-License-Identifier: Apache-2.0 */
/* contained.c - the scheduler in programs that contain it; what libbyteps has instead is worker/scheduler_library.c. */
#include "scheduler/ops.h"

bps_status bps_scheduler_open(const struct bps_scheduler_ops **out, struct bps_report *report)
{
    (void)report;
    *out = &bps_scheduler_ops;
    return BPS_OK;
}
