/* SPDX-License-Identifier: Apache-2.0 */
/* dialler.c - dialling again. */
#include "wire/dialler.h"

#include "base/clock.h"
#include "plugin/returned.h"

#define FIRST_PAUSE (20 * BPS_MS)
#define LAST_PAUSE  BPS_S
#define DOUBLINGS   6 /* of the first, before it is the last */

bps_status bps_dialler_start(struct bps_dialler *d, struct bps_loop *loop, uint64_t patience, struct bps_link *link,
                             const struct bps_link_handler *handler, void *owner, const struct bps_instance *transport,
                             const char *address, uint32_t lane, struct bps_report *report)
{
    *d = (struct bps_dialler){.loop = loop,
                              .link = link,
                              .transport = transport,
                              .address = address,
                              .lane = lane,
                              .deadline = bps_now() + patience};
    return bps_link_dial(link, handler, owner, transport, address, lane, report);
}

static void dial_again(void *arg)
{
    struct bps_dialler *d = arg;
    struct bps_link *link = d->link;
    struct bps_report report = {""};
    d->timer = NULL;
    bps_status status = bps_link_dial(link, link->handler, link->owner, d->transport, d->address, d->lane, &report);
    if (status != BPS_OK) {
        link->handler->closed(link->owner, link, status, report.text);
    }
}

bool bps_dialler_again(struct bps_dialler *d, bps_status status)
{
    uint64_t now = bps_now();
    if (d->link->welcomed || status == BPS_ERR_REFUSED || now >= d->deadline) {
        return false;
    }
    uint64_t pause = d->attempts < DOUBLINGS ? FIRST_PAUSE << d->attempts : LAST_PAUSE;
    uint64_t drawn = now % (pause / 2); /* the clock's last digits are as good as drawn */
    d->attempts++;
    d->timer = bps_loop_timer(d->loop, pause / 2 + drawn, 0, dial_again, d);
    return d->timer != NULL;
}

void bps_dialler_stop(struct bps_dialler *d)
{
    if (d->timer != NULL) {
        bps_loop_cancel(d->loop, d->timer);
        d->timer = NULL;
    }
}
