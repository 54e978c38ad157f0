/* SPDX-License-Identifier: Apache-2.0 */
/* refuse.h - the one way to say no: a line of text and BPS_ERR_PLUGIN, and where it happened in front. */
#ifndef BPS_PLUGIN_REFUSE_H
#define BPS_PLUGIN_REFUSE_H

#include <byteps/types.h>

/* Writes the report, which may be NULL, and returns BPS_ERR_PLUGIN. */
bps_status bps_refuse(struct bps_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes "where: text". Where that is too long, the front of `where` is left out, not the reason. */
void bps_report_at(struct bps_report *report, const char *where, const char *text);

#endif
