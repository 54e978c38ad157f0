/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_elastic.c - workers and servers that an elastic job has lost: it goes on without them, and others are started in
 * their place.
 *
 * The scheduler knows whether it goes on. A part that fails again and again is started ever later, and then no more.
 */
#include "tools/run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Another one is started after FIRST; that doubles with each one that fails, until one has run for LONG. */
#define FIRST (1 * BPS_S)
#define LAST  (30 * BPS_S)
#define LONG  (60 * BPS_S)

static bool is_running(const struct bps_run_child *child)
{
    bool works = child->role == BPS_RUN_WORKER || child->role == BPS_RUN_HOST;
    return works && child->pid > 0 && !child->reaped && !child->done;
}

/* A host that cannot be reached at first is rather a mistake. */
static bool spares(const struct bps_run *run, const struct bps_run_child *child)
{
    bool others = run->options->part;
    for (size_t i = 0; i < run->nchildren; i++) {
        others = others || (&run->children[i] != child && is_running(&run->children[i]));
    }
    bool can = child->role != BPS_RUN_SCHEDULER && (child->role != BPS_RUN_HOST || run->gathered);
    return can && others && run->phase == BPS_RUN_WORKING && !run->hopeless;
}

/* False: it has failed too often. */
static bool fails_once_more(struct bps_run_place *place, uint64_t began, uint64_t now)
{
    uint64_t *oldest = &place->failed[place->failures % BPS_RUN_FAILURES];
    bool first = place->failures < BPS_RUN_FAILURES - 1;
    *oldest = now;
    place->failures++;
    place->delay = place->delay == 0 || now - began >= LONG ? FIRST : 2 * place->delay;
    place->delay = place->delay < LAST ? place->delay : LAST;
    return first || now - place->failed[place->failures % BPS_RUN_FAILURES] >= LONG;
}

static void lose(struct bps_run *run, struct bps_run_child *child)
{
    uint64_t now = bps_now();
    if (run->closes) {
        return; /* the others are about to end */
    }
    if (!fails_once_more(&child->place, child->began, now)) {
        bps_run_say(run, "%s has failed %d times within %d s; it is not started again", child->label, BPS_RUN_FAILURES,
                    (int)(LONG / BPS_S));
        return;
    }
    child->place.due = now + child->place.delay;
    run->replace_at = run->replace_at && run->replace_at < child->place.due ? run->replace_at : child->place.due;
}

static void replace(struct bps_run *run, uint64_t now)
{
    run->replace_at = 0;
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        uint64_t due = run->phase == BPS_RUN_WORKING && !run->hopeless && !run->closes ? child->place.due : 0;
        child->place.due = due > now ? due : 0;
        if (due > now && (run->replace_at == 0 || due < run->replace_at)) {
            run->replace_at = due;
        } else if (due > 0 && due <= now) {
            bps_run_say(run, "starting %s again", child->label);
            run->start_part(run, child->role, child->rank);
        }
    }
}

/* ---- what the scheduler says ---------------------------------------------------------------------------- */

static void gathered(struct bps_run *run)
{
    bps_run_tell_hosts(run, BPS_RUN_GATHERED);
    run->gathered = true;
    run->gathered_at = bps_now();
    run->generation++;
    run->closes = false;
    run->gone_status = 0;
}

/* Of a process here, or of its child. */
static void joined(struct bps_run *run, int pid)
{
    unsigned char bytes[] = {BPS_RUN_JOINED, (unsigned char)pid, (unsigned char)(pid >> 8), (unsigned char)(pid >> 16),
                             (unsigned char)(pid >> 24)};
    pid_t group = getpgid(pid);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bps_run_tell_hosts(run, bytes[i]);
    }
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->pid > 0 && child->pid == group && !child->reaped) {
            child->joined = run->generation;
            run->knows_members = true;
        }
    }
}

/* Whether it was not there when all gathered last; where the numbers of processes say nothing, by the time. */
static bool is_late(const struct bps_run *run, const struct bps_run_child *child)
{
    bool missed = run->knows_members ? child->joined != run->generation : child->began > run->gathered_at;
    return is_running(child) && child->role == BPS_RUN_WORKER && child->place.failures > 0 && missed;
}

/* Who has not gathered with the others is too late to join, and would begin a job of its own. */
static void closes(struct bps_run *run)
{
    bps_run_tell_hosts(run, BPS_RUN_CLOSES);
    run->closes = true;
    replace(run, bps_now());
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (is_late(run, child)) {
            child->unneeded = child->told = child->done = true;
            kill(-child->pid, SIGTERM);
            kill(-child->pid, SIGCONT);
        }
    }
    bps_run_reap(run);
}

/* The process that it names may be a child of ours: then it is one of those that have ended. */
static void goes_on(struct bps_run *run, const char *member)
{
    const char *number = strstr(member, ", pid ");
    pid_t pid = number ? (pid_t)atol(number + 6) : 0;
    bool server = strncmp(member, "worker", 6) != 0, worker = strncmp(member, "server", 6) != 0;
    bool known = false;
    bps_run_tell_hosts(run, BPS_RUN_GOES_ON);
    for (size_t i = 0; i < run->nchildren; i++) {
        known = known || (pid > 0 && run->children[i].pid == pid);
    }
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        bool may = (child->role == BPS_RUN_SERVER && server) || (child->role == BPS_RUN_WORKER && worker);
        child->spared |= may && (known ? child->pid == pid : child->reaped);
    }
    run->judge_at = 0;
    bps_run_reap(run);
}

static void hopeless(struct bps_run *run)
{
    bps_run_tell_hosts(run, BPS_RUN_DOOM);
    run->hopeless = true;
    replace(run, bps_now());
    if (run->gone_status && !run->status) {
        memcpy(run->cause, run->gone_cause, sizeof(run->cause));
        bps_run_fail(run, run->gone_status);
    }
    bps_run_reap(run);
}

const struct bps_run_elastic bps_run_elastic = {.spares = spares,
                                                .lose = lose,
                                                .replace = replace,
                                                .gathered = gathered,
                                                .joined = joined,
                                                .closes = closes,
                                                .goes_on = goes_on,
                                                .hopeless = hopeless};
