/* SPDX-License-Identifier: Apache-2.0 */
/* transport_processes.c - channels between two processes, and what becomes of them when one is killed or stopped. */
#include <signal.h>

#include "tools/check/transport_other.h"
#include "tools/check/transport_tests.h"

/* A channel to another process. */
struct across {
    struct bps_other other;
    struct bps_side side;
    struct bps_end end;
    uint32_t least; /* frames that are waited for */
};

/* Both ends are like this one, and of those over there come so many frames. */
static void begin(struct across *across, struct bps_check *check, const struct bps_end *like, uint32_t frames)
{
    struct bps_end there = *like;
    there.name = "the end that has accepted, in the other process";
    there.in.seed = like->out.seed;
    there.out.seed = there.in.seed + 1000;
    there.out.frames = frames;
    across->other = bps_other_begin(check, &there);
    across->end = *like;
    across->end.name = "the end that has dialled";
    across->end.in = there.out;
}

static bool is_connected(void *arg)
{
    struct across *across = arg;
    bps_other_look(&across->other);
    return across->end.connected;
}

static void connect_to(struct across *across, struct bps_check *check)
{
    bps_other_wait(&across->other);
    across->side = bps_side_open(check);
    across->end.side = &across->side;
    bps_end_begin(&across->end);
    bps_end_dial(&across->end, across->other.page->address, 0);
    bps_sides_wait(check, is_connected, across, &across->end, 1);
}

static bool is_closed(void *arg)
{
    const struct across *across = arg;
    return across->end.closed > 0;
}

static void end_here(struct across *across)
{
    bps_end_free(&across->end);
    bps_side_close(&across->side);
}

static bool all_have_come(void *arg)
{
    struct across *across = arg;
    bps_other_look(&across->other);
    return bps_end_is_complete(&across->end) && across->other.page->received == across->end.handed;
}

static void complete(struct across *across)
{
    struct bps_check *check = across->end.check;
    bps_sides_wait(check, all_have_come, across, &across->end, 1);
    bps_end_finish(&across->end);
    bps_sides_wait(check, is_closed, across, &across->end, 1);
    BPS_CHECK(check, across->end.status == BPS_OK, "closed is called with status %d after finish; expected BPS_OK",
              across->end.status);
    end_here(across);
    bps_other_end(&across->other);
}

/* ---- frames ---- */

void bps_check_transport_processes(struct bps_check *check)
{
    const struct bps_stream stream = {80, 120, 3u << 20, NULL, 0, 3};
    const struct bps_end like = {
        .out = stream, .in = stream, .taking = BPS_TAKING_MIXED, .lending = BPS_LENDING_MIXED, .opens = true};
    struct across across;
    bps_check_at(check, "frames in both directions between two processes");
    begin(&across, check, &like, stream.frames);
    connect_to(&across, check);
    complete(&across);
}

/* ---- a process that is killed ---- */

static bool enough(void *arg)
{
    struct across *across = arg;
    bps_other_look(&across->other);
    return across->end.received >= across->least && across->other.page->received >= across->least;
}

static void kill_after(struct bps_check *check, uint32_t frames, bool stopped)
{
    const struct bps_stream endless = {90 + frames, UINT32_MAX, 200000, NULL, 0, 2};
    const struct bps_end like = {
        .out = endless, .in = endless, .taking = BPS_TAKING_MIXED, .lending = BPS_LENDING_MIXED, .may_close = true};
    struct across across = {.least = frames};
    bps_check_at(check, "the process of the other end is killed after %u frames%s", frames,
                 stopped ? ", and while it is stopped" : "");
    begin(&across, check, &like, UINT32_MAX);
    connect_to(&across, check);
    bps_sides_wait(check, enough, &across, &across.end, 1);
    if (stopped) {
        kill(across.other.pid, SIGSTOP);
        bps_sides_drive(check, is_closed, &across, 30);
    }
    bps_other_kill(&across.other);
    bps_sides_wait(check, is_closed, &across, &across.end, 1);
    BPS_CHECK(check, across.end.status < 0, "closed is called with status %d; expected is an error", across.end.status);
    bps_sides_drive(check, enough, &across, 1);
    end_here(&across);
}

void bps_check_transport_killed(struct bps_check *check)
{
    static const uint32_t moments[] = {0, 1, 7, 60};
    for (unsigned i = 0; i < sizeof moments / sizeof *moments; i++) {
        kill_after(check, moments[i], false);
        kill_after(check, moments[i], true);
    }
}

/* ---- a process that is stopped ---- */

enum { FRAME = 64 << 10, MOST = 256 << 20 };

static bool too_much(void *arg)
{
    const struct across *across = arg;
    return across->end.closed > 0 || (across->end.handed - across->least) >= MOST / FRAME;
}

void bps_check_transport_stopped(struct bps_check *check)
{
    static const uint32_t sizes[] = {FRAME};
    const struct bps_stream stream = {100, 2 * MOST / FRAME, FRAME, sizes, 1, 0};
    const struct bps_end like = {.out = stream, .in = stream};
    struct across across = {.least = 5};
    bps_check_at(check, "the process of the other end is stopped");
    begin(&across, check, &like, 20);
    across.end.out.frames = across.least;
    connect_to(&across, check);
    bps_sides_wait(check, enough, &across, &across.end, 1);
    kill(across.other.pid, SIGSTOP);
    across.end.out.frames = stream.frames;
    bps_end_kick(&across.end);
    across.least = across.end.handed;
    bool unbounded = bps_sides_drive(check, too_much, &across, 300);
    BPS_CHECK(check, !unbounded, "`next` has given %d MiB since then", MOST >> 20);
    bps_check_at(check, "the process of the other end goes on after it was stopped");
    across.end.out.frames = across.end.handed + 20;
    bps_end_kick(&across.end);
    kill(across.other.pid, SIGCONT);
    complete(&across);
}
