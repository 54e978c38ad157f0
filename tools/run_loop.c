/* SPDX-License-Identifier: Apache-2.0 */
/* run_loop.c - the manager's one loop: signals, the scheduler's address, output, time. */
#include "tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/files.h"

/* The first places in the array for poll; behind them come the open descriptors of the children. */
enum { SIGNALS, ANNOUNCE, PART, ASK, SINKS, FIXED = SINKS + 2 };
enum { MOST_PER_CHILD = 3 };

bool bps_run_init(struct bps_run *run, size_t room)
{
    sigset_t set;
    struct bps_report report = {""};
    sigprocmask(SIG_SETMASK, NULL, &set); /* what the guard has blocked */
    run->announce = -1;
    if (bps_files_expect(MOST_PER_CHILD * room, &report) != BPS_OK) {
        bps_cmd_failure(run->name, "%s", report.text);
        return false;
    }
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signals < 0) {
        bps_cmd_failure(run->name, "cannot watch signals: %s", strerror(errno));
        return false;
    }
    bps_run_sink_init(&run->sink[0], STDOUT_FILENO);
    bps_run_sink_init(&run->sink[1], STDERR_FILENO);
    run->nowhere.fd = -1;
    run->children = bps_cmd_alloc(room, sizeof(*run->children));
    run->room = room;
    run->job_deadline = run->options->ends;
    return true;
}

void bps_run_child_fini(struct bps_run_child *child)
{
    bps_run_stream_end(&child->stream[0]);
    bps_run_stream_end(&child->stream[1]);
    bps_run_sink_fini(&child->control);
    bps_run_sink_fini(&child->log);
}

void bps_run_fini(struct bps_run *run)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        bps_run_child_fini(&run->children[i]);
    }
    free(run->children);
    free(run->left);
    free(run->ask.text);
    if (run->ask.pid && run->ask.fd >= 0) {
        close(run->ask.fd);
    }
    bps_run_sink_fini(&run->sink[0]);
    bps_run_sink_fini(&run->sink[1]);
    if (run->announce >= 0) {
        close(run->announce);
    }
    if (run->signals >= 0) {
        close(run->signals);
    }
}

void bps_run_say(struct bps_run *run, const char *format, ...)
{
    char text[1200], line[1280];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    int n = snprintf(line, sizeof(line), "byteps %s: %s\n", run->name, text);
    bps_run_sink_put(&run->sink[1], line, (size_t)n);
}

/* ---- what to wait for ---------------------------------------------------------------------------------- */

static void wait_for_output(struct pollfd *p, const struct bps_run_sink *sink)
{
    *p = (struct pollfd){.fd = bps_run_sink_pending(sink) ? sink->fd : -1, .events = POLLOUT};
}

/* poll fails if it gets more places than the process may have descriptors: a closed one gets none. */
static size_t watch_child(struct bps_run_child *child, struct pollfd *p, size_t n)
{
    for (int s = 0; s < 2; s++) {
        struct bps_run_stream *stream = &child->stream[s];
        stream->place = 0;
        if (stream->fd >= 0 && bps_run_sink_room(stream->sink)) {
            stream->place = n;
            p[n++] = (struct pollfd){.fd = stream->fd, .events = POLLIN};
        }
    }
    if (bps_run_sink_pending(&child->control)) {
        wait_for_output(&p[n++], &child->control);
    }
    return n;
}

static size_t watch(struct bps_run *run, struct pollfd *p)
{
    bool control = run->options->part && !run->part_lost;
    p[SIGNALS] = (struct pollfd){.fd = run->signals, .events = POLLIN};
    p[ANNOUNCE] = (struct pollfd){.fd = run->announce, .events = POLLIN};
    p[PART] = (struct pollfd){.fd = control ? STDIN_FILENO : -1, .events = POLLIN};
    p[ASK] = (struct pollfd){.fd = run->ask.pid ? run->ask.fd : -1, .events = POLLIN};
    wait_for_output(&p[SINKS], &run->sink[0]);
    wait_for_output(&p[SINKS + 1], &run->sink[1]);
    size_t n = FIXED;
    for (size_t i = 0; i < run->nchildren; i++) {
        n = watch_child(&run->children[i], p, n);
    }
    return n;
}

