/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - `byteps launch`, also called bpslaunch: the processes of one machine, told by DMLC_ variables.
 *
 * The command line, the variables and what they mean are those of the original's launcher. A job of one
 * machine (DMLC_NUM_WORKER=1) uses no servers and ignores their variables unless BYTEPS_FORCE_DISTRIBUTED=1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/run.h"

#define NAME       "launch"
#define SIZE_LIMIT 4096

static int help(void)
{
    fputs("Usage: byteps launch [OPTIONS] [--] COMMAND [ARGUMENT]...\n"
          "       bpslaunch [OPTIONS] COMMAND [ARGUMENT]...\n"
          "\n"
          "Starts the processes of this machine in a job, as environment variables state:\n"
          "\n"
          "  DMLC_ROLE            worker, server or scheduler; the last two need no COMMAND\n"
          "  DMLC_NUM_WORKER      number of machines that run workers\n"
          "  DMLC_NUM_SERVER      number of servers\n"
          "  DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT\n"
          "                       address of the scheduler\n"
          "  DMLC_WORKER_ID       number of this machine, from 0 (role worker)\n"
          "  BYTEPS_LOCAL_SIZE    workers here (default: as many as\n"
          "                       NVIDIA_VISIBLE_DEVICES lists, or 1)\n"
          "  BYTEPS_FORCE_DISTRIBUTED=1\n"
          "                       use servers even with one machine\n"
          "\n"
          "Each worker gets BYTEPS_LOCAL_RANK and BYTEPS_LOCAL_SIZE.\n"
          "'byteps run' starts a whole job.\n"
          "\n" BPS_CMD_CONF_HELP "      --help             print this\n",
          stdout);
    return bps_cmd_finish(NAME, 0);
}

/* A number from a variable; -1 if it is not set. False after a message if it is not a number in the range. */
static bool read_number(const char *name, long least, long most, long *out)
{
    const char *text = getenv(name);
    *out = -1;
    if (!text || !*text) {
        return true;
    }
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        bps_cmd_failure(NAME, "%s=%s is not a number from %ld to %ld", name, text, least, most);
        return false;
    }
    *out = value;
    return true;
}

/* Names every variable that is missing, so that one look is enough. */
static bool all_set(const char *const *names, size_t n)
{
    char missing[256];
    struct bps_text text = bps_text_in(missing, sizeof missing);
    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value) {
            bps_text_add(&text, "%s%s", text.length > 0 ? ", " : "", names[i]);
        }
    }
    if (text.length > 0) {
        bps_cmd_failure(NAME, "not set in the environment: %s; see 'byteps launch --help'", missing);
    }
    return text.length == 0;
}

static bool local_size(long *out)
{
    if (!read_number("BYTEPS_LOCAL_SIZE", 1, SIZE_LIMIT, out)) {
        return false;
    }
    if (*out < 0) {
        const char *devices = getenv("NVIDIA_VISIBLE_DEVICES");
        *out = 1;
        for (const char *c = devices ? devices : ""; *c && *out < SIZE_LIMIT; c++) {
            *out += *c == ',' && c[1];
        }
    }
    return true;
}

/* ---- roles --------------------------------------------------------------------------------------------- */

static void environment(const struct bps_run *run, const struct bps_run_child *child)
{
    char rank[16], size[16];
    snprintf(rank, sizeof(rank), "%d", child->rank);
    snprintf(size, sizeof(size), "%d", run->options->plan.count);
    setenv("BYTEPS_LOCAL_RANK", rank, 1);
    setenv("BYTEPS_LOCAL_SIZE", size, 1);
    bps_run_environment_languages();
}

static int manage(void *arg)
{
    struct bps_run_options *options = arg;
    int count = options->plan.count;
    struct bps_run run = {
        .name = NAME, .options = options, .environment = environment, .inherit = true, .phase = BPS_RUN_WORKING};
    if (!bps_run_init(&run, (size_t)count)) {
        return BPS_EXIT_FAILURE;
    }
    for (int rank = 0; rank < count; rank++) {
        char label[32];
        snprintf(label, sizeof(label), "local rank %d", rank);
        if (!bps_run_spawn(&run, BPS_RUN_WORKER, rank, label, options->command, -1)) {
            break;
        }
    }
    int status = bps_run_loop(&run);
    bps_run_fini(&run);
    return status;
}

