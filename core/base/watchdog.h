/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watchdog.h - a thread that looks after the others of the process: loops that do not come round, and calls into
 * plugins that do not return. Nothing of ours waits for it, so that it also sees what all others wait for.
 *
 * What is stuck cannot be stopped, only told: first in the log, with the thread, the plugin and its callback, and from
 * the limit on to all users. They end their part of the job with that text. A process that is still there, and still
 * stuck, BPS_WATCHDOG_GRACE later is ended.
 *
 * Only time in which this thread itself could run counts, so that a process that was stopped has not been silent.
 */
#ifndef BPS_BASE_WATCHDOG_H
#define BPS_BASE_WATCHDOG_H

#include <byteps/plugin.h> /* struct bps_report */
#include <stdint.h>
#include <sys/queue.h>

#include "base/clock.h"

#define BPS_WATCHDOG_GRACE (5 * BPS_S)

/* How long a loop may take for a turn, or a call for its end, until the log tells, until it is stuck; 0: for ever. */
struct bps_watchdog_limits {
    uint64_t warn, loop, call; /* ns */
};

struct bps_watchdog_user {
    struct bps_watchdog_limits limits;
    void (*stuck)(void *arg, const char *text); /* once, on the watchdog's thread; must not wait; NULL: only told */
    void *arg;
    LIST_ENTRY(bps_watchdog_user) entry;
};

/* From now on until bps_watchdog_end(). The strictest limits of all users count. BPS_ERR_IO: there is no thread. */
bps_status bps_watchdog_begin(struct bps_watchdog_user *user, struct bps_report *report);
/* Behind it `stuck` is not called. Of a user that has not begun: nothing. */
void bps_watchdog_end(struct bps_watchdog_user *user);

#endif
