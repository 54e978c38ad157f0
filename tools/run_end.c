/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_end.c - how a job ends.
 *
 * Workers decide: when the last has ended, the servers and the scheduler are told to end. When a part fails,
 * the others get time to report on their own (FAILING), then SIGTERM (ENDING), then SIGKILL (KILLING). The
 * job is over when this process has no child left, adopted ones included. Whoever waits for the part to join
 * need not use that time: the scheduler cannot miss a part that it has never met, and is told.
 *
 * A server has not failed if the scheduler says that the job goes on without it, nor has a scheduler that is started
 * again.
 *
 * Its status is that of the part which failed first. Which one that is the scheduler knows best: if it has
 * lost a member, the ends of the others are judged after the end of that one.
 */
#include "tools/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/report.h"

/* A host ends its own parts first; only then would killing its ssh lose what they still say. */
#define HOST_EXTRA (3 * BPS_S)
/* A part that has died shows a little later than what others did because of it. */
#define SETTLE (200 * BPS_MS)
/* How long the scheduler may take to say whether the job goes on without a server that has died. */
#define WORD (2 * BPS_S)

const char *bps_run_signal_name(int number, char *text, size_t n)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGABRT, "SIGABRT"},
        {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGPIPE, "SIGPIPE"},
        {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGSYS, "SIGSYS"},
        {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].number == number) {
            return names[i].name;
        }
    }
    snprintf(text, n, "signal %d", number);
    return text;
}

static bool is_service(const struct bps_run_child *child)
{
    return child->role == BPS_RUN_SERVER || child->role == BPS_RUN_SCHEDULER;
}

static bool is_lost(const struct bps_run_child *child)
{
    const char *lost = child->run->lost;
    size_t n = strlen(child->label);
    return lost && strncmp(lost, child->label, n) == 0 && lost[n] == ' ';
}

/* Whether the job has not failed for any part so far, nor is about to end. */
static bool is_open(const struct bps_run *run)
{
    return !run->status && run->phase <= BPS_RUN_FAILING;
}

static void tell_host(struct bps_run_child *child, unsigned char byte)
{
    bps_run_sink_put(&child->control, &byte, 1);
    bps_run_sink_flush(&child->control);
}

void bps_run_tell_hosts(struct bps_run *run, unsigned char byte)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        if (run->children[i].role == BPS_RUN_HOST) {
            tell_host(&run->children[i], byte);
        }
    }
}

/* To the whole process group here; a host passes the number on to its parts. */
static void pass(struct bps_run_child *child, int number)
{
    if (child->role == BPS_RUN_HOST && number != SIGKILL) {
        tell_host(child, (unsigned char)number);
    } else if (child->pid > 0 && !child->reaped) {
        kill(-child->pid, number);
        if (number == SIGTERM) {
            kill(-child->pid, SIGCONT); /* a stopped process could not end */
        }
    }
}

static void pass_workers(struct bps_run *run, int number)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        if (!is_service(&run->children[i])) {
            pass(&run->children[i], number);
        }
    }
}

static void pass_all(struct bps_run *run, int number)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        pass(&run->children[i], number);
    }
}

/* Whether it has ended, and the job went on without it. */
static bool is_gone(const struct bps_run_child *child)
{
    return child->run->elastic && child->pid == 0;
}

/* Whether all workers have ended well, or will have, as a part hears. */
static bool is_through(const struct bps_run *run)
{
    bool well = !run->options->part;
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        well = well && (is_service(child) || child->done || (child->reaped ? child->wait == 0 : is_gone(child)));
    }
    return run->services_ended || well;
}

static bool workers_left(const struct bps_run *run)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        if (!is_service(child) && child->pid > 0 && !child->done) {
            return true;
        }
    }
    return false;
}

static void enter(struct bps_run *run, enum bps_run_phase phase, uint64_t wait)
{
    run->phase = phase;
    run->deadline = bps_now() + wait + (run->options->nhosts ? HOST_EXTRA : 0);
}

void bps_run_fail(struct bps_run *run, int status)
{
    if (!run->status) {
        run->status = status;
        bps_run_part_tell(run, "failed %d %s", status, run->cause);
    }
    if (run->phase == BPS_RUN_STARTING) {
        bps_run_end(run);
    } else if (run->phase == BPS_RUN_WORKING) {
        enter(run, BPS_RUN_FAILING, run->options->grace);
    }
}

void bps_run_absent(struct bps_run *run, const char *why)
{
    if (!is_open(run)) {
        return;
    }
    bps_run_part_tell(run, "absent %s", why);
    char *line = bps_cmd_print("%s\n", why);
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->role == BPS_RUN_SCHEDULER) {
            bps_run_sink_put(&child->control, line, strlen(line));
            bps_run_sink_flush(&child->control);
        }
    }
    free(line);
}

