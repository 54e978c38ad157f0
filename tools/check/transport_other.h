/* SPDX-License-Identifier: Apache-2.0 */
/* transport_other.h - another process that listens, so that a test can kill or stop it. */
#ifndef BPS_TOOLS_CHECK_TRANSPORT_OTHER_H
#define BPS_TOOLS_CHECK_TRANSPORT_OTHER_H

#include <stdatomic.h>

#include "tools/check/transport.h"

/* What it tells, in shared memory. */
struct bps_other_page {
    char address[256];
    atomic_bool listens, over;
    atomic_uint received, answered;
};

struct bps_other {
    struct bps_check *check;
    pid_t pid; /* 0: it has ended as it should */
    struct bps_other_page *page;
};

/*
 * Begins a process that accepts one channel as `end` says, plays it until it is closed, and ends then; with an error if
 * something is wrong there. It begins before any instance of this process is opened. `end` gets no memory here.
 */
struct bps_other bps_other_begin(struct bps_check *check, const struct bps_end *end);
/* Waits until it listens. */
void bps_other_wait(struct bps_other *other);
/* Fails the test if it has ended; to be called in what a loop waits for. */
void bps_other_look(struct bps_other *other);
void bps_other_kill(struct bps_other *other);
/* Waits until it has ended as it should. */
void bps_other_end(struct bps_other *other);

#endif
