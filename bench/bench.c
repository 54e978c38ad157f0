/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c - `byteps bench`: how fast this installation is on this machine or cluster.
 *
 * A benchmark is a program of workers like any other. Within a job it takes part in that job; otherwise it
 * makes one, whose workers are this very program.
 */
#include "bench/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/tree.h"
#include "conf/value.h"

#define NAME           BPS_BENCH_NAME
#define ROUNDS_DEFAULT 10
#define ROUNDS_LIMIT   10000

/* clang-format off */
static const char help_text[] =
    "Usage: byteps bench push_pull [--workers N] [--servers K] [--dtype TYPE]\n"
    "                              [--model MODEL] [OPTIONS]\n"
    "       byteps bench transport [--transport NAME]\n"
    "                              [--listen [ADDRESS] | --connect ADDRESS] [OPTIONS]\n"
    "       byteps bench reducer [OPTIONS]\n"
    "       byteps bench compressor [--compressor NAME] [OPTIONS]\n"
    "       byteps bench train [--workers N] [--servers K] [--beside ddp] [OPTIONS]\n"
    "\n"
    "push_pull: the tensors of all workers are averaged, beside a plain copy of the\n"
    "same bytes by all at once. Started alone, on a job of this machine; by\n"
    "'byteps run', on that job, for instance on a cluster:\n"
    "\n"
    "  byteps run --hosts a:1,b:1 -s 2 -- byteps bench push_pull --model resnet50\n"
    "\n"
    "transport: latency and goodput between two processes, beside plain sockets;\n"
    "within a host, memcpy().\n"
    "\n"
    "reducer: the kernels of the configured reducer for each data type, beside\n"
    "memcpy().\n"
    "\n"
    "compressor: how fast compressors code, beside memcpy(), and what is left of size\n"
    "and precision.\n"
    "\n"
    "train: a small training with PyTorch, beside the same without communication and\n"
    "one worker alone; in a job as push_pull is. With --beside ddp by both optimizers\n"
    "of BytePS and by PyTorch's DDP in turn, beside what computation and links allow.\n"
    "\n"
    "      --bytes SIZE       of a tensor, message or buffer, such as 64MiB; may be\n"
    "                         repeated\n"
    "      --min SIZE         instead: from this size on, each four times the one\n"
    "                         before (default: 1KiB),\n"
    "      --max SIZE         up to this one (default: 64MiB)\n"
    "      --rounds R         of each measurement (default: 10)\n"
    "      --json             for programs\n"
    "      --plot FILE        draw bandwidth over size into FILE, a .png, .svg or\n"
    "                         .pdf, with matplotlib\n"
    "\n"
    "For push_pull and train only:\n"
    "  -n, --workers N        workers of the job of this machine (default: 2)\n"
    "  -s, --servers K        its servers; 0: the workers sum themselves (default: 0)\n"
    "      --testbed          each worker and server on a host of its own, made of\n"
    "                         network namespaces; needs root; train: with --beside\n"
    "      --rate RATE        of each link of the test bed in each direction\n"
    "                         (default: 1Gbit)\n"
    "      --links N          of each host of the test bed, in subnets of their own\n"
    "                         (default: 1)\n"
    "      --slow HOST=RATE   of each link of one host, such as 1=100Mbit; workers\n"
    "                         are on hosts 0, 1, ..., servers on those after; may be\n"
    "                         repeated\n"
    "\n"
    "For push_pull only:\n"
    "      --model MODEL      the gradients of resnet50, vgg16, bert-large, or of a\n"
    "                         file as for 'byteps plan'; may be repeated\n"
    "      --dtype TYPE       float32, float16 or bfloat16; may be repeated (default:\n"
    "                         float32)\n"
    "      --alloc            tensors in memory that the workers of a host share\n"
    "      --settle R         rounds before the first one that counts, in which\n"
    "                         shares may follow the links (default: 0)\n"
    "\n"
    "For train only:\n"
    "      --beside ddp       the same training by DistributedOptimizer,\n"
    "                         CrossBarrier, DDP over gloo, and without communication\n"
    "\n"
    "For transport only:\n"
    "      --transport NAME   an entry of 'transports' in byteps.conf, or a plugin;\n"
    "                         may be repeated (default: all entries; between two\n"
    "                         hosts, net)\n"
    "      --listen [ADDRESS] be the other end, at HOST:PORT (default: any port on\n"
    "                         all interfaces)\n"
    "      --connect ADDRESS  to the other end, as --listen has printed it\n"
    "\n"
    "For compressor only:\n"
    "      --compressor NAME  an entry of 'compressors' in byteps.conf, or a plugin;\n"
    "                         may be repeated (default: all entries; without any, all\n"
    "                         that are installed)\n"
    "\n" BPS_CMD_CONF_HELP "  -h, --help             show this text\n";
