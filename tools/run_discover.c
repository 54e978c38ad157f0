/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_discover.c - asks a script which hosts there are: before the job begins, until they are enough, and then every
 * second, while it trains.
 *
 * A script that fails while the job trains changes nothing.
 */
#include "tools/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define PERIOD (1 * BPS_S)
/* Between two messages about what is waited for. */
#define TELL (10 * BPS_S)

#define OPTION "--host-discovery-script"

/* ---- before the job begins ---- */

struct search {
    struct bps_run_options *options;
    uint64_t until; /* when it is over */
    uint64_t tell;  /* when to say again what is missing */
    int named;      /* places, the last time */
};

/* Waits for a moment. Returns a signal that ends the job, or 0. */
static int next_signal(void)
{
    static const struct timespec moment = {.tv_nsec = 50 * (long)BPS_MS};
    sigset_t set;
    sigprocmask(SIG_SETMASK, NULL, &set); /* what the guard has blocked */
    int number = sigtimedwait(&set, NULL, &moment);
    if (number == SIGTSTP) {
        bps_run_stop_self();
    }
    return number == SIGINT || number == SIGTERM || number == SIGQUIT || number == SIGHUP ? number : 0;
}

static int interrupted(int number)
{
    char name[32];
    bps_cmd_failure(BPS_RUN_NAME, "%s: ending the job", bps_run_signal_name(number, name, sizeof(name)));
    return BPS_RUN_STATUS_SIGNAL + number;
}

/* Until the script ends. Returns -1, or an exit status. */
static int wait_for_answer(struct bps_run_ask *ask, int *wait)
{
    int number = 0;
    while (waitpid(ask->pid, wait, WNOHANG) == 0) {
        int latest = next_signal();
        number = number ? number : latest;
        if (ask->fd >= 0) {
            bps_run_ask_read(ask);
        }
        if ((number || bps_now() >= ask->late) && !ask->killed) {
            bps_run_ask_kill(ask);
        }
    }
    return number ? interrupted(number) : -1;
}

/* Returns 0 once the job may begin, -1 if it may not yet, or an exit status. */
static int take_answer(struct search *search, char *text, struct bps_report *why)
{
    struct bps_run_options *o = search->options;
    size_t n;
    struct bps_run_host *hosts = bps_run_hosts_of_lines(text, &n, why);
    if (!hosts) {
        return bps_cmd_failure(BPS_RUN_NAME, OPTION ": %s", why->text);
    }
    search->named = bps_run_places_named(hosts, n);
    bool enough = search->named >= o->least;
    if (enough) {
        bps_run_places_begin(o, hosts, n);
    }
    free(hosts);
    return enough ? 0 : -1;
}

static int ask_once(struct search *search)
{
    struct bps_run_ask ask;
    struct bps_report why = {""};
    int wait = 0, status;
    if (!bps_run_ask_begin(&ask, search->options->script)) {
        return bps_cmd_failure(BPS_RUN_NAME, OPTION ": cannot start it: %s", strerror(errno));
    }
    status = wait_for_answer(&ask, &wait);
    char *text = bps_run_ask_end(&ask, wait, &why);
    bool none = WIFEXITED(wait) && WEXITSTATUS(wait) >= BPS_RUN_STATUS_NOT_EXEC;
    if (status < 0 && text) {
        status = take_answer(search, text, &why);
    } else if (status < 0 && none) {
        status = bps_cmd_failure(BPS_RUN_NAME, OPTION " '%s': %s", search->options->script, why.text);
    }
    free(text);
    if (status < 0 && bps_now() >= search->tell) {
        const char *reason = why.text[0] ? "; " : "";
        fprintf(stderr, "byteps " BPS_RUN_NAME ": " OPTION ": places for %d workers so far, --min-workers is %d%s%s\n",
                search->named, search->options->least, reason, why.text);
        search->tell = bps_now() + TELL;
    }
    return status;
}

static int give_up(const struct search *search)
{
    const struct bps_run_options *o = search->options;
    if (o->ends == search->until) {
        bps_cmd_failure(BPS_RUN_NAME, "the job did not begin within %g s (--timeout)",
                        (double)o->timeout / (double)BPS_S);
        return BPS_RUN_STATUS_TIMEOUT;
    }
    return bps_cmd_failure(BPS_RUN_NAME,
                           OPTION ": places for %d workers after %g s (cluster.rendezvous_timeout), "
                                  "--min-workers is %d",
                           search->named, (double)o->rendezvous / (double)BPS_S, o->least);
}

int bps_run_discover(struct bps_run_options *o)
{
    uint64_t until = bps_now() + o->rendezvous;
    struct search search = {.options = o, .until = o->ends && o->ends < until ? o->ends : until};
    int status = ask_once(&search);
    while (status < 0) {
        int number = 0;
        for (uint64_t next = bps_now() + PERIOD; bps_now() < next && !number;) {
            number = next_signal();
        }
        status = number ? interrupted(number) : bps_now() >= search.until ? give_up(&search) : ask_once(&search);
    }
    if (status == 0 && o->open_address) {
        o->scheduler = bps_run_keep(o, bps_run_choose_address(o));
    }
    return status == 0 ? -1 : status;
}

/* ---- while it trains ---- */

static bool follows(const struct bps_run *run)
{
    bool ends = run->closes || run->hopeless || run->services_ended || run->childless || run->status;
    return run->phase == BPS_RUN_WORKING && run->gathered && !ends;
}

static void complain(struct bps_run *run, const char *text)
{
    if (strcmp(run->complaint, text) != 0) {
        snprintf(run->complaint, sizeof(run->complaint), "%s", text);
        bps_run_say(run, OPTION ": %s", text);
    }
}

static void follow(struct bps_run *run, char *text, struct bps_report *why)
{
    size_t n;
    struct bps_run_host *hosts = text ? bps_run_hosts_of_lines(text, &n, why) : NULL;
    char *trouble = NULL;
    if (!hosts) {
        trouble = bps_cmd_print("%s; going on with the hosts that it has named before", why->text);
    } else if (!bps_run_places_follow(run, hosts, n)) {
        trouble = bps_cmd_print("it names no host that takes part; one goes on until another one has joined");
    } else {
        run->complaint[0] = '\0';
    }
    if (trouble) {
        complain(run, trouble);
    }
    free(trouble);
    free(hosts);
}

static void ended(struct bps_run *run, pid_t pid, int wait)
{
    struct bps_report why = {""};
    if (run->ask.pid == 0 || run->ask.pid != pid) {
        return;
    }
    char *text = bps_run_ask_end(&run->ask, wait, &why);
    run->ask_at = bps_now() + PERIOD;
    if (follows(run)) {
        follow(run, text, &why);
    }
    free(text);
}

static void attend(struct bps_run *run, uint64_t now)
{
    if (run->ask.fd >= 0) {
        bps_run_ask_read(&run->ask);
    }
    if ((now >= run->ask.late || !follows(run)) && !run->ask.killed) {
        bps_run_ask_kill(&run->ask);
    }
    run->ask_at = run->ask.killed ? 0 : run->ask.late;
}

static void tick(struct bps_run *run, uint64_t now)
{
    if (run->ask.pid) {
        attend(run, now);
    } else if (!follows(run)) {
        run->ask_at = 0;
    } else if (now >= run->ask_at) {
        run->ask_at = now + PERIOD;
        if (bps_run_ask_begin(&run->ask, run->options->script)) {
            run->ask_at = run->ask.late;
        } else {
            complain(run, strerror(errno));
        }
    }
}

const struct bps_run_discovery bps_run_discovery = {.tick = tick, .ended = ended};
