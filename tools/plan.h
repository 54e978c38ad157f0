/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what a job of some shape would do with a model: the parts of `byteps plan`, which `byteps graph`
 * and `byteps info` show as well.
 */
#ifndef BPS_CMD_PLAN_H
#define BPS_CMD_PLAN_H

#include <byteps/types.h>
#include <jansson.h>

#include "conf/conf.h"

/* ---- plan_model.c: the tensors of a model ---- */

struct bps_model_tensor {
    char *name;
    uint64_t count;
    uint32_t dtype;
};

struct bps_model {
    char *name;
    uint32_t tensors;
    struct bps_model_tensor *tensor; /* in the order of the forward pass */
    uint64_t elements, bytes;
};

/* Reads an installed model, or a file. The report names file and line. */
bps_status bps_model_read(const char *word, struct bps_model *out, struct bps_report *report);
void bps_model_fini(struct bps_model *model);
/* The names of the installed models, "bert-large, resnet50, vgg16", or "none". */
void bps_model_list(char *text, size_t n);

/* ---- plan_bandwidth.c: "10Gbit" ---- */

#define BPS_BANDWIDTH_DEFAULT "10Gbit"

/* Reads a bandwidth in bits per second. BPS_ERR_INVALID: it is none. */
bps_status bps_bandwidth_parse(const char *text, double *out);
/* What is expected, for messages. */
extern const char bps_bandwidth_expected[];
/* "10 Gbit/s", "98.1 ms", "102.2 MB", into a static buffer of which there are a few. */
const char *bps_bandwidth_text(double bits);
const char *bps_duration_text(double seconds);
const char *bps_bytes_text(double bytes);

/* ---- plan_links.c: "8x100Gbit,25Gbit" ---- */

#define BPS_LINKS_LIMIT 256u

/* Of the links of hosts, those with workers first; the last one is that of all further hosts as well. */
struct bps_links {
    uint32_t runs;
    struct bps_links_run {
        uint32_t hosts;
        double bandwidth; /* bits per second, each way */
    } run[BPS_LINKS_LIMIT];
};

bps_status bps_links_parse(const char *text, struct bps_links *out, struct bps_report *report);
/* How many hosts are named. */
uint64_t bps_links_hosts(const struct bps_links *links);
double bps_links_bandwidth(const struct bps_links *links, uint32_t host);

/* ---- plan_make.c: the numbers ---- */

struct bps_plan_link {
    double bandwidth; /* bits per second, each way */
    double busy;      /* seconds, as placed */
};

struct bps_plan_server {
    bool colocated;
    uint32_t rank;       /* of the worker's host, or of the server */
    double share, ideal; /* of all bytes: as placed, and as wanted */
    uint64_t bytes;
    uint32_t partitions;
    double busy; /* seconds of its link, its workers' part included */
};

struct bps_plan {
    uint32_t hosts, others;     /* with workers; with servers only */
    uint32_t shards;            /* of each server */
    double bandwidth;           /* bits per second of the slowest link, each way */
    struct bps_plan_link *link; /* of each host, those with workers first */
    uint64_t partition, bytes;
    uint32_t partitions;
    double servers_only, ring; /* seconds; negative: not possible */
    double ideal, placed;      /* of this placement: by its formula, and as tensors are cut */
    uint32_t servers;
    struct bps_plan_server *server;
    uint64_t *shard; /* bytes of each, server by server */
};

/* The configuration gives the shape: cluster.workers hosts with workers, cluster.servers further ones. */
bps_status bps_plan_make(const struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                         struct bps_plan *out, struct bps_report *report);
void bps_plan_fini(struct bps_plan *plan);

/* ---- plan_show.c ---- */

void bps_plan_print(const struct bps_plan *plan, const struct bps_model *model);
/* How fast links are, from the slowest to the fastest; returns text. */
const char *bps_plan_links_text(const struct bps_plan *plan, char *text, size_t n);
json_t *bps_plan_json(const struct bps_plan *plan, const struct bps_model *model);

/* ---- plan_load.c: the options --model and --bandwidth, for other commands, too ---- */

struct bps_plan_request {
    const char *model, *bandwidth; /* NULL: not given */
};

#define BPS_PLAN_OPT_MODEL     0x1010
#define BPS_PLAN_OPT_BANDWIDTH 0x1011
#define BPS_PLAN_OPTIONS                                                                                               \
    {"model", required_argument, NULL, BPS_PLAN_OPT_MODEL},                                                            \
    {                                                                                                                  \
        "bandwidth", required_argument, NULL, BPS_PLAN_OPT_BANDWIDTH                                                   \
    }
#define BPS_PLAN_HELP                                                                                                  \
    "      --model MODEL      resnet50, vgg16, bert-base, bert-large, gpt2, or a file\n"                               \
    "                         with lines NAME COUNT TYPE\n"                                                            \
    "      --bandwidth RATE   of each host's link, each way (default: " BPS_BANDWIDTH_DEFAULT ");\n"                   \
    "                         a list, such as 8x100Gbit,25Gbit, is for hosts with\n"                                   \
    "                         workers first, its last one for all further hosts\n"

/* Takes the option if it is one of the two. */
bool bps_plan_take(struct bps_plan_request *request, int code, const char *value);
/* Reads model and bandwidths, for at most so many hosts; returns an exit status. On 0 the caller frees the model. */
int bps_plan_read(const char *command, const struct bps_plan_request *request, int64_t hosts, struct bps_model *model,
                  struct bps_links *links);
/* Reads the model and makes the plan; returns an exit status. On 0 the caller frees both. */
int bps_plan_load(const char *command, const struct bps_plan_request *request, const struct bps_conf *conf,
                  struct bps_model *model, struct bps_plan *plan);

#endif