/* clang-format on */

enum subject { PUSH_PULL, TRANSPORT, REDUCER, COMPRESSOR, TRAIN, SUBJECTS };

static const char *const subject_names[SUBJECTS] = {"push_pull", "transport", "reducer", "compressor", "train"};
#define ALL_SUBJECTS "push_pull, transport, reducer, compressor or train"

enum {
    OPT_MODEL = 1,
    OPT_BYTES,
    OPT_MIN,
    OPT_MAX,
    OPT_ALLOC,
    OPT_DTYPE,
    OPT_ROUNDS,
    OPT_SETTLE,
    OPT_JSON,
    OPT_PLOT,
    OPT_TESTBED,
    OPT_RATE,
    OPT_LINKS,
    OPT_SLOW,
    OPT_BESIDE,
    OPT_TRANSPORT,
    OPT_COMPRESSOR,
    OPT_LISTEN,
    OPT_CONNECT,
    OPT_MEMBER
};

/* Options that mean nothing for some subjects. */
#define FOR(subject) (1u << (subject))
#define WITH_SIZES   (FOR(PUSH_PULL) | FOR(TRANSPORT) | FOR(REDUCER) | FOR(COMPRESSOR))
#define WITH_JOB     (FOR(PUSH_PULL) | FOR(TRAIN))
static const struct {
    int code;
    unsigned subjects;
    const char *name;
} special[] = {
    {'n', WITH_JOB, "--workers"},
    {'s', WITH_JOB, "--servers"},
    {OPT_BYTES, WITH_SIZES, "--bytes"},
    {OPT_MIN, WITH_SIZES, "--min"},
    {OPT_MAX, WITH_SIZES, "--max"},
    {OPT_PLOT, WITH_SIZES, "--plot"},
    {OPT_MODEL, FOR(PUSH_PULL), "--model"},
    {OPT_ALLOC, FOR(PUSH_PULL), "--alloc"},
    {OPT_SETTLE, FOR(PUSH_PULL), "--settle"},
    {OPT_TESTBED, WITH_JOB, "--testbed"},
    {OPT_RATE, WITH_JOB, "--rate"},
    {OPT_LINKS, WITH_JOB, "--links"},
    {OPT_SLOW, WITH_JOB, "--slow"},
    {OPT_BESIDE, FOR(TRAIN), "--beside"},
    {OPT_DTYPE, FOR(PUSH_PULL), "--dtype"},
    {OPT_LISTEN, FOR(TRANSPORT), "--listen"},
    {OPT_CONNECT, FOR(TRANSPORT), "--connect"},
    {OPT_TRANSPORT, FOR(TRANSPORT), "--transport"},
    {OPT_COMPRESSOR, FOR(COMPRESSOR), "--compressor"},
};
#define SPECIAL (sizeof special / sizeof *special)

struct arguments {
    struct bps_bench_request request;
    enum subject subject;
    bool given[SPECIAL];
    const char *min, *max;
    bool member; /* this process is a worker that a `byteps bench` has started */
    bool help;
};

static int take_rounds(const char *option, const char *text, int64_t least, int64_t *out)
{
    if (bps_parse_int(text, out) != BPS_OK || *out < least || *out > ROUNDS_LIMIT) {
        return bps_cmd_usage(NAME, "%s %s: expected a number from %d to %d", option, bps_shown(text).text, (int)least,
                             ROUNDS_LIMIT);
    }
    return 0;
}

static int add_dtype(struct bps_bench_request *request, const char *name)
{
    static const uint32_t known[] = {BPS_FLOAT32, BPS_FLOAT16, BPS_BFLOAT16};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, bps_dtype_name(known[i])) == 0) {
            request->dtype[known[i]] = true;
            return 0;
        }
    }
    return bps_cmd_usage(NAME, "--dtype %s: expected float32, float16 or bfloat16", bps_shown(name).text);
}

static int add_word(const char ***words, uint32_t *count, const char *word)
{
    const char **all = bps_cmd_alloc(*count + 1, sizeof *all);
    if (*count > 0) {
        memcpy(all, *words, *count * sizeof *all);
    }
    free(*words);
    *words = all;
    all[(*count)++] = word;
    return 0;
}

static int take_beside(struct bps_bench_request *request, const char *text)
{
    if (strcmp(text, "ddp") != 0) {
        return bps_cmd_usage(NAME, "--beside %s: expected ddp", bps_shown(text).text);
    }
    request->beside = text;
    return 0;
}

/* The address is a word of its own, if there is one. */
static const char *optional_word(int argc, char **argv)
{
    return optind < argc && argv[optind][0] != '-' ? argv[optind++] : "";
}

