/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - what only this member of a job knows: a private key (X25519), whose public half all members get with the
 * book. Two members make the key of the links between them from that and the secret of the job: nobody else can, so
 * none of them can speak in the name of another one.
 */
#ifndef BPS_NODE_IDENTITY_H
#define BPS_NODE_IDENTITY_H

#include "wire/proof.h"

struct bps_identity {
    uint8_t private_key[BPS_KEY_BYTES], public_key[BPS_KEY_BYTES];
};

/* A new one. BPS_ERR_IO: there are no random numbers, or no memory. */
bps_status bps_identity_make(struct bps_identity *out);
/*
 * The key of the links between this member and the one with the other public key; it is the same there.
 * BPS_ERR_PROTOCOL: the other one is no public key.
 */
bps_status bps_identity_key(const struct bps_identity *self, const uint8_t *other, const uint8_t *secret,
                            uint8_t out[BPS_KEY_BYTES]);

#endif
