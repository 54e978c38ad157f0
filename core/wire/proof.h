/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h - how both ends of a link show each other that they know its key, which itself never travels.
 *
 * Each end has drawn a nonce. A proof is the HMAC-SHA256 under the key of: which end it is, both nonces, and who the
 * dialler claims to be. So it is of no use on another link, for another claim, or for the other end.
 */
#ifndef BPS_WIRE_PROOF_H
#define BPS_WIRE_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include <byteps/types.h>

#define BPS_KEY_BYTES   32u
#define BPS_NONCE_BYTES 16u
#define BPS_PROOF_BYTES 32u

/* What a link is for. */
#define BPS_LINK_JOIN  1u /* a member to the scheduler */
#define BPS_LINK_DATA  2u /* a worker to a shard */
#define BPS_LINK_LOCAL 3u /* a worker to another one of its host */

/* Who the dialler is. */
struct bps_claim {
    uint8_t purpose;
    uint32_t epoch, rank, lane; /* of a worker in a generation; 0 to the scheduler */
};

enum bps_link_end { BPS_DIALLER = 1, BPS_ACCEPTOR = 2 };

/* What both have said before the proofs. */
struct bps_introduction {
    uint8_t challenge[BPS_NONCE_BYTES]; /* the acceptor's nonce, */
    uint8_t response[BPS_NONCE_BYTES];  /* and the dialler's */
    struct bps_claim claim;
};

/* The proof of one end. BPS_ERR_NOMEM. */
bps_status bps_prove(const uint8_t *key, enum bps_link_end end, const struct bps_introduction *introduction,
                     uint8_t out[BPS_PROOF_BYTES]);
/* Whether it is that; in the same time whatever differs. */
bool bps_is_proof(const uint8_t *key, enum bps_link_end end, const struct bps_introduction *introduction,
                  const uint8_t proof[BPS_PROOF_BYTES]);

#endif