void bps_run_end(struct bps_run *run)
{
    if (run->phase < BPS_RUN_ENDING) {
        enter(run, BPS_RUN_ENDING, BPS_RUN_TERM);
        pass_workers(run, SIGTERM);
    }
}

/* The scheduler hears of it first, so that it takes the leaving of the servers for what it is. */
void bps_run_end_services(struct bps_run *run)
{
    static const enum bps_run_role order[] = {BPS_RUN_SCHEDULER, BPS_RUN_HOST, BPS_RUN_SERVER};
    if (run->services_ended) {
        return;
    }
    run->services_ended = true;
    if (run->phase < BPS_RUN_ENDING) {
        enter(run, BPS_RUN_ENDING, BPS_RUN_TERM);
    }
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < run->nchildren; i++) {
            if (run->children[i].role == order[turn]) {
                pass(&run->children[i], order[turn] == BPS_RUN_HOST ? 0 : SIGTERM);
            }
        }
    }
}

static void kill_all(struct bps_run *run)
{
    if (run->phase < BPS_RUN_KILLING) {
        enter(run, BPS_RUN_KILLING, BPS_RUN_TERM);
    }
    pass_all(run, SIGKILL);
    bps_run_signal_adopted(run->children, run->nchildren, SIGKILL);
}

void bps_run_interrupt(struct bps_run *run, int number)
{
    char text[32];
    if (number == SIGUSR1 || number == SIGUSR2) {
        pass_workers(run, number);
        return;
    }
    if (number == SIGTSTP || number == SIGCONT) {
        pass_all(run, number);
        return;
    }
    bool again = run->interrupted && number == SIGINT;
    if (!run->interrupted && !run->options->part) {
        bps_run_say(run, "%s: ending the job", bps_run_signal_name(number, text, sizeof(text)));
    }
    run->interrupted = true;
    bps_run_fail(run, BPS_RUN_STATUS_SIGNAL + number);
    if (again || number == SIGQUIT) {
        kill_all(run);
    } else if (number == SIGINT) {
        pass_workers(run, SIGINT);
    } else if (run->phase < BPS_RUN_ENDING) {
        pass_workers(run, number);
        enter(run, BPS_RUN_ENDING, BPS_RUN_TERM);
    }
}

/* ---- ended children ------------------------------------------------------------------------------------ */

static int exit_status(int wait)
{
    return WIFSIGNALED(wait) ? BPS_RUN_STATUS_SIGNAL + WTERMSIG(wait) : WEXITSTATUS(wait);
}

/* "worker 1 failed first: status 1 (ValueError: no data)" */
static void note_cause(const struct bps_run *run, const struct bps_run_child *child, int status, char *cause, size_t n)
{
    const char *host = run->options->plan.host;
    char name[32], how[64];
    if (WIFSIGNALED(child->wait)) {
        snprintf(how, sizeof(how), "killed by %s", bps_run_signal_name(WTERMSIG(child->wait), name, sizeof(name)));
    } else {
        snprintf(how, sizeof(how), "status %d", status);
    }
    bool words = child->last[0] != '\0';
    snprintf(cause, n, "%s%s%s%s failed first: %s%s%s%s", child->role == BPS_RUN_HOST ? "the connection to " : "",
             child->label, host ? " on host " : "", host ? host : "", how, words ? " (" : "", child->last,
             words ? ")" : "");
    bps_make_printable(cause);
}

void bps_run_conclude(struct bps_run *run)
{
    bool several = run->nchildren > 1 || run->options->nhosts > 0;
    if (run->cause[0] && several && !run->options->part && !run->interrupted) {
        bps_run_say(run, "%s", run->cause);
    }
    run->cause[0] = '\0';
}

/* "server 1 (pid 4711) was killed by SIGKILL" */
static void describe_end(const struct bps_run *run, const struct bps_run_child *child, pid_t pid, char *what, size_t n)
{
    char how[64], name[32], where[80] = "";
    int status = exit_status(child->wait);
    if (WIFSIGNALED(child->wait)) {
        snprintf(how, sizeof(how), "was killed by %s", bps_run_signal_name(WTERMSIG(child->wait), name, sizeof(name)));
    } else if (status == 0) {
        snprintf(how, sizeof(how), "ended before the workers");
    } else {
        snprintf(how, sizeof(how), "exited with status %d", status);
    }
    if (run->options->plan.host) {
        snprintf(where, sizeof(where), ", host %s", run->options->plan.host);
    }
    snprintf(what, n, "%s%s (pid %d%s) %s", child->role == BPS_RUN_HOST ? "the connection to " : "", child->label,
             (int)pid, where, how);
}

