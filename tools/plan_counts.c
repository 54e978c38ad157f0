/* SPDX-License-Identifier: Apache-2.0 */
/* plan_counts.c - several numbers of servers as one text. */
#include <stdlib.h>
#include <string.h>

#include "conf/tree.h"
#include "conf/value.h"
#include "tools/cmd.h"
#include "tools/plan_compare.h"

#define EXAMPLES "rising numbers such as 0..8 or 0,2,4"

bool bps_counts_several(const char *text)
{
    return strchr(text, ',') != NULL || strstr(text, "..") != NULL;
}

static bps_status parse_one(const char *word, int64_t most, int64_t *out, struct bps_report *report)
{
    if (bps_parse_int(word, out) != BPS_OK || *out < 0 || *out > most) {
        BPS_REPORT(report, "%s is not a number of servers; expected 0..%ld", bps_shown(word).text, most);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

/* A number, or "from..to". */
static bps_status add(struct bps_counts *counts, char *word, int64_t most, struct bps_report *report)
{
    char *dots = strstr(word, "..");
    int64_t from, to;
    if (dots != NULL) {
        *dots = '\0';
    }
    bps_status status = parse_one(word, most, &from, report);
    to = from;
    if (status == BPS_OK && dots != NULL) {
        status = parse_one(dots + 2, most, &to, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    int64_t last = counts->n > 0 ? (int64_t)counts->count[counts->n - 1] : -1;
    if (from <= last || to < from) {
        BPS_REPORT(report, "%ld comes after %ld; expected " EXAMPLES, from <= last ? from : to,
                   from <= last ? last : from);
        return BPS_ERR_INVALID;
    }
    if (to - from >= BPS_COUNTS_LIMIT - counts->n) {
        BPS_REPORT(report, "too many numbers; expected at most %u, give some of them such as 0,64,128",
                   BPS_COUNTS_LIMIT);
        return BPS_ERR_INVALID;
    }
    while (from <= to) {
        counts->count[counts->n++] = (uint32_t)from++;
    }
    return BPS_OK;
}

bps_status bps_counts_parse(const char *text, int64_t most, struct bps_counts *out, struct bps_report *report)
{
    char *copy = bps_cmd_print("%s", text), *rest = copy;
    bps_status status = BPS_OK;
    out->n = 0;
    while (rest != NULL && status == BPS_OK) {
        status = add(out, strsep(&rest, ","), most, report);
    }
    free(copy);
    return status;
}
