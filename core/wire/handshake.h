/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.h - the messages before a link is open. Used by link.c only. */
#ifndef BPS_WIRE_HANDSHAKE_H
#define BPS_WIRE_HANDSHAKE_H

#include "wire/link.h"

/* Acceptor: sends the first message. */
bps_status bps_challenge(struct bps_link *link);
/* Dialler: looks only at what all versions have alike. BPS_ERR_REFUSED: they differ; the link has been closed. */
bps_status bps_check_version(struct bps_link *link, const uint8_t *begin);
/* Either side: a message has arrived on a link that is not open. The link may be gone afterwards. */
bps_status bps_handshake(struct bps_link *link, const struct bps_header *header, struct bps_reader *payload);

#endif
