/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_ask.c - one run of a host discovery script: a child whose output is read without waiting, and which is killed
 * when it is late or prints too much.
 *
 * Its end decides, not that of its output, which something in the background may hold open.
 */
#include "tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long it may take, and how many bytes it may print. */
#define PATIENCE (10 * BPS_S)
#define MOST     (1u << 20)

static _Noreturn void become(const char *command, int out, pid_t manager)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == manager && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0) {
        bps_run_reset_signals();
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    }
    _exit(BPS_RUN_STATUS_NOT_EXEC);
}

bool bps_run_ask_begin(struct bps_run_ask *ask, const char *script)
{
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) {
        return false;
    }
    char *command = bps_cmd_print("exec %s", script);
    pid_t manager = getpid(), pid = fcntl(pipe[0], F_SETFL, O_NONBLOCK) == 0 ? fork() : -1;
    if (pid == 0) {
        become(command, pipe[1], manager);
    }
    int error = errno;
    free(command);
    close(pipe[1]);
    if (pid < 0) {
        close(pipe[0]);
        errno = error;
        return false;
    }
    setpgid(pid, pid);
    *ask = (struct bps_run_ask){
        .pid = pid, .fd = pipe[0], .late = bps_now() + PATIENCE, .text = bps_cmd_alloc(MOST + 1, 1)};
    return true;
}

void bps_run_ask_kill(struct bps_run_ask *ask)
{
    kill(-ask->pid, SIGKILL);
    ask->killed = true;
}

void bps_run_ask_read(struct bps_run_ask *ask)
{
    ssize_t n = 1;
    while (n > 0 && ask->used < MOST) {
        n = read(ask->fd, ask->text + ask->used, MOST - ask->used);
        ask->used += n > 0 ? (size_t)n : 0;
    }
    if (ask->used == MOST && !ask->killed) {
        bps_run_ask_kill(ask);
    } else if (n == 0) { /* there is nothing to wait for but its end */
        close(ask->fd);
        ask->fd = -1;
    }
}

static bps_status check(const struct bps_run_ask *ask, int wait, struct bps_report *why)
{
    char name[32];
    if (ask->used == MOST) {
        return bps_fail(why, BPS_ERR_CONF, "it has printed %u bytes or more", MOST);
    }
    if (ask->killed) {
        return bps_fail(why, BPS_ERR_TIMEOUT, "it did not end within %d s", (int)(PATIENCE / BPS_S));
    }
    if (WIFSIGNALED(wait)) {
        return bps_fail(why, BPS_ERR_IO, "it was killed by %s",
                        bps_run_signal_name(WTERMSIG(wait), name, sizeof(name)));
    }
    if (WEXITSTATUS(wait) != 0) {
        return bps_fail(why, BPS_ERR_IO, "it exited with status %d", WEXITSTATUS(wait));
    }
    if (strlen(ask->text) != ask->used) {
        return bps_fail(why, BPS_ERR_CONF, "it has printed a zero byte");
    }
    return BPS_OK;
}

char *bps_run_ask_end(struct bps_run_ask *ask, int wait, struct bps_report *why)
{
    if (ask->fd >= 0) {
        bps_run_ask_read(ask);
    }
    if (ask->fd >= 0) {
        close(ask->fd);
    }
    char *text = ask->text;
    bool good = check(ask, wait, why) == BPS_OK;
    *ask = (struct bps_run_ask){.fd = -1};
    if (!good) {
        free(text);
        text = NULL;
    }
    return text;
}
