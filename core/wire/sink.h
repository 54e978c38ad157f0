/* SPDX-License-Identifier: Apache-2.0 */
/* sink.h - a sink for bytes that nobody wants any more. */
#ifndef BPS_WIRE_SINK_H
#define BPS_WIRE_SINK_H

#include <byteps/transport.h>

void bps_sink_discard(struct bps_sink *sink);

#endif
