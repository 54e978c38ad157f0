/* SPDX-License-Identifier: Apache-2.0 */
/* test_log.c - lines of the log, the words for statuses, types and operations, and what always holds. */
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <byteps/byteps.h>

#include "checks.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/report.h"
#include "config.h"

static FILE *file;
static char text[1 << 20];

static void set_up(void)
{
    file = tmpfile();
    ck_assert_ptr_nonnull(file);
    dup2(fileno(file), STDERR_FILENO);
    setenv("TERM", "xterm", 1);
}

static void tear_down(void)
{
    fclose(file);
}

/* What was written since the last call. */
static const char *written(void)
{
    static off_t seen;
    ssize_t n = pread(fileno(file), text, sizeof text - 1, seen);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    seen += n;
    return text;
}

static void expect(const char *pattern)
{
    regex_t regex;
    ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ck_assert_msg(regexec(&regex, written(), 0, NULL, 0) == 0, "'%s' is not like '%s'", text, pattern);
    regfree(&regex);
}

#define TIME "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} "

START_TEST(a_line_has_time_level_identity_and_component)
{
    bps_warn("transports.net", "%d of %s", 3, "four");
    expect(TIME "WARN  transports\\.net: 3 of four\n$");
    bps_log_set_identity("worker/12");
    bps_error("transports.net", "it");
    expect(TIME "ERROR worker/12 transports\\.net: it\n$");
    bps_info("", "nothing in front");
    expect(TIME "INFO  worker/12 nothing in front\n$");
    bps_log_write(BPS_LOG_INFO, NULL, "%s", "");
    expect(TIME "INFO  worker/12 \n$");
    bps_log_hide_time(true);
    bps_info("x", "y");
    expect("^INFO  worker/12 x: y\n$");
    bps_log_set_identity("");
    bps_log_write(BPS_LOG_TRACE, "x", "y");
    expect("^TRACE x: y\n$");
    bps_log_write(99, "x", "y");
    expect("^TRACE x: y\n$");
}
END_TEST

START_TEST(the_level_decides)
{
    bps_log_hide_time(true);
    bps_debug("x", "not by default");
    ck_assert_str_eq(written(), "");
    bps_log_set_level(BPS_LOG_DEBUG);
    ck_assert_uint_eq(bps_log_level(), BPS_LOG_DEBUG);
    bps_debug("x", "now");
    ck_assert_str_eq(written(), "DEBUG x: now\n");
    bps_log_set_level(BPS_LOG_ERROR);
    bps_warn("x", "no more");
    ck_assert_str_eq(written(), "");
}
END_TEST

START_TEST(foreign_text_stays_within_its_line)
{
    bps_log_hide_time(true);
    bps_info("x", "a\nERROR b\033[31m\tc\r\177 \303\251");
    ck_assert_str_eq(written(), "INFO  x: a?ERROR b?[31m?c?? \303\251\n");
}
END_TEST

START_TEST(texts_are_made_printable)
{
    static const struct {
        const char *text, *clean;
    } cases[] = {
        {"", ""},
        {"plain ~", "plain ~"},
        {"gr\xc3\xbc\xc3\x9f, \xe2\x82\xac, \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f, \xe2\x82\xac, \xf0\x9f\x98\x80"},
        {"a\nb\033[2J\177\t", "a?b?[2J??"},
        {"\xc2\x9b", "??"},               /* a control character of two bytes */
        {"\x80 \xff \xc0\xaf", "? ? ??"}, /* no beginning; the slash in two bytes */
        {"\xed\xa0\x80", "???"},          /* half of a pair of UTF-16 */
        {"\xf4\x90\x80\x80", "????"},     /* beyond the last one */
        {"cut \xe2\x82", "cut ??"},
        {"\xf0\x9f\x98", "???"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s", cases[i].text);
        bps_make_printable(line);
        ck_assert_str_eq(line, cases[i].clean);
    }
}
END_TEST

START_TEST(too_long_text_is_cut)
{
    static char longest[10000];
    memset(longest, 'z', sizeof longest - 1);
    bps_log_hide_time(true);
    bps_log_set_identity(longest);
    bps_info(longest, "%s", longest);
    written();
    ck_assert_uint_eq(strlen(text), 4095);
    ck_assert_int_eq(text[4094], '\n');
    bps_info("x", "%s", longest);
    written();
    ck_assert_int_eq(strncmp(text, "INFO  zzz", 9), 0);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

START_TEST(errno_is_told_and_kept)
{
    bps_log_hide_time(true);
    errno = ENOENT;
    bps_info("x", "%m");
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_str_eq(written(), "INFO  x: No such file or directory\n");
}
END_TEST

static void *write_lines(void *arg)
{
    for (int i = 0; i < 500; i++) {
        bps_log_set_identity(i % 2 ? "worker/1" : "worker/2");
        bps_info("thread", "%s", (const char *)arg);
    }
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    pthread_t threads[4];
    static const char *const words[4] = {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc",
                                         "dddddddddddddddd"};
    int lines = 0;
    bps_log_hide_time(true);
    bps_log_set_identity("worker/1");
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, write_lines, (void *)words[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    written();
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *tail = line + strlen("INFO  worker/1 thread: ");
        ck_assert_uint_eq(strlen(line), strlen("INFO  worker/1 thread: aaaaaaaaaaaaaaaa"));
        ck_assert_uint_eq(strspn(tail, (char[]){tail[0], '\0'}), 16);
        lines++;
    }
    ck_assert_int_eq(lines, 2000);
}
END_TEST

/* ---- the environment ---- */

static atomic_uint reads;

/* In the place of the C library's, for the library that is tested: counts who looks. */
char *getenv(const char *name)
{
    size_t n = strlen(name);
    atomic_fetch_add(&reads, 1);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, name, n) == 0 && (*entry)[n] == '=') {
            return *entry + n + 1;
        }
    }
    return NULL;
}

