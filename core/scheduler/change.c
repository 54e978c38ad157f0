/* SPDX-License-Identifier: Apache-2.0 */
/* change.c - the reports of all workers on a round in which a tensor has changed its form. */
#include "scheduler/change.h"

#include <stdio.h>
#include <stdlib.h>

#include "sum/verdict.h"

struct bps_change *bps_change_new(uint32_t workers, uint32_t round, uint64_t now)
{
    struct bps_change *change = calloc(1, sizeof *change + workers * sizeof change->report[0]);
    if (change != NULL) {
        change->begun = change->reminded = now;
        change->round = round;
        change->workers = workers;
    }
    return change;
}

void bps_change_free(struct bps_change *change)
{
    for (uint32_t i = 0; change != NULL && i < change->workers; i++) {
        bps_form_fini(&change->report[i].form);
    }
    free(change);
}

bps_status bps_change_add(struct bps_change *change, uint32_t rank, uint32_t round, bool changed, struct bps_form *form)
{
    struct bps_change_report *report = &change->report[rank];
    if (report->given || round != change->round) {
        return BPS_ERR_PROTOCOL;
    }
    *report = (struct bps_change_report){true, changed, *form};
    *form = (struct bps_form){.dtype = BPS_DTYPES};
    change->reports++;
    return BPS_OK;
}

bool bps_change_agreed(const struct bps_change *change)
{
    for (uint32_t i = 0; i < change->workers; i++) {
        const struct bps_change_report *report = &change->report[i], *first = &change->report[0];
        const struct bps_form *form = &report->form;
        if (!report->changed || !bps_form_equals(&first->form, form)) {
            return false;
        }
    }
    return true;
}

void bps_change_text(const struct bps_change *change, char *text, size_t room)
{
    struct bps_said *said = calloc(change->workers, sizeof *said);
    uint32_t n = 0;
    for (uint32_t i = 0; said != NULL && i < change->workers; i++) {
        if (change->report[i].given) {
            said[n].rank = i;
            bps_form_text(&change->report[i].form, said[n].what, sizeof said[n].what);
            n++;
        }
    }
    bps_verdict_camps(said, n, change->workers, text, room);
    free(said);
}

void bps_change_missing(const struct bps_change *change, char *text, size_t room)
{
    uint64_t *bits = calloc((change->workers + 63) / 64, sizeof *bits);
    text[0] = '\0';
    for (uint32_t i = 0; bits != NULL && i < change->workers; i++) {
        if (!change->report[i].given) {
            bits[i / 64] |= 1ull << (i % 64);
        }
    }
    if (bits != NULL) {
        bps_verdict_ranks(bits, change->workers, text, room);
    }
    free(bits);
}
