/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_scheduler.c - the scheduler of a job: it is started, heard, and started again when something has killed it.
 *
 * The second one listens where the first one did, and the members of a job that runs come back to it. What it cannot
 * know from them it is told: who has left.
 */
#include "tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* One that is killed so soon after its start, and so often in a row, would be killed again. */
#define SOON  (5 * BPS_S)
#define TIMES 3

/* ---- what it says -------------------------------------------------------------------------------------- */

static void take_leave(struct bps_run *run, int rank)
{
    char *ranks = bps_cmd_print("%s%s%d", run->left ? run->left : "", run->left ? "," : "", rank);
    free(run->left);
    run->left = ranks;
    run->nleft++;
}

/* Whether it tells what becomes of the job: "lost MEMBER" and "failed WHY", or "without MEMBER". */
static bool take_fate(struct bps_run *run, const char *text)
{
    int server;
    bool lost = strncmp(text, "lost ", 5) == 0, failed = strncmp(text, "failed ", 7) == 0;
    bool without = strncmp(text, "without ", 8) == 0;
    if (run->elastic && failed) {
        run->elastic->hopeless(run);
    } else if (run->elastic && without) {
        run->elastic->goes_on(run, text + 8);
    } else if (!run->elastic && lost) {
        bps_run_lost(run, bps_run_keep(run->options, bps_cmd_print("%s", text + 5)));
    } else if (sscanf(text, "without server %d ", &server) == 1) {
        bps_run_without(run, server);
    }
    return lost || failed || without;
}

/* "host:port", "gathered" and then "member PID", "taken over", "left RANK", or what take_fate knows. */
static void take_line(struct bps_run *run, const char *text)
{
    int rank, pid;
    if (take_fate(run, text)) {
        return;
    }
    if (sscanf(text, "member %d", &pid) == 1) {
        if (run->elastic) {
            run->elastic->joined(run, pid);
        }
    } else if (sscanf(text, "left %d", &rank) == 1) {
        take_leave(run, rank);
        if (run->elastic) {
            run->elastic->closes(run);
        }
    } else if (strcmp(text, "gathered") == 0) {
        run->gathered = true;
        if (run->elastic) {
            run->elastic->gathered(run);
        }
        run->leaderless = false;
        free(run->left);
        run->left = NULL;
        run->nleft = 0;
    } else if (strcmp(text, "taken over") == 0) {
        run->leaderless = false;
        bps_run_reap(run);
    } else if (run->phase == BPS_RUN_STARTING) {
        run->options->plan.scheduler = bps_run_keep(run->options, bps_cmd_print("%s", text));
        run->start_parts(run);
    }
}

static void announced(struct bps_run *run)
{
    ssize_t n = read(run->announce, run->said + run->said_used, sizeof(run->said) - 1 - run->said_used);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n <= 0) { /* the scheduler has ended; its exit status comes next */
        close(run->announce);
        run->announce = -1;
        return;
    }
    run->said_used += (size_t)n;
    for (char *end; (end = memchr(run->said, '\n', run->said_used));) {
        *end++ = '\0';
        take_line(run, run->said);
        run->said_used -= (size_t)(end - run->said);
        memmove(run->said, end, run->said_used);
    }
}

/* ---- its end ------------------------------------------------------------------------------------------- */

/* What it has said before it was killed. */
static void hear_out(struct bps_run *run)
{
    struct pollfd p = {.fd = run->announce, .events = POLLIN};
    while (run->announce >= 0 && poll(&p, 1, 0) > 0) {
        announced(run);
    }
    if (run->announce >= 0) {
        close(run->announce);
        run->announce = -1;
    }
}

static bool may_return(struct bps_run *run, const struct bps_run_child *child)
{
    if (child->role != BPS_RUN_SCHEDULER || !WIFSIGNALED(child->wait)) {
        return false;
    }
    hear_out(run);
    if (!run->gathered || run->phase != BPS_RUN_WORKING) {
        return false;
    }
    run->soon = bps_now() - run->scheduler_began < SOON ? run->soon + 1 : 0;
    if (run->soon >= TIMES) {
        bps_run_say(run, "the scheduler was killed %d times in a row within %d s of its start", TIMES,
                    (int)(SOON / BPS_S));
    }
    return run->soon < TIMES;
}

/* ---- its start ----------------------------------------------------------------------------------------- */

static const struct bps_run_scheduler scheduler = {
    .announced = announced, .may_return = may_return, .start = bps_run_start_scheduler};

/* Whether a process that runs has this number; then one that has ended had it before. */
static bool is_used(const struct bps_run *run, pid_t pid)
{
    bool used = false;
    for (size_t i = 0; i < run->nchildren; i++) {
        used |= run->children[i].pid == pid && !run->children[i].reaped;
    }
    return used;
}

/* The processes here that have ended since all have gathered, as "417,420"; to be freed. */
static char *list_ended(const struct bps_run *run)
{
    char *pids = bps_cmd_print("%s", "");
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        bool member = child->role == BPS_RUN_SERVER || child->role == BPS_RUN_WORKER;
        bool ended = child->reaped && child->pid > 0 && child->ended >= run->gathered_at;
        if (member && ended && !is_used(run, child->pid)) {
            char *more = bps_cmd_print("%s%s%d", pids, *pids ? "," : "", (int)child->pid);
            free(pids);
            pids = more;
        }
    }
    return pids;
}

void bps_run_start_scheduler(struct bps_run *run)
{
    int pipe[2];
    char number[16], none[] = "", *ended;
    struct bps_run_options *o = run->options;
    if (pipe2(pipe, O_CLOEXEC) != 0) {
        bps_run_say(run, "cannot start the scheduler: %s", strerror(errno));
        bps_run_fail(run, BPS_EXIT_FAILURE);
        return;
    }
    snprintf(number, sizeof(number), "%d", pipe[1]);
    ended = list_ended(run);
    if (!run->scheduler && o->any_port) {
        o->plan.scheduler = bps_run_keep(o, bps_run_hold_address(o->plan.scheduler));
    }
    char *argv[] = {"byteps",   "scheduler", "--announce", number,
                    "--absent", "0",         "--left",     run->left ? run->left : none,
                    "--ended",  ended,       NULL};
    run->announce = pipe[0];
    run->scheduler = &scheduler;
    run->said_used = 0;
    run->scheduler_began = bps_now();
    run->deadline = run->phase == BPS_RUN_STARTING ? run->scheduler_began + BPS_RUN_ANNOUNCE : 0;
    bps_run_spawn(run, BPS_RUN_SCHEDULER, 0, "scheduler", argv, pipe[1]);
    free(ended);
    close(pipe[1]);
}
