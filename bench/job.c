/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the job that `byteps bench` measures when it is in none: on this machine by
 * `byteps run`, or on hosts of a test bed. Its workers are this very program, with the same arguments.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"

#define NAME BPS_BENCH_NAME

/* A command line that grows, and ends with NULL. */
struct words {
    const char **word;
    size_t count;
};

static void add(struct words *words, const char *word)
{
    const char **longer = bps_cmd_alloc(words->count + 2, sizeof *longer);
    if (words->count > 0) {
        memcpy(longer, words->word, words->count * sizeof *longer);
    }
    free(words->word);
    words->word = longer;
    words->word[words->count++] = word;
}

static void add_option(struct words *words, const char *option, const char *value)
{
    add(words, option);
    add(words, value);
}

/* Settings are for all parts of the job. */
static void add_settings(struct words *words, const struct bps_cmd_conf *conf)
{
    for (size_t i = 0; i < conf->nset; i++) {
        add_option(words, "--set", conf->set[i]);
    }
}

static void add_member(struct words *words, const char *self, int argc, char **argv)
{
    add_option(words, "--", self);
    for (int i = 0; i < argc; i++) {
        add(words, argv[i]);
    }
    add(words, "--member");
}

static int become_run(const struct bps_bench_request *request, const char *self, int argc, char **argv)
{
    struct words words = {NULL, 0};
    add_option(&words, self, "run");
    add(&words, "--no-prefix");
    add_option(&words, "--workers", request->job.workers ? request->job.workers : "2");
    add_option(&words, "--servers", request->job.servers ? request->job.servers : "0");
    if (request->conf.file != NULL) {
        add_option(&words, "--conf", request->conf.file);
    }
    add_settings(&words, &request->conf);
    add_member(&words, self, argc, argv);
    execv(self, (char *const *)words.word);
    int result = bps_cmd_failure(NAME, "cannot start %s: %s", self, strerror(errno));
    free(words.word);
    return result;
}

/* The parts of a test bed find the program and the configuration in the environment. */
static int become_testbed(const struct bps_bench_request *request, const char *self, int argc, char **argv)
{
    struct words words = {NULL, 0};
    if (setenv("BYTEPS_PROGRAM", self, 1) != 0 ||
        (request->conf.file != NULL && setenv("BYTEPS_CONF", request->conf.file, 1) != 0)) {
        return bps_cmd_failure(NAME, "cannot change the environment: %s", strerror(errno));
    }
    add(&words, "bench");
    add_option(&words, "--workers", request->job.workers ? request->job.workers : "2");
    add_option(&words, "--servers", request->job.servers ? request->job.servers : "0");
    if (request->job.rate != NULL) {
        add_option(&words, "--rate", request->job.rate);
    }
    if (request->job.links != NULL) {
        add_option(&words, "--links", request->job.links);
    }
    for (uint32_t i = 0; i < request->job.nslow; i++) {
        add_option(&words, "--slow", request->job.slow[i]);
    }
    if (request->json) {
        add(&words, "--json");
    }
    add_settings(&words, &request->conf);
    add_member(&words, self, argc, argv);
    add(&words, "--json");
    int result = bps_cmd_become_script(BPS_BENCH_NAME, BPS_CMD_PYTHON, "testbed/testbed", (char *const *)words.word);
    free(words.word);
    return result;
}

int bps_bench_become_job(const struct bps_bench_request *request, int argc, char **argv)
{
    char *self = realpath("/proc/self/exe", NULL);
    if (self == NULL) {
        return bps_cmd_failure(NAME, "cannot find this program: %s", strerror(errno));
    }
    int result =
        request->job.testbed ? become_testbed(request, self, argc, argv) : become_run(request, self, argc, argv);
    free(self);
    return result;
}
