/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - `byteps plan`: how long a model's gradients take on a job of some shape, and who sums what. */
#include "tools/plan.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/tree.h"
#include "conf/value.h"
#include "node/book.h"
#include "tools/cmd.h"
#include "tools/plan_coding.h"

#define NAME          "plan"
#define WORKERS_LIMIT 32768

static const char help_text[] =
    "Usage: byteps plan --model MODEL [--workers N] [--servers K] [--bandwidth RATE]\n"
    "                   [--compress CODING] [--json] [OPTIONS]\n"
    "\n"
    "Predicts how long one push_pull of all tensors of a model takes at least, by\n"
    "servers alone, by a ring, and by the placement of BytePS, and shows what share\n"
    "of the bytes each server gets.\n"
    "\n"
    "  -n, --workers N        hosts with workers (default: cluster.workers, or 1)\n"
    "  -s, --servers K        further hosts, with servers only (default:\n"
    "                         cluster.servers, or 0)\n" BPS_PLAN_HELP
    "      --compress CODING  whether to code pays: a member of compressors, a plugin\n"
    "                         or \"plugin=NAME; OPTION=VALUE\"; its speed is measured\n"
    "                         here\n"
    "      --json             for programs\n" BPS_CMD_CONF_HELP "  -h, --help             show this text\n"
    "\n"
    "  byteps plan --workers 4 --servers 2 --bandwidth 10Gbit --model resnet50\n";

/* `coding` is NULL where nobody asked for one. */
static int show_json(const struct bps_plan *plan, const struct bps_model *model, const struct bps_plan_coding *coding)
{
    json_t *root = bps_plan_json(plan, model);
    int result = 0;
    if (coding != NULL) {
        json_object_set_new(root, "coding", bps_plan_coding_json(coding));
    }
    if (root == NULL || json_dumpf(root, stdout, JSON_INDENT(2)) != 0) {
        result = bps_cmd_failure(NAME, "cannot print JSON");
    }
    putchar('\n');
    json_decref(root);
    return result;
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

struct arguments {
    struct bps_cmd_conf conf;
    struct bps_plan_request plan;
    char *workers, *servers;
    const char *compress; /* NULL: not given */
    bool json, help;
};

static int parse(struct arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        BPS_PLAN_OPTIONS,
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
        if (bps_cmd_conf_take(&a->conf, code, optarg) || bps_plan_take(&a->plan, code, optarg)) {
            continue;
        }
        if (code == 'n') {
            result = take_count("workers", optarg, 1, WORKERS_LIMIT, &a->workers);
        } else if (code == 's') {
            result = take_count("servers", optarg, 0, BPS_SHARDS_LIMIT, &a->servers);
        } else if (code == '?' || code == ':') {
            result = bps_cmd_bad_option(NAME, code, argv);
        }
        a->compress = code == 'c' ? optarg : a->compress;
        a->json = a->json || code == 'j';
        a->help = a->help || code == 'h';
    }
    return result != 0 || optind == argc ? result : bps_cmd_usage(NAME, "'%s' is not expected", argv[optind]);
}

int bps_cmd_plan(int argc, char **argv)
{
    struct arguments a = {.workers = NULL};
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
        result = conf == NULL ? BPS_EXIT_FAILURE : show(&a.plan, conf, a.compress, a.json);
        bps_conf_free(conf);
    }
    bps_cmd_conf_fini(&a.conf);
    free(a.workers);
    free(a.servers);
    return result;
}
