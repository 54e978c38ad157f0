/* SPDX-License-Identifier: Apache-2.0 */
/* test_conf_refused.c - settings and files that are refused, word by word. */
#include "conf_rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/load.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- settings ---- */

#define NO_SETTING ": not a setting; expected KEY=VALUE, such as \"worker.partition=8 MiB\""

static const struct {
    const char *set, *error;
} bad_settings[] = {
    {"", "--set: \"\"" NO_SETTING},
    {"worker.partition", "--set: \"worker.partition\"" NO_SETTING},
    {"=3", "--set: \"=3\"" NO_SETTING},
    {"worker..threads=3", "--set: \"worker..threads=3\"" NO_SETTING},
    {".threads=3", "--set: \".threads=3\"" NO_SETTING},
    {"worker.=3", "--set: \"worker.=3\"" NO_SETTING},
    {"worker threads=3", "--set: \"worker threads=3\"" NO_SETTING},
    {"a.b.c.d.e.f.g.h.i=3", "--set: \"a.b.c.d.e.f.g.h.i=3\"" NO_SETTING},
    {"worker.partiton=3", "--set: worker.partiton: unknown key; did you mean worker.partition?"},
    {"worker.threads=many", "--set: worker.threads = \"many\": not a whole number; expected 0..256"},
    {"worker.threads=", "--set: worker.threads = \"\": not a whole number; expected 0..256"},
    {"worker.threads.x=1", "--set: worker.threads: a group is not allowed here; expected 0..256"},
    {"worker=3", "--set: worker = 3: not a group; expected worker = { ... };"},
    {"worker.graph=({stage=;})", "--set: syntax error at or before \"value = ({stage=;})\""},
    {"worker.graph=({stage=\"push_pull\";}", "--set:1: a bracket that is not closed"},
    {"worker.graph=(); other=3", "--set: more than one value in \"(); other=3\""},
    {"cluster.workers=4",
     "--set: cluster.workers = 4: the address of the scheduler is not set; start the job with byteps run, or set "
     "cluster.scheduler = \"HOST:PORT\""},
};

START_TEST(bad_setting_is_refused_word_by_word)
{
    rig_refuse(NULL, bad_settings[_i].set, bad_settings[_i].error);
}
END_TEST

START_TEST(somebody_must_sum)
{
    setenv("BYTEPS_SET", "cluster.scheduler=h:1\ncluster.colocated=none", 1);
    rig_refuse(NULL, "cluster.workers=2",
               "BYTEPS_SET: cluster.colocated = \"none\": the job would have no server, because "
               "cluster.servers = 0; expected auto, first, hosts or all");
    bps_conf_free(rig_load(NULL, "cluster.workers=2", "cluster.servers=1"));
}
END_TEST

START_TEST(bad_line_of_settings_is_refused)
{
    setenv("BYTEPS_SET", "worker.threads=1\nnonsense\n", 1);
    rig_refuse(NULL, NULL, "BYTEPS_SET: \"nonsense\"" NO_SETTING);
}
END_TEST

/* ---- files that are none ---- */

START_TEST(odd_files_are_refused)
{
    rig_refuse("missing.conf", NULL, "missing.conf: cannot be opened: No such file or directory");
    rig_refuse("etc", NULL, "etc: is a directory; expected a configuration file");
    rig_refuse("etc/byteps.conf/x", NULL, "etc/byteps.conf/x: cannot be opened: No such file or directory");
    rig_refuse("", NULL, ": cannot be opened: No such file or directory");
    ck_assert_int_eq(mkdir("etc/byteps.conf", 0755), 0);
    rig_refuse(NULL, NULL, "etc/byteps.conf: is a directory; expected a configuration file");
}
END_TEST

START_TEST(a_pipe_without_a_writer_is_empty)
{
    ck_assert_int_eq(mkfifo("pipe.conf", 0600), 0);
    bps_conf_free(rig_load("pipe.conf", NULL, NULL));
}
END_TEST

