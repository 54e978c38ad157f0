/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel_key.h - what transports get to know of the secret of the job.
 *
 * HKDF-SHA256 (RFC 5869) of the secret, with a salt and a label that nothing else has: the key tells nothing of the
 * secret, and is no help with a proof.
 */
#ifndef BPS_WIRE_CHANNEL_KEY_H
#define BPS_WIRE_CHANNEL_KEY_H

#include <byteps/transport.h>

#include "conf/conf.h"

/*
 * Makes the key in *space. *out is that; or NULL: the job has no secret, or `conf` is NULL. BPS_ERR_NOMEM. The secret
 * may become another one as long as no member has joined, so the key is made for each channel.
 */
bps_status bps_channel_key(const struct bps_conf *conf, struct bps_channel_key *space,
                           const struct bps_channel_key **out);

#endif