/* Says how a part failed, and that the job ends for it if it is the first. */
static void report(struct bps_run *run, const struct bps_run_child *child, pid_t pid)
{
    char what[300];
    int status = exit_status(child->wait);
    status = status == 0 ? BPS_EXIT_FAILURE : status;
    describe_end(run, child, pid, what, sizeof(what));
    /* The end of a service says nothing that the first failure has not said, unless something has killed it. */
    bool is_news = is_open(run) || !is_service(child) || WIFSIGNALED(child->wait);
    if (!run->interrupted && is_news) {
        bps_run_say(run, "%s%s", what, is_open(run) ? "; ending the job" : "");
    }
    if (!run->status) {
        note_cause(run, child, status, run->cause, sizeof(run->cause));
    }
    bps_run_absent(run, what);
    bps_run_fail(run, status);
}

static void report_spared(struct bps_run *run, const struct bps_run_child *child, pid_t pid)
{
    char what[300];
    describe_end(run, child, pid, what, sizeof(what));
    bps_run_say(run, "%s; the job goes on without it", what);
}

static void lose(struct bps_run *run, struct bps_run_child *child, pid_t pid)
{
    char cause[sizeof(run->gone_cause)];
    int status = child->wait ? exit_status(child->wait) : BPS_EXIT_FAILURE;
    report_spared(run, child, pid);
    note_cause(run, child, status, cause, sizeof(cause));
    bps_run_gone(run, status, cause);
    run->elastic->lose(run, child);
}

void bps_run_gone(struct bps_run *run, int status, const char *cause)
{
    bps_run_part_tell(run, "without %d %s", status, cause);
    if (!run->gone_status) {
        run->gone_status = status;
        snprintf(run->gone_cause, sizeof(run->gone_cause), "%s", cause);
    }
}

static void report_unneeded(struct bps_run *run, const struct bps_run_child *child, pid_t pid)
{
    char what[300];
    describe_end(run, child, pid, what, sizeof(what));
    bps_run_say(run, "%s; no worker needs it any more", what);
}

/* After the ends that came with it: if a worker has failed, or the last one is through, there is no use in it. */
static void restart_scheduler(struct bps_run *run)
{
    bool useful = run->phase == BPS_RUN_WORKING && workers_left(run);
    bps_run_say(run, "%s%s", run->again, useful ? "; starting it again" : "");
    run->again[0] = '\0';
    if (useful) {
        run->scheduler->start(run);
    }
}

static void judge(struct bps_run *run, struct bps_run_child *child)
{
    pid_t pid = child->pid;
    child->reaped = false;
    child->pid = 0;
    bps_run_sink_fini(&child->control);
    bool good = WIFEXITED(child->wait) && WEXITSTATUS(child->wait) == 0;
    bool by_us = WIFSIGNALED(child->wait) &&
                 (run->phase == BPS_RUN_KILLING || (run->phase == BPS_RUN_ENDING && WTERMSIG(child->wait) == SIGTERM));
    /* A server still on its way in is refused when the job is over, of which a part may hear later. */
    bool through = is_through(run), over = through || run->part_done;
    bool refused = child->role == BPS_RUN_SERVER && over && exit_status(child->wait) == BPS_EXIT_FAILURE;
    bool early = is_service(child) && !over && run->phase < BPS_RUN_ENDING;
    /* Once the workers are through, nobody has missed a service that was killed. */
    bool unneeded = is_service(child) && through && WIFSIGNALED(child->wait) && !run->status;
    bool fails = early || !(good || by_us || refused || child->told || (child->spared && is_service(child)));
    if (fails && !unneeded && run->elastic && run->elastic->spares(run, child)) {
        lose(run, child, pid);
    } else if (early && child->spared) {
        report_spared(run, child, pid);
    } else if (early && run->scheduler && run->scheduler->may_return(run, child)) {
        describe_end(run, child, pid, run->again, sizeof(run->again));
    } else if (unneeded && !by_us) {
        report_unneeded(run, child, pid);
    } else if (fails) {
        report(run, child, pid);
    }
    child->done = good || child->unneeded;
}

/* Ends reading before the end of a part is reported, so that its last words stand before that. */
static void collect(struct bps_run *run, pid_t pid, int wait)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->pid == pid) {
            child->wait = wait;
            child->reaped = true;
            child->look = run->looks;
            child->ended = bps_now();
            run->leaderless |= child->role == BPS_RUN_SCHEDULER && WIFSIGNALED(wait) && run->gathered;
            bps_run_stream_drain(&child->stream[0]);
            bps_run_stream_drain(&child->stream[1]);
        }
    }
    if (run->discovery) {
        run->discovery->ended(run, pid, wait);
    }
}