/* The original's job without servers: the processes of this machine among themselves. */
static int run_alone(long count, char **command)
{
    size_t n = 0;
    while (command[n]) {
        n++;
    }
    char number[16], *fixed[] = {"run", "--no-prefix", "-n", number, "-s", "0", "--"};
    size_t nfixed = sizeof(fixed) / sizeof(fixed[0]);
    char **argv = bps_cmd_alloc(nfixed + n + 1, sizeof(*argv));
    snprintf(number, sizeof(number), "%ld", count);
    memcpy(argv, fixed, sizeof(fixed));
    memcpy(argv + nfixed, command, n * sizeof(*argv));
    unsetenv("DMLC_PS_ROOT_URI");
    unsetenv("DMLC_PS_ROOT_PORT");
    int status = bps_cmd_run((int)(nfixed + n), argv);
    free(argv);
    return status;
}

static int launch_workers(bool distributed, char **command)
{
    long count, id;
    if (!*command) {
        return bps_cmd_usage(NAME, "no command to run; expected for example: bpslaunch python3 train.py");
    }
    if (!local_size(&count) || !read_number("DMLC_WORKER_ID", 0, 65535, &id)) {
        return BPS_EXIT_FAILURE;
    }
    if (!distributed) {
        return run_alone(count, command);
    }
    struct bps_run_options options = {
        .plan = {.count = (int)count, .machines = 1}, .grace = BPS_RUN_GRACE, .command = command};
    return bps_run_guarded(NAME, manage, &options);
}

static int launch_service(const char *role, bool distributed)
{
    if (!distributed) {
        fprintf(stderr,
                "byteps launch: a job of one machine needs no %s unless BYTEPS_FORCE_DISTRIBUTED=1; "
                "nothing to do\n",
                role);
        return 0;
    }
    char *argv[] = {(char *)role, NULL};
    return strcmp(role, "server") == 0 ? bps_cmd_server(1, argv) : bps_cmd_scheduler(1, argv);
}

static int launch(char **command)
{
    static const char *const always[] = {"DMLC_ROLE", "DMLC_NUM_WORKER"};
    static const char *const job[] = {"DMLC_ROLE",        "DMLC_NUM_WORKER",   "DMLC_NUM_SERVER",
                                      "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID"};
    static const char *const roles[] = {"worker", "server", "scheduler"};
    const char *role = NULL, *wanted = getenv("DMLC_ROLE"), *force = getenv("BYTEPS_FORCE_DISTRIBUTED");
    for (size_t i = 0; wanted && i < 3; i++) {
        role = strcasecmp(wanted, roles[i]) == 0 ? roles[i] : role;
    }
    if (wanted && *wanted && !role) {
        return bps_cmd_failure(NAME, "DMLC_ROLE=%s is not a role; expected worker, server or scheduler", wanted);
    }
    long machines;
    if (!all_set(always, 2) || !read_number("DMLC_NUM_WORKER", 1, 65535, &machines)) {
        return BPS_EXIT_FAILURE;
    }
    bool worker = role == roles[0], distributed = machines > 1 || (force && strcmp(force, "1") == 0);
    bool complete = distributed ? all_set(job, worker ? 6 : 5) : !worker || all_set(&job[5], 1);
    if (!complete) {
        return BPS_EXIT_FAILURE;
    }
    setenv("DMLC_ROLE", role, 1); /* in small letters */
    return worker ? launch_workers(distributed, command) : launch_service(role, distributed);
}

/* All that is started here reads these variables: what is later in BYTEPS_SET is stronger. */
static bool hand_on(const struct bps_cmd_conf *conf)
{
    bool good = conf->file == NULL || setenv("BYTEPS_CONF", conf->file, 1) == 0;
    for (size_t i = 0; i < conf->nset && good; i++) {
        const char *before = getenv("BYTEPS_SET");
        char *text = bps_cmd_print("%s\n%s", before != NULL ? before : "", conf->set[i]);
        good = setenv("BYTEPS_SET", text, 1) == 0;
        free(text);
    }
    return good;
}

int bps_cmd_launch(int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bps_cmd_conf conf = {0};
    int code;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
        if (!bps_cmd_conf_take(&conf, code, optarg)) {
            bps_cmd_conf_fini(&conf);
            return code == 'h' ? help() : bps_cmd_bad_option(NAME, code, argv);
        }
    }
    bool good = hand_on(&conf);
    bps_cmd_conf_fini(&conf);
    return good ? launch(argv + optind) : bps_cmd_failure(NAME, "%s", strerror(errno));
}
