/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c - `byteps bench`: how fast this installation is on this machine or cluster.
 *
 * A benchmark is a program of workers like any other. Within a job it takes part in that job; otherwise it
 * becomes a `byteps run` whose workers are this very program.
 */
#include "cmd/bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf/tree.h"
#include "conf/value.h"

#define NAME           BPS_BENCH_NAME
#define ROUNDS_DEFAULT 10
#define ROUNDS_LIMIT   10000

static const char help_text[] =
    "Usage: byteps bench push_pull [--workers N] [--servers K] [--alloc] [--model MODEL] [OPTIONS]\n"
    "       byteps bench reducer [OPTIONS]\n"
    "\n"
    "push_pull: float32 tensors, beside a plain copy of the same bytes by all workers at once. Started "
    "alone, on a\n"
    "job of this machine; by 'byteps run', on that job, for instance on a cluster:\n"
    "\n"
    "  byteps run --hosts a:1,b:1 -s 2 -- byteps bench push_pull --model resnet50\n"
    "\n"
    "reducer: the kernels of the configured reducer for each data type, beside memcpy().\n"
    "\n"
    "      --bytes SIZE       of a tensor or buffer, such as 64MiB; may be repeated\n"
    "                         (default: 4KiB, 256KiB, 4MiB and 64MiB; and for push_pull resnet50)\n"
    "      --rounds R         of each measurement (default: 10)\n"
    "      --json             for programs\n"
    "\n"
    "For push_pull only:\n"
    "  -n, --workers N        workers of the job of this machine (default: 2)\n"
    "  -s, --servers K        its servers; 0: the workers sum themselves (default: 0)\n"
    "      --model MODEL      the gradients of resnet50, vgg16, bert-large, or of a file as for 'byteps "
    "plan';\n"
    "                         may be repeated\n"
    "      --alloc            tensors in memory that the workers of a host share\n"
    "\n" BPS_CMD_CONF_HELP "  -h, --help             show this text\n";

struct arguments {
    struct bps_bench_request request;
    bool reducer; /* that is measured, and not push_pull */
    bool model;   /* one was given */
    const char *workers, *servers;
    bool member; /* this process is a worker that a `byteps bench` has started */
    bool help;
};

enum { OPT_MODEL = 1, OPT_BYTES, OPT_ALLOC, OPT_ROUNDS, OPT_JSON, OPT_MEMBER };

static int take_rounds(const char *text, int64_t *out)
{
    if (bps_parse_int(text, out) != BPS_OK || *out < 1 || *out > ROUNDS_LIMIT) {
        return bps_cmd_usage(NAME, "--rounds %s: expected a number from 1 to %d", bps_shown(text).text,
                             ROUNDS_LIMIT);
    }
    return 0;
}

static int take(struct arguments *a, int code, char **argv)
{
    struct bps_bench_request *request = &a->request;
    switch (code) {
    case 'n':
        a->workers = optarg;
        return 0;
    case 's':
        a->servers = optarg;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case OPT_MODEL:
        a->model = true;
        return bps_bench_add_model(request, optarg);
    case OPT_BYTES:
        return bps_bench_add_size(request, optarg);
    case OPT_ALLOC:
        request->alloc = true;
        return 0;
    case OPT_ROUNDS:
        return take_rounds(optarg, &request->rounds);
    case OPT_JSON:
        request->json = true;
        return 0;
    case OPT_MEMBER:
        a->member = true;
        return 0;
    default:
        return bps_cmd_conf_take(&request->conf, code, optarg) ? 0 : bps_cmd_bad_option(NAME, code, argv);
    }
}

static int take_subject(struct arguments *a, int argc, char **argv)
{
    if (optind == argc) {
        return bps_cmd_usage(NAME, "say what to measure: push_pull or reducer");
    }
    const char *word = argv[optind];
    a->reducer = strcmp(word, "reducer") == 0;
    if (!a->reducer && strcmp(word, "push_pull") != 0) {
        return bps_cmd_usage(NAME, "%s cannot be measured; expected push_pull or reducer",
                             bps_shown(word).text);
    }
    if (optind + 1 < argc) {
        return bps_cmd_usage(NAME, "%s is not expected", bps_shown(argv[optind + 1]).text);
    }
    if (a->reducer && (a->workers != NULL || a->servers != NULL || a->model || a->request.alloc)) {
        return bps_cmd_usage(NAME, "--workers, --servers, --model and --alloc are for push_pull");
    }
    return 0;
}

