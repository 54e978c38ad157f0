/* SPDX-License-Identifier: Apache-2.0 */
/* proof.c - see proof.h. */
#include "wire/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "wire/message.h"

bps_status bps_prove(const uint8_t *key, enum bps_link_end end, const struct bps_introduction *introduction,
                     uint8_t out[BPS_PROOF_BYTES])
{
    const struct bps_claim *claim = &introduction->claim;
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u8(&w, (uint8_t)end);
    bps_put_bytes(&w, introduction->challenge, sizeof introduction->challenge);
    bps_put_bytes(&w, introduction->response, sizeof introduction->response);
    bps_put_u8(&w, claim->purpose);
    bps_put_u32(&w, claim->epoch);
    bps_put_u32(&w, claim->rank);
    bps_put_u32(&w, claim->lane);
    unsigned n = BPS_PROOF_BYTES;
    const void *done = w.failed ? NULL : HMAC(EVP_sha256(), key, BPS_KEY_BYTES, w.data, w.size, out, &n);
    bps_writer_fini(&w);
    return done == NULL ? BPS_ERR_NOMEM : BPS_OK;
}

bool bps_is_proof(const uint8_t *key, enum bps_link_end end, const struct bps_introduction *introduction,
                  const uint8_t proof[BPS_PROOF_BYTES])
{
    uint8_t own[BPS_PROOF_BYTES];
    return bps_prove(key, end, introduction, own) == BPS_OK && CRYPTO_memcmp(own, proof, sizeof own) == 0;
}
