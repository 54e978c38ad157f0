/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h - a part of a job under the eyes of the watchdog, with the limits of the configuration. */
#ifndef BPS_NODE_GUARD_H
#define BPS_NODE_GUARD_H

#include "base/loop.h"
#include "base/watchdog.h"
#include "conf/conf.h"

struct bps_guard {
    struct bps_watchdog_user user;
    struct bps_loop *loop;
    struct bps_post post;
    void (*stuck)(void *arg, const char *text); /* on the loop, if that is not what is stuck */
    void *arg;
    char text[700];
};

/*
 * From now on until bps_guard_end(): a loop may take cluster.peer_timeout for a turn, as peers wait so long for a sign
 * of life, or cluster.stall_timeout in a job of one process. A call into a plugin may take cluster.stall_timeout. A
 * process that ends in such a call says so. The guard, with zeroes before, must live as long as the loop.
 */
bps_status bps_guard_begin(struct bps_guard *guard, const struct bps_conf *conf, struct bps_loop *loop,
                           void (*stuck)(void *arg, const char *text), void *arg, struct bps_report *report);
/* Of one that has not begun: nothing. */
void bps_guard_end(struct bps_guard *guard);

#endif
