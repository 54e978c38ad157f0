/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum.h - checksums of the frames that travel over a link, in one direction.
 *
 * Each covers the number of the frame in its direction, its header but for the checksum itself, and its payload. With
 * GMAC it proves that the other end of this link has sent the frame, as this one and not as another; with BLAKE2s it
 * only tells whether a frame has come as it was sent.
 */
#ifndef BPS_WIRE_CHECKSUM_H
#define BPS_WIRE_CHECKSUM_H

#include <byteps/transport.h>

#include "conf/conf.h"
#include "wire/proof.h"

struct bps_checksum; /* of one direction; it belongs to one thread */

/*
 * Of what `sender` sends on the link of this key and this introduction, both of which the key of GMAC is derived from:
 * so it is another one for each link and direction. `kind` is BPS_CHECKSUM_*; NONE makes none. BPS_ERR_NOMEM.
 */
bps_status bps_checksum_new(uint32_t kind, const uint8_t *key, const struct bps_introduction *introduction,
                            enum bps_link_end sender, struct bps_checksum **out);
/* NULL is nothing. */
void bps_checksum_free(struct bps_checksum *checksum);
/* Writes the field of the header, whose other fields and payload are as they travel. BPS_ERR_NOMEM. */
bps_status bps_checksum_put(struct bps_checksum *checksum, uint64_t number, uint8_t header[BPS_HEADER_BYTES],
                            const void *payload, uint32_t bytes);
/* Whether the field is right. */
bool bps_checksum_fits(struct bps_checksum *checksum, uint64_t number, const uint8_t header[BPS_HEADER_BYTES],
                       const void *payload, uint32_t bytes);

#endif
