/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - opens the transport that the configuration prefers for traffic between members. */
#ifndef BPS_NODE_TRANSPORT_H
#define BPS_NODE_TRANSPORT_H

#include "plugin/instance.h"

/*
 * Opens the first usable instance of the list `use` of the stage push_pull. Says in the log which ones were not
 * usable and why; the report has the reasons if none was.
 */
bps_status bps_transport_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                              struct bps_report *report);

/* The same for the workers of one host among themselves. */
bps_status bps_transport_open_local(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                                    struct bps_report *report);

#endif
