/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c - `byteps scheduler`: the rendezvous of a job as a process. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tools/cmd.h"
#include "tools/role.h"
#include "scheduler/scheduler.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps scheduler [OPTIONS]\n"
    "\n"
    "Gathers the members of a job, hands out ranks, addresses and placement, and watches that all are\n"
    "alive. Listens on cluster.scheduler (port 0: a free one of cluster.ports) and ends with the job.\n"
    "`byteps run` starts it by itself.\n"
    "\n"
    "      --announce FD      write lines to descriptor FD: the address \"host:port\" once it listens, and\n"
    "                         \"lost MEMBER\" if the job ends for the loss of one\n" BPS_CMD_CONF_HELP
    "      --help             print this\n";
/* clang-format on */

struct process {
    struct bps_loop *loop;
    struct bps_scheduler *scheduler;
    bps_status verdict;
    int announce; /* descriptor; -1: none */
};

static void on_finished(void *arg, bps_status status)
{
    struct process *process = arg;
    process->verdict = status;
    bps_loop_stop(process->loop);
}

static void on_lost(void *arg, const char *member)
{
    const struct process *process = arg;
    if (process->announce >= 0) {
        dprintf(process->announce, "lost %s\n", member);
    }
}

static void on_stop(void *arg, uint32_t events)
{
    (void)events;
    bps_scheduler_end(((struct process *)arg)->scheduler, NULL);
}

/* Tells whoever started this where the scheduler listens: on a descriptor, or to people on standard output. */
static int announce(struct process *process, const char *fd_text, const char *address)
{
    if (fd_text == NULL) {
        printf("scheduler listens on %s\n", address);
        return bps_cmd_finish("scheduler", 0);
    }
    char *end;
    long fd = strtol(fd_text, &end, 10);
    if (*fd_text == '\0' || *end != '\0' || fd < 0 || fd > 1 << 20) {
        return bps_cmd_usage("scheduler", "--announce %s: expected the number of an open descriptor", fd_text);
    }
    process->announce = (int)fd;
    return dprintf(process->announce, "%s\n", address) > 0 ? 0
                                                           : bps_cmd_failure("scheduler", "--announce %s: %m", fd_text);
}

static int serve(const struct bps_conf *conf, const char *announce_fd)
{
    struct process process = {.loop = bps_loop_new(), .announce = -1};
    struct bps_report report = {""};
    struct bps_watch *watch = NULL;
    char address[128];
    int result, stop = bps_role_stop_fd();
    bps_status status = process.loop == NULL ? BPS_ERR_IO
                                             : bps_scheduler_new(conf, process.loop, on_finished, on_lost, &process,
                                                                 address, sizeof address, &process.scheduler, &report);
    if (status == BPS_OK) {
        watch = stop >= 0 ? bps_loop_watch(process.loop, stop, on_stop, &process) : NULL;
        result = watch != NULL ? announce(&process, announce_fd, address)
                               : bps_cmd_failure("scheduler", "cannot watch signals");
        if (result == 0) {
            bps_loop_run(process.loop);
            result = process.verdict == BPS_OK ? 0 : BPS_EXIT_FAILURE;
        }
    } else {
        result = bps_cmd_failure("scheduler", "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    if (watch != NULL) {
        bps_loop_unwatch(process.loop, watch);
    }
    bps_scheduler_free(process.scheduler);
    bps_loop_free(process.loop);
    close(stop);
    return result;
}

int bps_cmd_scheduler(int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"announce", required_argument, NULL, 'a'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bps_cmd_conf request = {0};
    const char *announce_fd = NULL;
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&request, code, optarg)) {
            continue;
        }
        if (code == 'h') {
            fputs(help_text, stdout);
            return bps_cmd_finish("scheduler", 0);
        }
        if (code != 'a') {
            return bps_cmd_bad_option("scheduler", code, argv);
        }
        announce_fd = optarg;
    }
    if (optind < argc) {
        return bps_cmd_usage("scheduler", "'%s' is not expected", argv[optind]);
    }
    struct bps_conf *conf = bps_cmd_conf_load("scheduler", &request, "scheduler");
    bps_cmd_conf_fini(&request);
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bps_role_begin(conf, "scheduler");
    int result = serve(conf, announce_fd);
    bps_conf_free(conf);
    return result;
}
