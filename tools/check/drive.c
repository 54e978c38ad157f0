/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - the event loop of a test, run until something has happened. */
#include "tools/check/check.h"

struct wish {
    struct bps_loop *loop;
    bool (*done)(void *arg);
    void *arg;
    bool late; /* the deadline has come, and its timer is gone */
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

static void on_deadline(void *arg)
{
    struct wish *wish = arg;
    wish->late = true;
    bps_loop_stop(wish->loop);
}

void bps_check_turn(struct bps_check *check)
{
    bps_loop_stop(check->loop);
    bps_loop_run(check->loop);
}

bool bps_check_drive(struct bps_check *check, bool (*done)(void *arg), void *arg, double seconds)
{
    struct wish wish = {check->loop, done, arg, false};
    struct bps_timer *deadline = bps_loop_timer(check->loop, (uint64_t)(seconds * 1e9), 0, on_deadline, &wish);
    struct bps_poller *poller = bps_loop_poller(check->loop, look, may_sleep, &wish);
    BPS_CHECK(check, deadline != NULL && poller != NULL, "out of memory for the test");
    if (!done(arg)) {
        bps_loop_run(check->loop);
    }
    bps_loop_unpoll(check->loop, poller);
    if (!wish.late) { /* else it would end a later drive: what is done need not stay so */
        bps_loop_cancel(check->loop, deadline);
    }
    return done(arg);
}