static int parse(struct arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"workers", required_argument, NULL, 'n'},
        {"servers", required_argument, NULL, 's'},
        {"model", required_argument, NULL, OPT_MODEL},
        {"bytes", required_argument, NULL, OPT_BYTES},
        {"alloc", no_argument, NULL, OPT_ALLOC},
        {"rounds", required_argument, NULL, OPT_ROUNDS},
        {"json", no_argument, NULL, OPT_JSON},
        {"member", no_argument, NULL, OPT_MEMBER},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int code, result = 0;
    opterr = 0;
    optind = 1;
    while (result == 0 && (code = getopt_long(argc, argv, ":hn:s:", options, NULL)) != -1) {
        result = take(a, code, argv);
    }
    if (result != 0 || a->help) {
        return result;
    }
    return take_subject(a, argc, argv);
}

static int add_defaults(struct bps_bench_request *request)
{
    static const char *const sizes[] = {"4KiB", "256KiB", "4MiB", "64MiB"};
    int result = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && result == 0; i++) {
        result = bps_bench_add_size(request, sizes[i]);
    }
    return result;
}

/* Becomes `byteps run`, whose workers run this program with the same arguments. Returns only when that fails.
 */
static int become_job(const struct arguments *a, int argc, char **argv)
{
    char *self = realpath("/proc/self/exe", NULL);
    if (self == NULL) {
        return bps_cmd_failure(NAME, "cannot find this program: %s", strerror(errno));
    }
    char **words = bps_cmd_alloc((size_t)argc + 12, sizeof *words);
    const char *const head[] = {self,
                                "run",
                                "--no-prefix",
                                "--workers",
                                a->workers ? a->workers : "2",
                                "--servers",
                                a->servers ? a->servers : "0",
                                "--",
                                self};
    size_t n = 0;
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        words[n++] = (char *)head[i];
    }
    for (int i = 0; i < argc; i++) {
        words[n++] = argv[i];
    }
    words[n] = "--member";
    execv(self, words);
    int result = bps_cmd_failure(NAME, "cannot start %s: %s", self, strerror(errno));
    free(words);
    free(self);
    return result;
}

static int measure_push_pull(struct arguments *a, int argc, char **argv)
{
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &a->request.conf, "worker");
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bool job = bps_conf_cluster(conf)->scheduler[0] != '\0';
    bps_conf_free(conf);
    if (!job && !a->member) {
        return become_job(a, argc, argv);
    }
    if (!a->member && (a->workers != NULL || a->servers != NULL)) {
        return bps_cmd_usage(NAME,
                             "--workers and --servers are for a job of its own; this process is in a job");
    }
    int result = 0;
    if (a->request.loads == 0) {
        result = add_defaults(&a->request);
        result = result == 0 ? bps_bench_add_model(&a->request, "resnet50") : result;
    }
    return result == 0 ? bps_bench_push_pull(&a->request) : result;
}

static int measure_reducer(struct arguments *a)
{
    int result = a->request.loads == 0 ? add_defaults(&a->request) : 0;
    return result == 0 ? bps_bench_reducer(&a->request) : result;
}

int bps_cmd_bench(int argc, char **argv)
{
    struct arguments a = {.request = {.rounds = ROUNDS_DEFAULT}};
    int result = parse(&a, argc, argv);
    if (result == 0 && a.help) {
        fputs(help_text, stdout);
        result = bps_cmd_finish(NAME, 0);
    } else if (result == 0) {
        result = a.reducer ? measure_reducer(&a) : measure_push_pull(&a, argc, argv);
    }
    bps_bench_loads_fini(&a.request);
    bps_cmd_conf_fini(&a.request.conf);
    return result;
}
