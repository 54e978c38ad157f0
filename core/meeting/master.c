/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master.c - MASTER_ADDR and MASTER_PORT, which are given to all processes for PyTorch's env://, by operators of
 * Kubernetes or by hand: there are no notes, as nobody keeps a store, but all know the host of worker 0.
 *
 * MASTER_PORT is torch.distributed's, and the n-th job has the n-th port after it: who is early for a job must not come
 * to the scheduler of the one before.
 */
#include "meeting/meeting.h"

#include <stdlib.h>

#include "base/report.h"
#include "conf/value.h"

#define LAST_PORT 65535u

static bool master_is_here(void)
{
    return bps_variable("MASTER_ADDR") != NULL && bps_variable("MASTER_PORT") != NULL;
}

static const char *master_host(void)
{
    return getenv("MASTER_ADDR");
}

static bps_status port(unsigned n, unsigned *out, struct bps_report *report)
{
    int64_t base;
    const char *text = getenv("MASTER_PORT");
    if (bps_parse_int(text, &base) != BPS_OK || base < 1 || base > LAST_PORT - n) {
        return bps_fail(
            report, BPS_ERR_CONF,
            "MASTER_PORT = %.40s: expected a number from 1 to %u, as the scheduler has the port %u after it", text,
            LAST_PORT - n, n);
    }
    *out = (unsigned)base + n;
    return BPS_OK;
}

const struct bps_meeting_place bps_meeting_master = {
    .name = "MASTER_ADDR and MASTER_PORT",
    .is_here = master_is_here,
    .direction = master_host,
    .port = port,
};