/* Takes an option whose value is kept as it is, or that has none. */
static bool take_plain(struct arguments *a, int code)
{
    struct bps_bench_request *request = &a->request;
    const struct {
        int code;
        const char **to;
    } words[] = {
        {'n', &request->job.workers},
        {'s', &request->job.servers},
        {OPT_RATE, &request->job.rate},
        {OPT_LINKS, &request->job.links},
        {OPT_MIN, &a->min},
        {OPT_MAX, &a->max},
        {OPT_PLOT, &request->plot},
        {OPT_CONNECT, &request->connect},
    };
    const struct {
        int code;
        bool *to;
    } flags[] = {
        {'h', &a->help},          {OPT_ALLOC, &request->alloc},         {OPT_JSON, &request->json},
        {OPT_MEMBER, &a->member}, {OPT_TESTBED, &request->job.testbed},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].code == code) {
            *words[i].to = optarg;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i].code == code) {
            *flags[i].to = true;
            return true;
        }
    }
    return false;
}

static int take(struct arguments *a, int code, int argc, char **argv)
{
    struct bps_bench_request *request = &a->request;
    for (size_t i = 0; i < SPECIAL; i++) {
        a->given[i] |= special[i].code == code;
    }
    if (take_plain(a, code) || bps_cmd_conf_take(&request->conf, code, optarg)) {
        return 0;
    }
    switch (code) {
    case OPT_MODEL:
        return bps_bench_add_model(request, optarg);
    case OPT_BYTES:
        return bps_bench_add_size(request, optarg);
    case OPT_DTYPE:
        return add_dtype(request, optarg);
    case OPT_ROUNDS:
        return take_rounds("--rounds", optarg, 1, &request->rounds);
    case OPT_SETTLE:
        return take_rounds("--settle", optarg, 0, &request->settle);
    case OPT_TRANSPORT:
    case OPT_COMPRESSOR:
        return add_word(&request->name, &request->names, optarg);
    case OPT_SLOW:
        return add_word(&request->job.slow, &request->job.nslow, optarg);
    case OPT_BESIDE:
        return take_beside(request, optarg);
    case OPT_LISTEN:
        request->listen = optional_word(argc, argv);
        return 0;
    default:
        return bps_cmd_bad_option(NAME, code, argv);
    }
}

/* "push_pull or train", into a static buffer. */
static const char *subjects_text(unsigned subjects)
{
    static char text[64];
    size_t n = 0;
    for (enum subject i = 0; i < SUBJECTS; i++) {
        if (subjects & FOR(i)) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? " or " : "", subject_names[i]);
        }
    }
    return text;
}

static int take_subject(struct arguments *a, int argc, char **argv)
{
    const char *word = optind < argc ? argv[optind] : NULL;
    if (word == NULL) {
        return bps_cmd_usage(NAME, "say what to measure: " ALL_SUBJECTS);
    }
    while (a->subject < SUBJECTS && strcmp(word, subject_names[a->subject]) != 0) {
        a->subject++;
    }
    if (a->subject == SUBJECTS) {
        return bps_cmd_usage(NAME, "%s cannot be measured; expected " ALL_SUBJECTS, bps_shown(word).text);
    }
    if (optind + 1 < argc) {
        return bps_cmd_usage(NAME, "%s is not expected", bps_shown(argv[optind + 1]).text);
    }
    for (size_t i = 0; i < SPECIAL; i++) {
        if (a->given[i] && !(special[i].subjects & FOR(a->subject))) {
            return bps_cmd_usage(NAME, "%s is for %s", special[i].name, subjects_text(special[i].subjects));
        }
    }
    return 0;
}

/* What is to be measured, if it was not named size by size. */
static int take_sizes(struct arguments *a)
{
    bool range = a->min != NULL || a->max != NULL;
    if (a->subject == TRAIN || (!range && a->request.loads > 0)) {
        return 0;
    }
    int result = bps_bench_add_range(&a->request, a->min ? a->min : "1KiB", a->max ? a->max : "64MiB");
    if (result == 0 && !range && a->subject == PUSH_PULL) {
        result = bps_bench_add_model(&a->request, "resnet50");
    }
    return result;
}

static int check_job(const struct arguments *a)
{
    const struct bps_bench_job *job = &a->request.job;
    const char *of_bed = job->rate != NULL ? "--rate" : job->links != NULL ? "--links" : NULL;
    of_bed = of_bed == NULL && job->nslow > 0 ? "--slow" : of_bed;
    if (of_bed != NULL && !job->testbed) {
        return bps_cmd_usage(NAME, "%s is for --testbed", of_bed);
    }
    if (a->subject == TRAIN && job->testbed && a->request.beside == NULL) {
        return bps_cmd_usage(NAME, "train with --testbed needs --beside ddp");
    }
    return 0;
}

