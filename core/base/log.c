/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - writes a message as one line by one system call, so that lines of several processes do not mix.
 *
 * It takes no lock: a thread that forks while another one writes leaves nothing locked in the child.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/report.h"
#include "base/text.h"

#define IDENTITY_WORDS 8

static _Atomic uint32_t log_level = BPS_LOG_INFO;
static atomic_bool log_no_time;
static atomic_bool log_colours; /* the user wants them, on a terminal that shows them */
/* Text, in words that can be read while they are changed. */
static _Atomic uint64_t log_identity[IDENTITY_WORDS];

void bps_log_set_level(uint32_t level)
{
    atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

uint32_t bps_log_level(void)
{
    return atomic_load_explicit(&log_level, memory_order_relaxed);
}

void bps_log_hide_time(bool hide)
{
    atomic_store_explicit(&log_no_time, hide, memory_order_relaxed);
}

/*
 * All that a line depends on in the environment. Another thread of the application may change that while a
 * line is written, and whoever reads it meanwhile reads freed memory. https://no-color.org
 */
void bps_log_read_environment(void)
{
    const char *unwanted = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    bool able = terminal != NULL && strcmp(terminal, "dumb") != 0;
    bool wanted = unwanted == NULL || *unwanted == '\0';
    atomic_store_explicit(&log_colours, able && wanted, memory_order_relaxed);
    tzset(); /* localtime_r() does this by itself if nobody has */
}

/* For lines before a job begins. */
__attribute__((constructor)) static void read_environment(void)
{
    bps_log_read_environment();
}

void bps_log_set_identity(const char *identity)
{
    uint64_t words[IDENTITY_WORDS] = {0};
    memcpy(words, identity, strnlen(identity, sizeof words - 1));
    for (size_t i = 0; i < IDENTITY_WORDS; i++) {
        atomic_store_explicit(&log_identity[i], words[i], memory_order_relaxed);
    }
}

static void add_time(struct bps_text *line)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local) == NULL) {
        return;
    }
    /* Not by strftime(), which may read the time zone from the environment again. */
    bps_text_add(line, "%04d-%02d-%02d %02d:%02d:%02d.%03ld ", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                 local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1000000);
}

static void add_level(struct bps_text *line, uint32_t level)
{
    static const struct {
        const char *word, *colour;
    } levels[] = {
        [BPS_LOG_ERROR] = {"ERROR", "1;31"}, [BPS_LOG_WARN] = {"WARN ", "33"},  [BPS_LOG_INFO] = {"INFO ", "32"},
        [BPS_LOG_DEBUG] = {"DEBUG", "36"},   [BPS_LOG_TRACE] = {"TRACE", "90"},
    };
    if (level < BPS_LOG_ERROR || level > BPS_LOG_TRACE) {
        level = BPS_LOG_TRACE;
    }
    if (atomic_load_explicit(&log_colours, memory_order_relaxed) && isatty(STDERR_FILENO)) {
        bps_text_add(line, "\033[%sm%s\033[0m ", levels[level].colour, levels[level].word);
    } else {
        bps_text_add(line, "%s ", levels[level].word);
    }
}

static void add_identity(struct bps_text *line)
{
    uint64_t words[IDENTITY_WORDS];
    for (size_t i = 0; i < IDENTITY_WORDS; i++) {
        words[i] = atomic_load_explicit(&log_identity[i], memory_order_relaxed);
    }
    char text[sizeof words + 1];
    memcpy(text, words, sizeof words);
    text[sizeof words] = '\0';
    if (text[0] != '\0') {
        bps_text_add(line, "%s ", text);
    }
}

static void write_all(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(STDERR_FILENO, text, length);
        if (n < 0 && errno != EINTR) {
            return;
        }
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        }
    }
}

void bps_log_write(uint32_t level, const char *component, const char *format, ...)
{
    int saved = errno;
    char text[4096];
    struct bps_text line = bps_text_in(text, sizeof text - 1); /* the last byte is for the end of the line */
    if (!atomic_load_explicit(&log_no_time, memory_order_relaxed)) {
        add_time(&line);
    }
    add_level(&line, level);
    add_identity(&line);
    size_t start = line.length;
    if (component != NULL && *component != '\0') {
        bps_text_add(&line, "%s: ", component);
    }
    va_list arguments;
    va_start(arguments, format);
    errno = saved; /* for %m */
    bps_text_vadd(&line, format, arguments);
    va_end(arguments);
    bps_make_printable(text + start);
    text[line.length++] = '\n';
    write_all(text, line.length);
    errno = saved;
}
