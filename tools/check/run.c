/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - runs a test of the suite in a process of its own, and finds out what became of it: it says so itself, or it
 * was ended by a signal, ended by the plugin, or did not end in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/report.h"
#include "tools/check/check.h"
#include "tools/check/guarded.h"

/* ---- in the process of the test ---- */

static struct bps_check_page *page_here;

static void tell(struct bps_check *check, enum bps_check_result result, const char *format, va_list args)
{
    if (check->page->result != BPS_CHECK_FAILED) { /* what another process of the test has found came first */
        vsnprintf(check->page->text, sizeof check->page->text, format, args);
        check->page->result = result;
    }
}

void bps_check_fail(struct bps_check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(check, BPS_CHECK_FAILED, format, args);
    va_end(args);
    _exit(1);
}

void bps_check_skip(struct bps_check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(check, BPS_CHECK_SKIPPED, format, args);
    va_end(args);
    _exit(0);
}

void bps_check_note(struct bps_check *check, const char *format, ...)
{
    size_t used = strlen(check->page->text);
    va_list args;
    va_start(args, format);
    if (used > 0 && used + 2 < sizeof check->page->text) {
        memcpy(check->page->text + used, "; ", 3);
        used += 2;
    }
    vsnprintf(check->page->text + used, sizeof check->page->text - used, format, args);
    va_end(args);
}

void bps_check_at(struct bps_check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(check->page->at, sizeof check->page->at, format, args);
    va_end(args);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (bps_guarded_place(info->si_addr, page_here->text, sizeof page_here->text)) {
        page_here->result = BPS_CHECK_FAILED;
        _exit(1);
    }
    raise(signal); /* its handler is the default's again: the parent tells the signal */
}

static void catch_faults(void)
{
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND)};
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

_Noreturn static void run_here(const struct bps_check_plugin *plugin, const struct bps_check_test *test,
                               struct bps_check_page *page, double limit, const int output[2])
{
    struct rlimit no_core = {0, 0};
    struct bps_check check = {.plugin = plugin, .page = page, .limit = limit, .begun = bps_now()};
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &no_core);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(output[0], 1) < 0 || dup2(output[1], 2) < 0) {
        bps_check_fail(&check, "cannot redirect the output of the test: %s", strerror(errno));
    }
    page_here = page;
    catch_faults();
    check.loop = bps_loop_new();
    if (check.loop == NULL) {
        bps_check_fail(&check, "out of memory for the test");
    }
    test->run(&check);
    fflush(stdout);
    if (page->result == BPS_CHECK_FAILED) { /* which another process of the test has found */
        _exit(1);
    }
    page->result = BPS_CHECK_PASSED;
    _exit(0);
}

/* ---- in the process that has begun it ---- */

static int output_file(void)
{
    return memfd_create("byteps plugin check", MFD_CLOEXEC);
}

/* What was written to the file, at most its end; freed by the caller. NULL: nothing. */
static char *output_of(int fd)
{
    enum { MOST = 4000 };
    off_t bytes = lseek(fd, 0, SEEK_END), from = bytes > MOST ? bytes - MOST : 0;
    char *text = bytes > 0 ? calloc(MOST + 1, 1) : NULL;
    if (text != NULL && pread(fd, text, MOST, from) < 0) {
        text[0] = '\0';
    }
    return text;
}

/* Waits for the process, at most so long; false: it has not ended, and was killed. */
static bool wait_for(pid_t pid, double limit, int *status)
{
    uint64_t deadline = bps_now() + (uint64_t)(limit * 1e9);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (waitpid(pid, status, WNOHANG) == 0) {
        uint64_t now = bps_now();
        if (now >= deadline) {
            kill(-pid, SIGKILL);
            waitpid(pid, status, 0);
            return false;
        }
        uint64_t left = deadline - now;
        struct timespec most = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        sigtimedwait(&child, NULL, &most);
    }
    kill(-pid, SIGKILL); /* whatever it has left */
    return true;
}

static void fail_outcome(struct bps_check_outcome *out, const struct bps_check_page *page, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail_outcome(struct bps_check_outcome *out, const struct bps_check_page *page, const char *format, ...)
{
    int used = snprintf(out->text, sizeof out->text, "%s%s", page->at, page->at[0] != '\0' ? ": " : "");
    va_list args;
    va_start(args, format);
    vsnprintf(out->text + used, sizeof out->text - (size_t)used, format, args);
    va_end(args);
    out->result = BPS_CHECK_FAILED;
}

/* From how it has ended and what it has told to what became of it. */
static void judge(const struct bps_check_page *page, int status, bool in_time, double limit, const char *printed,
                  struct bps_check_outcome *out)
{
    if (!in_time) {
        fail_outcome(out, page, "did not end within %g s", limit);
    } else if (page->result == BPS_CHECK_FAILED) {
        fail_outcome(out, page, "%s", page->text);
    } else if (WIFSIGNALED(status)) {
        fail_outcome(out, page, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (page->result == BPS_CHECK_RUNNING || WEXITSTATUS(status) != 0) {
        fail_outcome(out, page, "the plugin has ended the process with status %d", WEXITSTATUS(status));
    } else if (printed != NULL) {
        fail_outcome(out, page,
                     "the plugin prints to standard output, which belongs to the application: \"%.200s\"; use "
                     "host->log() for messages",
                     printed);
    } else {
        out->result = page->result;
        snprintf(out->text, sizeof out->text, "%s", page->text);
    }
    bps_make_printable(out->text);
}

static void watch_test(pid_t pid, const struct bps_check_page *page, double limit, const int output[2],
                       struct bps_check_outcome *out)
{
    int status = 0;
    bool in_time = wait_for(pid, limit, &status);
    char *printed = output_of(output[0]);
    out->output = output_of(output[1]);
    judge(page, status, in_time, limit, printed, out);
    free(printed);
}

void bps_check_run(const struct bps_check_plugin *plugin, const struct bps_check_test *test, double limit,
                   struct bps_check_outcome *out)
{
    uint64_t begun = bps_now();
    double most = limit * (test->limits > 0 ? test->limits : 1);
    struct bps_check_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int output[2] = {output_file(), output_file()};
    *out = (struct bps_check_outcome){.name = test->name, .result = BPS_CHECK_FAILED};
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    pid_t pid = page != MAP_FAILED && output[0] >= 0 && output[1] >= 0 ? fork() : -1;
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        run_here(plugin, test, page, most, output);
    }
    if (pid < 0) {
        snprintf(out->text, sizeof out->text, "cannot begin the test: %s", strerror(errno));
    } else {
        setpgid(pid, pid); /* as the process does itself: whichever comes first */
        watch_test(pid, page, most, output, out);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(output[0]);
    close(output[1]);
    munmap(page, sizeof *page);
    out->seconds = (double)(bps_now() - begun) / 1e9;
}