/*
 * Several parts may have ended, one because of the other. The one that the scheduler has lost is the cause.
 * Else a signal is nearer to it than an exit status; an earlier end than a later one; and of those seen at
 * once, a worker's than a service's.
 */
static int compare_ends(const void *left, const void *right)
{
    const struct bps_run_child *a = *(struct bps_run_child *const *)left;
    const struct bps_run_child *b = *(struct bps_run_child *const *)right;
    if (is_lost(a) != is_lost(b)) {
        return is_lost(a) ? -1 : 1;
    }
    if (!WIFSIGNALED(a->wait) != !WIFSIGNALED(b->wait)) {
        return WIFSIGNALED(a->wait) ? -1 : 1;
    }
    if (a->look != b->look) {
        return a->look < b->look ? -1 : 1;
    }
    return is_service(a) != is_service(b) ? is_service(a) - is_service(b) : (a > b) - (a < b);
}

static bool worker_failed(const struct bps_run *run)
{
    bool failed = false;
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        failed = failed || (child->reaped && !is_service(child) && child->wait != 0);
    }
    return failed;
}

/* Whether it has ended and may be judged: a server not before there is a scheduler that says what its end means. */
static bool is_ripe(const struct bps_run_child *child)
{
    const struct bps_run *run = child->run;
    bool waits = run->leaderless && run->phase == BPS_RUN_WORKING && run->nleft < run->options->plan.workers;
    bool stays = child->role == BPS_RUN_SERVER && !child->spared && waits && !is_through(run) && !worker_failed(run);
    return child->reaped && !stays;
}

static void judge_all(struct bps_run *run)
{
    struct bps_run_child **ended = bps_cmd_alloc(run->nchildren, sizeof(struct bps_run_child *));
    size_t n = 0;
    for (size_t i = 0; i < run->nchildren; i++) {
        if (is_ripe(&run->children[i])) {
            ended[n++] = &run->children[i];
        }
    }
    qsort(ended, n, sizeof(struct bps_run_child *), compare_ends);
    for (size_t i = 0; i < n; i++) {
        if (ended[i]->reaped) { /* a lost scheduler may have said what let it be judged already */
            judge(run, ended[i]);
        }
    }
    free(ended);
    run->judge_at = 0;
}

/* Whether the part that the scheduler has lost has ended, or a connection to where it may have been. */
static bool cause_has_shown(const struct bps_run *run)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        bool ended = child->reaped || child->pid == 0;
        if (ended && (is_lost(child) || child->role == BPS_RUN_HOST)) {
            return true;
        }
    }
    return false;
}

/* Whether this has died, and the scheduler is to say whether the job goes on. */
static bool is_uncertain(const struct bps_run_child *child)
{
    const struct bps_run *run = child->run;
    bool knows = !run->elastic || child->began < run->gathered_at; /* as far as we can tell */
    bool worker = run->elastic && child->role == BPS_RUN_WORKER && child->wait != 0 && !child->told;
    return is_ripe(child) && !child->spared && knows && (child->role == BPS_RUN_SERVER || worker);
}

/* Whether a part has died of which the scheduler has not said yet what becomes of the job. */
static bool needs_word(const struct bps_run *run)
{
    bool needs = false;
    for (size_t i = 0; i < run->nchildren; i++) {
        needs = needs || is_uncertain(&run->children[i]);
    }
    return needs && !run->lost && !run->doomed && !run->hopeless && !is_through(run);
}

/* Whether the first failure could be none, or the consequence of another that has not shown yet. */
static bool is_unclear(const struct bps_run *run)
{
    bool failed = false, killed = false;
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        bool counts = is_ripe(child) && !child->spared;
        failed = failed || (counts && !child->told && child->wait != 0);
        /* Of a scheduler that is started again it is well to know who has died with it. */
        bool returns = child->role == BPS_RUN_SCHEDULER && run->leaderless;
        killed = killed || (counts && WIFSIGNALED(child->wait) && !returns);
    }
    return is_open(run) && (needs_word(run) || (failed && !(run->lost ? cause_has_shown(run) : killed)));
}

void bps_run_lost(struct bps_run *run, const char *member)
{
    if (run->phase == BPS_RUN_WORKING) {
        run->lost = member;
        run->judge_at = cause_has_shown(run) ? bps_now() : 0;
        enter(run, BPS_RUN_FAILING, run->options->grace);
    }
    bps_run_tell_hosts(run, BPS_RUN_DOOM);
}

