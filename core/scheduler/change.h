/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.h - one round of a tensor in which a worker has another form than the job knows: what each of the
 * workers has pushed, until all have said it.
 *
 * If all have changed to the same form, they go on with it. Otherwise they hear who has pushed what.
 */
#ifndef BPS_CHANGE_H
#define BPS_CHANGE_H

#include <stdbool.h>

#include "node/form.h"

struct bps_change {
    uint64_t begun, reminded; /* ns */
    uint32_t round;
    uint32_t workers, reports;
    struct bps_change_report {
        bool given;
        bool changed; /* it has another form than the job; else it has contributed to the round */
        struct bps_form form;
    } report[];
};

/* NULL: no memory. */
struct bps_change *bps_change_new(uint32_t workers, uint32_t round, uint64_t now);
void bps_change_free(struct bps_change *change);
/*
 * What a worker has pushed; takes the form over on success. BPS_ERR_PROTOCOL: it has said so before, or it is in
 * another round than the others.
 */
bps_status bps_change_add(struct bps_change *change, uint32_t rank, uint32_t round, bool changed,
                          struct bps_form *form);
/* With the reports of all: whether they have changed to the same form. */
bool bps_change_agreed(const struct bps_change *change);
/* "worker 1 pushed [17, 23] float32, worker 0 pushed [391] float32" */
void bps_change_text(const struct bps_change *change, char *text, size_t room);
/* The workers that have not reported yet: "workers 0 and 2" */
void bps_change_missing(const struct bps_change *change, char *text, size_t room);

#endif
