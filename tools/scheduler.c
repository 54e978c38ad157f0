/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c - `byteps scheduler`: the rendezvous of a job as a process. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "tools/cmd.h"
#include "tools/role.h"
#include "scheduler/scheduler.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps scheduler [OPTIONS]\n"
    "\n"
    "Gathers the members of a job, hands out ranks, addresses and placement, and\n"
    "watches that all are alive. Listens on cluster.scheduler (port 0: a free one of\n"
    "cluster.ports) and ends with the job. `byteps run` starts it automatically.\n"
    "\n"
    "      --announce FD      write lines to descriptor FD: the address \"host:port\"\n"
    "                         once it listens, \"gathered\" once all have joined,\n"
    "                         with \"member PID\" of each,\n"
    "                         \"taken over\" if they had before, \"left RANK\" of a\n"
    "                         worker, \"lost MEMBER\" if the job ends for the loss of\n"
    "                         one, \"without MEMBER\" if it goes on, \"failed WHY\"\n"
    "      --absent FD        read a line from descriptor FD: why a member will never\n"
    "                         join; workers that wait for others, or come later, end\n"
    "                         with that as their error\n"
    "      --left RANKS       to take over a job whose scheduler was lost: workers\n"
    "                         that have left it, such as 0,3\n"
    "      --ended PIDS       likewise, processes of this host that have ended\n" BPS_CMD_CONF_HELP
    "      --help             print this\n";
/* clang-format on */

struct process {
    struct bps_loop *loop;
    struct bps_scheduler *scheduler;
    bps_status verdict;
    int announce, absent; /* descriptors; -1: none */
    struct bps_watch *absent_watch;
    char line[512]; /* from `absent` */
    size_t used;
};

static void on_finished(void *arg, bps_status status)
{
    struct process *process = arg;
    process->verdict = status;
    bps_loop_stop(process->loop);
}

static void on_news(void *arg, const char *line)
{
    const struct process *process = arg;
    if (process->announce >= 0) {
        dprintf(process->announce, "%s\n", line);
    }
}

static void on_stop(void *arg, uint32_t events)
{
    (void)events;
    bps_scheduler_end(((struct process *)arg)->scheduler, NULL);
}

static void stop_listening(struct process *process)
{
    if (process->absent_watch != NULL) {
        bps_loop_unwatch(process->loop, process->absent_watch);
        process->absent_watch = NULL;
    }
}

/* The first line counts. */
static void on_absent(void *arg, uint32_t events)
{
    struct process *process = arg;
    size_t room = sizeof process->line - 1 - process->used;
    if ((events & (EPOLLIN | EPOLLHUP)) == 0) {
        return;
    }
    ssize_t n = read(process->absent, process->line + process->used, room);
    process->used += n > 0 ? (size_t)n : 0;
    bool complete = memchr(process->line, '\n', process->used) != NULL || (size_t)n == room;
    if (complete) {
        process->line[strcspn(process->line, "\n")] = '\0';
        bps_scheduler_absent(process->scheduler, process->line);
    }
    if (complete || n <= 0) {
        stop_listening(process);
    }
}

/* Tells whoever started this where the scheduler listens: on a descriptor, or to people on standard output. */
static int announce(const struct process *process, const char *address)
{
    if (process->announce < 0) {
        printf("scheduler listens on %s\n", address);
        return bps_cmd_finish("scheduler", 0);
    }
    return dprintf(process->announce, "%s\n", address) > 0
               ? 0
               : bps_cmd_failure("scheduler", "--announce %d: %m", process->announce);
}

/* Begins to hear and to speak. */
static int open_up(struct process *process, const char *address)
{
    if (process->absent >= 0) {
        process->absent_watch = bps_loop_watch(process->loop, process->absent, on_absent, process);
        if (process->absent_watch == NULL) {
            return bps_cmd_failure("scheduler", "--absent %d: %m; expected a pipe or a socket", process->absent);
        }
    }
    return announce(process, address);
}

