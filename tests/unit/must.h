/* SPDX-License-Identifier: Apache-2.0 */
/*
 * must.h - assertions for what runs in forked children of a test, too.
 *
 * check notes each assertion that it passes in a file whose place a child shares with its parent, so that the words
 * of both get mixed: "Bad message type". In a child these here write nothing but what was wrong, to stderr, and
 * end it with status 1; elsewhere the test fails as with check's own.
 */
#ifndef MUST_H
#define MUST_H

#include <stdbool.h>
#include <sys/types.h>

/* fork(), for a test. */
pid_t must_fork(void);
/* Waits for a child; false: it has not ended with status 0. */
bool must_wait(pid_t child);

#define must(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            must_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                                                \
        }                                                                                                              \
    } while (0)

/* Integers. */
#define must_equal(one, other)                                                                                         \
    do {                                                                                                               \
        long long one_ = (long long)(one), other_ = (long long)(other);                                                \
        if (one_ != other_) {                                                                                          \
            must_fail(__FILE__, __LINE__, #one " == " #other, "%lld is not %lld", one_, other_);                       \
        }                                                                                                              \
    } while (0)

void must_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

#endif
