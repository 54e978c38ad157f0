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

/* Bytes of the character at `text`; 0: it is none of UTF-8 (RFC 3629), or a control character. */
static size_t printable(const unsigned char *text)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte; of the second one */
        size_t bytes;
    } forms[] = {{0x20, 0x7e, 0, 0, 1},       {0xc2, 0xc2, 0xa0, 0xbf, 2}, {0xc3, 0xdf, 0x80, 0xbf, 2},
                 {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                 {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
                 {0xf4, 0xf4, 0x80, 0x8f, 4}};
    size_t i = 0, n = sizeof forms / sizeof forms[0], at = 2;
    while (i < n && (text[0] < forms[i].first || text[0] > forms[i].last)) {
        i++;
    }
    if (i == n || (forms[i].bytes > 1 && (text[1] < forms[i].low || text[1] > forms[i].high))) {
        return 0;
    }
    while (at < forms[i].bytes && (text[at] & 0xc0) == 0x80) {
        at++;
    }
    return at < forms[i].bytes ? 0 : forms[i].bytes;
}

void bps_make_printable(char *text)
{
    while (*text != '\0') {
        size_t bytes = printable((const unsigned char *)text);
        if (bytes == 0) {
            *text = '?';
        }
        text += bytes == 0 ? 1 : bytes;
    }
}