START_TEST(a_line_does_not_read_the_environment)
{
    bps_log_read_environment();
    ck_assert_uint_gt(atomic_load(&reads), 0);
    atomic_store(&reads, 0);
    for (uint32_t level = BPS_LOG_ERROR; level <= BPS_LOG_TRACE; level++) {
        bps_log_write(level, "x", "%d", 1);
    }
    ck_assert_uint_eq(atomic_load(&reads), 0);
}
END_TEST

static atomic_bool over;

static void *write_until_over(void *arg)
{
    while (!atomic_load(&over)) {
        bps_info("thread", "a line");
    }
    return arg;
}

/* The array of variables grows, and its old place is given back; so is each longer text. */
START_TEST(another_thread_may_change_the_environment)
{
    pthread_t threads[2];
    static char value[4096];
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, write_until_over, NULL);
    }
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 1000; i++) {
            char name[32];
            snprintf(name, sizeof name, "BYTEPS_TEST_%d", i);
            memset(value, 'v', (size_t)(round * 37 + i) % sizeof value);
            setenv(name, value, 1);
        }
        clearenv();
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}
END_TEST

/* By the clock that the log reads: that of time() is a tick behind. */
static time_t five_hours_ahead(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + 5 * 3600;
}

START_TEST(the_time_zone_is_that_of_the_last_reading)
{
    setenv("TZ", "XYZ-5", 1);
    bps_log_read_environment();
    setenv("TZ", "XYZ+5", 1);
    char there[32];
    time_t before = five_hours_ahead();
    bps_info("x", "y");
    time_t after = five_hours_ahead();
    written();
    memcpy(there, text, 19);
    there[19] = '\0';
    char earliest[32], latest[32];
    struct tm utc;
    strftime(earliest, sizeof earliest, "%F %T", gmtime_r(&before, &utc));
    strftime(latest, sizeof latest, "%F %T", gmtime_r(&after, &utc));
    ck_assert_str_ge(there, earliest);
    ck_assert_str_le(there, latest);
}
END_TEST

START_TEST(statuses_types_and_operations_have_names)
{
    for (int status = BPS_ERR_MEMBERSHIP; status <= BPS_AGAIN; status++) {
        ck_assert_str_ne(bps_strerror(status), "unknown status");
        for (int other = BPS_ERR_MEMBERSHIP; other < status; other++) {
            ck_assert_str_ne(bps_strerror(status), bps_strerror(other));
        }
    }
    ck_assert_str_eq(bps_strerror(3), "unknown status");
    ck_assert_str_eq(bps_strerror(-16), "unknown status");
    ck_assert_str_eq(bps_strerror(INT32_MIN), "unknown status");
    ck_assert_str_eq(bps_dtype_name(BPS_BFLOAT16), "bfloat16");
    ck_assert_str_eq(bps_dtype_name(BPS_DTYPES), "?");
    ck_assert_uint_eq(bps_dtype_size(BPS_FLOAT64), 8);
    ck_assert_uint_eq(bps_dtype_size(BPS_BOOL), 1);
    ck_assert_uint_eq(bps_dtype_size(BPS_DTYPES), 0);
    ck_assert_str_eq(bps_op_name(BPS_AVERAGE), "average");
    ck_assert_str_eq(bps_op_name(BPS_OPS), "?");
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        ck_assert_uint_gt(bps_dtype_size(dtype), 0);
        ck_assert_uint_gt(strlen(bps_dtype_name(dtype)), 1);
    }
    ck_assert_uint_gt(strlen(bps_version()), 0);
}
END_TEST

START_TEST(assertions_are_checked_in_builds_that_check_themselves)
{
    bool checked = false;
#ifdef BPS_DEBUG
    const bool wanted = true;
#else
    const bool wanted = false;
#endif
    bps_assert((checked = true));
    ck_assert_int_eq(checked, wanted);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_line_has_time_level_identity_and_component);
    tcase_add_test(all, the_level_decides);
    tcase_add_test(all, foreign_text_stays_within_its_line);
    tcase_add_test(all, texts_are_made_printable);
    tcase_add_test(all, too_long_text_is_cut);
    tcase_add_test(all, errno_is_told_and_kept);
    tcase_add_test(all, lines_of_threads_do_not_mix);
    tcase_add_test(all, a_line_does_not_read_the_environment);
    tcase_add_test(all, another_thread_may_change_the_environment);
    tcase_add_test(all, the_time_zone_is_that_of_the_last_reading);
    tcase_add_test(all, statuses_types_and_operations_have_names);
    tcase_add_test(all, assertions_are_checked_in_builds_that_check_themselves);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
