/* SPDX-License-Identifier: Apache-2.0 */
/* late_message.h - who is late, as LATENESS messages have it. */
#ifndef BPS_NODE_LATE_MESSAGE_H
#define BPS_NODE_LATE_MESSAGE_H

#include <byteps/types.h>

#include "base/lateness.h"
#include "wire/message.h"

void bps_lateness_write(const struct bps_lateness *l, struct bps_writer *w);
/* Adds what a message says. BPS_ERR_PROTOCOL: it is none; some of it may have been added. */
bps_status bps_lateness_read(struct bps_reader *r, struct bps_lateness *into);

#endif
