/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c - see identity.h. */
#include "node/identity.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bps_status bps_identity_make(struct bps_identity *out)
{
    size_t private_bytes = BPS_KEY_BYTES, public_bytes = BPS_KEY_BYTES;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    bool made = key != NULL && EVP_PKEY_get_raw_private_key(key, out->private_key, &private_bytes) == 1 &&
                EVP_PKEY_get_raw_public_key(key, out->public_key, &public_bytes) == 1;
    EVP_PKEY_free(key);
    return made ? BPS_OK : BPS_ERR_IO;
}

/* What only the owners of the two private keys can compute. */
static bool agree(const struct bps_identity *self, const uint8_t *other, uint8_t out[BPS_KEY_BYTES])
{
    size_t bytes = BPS_KEY_BYTES;
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, self->private_key, BPS_KEY_BYTES);
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, other, BPS_KEY_BYTES);
    EVP_PKEY_CTX *context = own != NULL ? EVP_PKEY_CTX_new(own, NULL) : NULL;
    bool agreed = context != NULL && peer != NULL && EVP_PKEY_derive_init(context) == 1 &&
                  EVP_PKEY_derive_set_peer(context, peer) == 1 && EVP_PKEY_derive(context, out, &bytes) == 1;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
    return agreed;
}

bps_status bps_identity_key(const struct bps_identity *self, const uint8_t *other, const uint8_t *secret,
                            uint8_t out[BPS_KEY_BYTES])
{
    uint8_t agreed[BPS_KEY_BYTES];
    unsigned n = BPS_KEY_BYTES;
    bool made =
        agree(self, other, agreed) && HMAC(EVP_sha256(), secret, BPS_KEY_BYTES, agreed, sizeof agreed, out, &n) != NULL;
    OPENSSL_cleanse(agreed, sizeof agreed);
    return made ? BPS_OK : BPS_ERR_PROTOCOL;
}
