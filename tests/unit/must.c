/* SPDX-License-Identifier: Apache-2.0 */
/* must.c - how a test fails in the process that check runs it in, and in a child of that. */
#include "checks.h"
#include "must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_child;

pid_t must_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        is_child = true;
    }
    must(child >= 0);
    return child;
}

bool must_wait(pid_t child)
{
    int status;
    must_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void must_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (is_child) {
        fprintf(stderr, "%s:%d: in a forked child: %s: %s\n", file, line, condition, text);
        _exit(1);
    }
    ck_abort_msg("%s:%d: %s: %s", file, line, condition, text);
    abort();
}
