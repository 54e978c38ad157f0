/* SPDX-License-Identifier: Apache-2.0 */
/* transport_tests.h - the tests of transports, for their list. */
#ifndef BPS_TOOLS_CHECK_TRANSPORT_TESTS_H
#define BPS_TOOLS_CHECK_TRANSPORT_TESTS_H

#include "tools/check/transport.h"

/* transport_frames.c */
void bps_check_transport_sizes(struct bps_check *check);
void bps_check_transport_many(struct bps_check *check);
void bps_check_transport_key(struct bps_check *check);

/* transport_begin.c */
void bps_check_transport_listen(struct bps_check *check);
void bps_check_transport_nobody(struct bps_check *check);
void bps_check_transport_refused(struct bps_check *check);
void bps_check_transport_early(struct bps_check *check);

/* transport_sinks.c */
void bps_check_transport_sinks(struct bps_check *check);
void bps_check_transport_loans(struct bps_check *check);

/* transport_finish.c */
void bps_check_transport_left(struct bps_check *check);

/* transport_processes.c */
void bps_check_transport_processes(struct bps_check *check);
void bps_check_transport_killed(struct bps_check *check);
void bps_check_transport_stopped(struct bps_check *check);

/* transport_hostile.c */
void bps_check_transport_header(struct bps_check *check);
void bps_check_transport_strangers(struct bps_check *check);

/* transport_random.c */
void bps_check_transport_random(struct bps_check *check);

/* transport_leaks.c */
void bps_check_transport_rounds(struct bps_check *check);
void bps_check_transport_hundred(struct bps_check *check);

/* transport_acts.c */
void bps_check_transport_drop(struct bps_check *check);
void bps_check_transport_finish(struct bps_check *check);
void bps_check_transport_kick(struct bps_check *check);

#endif
