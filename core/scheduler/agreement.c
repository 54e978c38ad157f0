/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.c - the first value in which the configurations of two members differ. */
#include "scheduler/agreement.h"

#include <string.h>

/* Line by line. */
bps_status bps_agreement_compare(const char *ours, const char *our_host, const char *theirs, const char *their_host,
                                 struct bps_report *report)
{
    while (*ours != '\0' || *theirs != '\0') {
        int a = (int)strcspn(ours, "\n"), b = (int)strcspn(theirs, "\n");
        if (a != b || memcmp(ours, theirs, (size_t)a) != 0) {
            return bps_fail(report, BPS_ERR_REFUSED,
                            "the configurations differ: '%.*s' on the scheduler's host %s, but '%.*s' on host %s",
                            a > 200 ? 200 : a, ours, our_host, b > 200 ? 200 : b, theirs, their_host);
        }
        ours += a + (ours[a] == '\n');
        theirs += b + (theirs[b] == '\n');
    }
    return BPS_OK;
}