START_TEST(huge_file_is_refused)
{
    FILE *file = fopen("huge.conf", "w");
    for (int i = 0; i < 40000; i++) {
        fprintf(file, "# %d\n", i);
    }
    ck_assert_int_eq(fclose(file), 0);
    rig_refuse("huge.conf", NULL,
               "huge.conf: too large; a configuration has at most 256 KiB with all that it includes");
    rig_refuse("/dev/zero", NULL, "/dev/zero:1: a zero byte; expected text, is this a configuration file?");
}
END_TEST

START_TEST(includes_do_not_multiply)
{
    rig_write("leaf.inc", "");
    const char *inner = "leaf.inc";
    for (int i = 0; i < 5; i++) {
        static char name[5][16];
        char line[64];
        snprintf(name[i], sizeof name[i], "level%d.inc", i);
        FILE *file = fopen(name[i], "w");
        snprintf(line, sizeof line, "@include \"%s\"\n", inner);
        for (int j = 0; j < 100; j++) {
            fputs(line, file);
        }
        ck_assert_int_eq(fclose(file), 0);
        inner = name[i];
    }
    rig_refuse("level4.inc", NULL, "level0.inc:51: too many files are included; check whether they include each other");
}
END_TEST

/* ---- golden files: NAME.conf is refused as NAME.expected says ---- */

struct golden {
    char lines[8192];
    size_t length;
};

static void add_line(void *arg, const char *text)
{
    struct golden *golden = arg;
    golden->length +=
        (size_t)snprintf(golden->lines + golden->length, sizeof golden->lines - golden->length, "%s\n", text);
    ck_assert_uint_lt(golden->length, sizeof golden->lines);
}

static void read_expected(const char *name, char *text, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%.*s.expected", (int)(strlen(name) - strlen(".conf")), name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    size_t length = fread(text, 1, n - 1, file);
    text[length] = '\0';
    fclose(file);
}

static void check_golden(const char *name)
{
    struct golden found = {.length = 0};
    struct bps_conf_request request = {.confdir = "none", .file = name, .problem = add_line, .arg = &found};
    struct bps_conf *conf;
    struct bps_report report = {""};
    char expected[8192];
    read_expected(name, expected, sizeof expected);
    ck_assert_msg(bps_conf_load_from(&request, &conf, &report) == BPS_ERR_CONF, "%s was taken", name);
    ck_assert_msg(strcmp(found.lines, expected) == 0, "%s:\nfound:    %sexpected: %s", name, found.lines, expected);
    /* The report is the first problem, and the only one that is looked for without a receiver. */
    struct bps_report first = {""};
    request.problem = NULL;
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, &first), BPS_ERR_CONF);
    ck_assert_str_eq(first.text, report.text);
    ck_assert_int_eq(strncmp(found.lines, first.text, strlen(first.text)), 0);
}

static char *golden_folder;

START_TEST(golden_files_are_refused_word_by_word)
{
    ck_assert_int_eq(chdir(golden_folder), 0);
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    unsigned files = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t n = strlen(entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0) {
            check_golden(entry->d_name);
            files++;
        }
    }
    closedir(dir);
    ck_assert_uint_ge(files, 70);
}
END_TEST

int main(void)
{
    const char *source = getenv("top_srcdir");
    if (asprintf(&golden_folder, "%s/tests/conf/bad", source != NULL ? source : ".") < 0) {
        return 1;
    }
    char *absolute = realpath(golden_folder, NULL);
    free(golden_folder);
    golden_folder = absolute;
    Suite *suite = suite_create("conf refused");
    TCase *tests = tcase_create("conf refused");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, rig_open, rig_close);
    tcase_add_loop_test(tests, bad_setting_is_refused_word_by_word, 0, COUNT(bad_settings));
    tcase_add_test(tests, somebody_must_sum);
    tcase_add_test(tests, bad_line_of_settings_is_refused);
    tcase_add_test(tests, odd_files_are_refused);
    tcase_add_test(tests, a_pipe_without_a_writer_is_empty);
    tcase_add_test(tests, huge_file_is_refused);
    tcase_add_test(tests, includes_do_not_multiply);
    tcase_add_test(tests, golden_files_are_refused_word_by_word);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    free(golden_folder);
    return failed != 0;
}
