/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.c - see identity.h.
 *
 * A framework may have brought functions of the same names into the process: those of TensorFlow are BoringSSL's, which
 * has other numbers for the same algorithms. So what works with keys is looked up in OpenSSL's own library.
 */
#include "node/identity.h"

#include <dlfcn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>

#define TEXT_OF(number)    #number
#define LIBRARY_OF(number) "libcrypto.so." TEXT_OF(number)

#define FUNCTIONS(take)                                                                                                \
    take(EVP_PKEY_new_raw_private_key) take(EVP_PKEY_new_raw_public_key) take(EVP_PKEY_get_raw_public_key)             \
        take(EVP_PKEY_free) take(EVP_PKEY_CTX_new) take(EVP_PKEY_CTX_free) take(EVP_PKEY_derive_init)                  \
            take(EVP_PKEY_derive_set_peer) take(EVP_PKEY_derive) take(EVP_PKEY_CTX_new_id)                             \
                take(EVP_PKEY_fromdata_init) take(EVP_PKEY_fromdata)

#define DECLARE(function) __typeof__(&function) function;
static struct {
    bool there; /* all of them */
    FUNCTIONS(DECLARE)
} own;

#define FIND(function)                                                                                                 \
    *(void **)&own.function = dlsym(library, #function);                                                               \
    own.there = own.there && own.function != NULL;

static void find_functions(void)
{
    void *library = dlopen(LIBRARY_OF(OPENSSL_SHLIB_VERSION), RTLD_NOW | RTLD_LOCAL);
    own.there = library != NULL;
    if (own.there) {
        FUNCTIONS(FIND)
    }
}

static bool has_functions(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_functions);
    return own.there;
}

bps_status bps_identity_make(struct bps_identity *out)
{
    size_t bytes = BPS_KEY_BYTES;
    if (!has_functions() || RAND_bytes(out->private_key, BPS_KEY_BYTES) != 1) {
        return BPS_ERR_IO;
    }
    EVP_PKEY *key = own.EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, out->private_key, BPS_KEY_BYTES);
    bool made = key != NULL && own.EVP_PKEY_get_raw_public_key(key, out->public_key, &bytes) == 1;
    own.EVP_PKEY_free(key);
    return made ? BPS_OK : BPS_ERR_IO;
}

/* Both halves are given, as making the public one again would cost as much as an agreement. */
static EVP_PKEY *identity_key_of(const struct bps_identity *self)
{
    OSSL_PARAM halves[] = {
        OSSL_PARAM_octet_string(OSSL_PKEY_PARAM_PRIV_KEY, (void *)self->private_key, BPS_KEY_BYTES),
        OSSL_PARAM_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)self->public_key, BPS_KEY_BYTES),
        OSSL_PARAM_END,
    };
    EVP_PKEY_CTX *context = own.EVP_PKEY_CTX_new_id(EVP_PKEY_X25519, NULL);
    EVP_PKEY *key = NULL;
    bool made = context != NULL && own.EVP_PKEY_fromdata_init(context) == 1 &&
                own.EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, halves) == 1;
    own.EVP_PKEY_CTX_free(context);
    return made ? key : NULL;
}

/* What only the owners of the two private keys can compute. */
static bool identity_agree(const struct bps_identity *self, const uint8_t *other, uint8_t out[BPS_KEY_BYTES])
{
    size_t bytes = BPS_KEY_BYTES;
    EVP_PKEY *key = identity_key_of(self);
    EVP_PKEY *peer = own.EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, other, BPS_KEY_BYTES);
    EVP_PKEY_CTX *context = key != NULL ? own.EVP_PKEY_CTX_new(key, NULL) : NULL;
    bool agreed = context != NULL && peer != NULL && own.EVP_PKEY_derive_init(context) == 1 &&
                  own.EVP_PKEY_derive_set_peer(context, peer) == 1 && own.EVP_PKEY_derive(context, out, &bytes) == 1;
    own.EVP_PKEY_CTX_free(context);
    own.EVP_PKEY_free(peer);
    own.EVP_PKEY_free(key);
    return agreed;
}

bps_status bps_identity_key(const struct bps_identity *self, const uint8_t *other, const uint8_t *secret,
                            uint8_t out[BPS_KEY_BYTES])
{
    uint8_t agreed[BPS_KEY_BYTES];
    unsigned n = BPS_KEY_BYTES;
    bool made = has_functions() && identity_agree(self, other, agreed) &&
                HMAC(EVP_sha256(), secret, BPS_KEY_BYTES, agreed, sizeof agreed, out, &n) != NULL;
    OPENSSL_cleanse(agreed, sizeof agreed);
    return made ? BPS_OK : BPS_ERR_PROTOCOL;
}