static int wait_ms(const struct bps_run *run, uint64_t now)
{
    uint64_t deadlines[] = {run->deadline, run->job_deadline, run->judge_at, run->replace_at, run->ask_at};
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]) && !run->childless; i++) {
        next = deadlines[i] && deadlines[i] < next ? deadlines[i] : next;
    }
    if (next == UINT64_MAX) {
        return -1;
    }
    uint64_t ms = next > now ? (next - now + BPS_MS - 1) / BPS_MS : 0;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* ---- what has come ------------------------------------------------------------------------------------- */

/* Follows the parts that SIGTSTP has stopped. What has a deadline could not go on meanwhile. */
static void stop(struct bps_run *run)
{
    uint64_t *deadlines[] = {&run->deadline, &run->job_deadline, &run->judge_at};
    uint64_t began = bps_now();
    bps_run_stop_self();
    uint64_t stopped = bps_now() - began;
    for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++) {
        *deadlines[i] += *deadlines[i] ? stopped : 0;
    }
}

static void take_signal(struct bps_run *run, int number)
{
    bps_run_interrupt(run, number);
    if (number == SIGTSTP) {
        stop(run);
    } else if (number != SIGCONT) {
        run->impatient = run->impatient || run->childless;
    }
}

static void take_signals(struct bps_run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) {
            take_signal(run, (int)info.ssi_signo);
        }
    }
    bps_run_reap(run);
}

static void read_streams(struct bps_run *run, const struct pollfd *p)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        for (int s = 0; s < 2; s++) {
            if (child->stream[s].place && p[child->stream[s].place].revents) {
                bps_run_stream_read(&child->stream[s]);
            }
        }
        bps_run_sink_flush(&child->control);
    }
}

/* Output that nobody reads ends the job, as SIGPIPE would have ended its writer. */
static void flush_sinks(struct bps_run *run)
{
    for (int i = 0; i < 2; i++) {
        bps_run_sink_flush(&run->sink[i]);
        int error = run->sink[i].error;
        run->sink[i].error = 0;
        if (error == EPIPE) {
            run->interrupted = true;
            bps_run_fail(run, BPS_RUN_STATUS_SIGNAL + SIGPIPE);
            bps_run_end(run);
        } else if (error) {
            bps_run_say(run, "cannot write standard %s: %s; the rest of it is lost", i ? "error" : "output",
                        strerror(error));
            run->lost_output = true;
        }
    }
}

/* Once no process is left that could write, what is still in the pipes is the end. */
static bool finished(struct bps_run *run)
{
    if (!run->childless) {
        return false;
    }
    bool empty = true;
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        for (int s = 0; s < 2; s++) {
            while (child->stream[s].fd >= 0 && bps_run_sink_room(&run->sink[s])) {
                if (!bps_run_stream_read(&child->stream[s])) {
                    bps_run_stream_end(&child->stream[s]);
                }
            }
            empty = empty && child->stream[s].fd < 0;
        }
    }
    if (empty) {
        bps_run_conclude(run);
    }
    flush_sinks(run);
    empty = empty && !bps_run_sink_pending(&run->sink[0]) && !bps_run_sink_pending(&run->sink[1]);
    return empty || run->impatient;
}

int bps_run_loop(struct bps_run *run)
{
    struct pollfd *p = bps_cmd_alloc(FIXED + MOST_PER_CHILD * run->room, sizeof(*p));
    while (!finished(run)) {
        int n = poll(p, watch(run, p), wait_ms(run, bps_now()));
        if (n > 0 && p[ANNOUNCE].revents) {
            run->scheduler->announced(run);
        }
        if (n > 0 && p[PART].revents) {
            bps_run_part_control(run);
        }
        if (n > 0) {
            read_streams(run, p);
        }
        flush_sinks(run);
        if (n > 0 && p[SIGNALS].revents) {
            take_signals(run);
        }
        bps_run_tick(run, bps_now());
    }
    free(p);
    return run->status || !run->lost_output ? run->status : BPS_EXIT_FAILURE;
}
