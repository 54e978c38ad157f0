/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum.h - checksums of the frames that travel over a link, in one direction, and their encryption.
 *
 * Each covers the number of the frame in its direction, its header but for the checksum itself, and its payload. With
 * GMAC it proves that the other end of this link has sent the frame, as this one and not as another; with BLAKE2s it
 * only tells whether a frame has come as it was sent. Where frames are encrypted, the tag proves what GMAC does.
 */
#ifndef BPS_WIRE_CHECKSUM_H
#define BPS_WIRE_CHECKSUM_H

#include <byteps/transport.h>

#include "conf/conf.h"
#include "wire/cipher.h"
#include "wire/proof.h"

#define BPS_CHECKSUM_ENCRYPT 3u /* besides those of cluster.checksum: frames are encrypted */

struct bps_checksum; /* of one direction; it belongs to one thread */

/*
 * Of what `sender` sends on the link of this key and this introduction, both of which the key of GMAC, or of the
 * cipher, is derived from: so it is another one for each link and direction. `kind` is BPS_CHECKSUM_*; NONE makes none.
 * BPS_ERR_NOMEM.
 */
bps_status bps_checksum_new(uint32_t kind, const uint8_t *key, const struct bps_introduction *introduction,
                            enum bps_link_end sender, struct bps_checksum **out);
/* NULL is nothing. */
void bps_checksum_free(struct bps_checksum *checksum);
/* Bytes that each payload grows by on its way: none, or BPS_CIPHER_TAG where frames are encrypted. */
uint32_t bps_checksum_grows(const struct bps_checksum *checksum);
/*
 * Writes the field of the header, whose other fields and payload are as they travel. Or encrypts both: the payload goes
 * to `out`, as in bps_cipher_seal(), which else is not used. BPS_ERR_NOMEM.
 */
bps_status bps_checksum_put(struct bps_checksum *checksum, uint64_t number, uint8_t header[BPS_HEADER_BYTES],
                            const void *payload, uint32_t bytes, void *out);
/* Whether the field is right. Or decrypts both, likewise; `bytes` are those that have come. */
bool bps_checksum_fits(struct bps_checksum *checksum, uint64_t number, uint8_t header[BPS_HEADER_BYTES],
                       const void *payload, uint32_t bytes, void *out);

#endif
