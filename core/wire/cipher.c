/* SPDX-License-Identifier: Apache-2.0 */
/* cipher.c - see cipher.h. */
#include "wire/cipher.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <string.h>

#define NUMBER_AT   (BPS_HEADER_BYTES - BPS_CIPHER_CLEAR)
#define NONCE_BYTES 12 /* of GCM */

static void write_length(uint8_t *header, uint32_t length)
{
    length = htole32(length);
    memcpy(header, &length, sizeof length);
}

/* All but the tag, either way. */
static bool cipher_pass(EVP_CIPHER_CTX *cipher, bool seals, uint64_t number, uint8_t *header, const void *payload,
                        uint32_t bytes, uint8_t *out)
{
    uint8_t nonce[NONCE_BYTES] = {0}, *hidden = header + BPS_CIPHER_CLEAR;
    int n;
    number = htole64(number);
    memcpy(nonce, &number, sizeof number);
    return EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, seals) == 1 &&
           EVP_CipherUpdate(cipher, NULL, &n, header, BPS_CIPHER_CLEAR) == 1 &&
           EVP_CipherUpdate(cipher, NULL, &n, header + NUMBER_AT, BPS_CIPHER_CLEAR) == 1 &&
           EVP_CipherUpdate(cipher, hidden, &n, hidden, NUMBER_AT - BPS_CIPHER_CLEAR) == 1 &&
           (bytes == 0 || EVP_CipherUpdate(cipher, out, &n, payload, (int)bytes) == 1);
}

bool bps_cipher_seal(EVP_CIPHER_CTX *cipher, uint64_t number, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                     uint32_t bytes, uint8_t *out)
{
    const uint64_t told = htole64(number);
    uint8_t none[1];
    int n;
    write_length(header, bytes + BPS_CIPHER_TAG);
    memcpy(header + NUMBER_AT, &told, sizeof told);
    bool made = cipher_pass(cipher, true, number, header, payload, bytes, out) &&
                EVP_CipherFinal_ex(cipher, none, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, BPS_CIPHER_TAG, out + bytes) == 1;
    if (!made) { /* whatever is sent of it then */
        memset(header + BPS_CIPHER_CLEAR, 0, NUMBER_AT - BPS_CIPHER_CLEAR);
        memset(out, 0, bytes + BPS_CIPHER_TAG);
    }
    return made;
}

bool bps_cipher_open(EVP_CIPHER_CTX *cipher, uint64_t number, uint8_t header[BPS_HEADER_BYTES], const void *payload,
                     uint32_t bytes, uint8_t *out)
{
    uint8_t tag[BPS_CIPHER_TAG], none[1];
    int n;
    if (bytes < sizeof tag) {
        return false;
    }
    bytes -= (uint32_t)sizeof tag;
    memcpy(tag, (const uint8_t *)payload + bytes, sizeof tag);
    bool same = cipher_pass(cipher, false, number, header, payload, bytes, out) &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) == 1 &&
                EVP_CipherFinal_ex(cipher, none, &n) == 1;
    write_length(header, bytes);
    return same;
}
