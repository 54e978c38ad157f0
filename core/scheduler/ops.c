/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - see ops.h. */
#include "scheduler/ops.h"

#include "config.h"
#include "scheduler/scheduler.h"

const struct bps_scheduler_ops bps_scheduler_ops = {
    .version = PACKAGE_VERSION,
    .new = bps_scheduler_new,
    .free = bps_scheduler_free,
    .end = bps_scheduler_end,
};