struct request {
    int announce, absent; /* descriptors; -1: none */
    const char *left;     /* ranks of workers, "0,3"; "": none */
    const char *ended;    /* processes, likewise */
};

static bool take_left(struct bps_scheduler *scheduler, uint32_t rank)
{
    return bps_scheduler_left(scheduler, rank);
}

static bool take_ended(struct bps_scheduler *scheduler, uint32_t pid)
{
    return pid > 0 && bps_scheduler_ended(scheduler, pid) == BPS_OK;
}

/* Returns 0, or an exit status after a message. */
static int take_numbers(struct bps_scheduler *scheduler, const char *option, const char *numbers, const char *what,
                        bool (*take)(struct bps_scheduler *scheduler, uint32_t number))
{
    char *end;
    for (const char *at = numbers; *at != '\0'; at = end + (*end == ',')) {
        long number = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || number < 0 || number > INT32_MAX ||
            !take(scheduler, (uint32_t)number)) {
            return bps_cmd_usage("scheduler", "--%s %s: expected %s, such as 0,3", option, numbers, what);
        }
    }
    return 0;
}

static int serve(const struct bps_conf *conf, const struct request *request)
{
    struct process process = {.loop = bps_loop_new(), .announce = request->announce, .absent = request->absent};
    struct bps_report report = {""};
    struct bps_watch *watch = NULL;
    char address[128];
    int result, stop = bps_role_stop_fd();
    bps_status status = process.loop == NULL ? BPS_ERR_IO
                                             : bps_scheduler_new(conf, process.loop, on_finished, on_news, &process,
                                                                 address, sizeof address, &process.scheduler, &report);
    if (status == BPS_OK) {
        watch = stop >= 0 ? bps_loop_watch(process.loop, stop, on_stop, &process) : NULL;
        result = take_numbers(process.scheduler, "left", request->left, "ranks of workers", take_left);
        if (result == 0) {
            result = take_numbers(process.scheduler, "ended", request->ended, "numbers of processes", take_ended);
        }
        if (result == 0) {
            result = watch != NULL ? open_up(&process, address) : bps_cmd_failure("scheduler", "cannot watch signals");
        }
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
    stop_listening(&process);
    bps_scheduler_free(process.scheduler);
    bps_loop_free(process.loop);
    close(stop);
    return result;
}

/* Returns 0, or an exit status after a message. */
static int take_fd(const char *option, const char *text, int *out)
{
    char *end;
    long fd = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || fd < 0 || fd > 1 << 20) {
        return bps_cmd_usage("scheduler", "--%s %s: expected the number of an open descriptor", option, text);
    }
    *out = (int)fd;
    return 0;
}

int bps_cmd_scheduler(int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"announce", required_argument, NULL, 'a'},
        {"absent", required_argument, NULL, 'b'},
        {"left", required_argument, NULL, 'l'},
        {"ended", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bps_cmd_conf lines = {0};
    struct request request = {-1, -1, "", ""};
    int code, wrong;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&lines, code, optarg)) {
            continue;
        }
        if (code == 'h') {
            fputs(help_text, stdout);
            return bps_cmd_finish("scheduler", 0);
        }
        if (code == 'l' || code == 'm') {
            *(code == 'l' ? &request.left : &request.ended) = optarg;
            continue;
        }
        if (code != 'a' && code != 'b') {
            return bps_cmd_bad_option("scheduler", code, argv);
        }
        wrong =
            code == 'a' ? take_fd("announce", optarg, &request.announce) : take_fd("absent", optarg, &request.absent);
        if (wrong) {
            return wrong;
        }
    }
    if (optind < argc) {
        return bps_cmd_usage("scheduler", "'%s' is not expected", argv[optind]);
    }
    struct bps_conf *conf = bps_role_conf("scheduler", &lines);
    bps_cmd_conf_fini(&lines);
    if (conf == NULL) {
        return BPS_EXIT_USAGE;
    }
    bps_role_begin(conf, "scheduler");
    int result = serve(conf, &request);
    bps_conf_free(conf);
    return result;
}
