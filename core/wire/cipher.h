/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cipher.h - a frame to what travels of it encrypted, and back: AES-256-GCM.
 *
 * The first and the last 8 bytes of a header stay as they are (length, type, flags, dtype and op; the number of the
 * frame) and are authenticated. All between them is encrypted, and so is the payload, behind which the tag lies.
 */
#ifndef BPS_WIRE_CIPHER_H
#define BPS_WIRE_CIPHER_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>

#include <byteps/transport.h>

#define BPS_CIPHER_CLEAR 8u  /* bytes at either end of a header */
#define BPS_CIPHER_TAG   16u /* bytes that a payload grows by; its length counts them */

/*
 * Encrypts a frame of `bytes` of payload under the key of `cipher`; no other one may ever have the same number under
 * it. The header is written in its place, the payload with its tag to `out`, which may be where it lies. False: there
 * was no memory, and both are zeros now.
 */
bool bps_cipher_seal(EVP_CIPHER_CTX *cipher, uint64_t number, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                     uint32_t bytes, uint8_t *out);
/* The way back, of `bytes` with the tag. False: this is not the frame of that number, and nothing of it counts. */
bool bps_cipher_open(EVP_CIPHER_CTX *cipher, uint64_t number, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                     uint32_t bytes, uint8_t *out);

#endif
