/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c - the first 8 bytes of AES-256-GMAC, or of BLAKE2s-256; or the keys of what is encrypted. */
#include "wire/checksum.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_BYTES  8
#define COVERED      (BPS_HEADER_BYTES - FIELD_BYTES) /* of the header, in front of the field */
#define SECRET_BYTES 32
#define NONCE_BYTES  12 /* of GCM */

struct bps_checksum {
    EVP_CIPHER_CTX *cipher; /* of GMAC, or of what is encrypted, keyed; */
    EVP_MD_CTX *digest;     /* or of BLAKE2s */
    bool encrypts;
};

/* HKDF-SHA256, as for channels: of the key of the link, with both nonces as the salt. */
static bool derive(const uint8_t *key, const struct bps_introduction *introduction, const char *what,
                   enum bps_link_end sender, uint8_t out[SECRET_BYTES])
{
    uint8_t salt[2 * BPS_NONCE_BYTES], extracted[SECRET_BYTES];
    unsigned n = sizeof extracted;
    char label[32]; /* what it is for, then the sender, and the number of the block */
    size_t bytes = (size_t)snprintf(label, sizeof label, "%s%c%c", what, sender, 1);
    memcpy(salt, introduction->challenge, BPS_NONCE_BYTES);
    memcpy(salt + BPS_NONCE_BYTES, introduction->response, BPS_NONCE_BYTES);
    bool made = HMAC(EVP_sha256(), salt, sizeof salt, key, BPS_KEY_BYTES, extracted, &n) != NULL &&
                HMAC(EVP_sha256(), extracted, sizeof extracted, (uint8_t *)label, bytes, out, &n) != NULL;
    OPENSSL_cleanse(extracted, sizeof extracted);
    return made;
}

static bool init_cipher(struct bps_checksum *checksum, const uint8_t *key, const struct bps_introduction *introduction,
                        enum bps_link_end sender)
{
    const char *what = checksum->encrypts ? "frame encryption" : "frame checksum";
    uint8_t secret[SECRET_BYTES];
    checksum->cipher = EVP_CIPHER_CTX_new();
    bool made = checksum->cipher != NULL && derive(key, introduction, what, sender, secret) &&
                EVP_EncryptInit_ex(checksum->cipher, EVP_aes_256_gcm(), NULL, secret, NULL) == 1;
    OPENSSL_cleanse(secret, sizeof secret);
    return made;
}

bps_status bps_checksum_new(uint32_t kind, const uint8_t *key, const struct bps_introduction *introduction,
                            enum bps_link_end sender, struct bps_checksum **out)
{
    *out = NULL;
    if (kind == BPS_CHECKSUM_NONE) {
        return BPS_OK;
    }
    struct bps_checksum *checksum = calloc(1, sizeof *checksum);
    bool made = checksum != NULL;
    if (made && kind >= BPS_CHECKSUM_GMAC) {
        checksum->encrypts = kind == BPS_CHECKSUM_ENCRYPT;
        made = init_cipher(checksum, key, introduction, sender);
    } else if (made) {
        checksum->digest = EVP_MD_CTX_new();
        made = checksum->digest != NULL && EVP_DigestInit_ex(checksum->digest, EVP_blake2s256(), NULL) == 1;
    }
    if (!made) {
        bps_checksum_free(checksum);
        return BPS_ERR_NOMEM;
    }
    *out = checksum;
    return BPS_OK;
}

void bps_checksum_free(struct bps_checksum *checksum)
{
    if (checksum != NULL) {
        EVP_CIPHER_CTX_free(checksum->cipher);
        EVP_MD_CTX_free(checksum->digest);
        free(checksum);
    }
}

/* The nonce of a frame is its number: with one key there is no other frame of it. */
static bool gmac_of(EVP_CIPHER_CTX *cipher, uint64_t number, const uint8_t *header, const void *payload, uint32_t bytes,
                    uint8_t out[FIELD_BYTES])
{
    uint8_t nonce[NONCE_BYTES] = {0}, none[1];
    int n;
    memcpy(nonce, &number, sizeof number);
    return EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
           EVP_EncryptUpdate(cipher, NULL, &n, header, COVERED) == 1 &&
           (bytes == 0 || EVP_EncryptUpdate(cipher, NULL, &n, payload, (int)bytes) == 1) &&
           EVP_EncryptFinal_ex(cipher, none, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, FIELD_BYTES, out) == 1;
}

static bool blake2s_of(EVP_MD_CTX *digest, uint64_t number, const uint8_t *header, const void *payload, uint32_t bytes,
                       uint8_t out[FIELD_BYTES])
{
    uint8_t all[EVP_MAX_MD_SIZE];
    bool made = EVP_DigestInit_ex(digest, NULL, NULL) == 1 && EVP_DigestUpdate(digest, &number, sizeof number) == 1 &&
                EVP_DigestUpdate(digest, header, COVERED) == 1 &&
                (bytes == 0 || EVP_DigestUpdate(digest, payload, bytes) == 1) &&
                EVP_DigestFinal_ex(digest, all, NULL) == 1;
    memcpy(out, all, FIELD_BYTES);
    return made;
}

static bool checksum_of(struct bps_checksum *checksum, uint64_t number, const uint8_t *header, const void *payload,
                        uint32_t bytes, uint8_t out[FIELD_BYTES])
{
    number = htole64(number);
    return checksum->cipher != NULL ? gmac_of(checksum->cipher, number, header, payload, bytes, out)
                                    : blake2s_of(checksum->digest, number, header, payload, bytes, out);
}

uint32_t bps_checksum_grows(const struct bps_checksum *checksum)
{
    return checksum != NULL && checksum->encrypts ? BPS_CIPHER_TAG : 0;
}

bps_status bps_checksum_put(struct bps_checksum *checksum, uint64_t number, uint8_t header[BPS_HEADER_BYTES],
                            const void *payload, uint32_t bytes, void *out)
{
    bool made = checksum->encrypts ? bps_cipher_seal(checksum->cipher, number, header, payload, bytes, out)
                                   : checksum_of(checksum, number, header, payload, bytes, header + COVERED);
    return made ? BPS_OK : BPS_ERR_NOMEM;
}

bool bps_checksum_fits(struct bps_checksum *checksum, uint64_t number, uint8_t header[BPS_HEADER_BYTES],
                       const void *payload, uint32_t bytes, void *out)
{
    uint8_t own[FIELD_BYTES];
    if (checksum->encrypts) {
        return bps_cipher_open(checksum->cipher, number, header, payload, bytes, out);
    }
    return checksum_of(checksum, number, header, payload, bytes, own) &&
           CRYPTO_memcmp(own, header + COVERED, FIELD_BYTES) == 0;
}
