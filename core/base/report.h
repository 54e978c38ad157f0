/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the ways to say no: a line of text and a status, and where it happened in front. [any thread] */
#ifndef BPS_BASE_REPORT_H
#define BPS_BASE_REPORT_H

#include <byteps/types.h>

#include "base/assert.h"

/* Writes the report, which may be NULL, and returns the status. */
bps_status bps_fail(struct bps_report *report, bps_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bps_status bps_out_of_memory(struct bps_report *report);
/* What is wrong with a plugin. */
#define bps_refuse(report, ...) bps_fail(report, BPS_ERR_PLUGIN, __VA_ARGS__)

/* What ends an operation or a job: an error. Nothing else must pass for success there, whoever it comes from. */
static inline bps_status bps_failing(bps_status status)
{
    bps_assert(status < 0);
    return status < 0 ? status : BPS_ERR_FAILED;
}

/* Writes "where: text". Where that is too long, the front of `where` is left out, not the reason. */
void bps_report_at(struct bps_report *report, const char *where, const char *text);

/*
 * Texts may come from a peer, a plugin or an application, and may have been cut: puts '?' in place of what commands a
 * terminal, begins a line, or is not UTF-8, so that they can be logged and become texts of any language.
 */
void bps_make_printable(char *text);

#endif
