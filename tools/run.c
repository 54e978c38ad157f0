/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - `byteps run`: starts a whole job.
 *
 * First the scheduler, which tells its address through a pipe; then servers and workers, or on each host a
 * manager of its own. A job of one worker without servers is just that worker.
 */
#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "conf/secret.h"

static bool start_part(struct bps_run *run, enum bps_run_role role, int rank)
{
    char *server[] = {"byteps", "server", NULL}, label[32];
    if (role == BPS_RUN_HOST) {
        return bps_run_start_host(run, (size_t)rank) != NULL;
    }
    bool serves = role == BPS_RUN_SERVER;
    snprintf(label, sizeof(label), "%s %d", serves ? "server" : "worker", rank);
    return bps_run_spawn(run, role, rank, label, serves ? server : run->options->command, -1) != NULL;
}

static bool start_servers(struct bps_run *run)
{
    const struct bps_run_plan *plan = &run->options->plan;
    bool good = true;
    for (int server = 0; server < plan->servers && good; server++) {
        good = !bps_run_server_here(plan, server) || start_part(run, BPS_RUN_SERVER, server);
    }
    return good;
}

static void start_workers(struct bps_run *run)
{
    const struct bps_run_plan *plan = &run->options->plan;
    int rank = plan->first;
    while (rank < plan->first + plan->count && start_part(run, BPS_RUN_WORKER, rank)) {
        rank++;
    }
}

static void start_parts(struct bps_run *run)
{
    run->phase = BPS_RUN_WORKING;
    run->deadline = 0;
    for (size_t i = 0; i < run->options->nhosts; i++) {
        if (run->options->hosts[i].name && !start_part(run, BPS_RUN_HOST, (int)i)) {
            return;
        }
    }
    if (run->options->nhosts == 0 && start_servers(run)) {
        start_workers(run);
    }
}

/* Whoever knows it is let in. A part has that of the whole; a user's own is kept, and goes to all as this does. */
static bool make_secret(void)
{
    const char *secret = getenv(BPS_SECRET_VARIABLE);
    uint8_t bytes[32], digest[BPS_SECRET_BYTES];
    char text[2 * sizeof(bytes) + 1];
    if (secret == NULL || *secret == '\0') {
        if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
            bps_cmd_failure(BPS_RUN_NAME, "cannot generate random numbers for the secret of the job");
            return false;
        }
        for (size_t i = 0; i < sizeof(bytes); i++) {
            snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        }
        secret = text;
    }
    /* Each child does so before it becomes the command: what OpenSSL loads for that they all have from here. */
    (void)bps_secret_of_text(secret, strlen(secret), digest, NULL);
    return secret != text || setenv(BPS_SECRET_VARIABLE, text, 1) == 0;
}

/* A command that cannot be started, or an end from outside, would come again. */
static bool may_begin_anew(const struct bps_run *run, int status)
{
    const struct bps_run_options *o = run->options;
    bool fails = status != 0 && status != BPS_RUN_STATUS_NO_FILE && status != BPS_RUN_STATUS_NOT_EXEC;
    return fails && !run->interrupted && !o->part && o->restart < o->restarts;
}

/* All of the job, once. */
static int run_once(struct bps_run_options *options, bool *again)
{
    int unknown = options->script ? bps_run_discover(options) : -1;
    if (unknown >= 0) {
        return unknown;
    }
    size_t room = 1 + (options->nhosts ? options->nhosts : (size_t)options->plan.count + (size_t)options->plan.servers);
    struct bps_run run = {.name = BPS_RUN_NAME,
                          .options = options,
                          .environment = bps_run_environment,
                          .start_parts = start_parts,
                          .start_part = start_part,
                          .elastic = options->elastic ? &bps_run_elastic : NULL,
                          .discovery = options->script ? &bps_run_discovery : NULL};
    bool alone = options->plan.workers == 1 && options->plan.servers == 0 && !options->nhosts && !options->elastic;
    options->plan.scheduler = alone && !options->part ? "" : options->scheduler;
    if (!bps_run_init(&run, room)) {
        return BPS_EXIT_FAILURE;
    }
    if (options->part || alone) {
        start_parts(&run);
    } else {
        bps_run_start_scheduler(&run);
    }
    int status = bps_run_loop(&run);
    *again = may_begin_anew(&run, status);
    bps_run_fini(&run);
    return status;
}

static bool begin_anew(struct bps_run_options *options)
{
    char count[16];
    options->restart++;
    fprintf(stderr, "byteps " BPS_RUN_NAME ": restart %d of %d\n", options->restart, options->restarts);
    snprintf(count, sizeof(count), "%d", options->restart);
    return setenv("BYTEPS_RESTART_COUNT", count, 1) == 0;
}

static int manage(void *arg)
{
    struct bps_run_options *options = arg;
    options->scheduler = options->plan.scheduler;
    if ((!options->part && !bps_run_keep_outer()) || !make_secret()) {
        return BPS_EXIT_FAILURE;
    }
    options->ends = options->timeout ? bps_now() + options->timeout : 0;
    bool again = false;
    int status = run_once(options, &again);
    while (again && begin_anew(options)) {
        again = false;
        status = run_once(options, &again);
    }
    return status;
}

int bps_cmd_run(int argc, char **argv)
{
    struct bps_run_options options;
    bps_run_leave_outer();
    int status = bps_run_options_parse(argc, argv, &options);
    if (status < 0 && options.caller && !bps_run_follow(options.caller)) {
        status =
            bps_cmd_failure(BPS_RUN_NAME, "--caller: process %d is not the parent of this one", (int)options.caller);
    }
    if (status < 0) {
        status = bps_run_guarded(BPS_RUN_NAME, manage, &options);
    }
    bps_run_options_fini(&options);
    return status;
}
