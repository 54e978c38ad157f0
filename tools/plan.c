/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - `byteps plan`: how long a model's gradients take on a job of some shape, who sums what, what servers pay. */
#include "tools/plan.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/tree.h"
#include "conf/value.h"
#include "node/book.h"
#include "tools/cmd.h"
#include "tools/plan_coding.h"
#include "tools/plan_compare.h"

#define NAME          "plan"
#define WORKERS_LIMIT 32768

static const char help_text[] =
    "Usage: byteps plan --model MODEL [--workers N] [--servers K] [--bandwidth RATE]\n"
    "                   [--compress CODING] [--json] [OPTIONS]\n"
    "       byteps plan --model MODEL --servers 0..8 [--price P --worker-price P]\n"
    "                   [--compute TIME [--overlap]] [OPTIONS]\n"
    "\n"
    "Predicts how long one push_pull of all tensors of a model takes at least, by\n"
    "servers alone, by a ring, and by the placement of BytePS, and shows what share\n"
    "of the bytes each server gets. For several numbers of servers it shows, line by\n"
    "line, how much longer it takes than with the best, what one more saves, how busy\n"
    "the links are, and what a step costs; ~ marks the fewest within 5 % of the best.\n"
    "\n"
    "  -n, --workers N        hosts with workers (default: cluster.workers, or 1)\n"
    "  -s, --servers K        further hosts, with servers only (default:\n"
    "                         cluster.servers, or 0); several as 0..8 or 0,2,4\n" BPS_PLAN_HELP BPS_STEP_HELP
    "      --compress CODING  whether to code pays: a member of compressors, a plugin\n"
    "                         or \"plugin=NAME; OPTION=VALUE\"; its speed is measured\n"
    "                         here\n"
    "      --json             for programs\n" BPS_CMD_CONF_HELP "  -h, --help             show this text\n"
    "\n"
    "  byteps plan --workers 4 --servers 2 --bandwidth 10Gbit --model resnet50\n"
    "  byteps plan --workers 8 --servers 0..8 --price 2.5 --worker-price 12 \\\n"
    "              --compute 25ms --model resnet50\n";

/* Frees the value. */
static int print_json(json_t *root)
{
    int result = 0;
    if (root == NULL || json_dumpf(root, stdout, JSON_INDENT(2)) != 0) {
        result = bps_cmd_failure(NAME, "cannot print JSON");
    }
    putchar('\n');
    json_decref(root);
    return result;
}

/* `coding` is NULL where nobody asked for one. */
static int show_json(const struct bps_plan *plan, const struct bps_model *model, const struct bps_plan_coding *coding)
{
    json_t *root = bps_plan_json(plan, model);
    if (coding != NULL) {
        json_object_set_new(root, "coding", bps_plan_coding_json(coding));
    }
    return print_json(root);
}

static int show_text(const struct bps_plan *plan, const struct bps_model *model, const struct bps_plan_coding *coding)
{
    bps_plan_print(plan, model);
    if (coding != NULL) {
        bps_plan_coding_print(coding, plan);
    }
    return 0;
}

static int show(const struct bps_plan_request *request, const struct bps_conf *conf, const char *compress, bool json)
{
    struct bps_model model;
    struct bps_plan plan;
    struct bps_plan_coding coding;
    struct bps_report report = {""};
    int result = bps_plan_load(NAME, request, conf, &model, &plan);
    if (result != 0) {
        return result;
    }
    if (compress != NULL && bps_plan_code(conf, compress, &model, &plan, &coding, &report) != BPS_OK) {
        result = bps_cmd_failure(NAME, "--compress: %s", report.text);
    } else {
        result = (json ? show_json : show_text)(&plan, &model, compress != NULL ? &coding : NULL);
    }
    bps_plan_fini(&plan);
    bps_model_fini(&model);
    return bps_cmd_finish(NAME, result);
}

