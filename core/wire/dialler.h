/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dialler.h - dials a link again and again, until the other end lets this process in or there is no time left.
 *
 * That end may not be there yet, or has made room for others. Pauses double up to a limit, and differ from one
 * dialler to the next, so that many do not come back at the same moment.
 */
#ifndef BPS_WIRE_DIALLER_H
#define BPS_WIRE_DIALLER_H

#include "plugin/instance.h"
#include "wire/link.h"

/* All zero: nothing has been dialled. */
struct bps_dialler {
    struct bps_loop *loop;
    struct bps_link *link;
    const struct bps_instance *transport;
    const char *address; /* the caller's */
    uint32_t lane, attempts;
    uint64_t deadline;
    struct bps_timer *timer; /* NULL: no attempt is to come */
};

/* As bps_link_dial(), for `patience` ns. */
bps_status bps_dialler_start(struct bps_dialler *dialler, struct bps_loop *loop, uint64_t patience,
                             struct bps_link *link, const struct bps_link_handler *handler, void *owner,
                             const struct bps_instance *transport, const char *address, uint32_t lane,
                             struct bps_report *report);
/*
 * The first thing in the handler's closed: whether there will be another attempt, so that the link is not lost. There
 * is none after a welcome or a refusal.
 */
bool bps_dialler_again(struct bps_dialler *dialler, bps_status status);
/* No attempt follows. The link remains as it is. */
void bps_dialler_stop(struct bps_dialler *dialler);

#endif
