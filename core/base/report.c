/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the ways to say no: a line of text and a status, and where it happened in front. */
#include "base/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bps_status bps_fail(struct bps_report *report, bps_status status, const char *format, ...)
{
    va_list args;

    if (report) {
        va_start(args, format);
        vsnprintf(report->text, sizeof report->text, format, args);
        va_end(args);
    }
    return status;
}

bps_status bps_out_of_memory(struct bps_report *report)
{
    return bps_fail(report, BPS_ERR_NOMEM, "out of memory");
}

void bps_report_at(struct bps_report *report, const char *where, const char *text)
{
    static const char cut[] = "...";
    size_t length = strlen(where);
    size_t room = sizeof report->text - sizeof ": ";
    size_t reason = strlen(text);

    if (!report) {
        return;
    }
    room -= reason < room / 2 ? reason : room / 2;
    if (length <= room) {
        snprintf(report->text, sizeof report->text, "%s: %s", where, text);
    } else {
        where += length - room + strlen(cut);
        snprintf(report->text, sizeof report->text, "%s%s: %s", cut, where, text);
    }
}
