/* SPDX-License-Identifier: Apache-2.0 */
/* util.c - see util.h. */
#include "util/util.h"

#include <stdarg.h>

bps_status launcher_fail(struct bps_report *report, bps_status status, const char *format, ...)
{
    va_list args;
    if (report != NULL) {
        va_start(args, format);
        vsnprintf(report->text, sizeof report->text, format, args);
        va_end(args);
    }
    return status;
}

bps_status launcher_open_nothing(const struct bps_host *host, const void *options, void **instance_out,
                                 struct bps_report *report)
{
    (void)host;
    (void)options;
    (void)report;
    *instance_out = NULL;
    return BPS_OK;
}

void launcher_close_nothing(void *instance)
{
    (void)instance;
}
