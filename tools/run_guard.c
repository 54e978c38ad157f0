/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_guard.c - a guard, a second guard and the manager, of which any ends the job when the others are killed.
 *
 * Each is the child of the one before. The kernel kills the children of a dead manager (PR_SET_PDEATHSIG), but
 * not their children. Those the nearest guard adopts (PR_SET_CHILD_SUBREAPER) and kills. A dead guard shows itself
 * to its child by SIGQUIT, which means: kill all. If all three are killed at once, nobody is left to find what
 * the parts have started; the parts themselves end by the kernel.
 *
 * A terminal's Ctrl-Z reaches the guard alone, as all others have process groups of their own. As any signal SIGTSTP is
 * passed on, down to the parts, and each of the three then stops, too; SIGCONT goes the same way.
 */
#include "tools/run.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The parent of a process from /proc, 0 if it is gone. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    /* "pid (name) state parent ...", where the name may hold anything */
    const char *end = strrchr(text, ')');
    int parent = 0;
    return end && sscanf(end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static bool is_known(const struct bps_run_child *children, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++) {
        if (children[i].pid == pid) {
            return true;
        }
    }
    return false;
}

size_t bps_run_signal_adopted(const struct bps_run_child *children, size_t n, int number)
{
    size_t count = 0;
    DIR *dir = opendir("/proc");
    if (!dir) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || parent_of(entry->d_name) != getpid()) {
            continue;
        }
        pid_t pid = (pid_t)atol(entry->d_name);
        count += !is_known(children, n, pid) && kill(pid, number) == 0;
    }
    closedir(dir);
    return count;
}

/* Kills what a dead child has left, generation after generation. */
static void kill_adopted(void)
{
    while (bps_run_signal_adopted(NULL, 0, SIGKILL) > 0) {
        while (waitpid(-1, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/* Who has started us may want a signal to be ignored, as nohup does with HUP. */
static void add_unless_ignored(sigset_t *set, int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0 || action.sa_handler != SIG_IGN) {
        sigaddset(set, number);
    }
}

/* What may be sent to us: INT and QUIT even to a job in the background. */
static void guarded_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGQUIT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
    sigaddset(set, SIGCONT);
    sigaddset(set, SIGCHLD);
    add_unless_ignored(set, SIGHUP);
    add_unless_ignored(set, SIGTSTP);
}

/* In a new process: what `parent` guards. */
static int be_guarded(pid_t parent, int (*body)(void *arg), void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setpgid(0, 0);
    if (getppid() != parent) {
        return BPS_EXIT_FAILURE;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* or printing on the terminal could stop us */
    return body(arg);
}

/* SIGTSTP is blocked to be passed on first; the kernel does not stop a group by it that no shell looks after. */
void bps_run_stop_self(void)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* it stops here, until SIGCONT */
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

/* Passes signals on until the child ends; returns its status from waitpid. */
static int watch(pid_t child)
{
    sigset_t set;
    sigprocmask(SIG_SETMASK, NULL, &set);
    for (;;) {
        int number = sigwaitinfo(&set, NULL);
        if (number > 0 && number != SIGCHLD) {
            kill(child, number);
            if (number == SIGTSTP) {
                bps_run_stop_self();
            }
            continue;
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid == child) {
                return status;
            }
        }
    }
}

struct guarded {
    const char *name;  /* subcommand, for messages */
    const char *title; /* of the process that runs the body */
    int (*body)(void *arg);
    void *arg;
};

static int guard(void *arg)
{
    const struct guarded *guarded = arg;
    fflush(NULL);
    pid_t self = getpid(), child = fork();
    if (child < 0) {
        return bps_cmd_failure(guarded->name, "cannot start a process: %s", strerror(errno));
    }
    if (child == 0) {
        return be_guarded(self, guarded->body, guarded->arg);
    }
    setpgid(child, child);
    int status = watch(child);
    kill_adopted();
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    char text[32];
    bps_cmd_failure(guarded->name, "the %s of the job (pid %d) was killed by %s; ended what was left", guarded->title,
                    (int)child, bps_run_signal_name(WTERMSIG(status), text, sizeof(text)));
    return BPS_RUN_STATUS_SIGNAL + WTERMSIG(status);
}

bool bps_run_follow(pid_t caller)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    return getppid() == caller;
}

int bps_run_guarded(const char *name, int (*body)(void *arg), void *arg)
{
    sigset_t set;
    guarded_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how children end */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct guarded manager = {name, "manager", body, arg};
    struct guarded second = {name, "second guard", guard, &manager};
    return guard(&second);
}
