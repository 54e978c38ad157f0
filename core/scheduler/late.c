/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - see late.h. */
#include "scheduler/late.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/late_message.h"

#define TELL_EVERY BPS_S
#define FEW        32u /* workers; more are told less often */

void bps_lates_begin(struct bps_lates *lates, uint32_t workers)
{
    bps_lateness_fini(&lates->all);
    *lates = (struct bps_lates){.changed = false};
    if (workers > 0) {
        bps_lateness_init(&lates->all, workers);
    }
}

bps_status bps_lates_add(struct bps_lates *lates, struct bps_reader *report)
{
    lates->changed = true;
    return bps_lateness_read(report, &lates->all);
}

bool bps_lates_news(struct bps_lates *lates, uint64_t now, struct bps_writer *w)
{
    if (!lates->changed || now - lates->told < TELL_EVERY * (1 + lates->all.workers / FEW)) {
        return false;
    }
    lates->changed = false;
    lates->told = now;
    bps_lateness_write(&lates->all, w);
    return true;
}

void bps_lates_log(const struct bps_lates *lates, const struct bps_book *book)
{
    struct bps_usual usual;
    char name[160], text[400];
    if (!bps_lateness_usual(&lates->all, &usual)) {
        return;
    }
    bool all = usual.who >= book->workers;
    const char *host = book->member[all ? usual.who - book->workers : usual.who].host;
    if (all) {
        snprintf(name, sizeof name, "the workers of host %s", host);
    } else {
        snprintf(name, sizeof name, "worker %u (host %s)", usual.who, host);
    }
    bps_usual_text(&usual, name, all, text, sizeof text);
    BPS_LOG(usual.notable ? BPS_LOG_WARN : BPS_LOG_INFO, "scheduler", "%s", text);
}
