/* SPDX-License-Identifier: Apache-2.0 */
/* transport_end.h - what the sending and the receiving half of an end share. */
#ifndef BPS_TOOLS_CHECK_TRANSPORT_END_H
#define BPS_TOOLS_CHECK_TRANSPORT_END_H

#include "tools/check/transport.h"

#define BPS_END_MARGIN 64u /* bytes before and behind what place lends */

/* In each call of the transport: what is always wrong, and what the test wants to be done. False: dropped by that. */
bool bps_end_enter(struct bps_end *end, enum bps_call call);
uint64_t bps_end_draw(struct bps_end *end);
uint8_t *bps_end_place(const struct bps_end *end, uint32_t place);

/* The receiving half. */
void bps_end_sink(struct bps_end *end);
bps_status bps_end_header(void *user, const uint8_t *header, struct bps_sink **sink);
void bps_end_placed(void *user, void *ticket);
/* The sending half: the loan of its frame has come back. */
void bps_end_came_back(struct bps_end *end, uint32_t index);

#endif
