/* SPDX-License-Identifier: Apache-2.0 */
/* alive.h - a file whose time tells probes from outside, such as those of Kubernetes, that this process is at work. */
#ifndef BPS_NODE_ALIVE_H
#define BPS_NODE_ALIVE_H

#include "base/loop.h"
#include "conf/conf.h"

struct bps_alive {
    struct bps_loop *loop;
    struct bps_timer *timer;
    int fd; /* valid while there is a timer */
};

/*
 * Makes cluster.alive_file if need be, and renews its time each second on the loop's thread; does nothing without that
 * option. BPS_ERR_CONF: the file cannot be made.
 */
bps_status bps_alive_begin(struct bps_alive *alive, struct bps_loop *loop, const struct bps_conf *conf,
                           struct bps_report *report);
/* The file stays, with the time of the last renewal. Zeroes: does nothing. */
void bps_alive_end(struct bps_alive *alive);

#endif