static int check_transport(const struct bps_bench_request *request)
{
    if (request->listen != NULL && request->connect != NULL) {
        return bps_cmd_usage(NAME, "--listen and --connect are for different ends");
    }
    if ((request->listen != NULL || request->connect != NULL) && request->names > 1) {
        return bps_cmd_usage(NAME, "between two hosts one transport at a time is measured");
    }
    for (uint32_t i = 0; i < request->loads; i++) {
        if (request->load[i].elements > BPS_BENCH_MESSAGE_LIMIT / sizeof(float)) {
            return bps_cmd_usage(NAME, "%s: a message has at most 64 MiB", request->load[i].name);
        }
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
        {"min", required_argument, NULL, OPT_MIN},
        {"max", required_argument, NULL, OPT_MAX},
        {"alloc", no_argument, NULL, OPT_ALLOC},
        {"dtype", required_argument, NULL, OPT_DTYPE},
        {"rounds", required_argument, NULL, OPT_ROUNDS},
        {"settle", required_argument, NULL, OPT_SETTLE},
        {"json", no_argument, NULL, OPT_JSON},
        {"plot", required_argument, NULL, OPT_PLOT},
        {"testbed", no_argument, NULL, OPT_TESTBED},
        {"rate", required_argument, NULL, OPT_RATE},
        {"links", required_argument, NULL, OPT_LINKS},
        {"slow", required_argument, NULL, OPT_SLOW},
        {"beside", required_argument, NULL, OPT_BESIDE},
        {"transport", required_argument, NULL, OPT_TRANSPORT},
        {"compressor", required_argument, NULL, OPT_COMPRESSOR},
        {"listen", no_argument, NULL, OPT_LISTEN},
        {"connect", required_argument, NULL, OPT_CONNECT},
        {"member", no_argument, NULL, OPT_MEMBER},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int code, result = 0;
    opterr = 0;
    optind = 1;
    while (result == 0 && (code = getopt_long(argc, argv, ":hn:s:", options, NULL)) != -1) {
        result = take(a, code, argc, argv);
    }
    if (result != 0 || a->help) {
        return result;
    }
    if (memchr(a->request.dtype, true, sizeof a->request.dtype) == NULL) {
        a->request.dtype[BPS_FLOAT32] = true;
    }
    result = take_subject(a, argc, argv);
    result = result == 0 ? take_sizes(a) : result;
    if (result == 0 && (FOR(a->subject) & WITH_JOB)) {
        result = check_job(a);
    } else if (result == 0 && a->subject == TRANSPORT) {
        result = check_transport(&a->request);
    }
    return result;
}

static int measure_in_job(struct arguments *a, int argc, char **argv)
{
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &a->request.conf, "worker");
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bool job = conf->cluster.scheduler[0] != '\0';
    bps_conf_free(conf);
    const struct bps_bench_job *own = &a->request.job;
    if (!job && !a->member) {
        int result = a->subject == TRAIN ? bps_bench_check_train() : bps_bench_check_plot(&a->request);
        return result == 0 ? bps_bench_become_job(&a->request, argc, argv) : result;
    }
    if (!a->member && (own->workers != NULL || own->servers != NULL || own->testbed)) {
        return bps_cmd_usage(NAME,
                             "--workers, --servers and --testbed are for a job of its own; this process is in a job");
    }
    return a->subject == TRAIN ? bps_bench_train(&a->request) : bps_bench_push_pull(&a->request);
}

static int measure(struct arguments *a, int argc, char **argv)
{
    if (FOR(a->subject) & WITH_JOB) {
        return measure_in_job(a, argc, argv);
    }
    int result = bps_bench_check_plot(&a->request);
    if (result != 0) {
        return result;
    }
    switch (a->subject) {
    case TRANSPORT:
        return bps_bench_transport(&a->request);
    case REDUCER:
        return bps_bench_reducer(&a->request);
    default:
        return bps_bench_compressor(&a->request);
    }
}

int bps_cmd_bench(int argc, char **argv)
{
    struct arguments a = {.request = {.rounds = ROUNDS_DEFAULT}};
    int result = parse(&a, argc, argv);
    if (result == 0 && a.help) {
        fputs(help_text, stdout);
        result = bps_cmd_finish(NAME, 0);
    } else if (result == 0) {
        result = measure(&a, argc, argv);
    }
    bps_bench_loads_fini(&a.request);
    free(a.request.name);
    free(a.request.job.slow);
    bps_cmd_conf_fini(&a.request.conf);
    return result;
}
