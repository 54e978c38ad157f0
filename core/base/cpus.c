/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - the notation of sets of cores; hwloc's reader would take "3-1", "0x1" and "1.5", too. */
#include "base/cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n\v\f"

void bps_cpus_format(hwloc_const_cpuset_t cpus, char *text, size_t n)
{
    snprintf(text, n, "none");
    if (!hwloc_bitmap_iszero(cpus)) {
        hwloc_bitmap_list_snprintf(text, n, cpus);
    }
}

unsigned bps_cpus_lists(const char *text)
{
    unsigned count = *text != '\0';
    while ((text = strchr(text, ':')) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* "3" or "0-3" with blanks around it. What comes after it; NULL: there is none. */
static const char *read_range(const char *at, hwloc_cpuset_t out)
{
    char low[5], high[5];
    int one = 0, two = 0;
    if (sscanf(at, " %4[0-9]%n-%4[0-9]%n", low, &one, high, &two) < 1) {
        return NULL;
    }
    unsigned first = (unsigned)atoi(low), last = two > 0 ? (unsigned)atoi(high) : first;
    if (last < first || last >= BPS_CPUS_LIMIT || hwloc_bitmap_set_range(out, first, (int)last) != 0) {
        return NULL;
    }
    at += two > 0 ? two : one;
    return at + strspn(at, BLANKS);
}

bps_status bps_cpus_list(const char *text, unsigned index, hwloc_cpuset_t out, struct bps_report *report)
{
    for (unsigned i = 0; i < index; i++) {
        text = strchr(text, ':') + 1;
    }
    const char *item = text, *at = text + strspn(text, BLANKS);
    hwloc_bitmap_zero(out);
    if (*at == '\0' || *at == ':') {
        BPS_REPORT(report, "core list %u is empty; expected a list such as \"0-3,8\"", index);
        return BPS_ERR_CONF;
    }
    while ((at = read_range(item, out)) != NULL && *at == ',' && at[1] != '\0' && at[1] != ':') {
        item = at + 1;
    }
    if (at == NULL || (*at != '\0' && *at != ':')) {
        int n = (int)strcspn(item, ":");
        BPS_REPORT(report, "invalid core list at '%.*s'; expected numbers below %u and ranges, such as \"0-3,8\"",
                   n < 40 ? n : 40, item, BPS_CPUS_LIMIT);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}
