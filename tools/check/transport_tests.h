/* SPDX-License-Identifier: Apache-2.0 */
/* transport_tests.h - the tests of transports, for their list. */
#ifndef BPS_TOOLS_CHECK_TRANSPORT_TESTS_H
#define BPS_TOOLS_CHECK_TRANSPORT_TESTS_H

#include "tools/check/transport.h"

/* transport_frames.c */
void bps_check_transport_sizes(struct bps_check *check);
void bps_check_transport_many(struct bps_check *check);
void bps_check_transport_key(struct bps_check *check);

#endif