/* Several numbers of further servers. */
static int compare(const struct bps_plan_request *request, struct bps_conf *conf, const struct bps_counts *counts,
                   const struct bps_step *step, bool json)
{
    struct bps_model model;
    struct bps_links links;
    struct bps_compare rows;
    struct bps_report report = {""};
    int64_t hosts = conf->cluster.workers + counts->count[counts->n - 1];
    int result = bps_plan_read(NAME, request, hosts, &model, &links);
    if (result != 0) {
        return result;
    }
    bps_status status = bps_compare_make(conf, &model, &links, counts, step, &rows, &report);
    if (status != BPS_OK) {
        result = bps_cmd_failure(NAME, "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    } else if (json) {
        result = print_json(bps_compare_json(&rows));
    } else {
        bps_compare_print(&rows, &model, step);
    }
    if (status == BPS_OK) {
        bps_compare_fini(&rows);
    }
    bps_model_fini(&model);
    return bps_cmd_finish(NAME, result);
}

struct arguments {
    struct bps_cmd_conf conf;
    struct bps_plan_request plan;
    struct bps_counts counts; /* of further servers, where there are several */
    struct bps_step step;
    char *workers, *servers;
    const char *compress; /* NULL: not given */
    bool json, help;
};

/* A number of hosts goes into the configuration, which checks what follows from it. */
static int take_count(const char *option, const char *value, int64_t least, int64_t most, char **kept)
{
    int64_t n;
    if (bps_parse_int(value, &n) != BPS_OK || n < least || n > most) {
        return bps_cmd_usage(NAME, "--%s %s: not a number; expected %ld..%ld", option, bps_shown(value).text, least,
                             most);
    }
    free(*kept);
    *kept = bps_cmd_print("cluster.%s=%ld", option, n);
    return 0;
}

/* Of several numbers the configuration gets the first: what is wrong with it is wrong with no other one. */
static int take_servers(struct arguments *a, const char *value)
{
    struct bps_report report = {""};
    a->counts.n = 0;
    if (!bps_counts_several(value)) {
        return take_count("servers", value, 0, BPS_SHARDS_LIMIT, &a->servers);
    }
    if (bps_counts_parse(value, BPS_SHARDS_LIMIT, &a->counts, &report) != BPS_OK) {
        return bps_cmd_usage(NAME, "--servers %s: %s", bps_shown(value).text, report.text);
    }
    free(a->servers);
    a->servers = bps_cmd_print("cluster.servers=%u", a->counts.count[0]);
    return 0;
}

static int take(struct arguments *a, int code, char **argv)
{
    int result = 0;
    if (bps_cmd_conf_take(&a->conf, code, optarg) || bps_plan_take(&a->plan, code, optarg) ||
        bps_step_take(&a->step, code, optarg, &result)) {
        return result;
    }
    switch (code) {
    case 'n':
        return take_count("workers", optarg, 1, WORKERS_LIMIT, &a->workers);
    case 's':
        return take_servers(a, optarg);
    case 'c':
        a->compress = optarg;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    default:
        return bps_cmd_bad_option(NAME, code, argv);
    }
}

/* Whether the options fit together. */
static int check(const struct arguments *a)
{
    if (a->counts.n > 0 && a->compress != NULL) {
        return bps_cmd_usage(NAME, "--compress is for one number of servers; expected --servers with one, such as %u",
                             a->counts.count[0]);
    }
    if (a->counts.n == 0 && a->step.given != NULL) {
        return bps_cmd_usage(NAME, "%s is for several numbers of servers; expected --servers with them, such as 0..8",
                             a->step.given);
    }
    return bps_step_check(&a->step);
}

static int parse(struct arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        BPS_PLAN_OPTIONS,
        BPS_STEP_OPTIONS,
        {"workers", required_argument, NULL, 'n'},
        {"servers", required_argument, NULL, 's'},
        {"compress", required_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int code, result = 0;
    opterr = 0;
    optind = 1;
    while (result == 0 && (code = getopt_long(argc, argv, ":hn:s:", options, NULL)) != -1) {
        result = take(a, code, argv);
    }
    if (result == 0 && optind < argc) {
        result = bps_cmd_usage(NAME, "'%s' is not expected", argv[optind]);
    }
    return result != 0 || a->help ? result : check(a);
}

static int plan(const struct arguments *a, struct bps_conf *conf)
{
    return a->counts.n > 0 ? compare(&a->plan, conf, &a->counts, &a->step, a->json)
                           : show(&a->plan, conf, a->compress, a->json);
}

int bps_cmd_plan(int argc, char **argv)
{
    struct arguments a = {.step = {.compute = -1, .price = -1, .worker_price = -1}};
    int result = parse(&a, argc, argv);
    if (result == 0 && a.help) {
        fputs(help_text, stdout);
        result = bps_cmd_finish(NAME, 0);
    } else if (result == 0) {
        const char *const counts[] = {a.workers, a.servers};
        for (size_t i = 0; i < 2; i++) {
            if (counts[i] != NULL) {
                bps_cmd_conf_set(&a.conf, counts[i]);
            }
        }
        struct bps_conf *conf = bps_cmd_conf_load(NAME, &a.conf, "scheduler");
        result = conf == NULL ? BPS_EXIT_FAILURE : plan(&a, conf);
        bps_conf_free(conf);
    }
    bps_cmd_conf_fini(&a.conf);
    free(a.workers);
    free(a.servers);
    return result;
}
