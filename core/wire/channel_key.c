/* SPDX-License-Identifier: Apache-2.0 */
/* channel_key.c - extract and expand of RFC 5869, as one block is enough two HMACs. */
#include "wire/channel_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bps_status bps_channel_key(const struct bps_conf *conf, struct bps_channel_key *space,
                           const struct bps_channel_key **out)
{
    static const char salt[6] = "BytePS";
    static const uint8_t label[] = "channel key\1"; /* and the number of the block */
    uint8_t extracted[sizeof space->bytes];
    unsigned n = sizeof extracted;
    *out = NULL;
    if (conf == NULL || !conf->has_secret) {
        return BPS_OK;
    }
    bool made = HMAC(EVP_sha256(), salt, sizeof salt, conf->secret, sizeof conf->secret, extracted, &n) != NULL &&
                HMAC(EVP_sha256(), extracted, sizeof extracted, label, sizeof label - 1, space->bytes, &n) != NULL;
    OPENSSL_cleanse(extracted, sizeof extracted);
    *out = made ? space : NULL;
    return made ? BPS_OK : BPS_ERR_NOMEM;
}