void bps_run_doom(struct bps_run *run)
{
    run->doomed = true;
    run->judge_at = 0;
    bps_run_reap(run);
}

void bps_run_without(struct bps_run *run, int server)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        const struct bps_run_options *o = run->options;
        int machine = server % o->plan.machines, nth = server / o->plan.machines;
        if (child->role == BPS_RUN_HOST && o->hosts[child->rank].machine == machine && nth < BPS_RUN_WITHOUT) {
            tell_host(child, (unsigned char)(BPS_RUN_WITHOUT + nth));
        }
        if (child->role == BPS_RUN_SERVER && child->rank == server) {
            child->spared = true;
        }
    }
    run->judge_at = 0;
    bps_run_reap(run);
}

void bps_run_reap(struct bps_run *run)
{
    int wait;
    pid_t pid;
    run->looks++;
    while ((pid = waitpid(-1, &wait, WNOHANG)) > 0) {
        collect(run, pid, wait);
    }
    run->childless = pid < 0 && errno == ECHILD;
    if (!is_unclear(run) || run->childless) {
        judge_all(run);
    } else if (!run->lost) {
        uint64_t at = bps_now() + (needs_word(run) ? WORD : SETTLE);
        run->judge_at = run->judge_at && run->judge_at < at ? run->judge_at : at;
    }
    run->childless = run->childless && !run->replace_at;
    if (run->phase == BPS_RUN_KILLING) {
        kill_all(run); /* whom the dead have left to us */
    }
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static bool children_left(const struct bps_run *run)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        if (run->children[i].pid > 0) {
            return true;
        }
    }
    return false;
}

/* Whether some worker has, here or elsewhere. */
static bool ended_well(const struct bps_run *run)
{
    bool well = !run->elastic;
    for (size_t i = 0; i < run->nchildren; i++) {
        const struct bps_run_child *child = &run->children[i];
        well = well || (!is_service(child) && child->done && !child->unneeded);
    }
    return well;
}

static void time_is_over(struct bps_run *run)
{
    char text[64] = "";
    run->job_deadline = 0;
    if (run->phase < BPS_RUN_FAILING) {
        snprintf(text, sizeof(text), "%g s", (double)run->options->timeout / (double)BPS_S);
        bps_run_say(run, "the job did not end within %s (--timeout); ending it", text);
        bps_run_fail(run, BPS_RUN_STATUS_TIMEOUT);
        run->interrupted = true;
        bps_run_end(run);
    }
}

static void phase_is_over(struct bps_run *run)
{
    switch (run->phase) {
    case BPS_RUN_STARTING:
        bps_run_say(run, "the scheduler did not report its address within %d s; ending the job",
                    (int)(BPS_RUN_ANNOUNCE / BPS_S));
        bps_run_fail(run, BPS_EXIT_FAILURE);
        break;
    case BPS_RUN_FAILING:
        bps_run_end(run);
        break;
    case BPS_RUN_ENDING:
        kill_all(run);
        break;
    case BPS_RUN_KILLING:
        bps_run_say(run, "a process of the job cannot be killed and is left running");
        run->childless = true;
        run->deadline = 0;
        break;
    default:
        break;
    }
}

void bps_run_tick(struct bps_run *run, uint64_t now)
{
    if (run->judge_at && now >= run->judge_at) {
        judge_all(run);
    }
    if (run->replace_at && now >= run->replace_at) {
        run->elastic->replace(run, now);
    }
    if (run->discovery) {
        run->discovery->tick(run, now);
    }
    if (run->job_deadline && now >= run->job_deadline) {
        time_is_over(run);
    }
    if (run->deadline && now >= run->deadline && !run->childless) {
        phase_is_over(run);
    }
    if (run->phase > BPS_RUN_STARTING && !workers_left(run)) {
        /* Workers elsewhere may need the servers of a part, and are told why it has failed before they miss those. */
        if (!run->options->part || run->phase > BPS_RUN_FAILING) {
            if (run->options->nhosts && run->gone_status && !run->services_ended && !ended_well(run)) {
                run->elastic->hopeless(run);
            }
            bps_run_end_services(run);
        } else if (!run->part_done && !run->replace_at) {
            run->part_done = true;
            bps_run_part_tell(run, ended_well(run) ? "done" : "empty");
        }
    }
    if (run->again[0]) {
        restart_scheduler(run);
    }
    if (run->phase == BPS_RUN_ENDING && !children_left(run) && !run->childless) {
        bps_run_signal_adopted(NULL, 0, SIGTERM); /* what the parts have left in the background */
    }
}
