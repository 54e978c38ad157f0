/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - the event loop of a test, run until something has happened. */
#include "tools/check/check.h"

struct wish {
    struct bps_loop *loop;
    bool (*done)(void *arg);
    void *arg;
};

/* In each turn of the loop, which ends when that is so. */
static bool look(void *arg)
{
    const struct wish *wish = arg;
    if (wish->done(wish->arg)) {
        bps_loop_stop(wish->loop);
    }
    return false;
}

static bool may_sleep(void *arg)
{
    const struct wish *wish = arg;
    return !wish->done(wish->arg);
}

static void stop(void *arg)
{
    bps_loop_stop(arg);
}

void bps_check_turn(struct bps_check *check)
{
    bps_loop_stop(check->loop);
    bps_loop_run(check->loop);
}

bool bps_check_drive(struct bps_check *check, bool (*done)(void *arg), void *arg, double seconds)
{
    struct wish wish = {check->loop, done, arg};
    struct bps_timer *deadline = bps_loop_timer(check->loop, (uint64_t)(seconds * 1e9), 0, stop, check->loop);
    struct bps_poller *poller = bps_loop_poller(check->loop, look, may_sleep, &wish);
    BPS_CHECK(check, deadline != NULL && poller != NULL, "out of memory for the test");
    if (!done(arg)) {
        bps_loop_run(check->loop);
    }
    bps_loop_unpoll(check->loop, poller);
    bool in_time = done(arg);
    if (in_time) {
        bps_loop_cancel(check->loop, deadline);
    }
    return in_time;
}
