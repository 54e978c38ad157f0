/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_make.c - what each server gets of a model, by the code that places tensors in a job, and how long that
 * takes.
 *
 * All times are those of the busiest link, each way: latencies and the work of the processors come on top.
 */
#include <math.h>
#include <stdlib.h>

#include "server/server.h"
#include "tools/cmd.h"
#include "tools/plan.h"
#include "scheduler/declared.h"
#include "scheduler/placement.h"
#include "scheduler/share.h"
#include "wire/frame.h"

#define STEPS_LIMIT (1ull << 31) /* partitions times servers: what a placement looks at */

struct making {
    const struct bps_model *model;
    struct bps_plan *plan;
    struct bps_share *host; /* those with workers first; bandwidths relative to the slowest */
    struct bps_book book;
};

/* ---- the shape of the job ---- */

static void make_links(struct making *m, const struct bps_links *links)
{
    struct bps_plan *plan = m->plan;
    plan->link = bps_cmd_alloc(plan->hosts + plan->others, sizeof *plan->link);
    plan->bandwidth = INFINITY;
    for (uint32_t i = 0; i < plan->hosts + plan->others; i++) {
        plan->link[i].bandwidth = bps_links_bandwidth(links, i);
        plan->bandwidth = fmin(plan->bandwidth, plan->link[i].bandwidth);
    }
}

static void make_hosts(struct making *m, const struct bps_conf *conf)
{
    const struct bps_conf_cluster *cluster = &conf->cluster;
    struct bps_plan *plan = m->plan;
    uint32_t all = plan->hosts + plan->others;
    for (uint32_t i = 0; i < all; i++) {
        double bandwidth = plan->link[i].bandwidth / plan->bandwidth;
        m->host[i] = (struct bps_share){.senders = i < plan->hosts, .bandwidth = bandwidth};
    }
    uint32_t colocated = bps_share_colocated(cluster->colocated, m->host, all, (uint32_t)cluster->servers);
    for (uint32_t i = 0; i < all; i++) {
        bool local = colocated == BPS_COLOCATED_HOSTS || colocated == BPS_COLOCATED_ALL ||
                     (colocated == BPS_COLOCATED_FIRST && i == 0);
        m->host[i].serves = i >= plan->hosts || local;
        plan->servers += m->host[i].serves;
    }
    bps_share_set(m->host, all);
}

static void make_servers(struct making *m)
{
    struct bps_plan *plan = m->plan;
    uint32_t s = 0;
    plan->server = bps_cmd_alloc(plan->servers, sizeof *plan->server);
    plan->shard = bps_cmd_alloc((size_t)plan->servers * plan->shards, sizeof *plan->shard);
    m->book.shards = plan->servers * plan->shards;
    m->book.shard = bps_cmd_alloc(m->book.shards, sizeof *m->book.shard);
    for (uint32_t i = 0; i < plan->hosts + plan->others; i++) {
        if (!m->host[i].serves) {
            continue;
        }
        plan->server[s].colocated = m->host[i].senders > 0;
        plan->server[s].rank = i < plan->hosts ? i : i - plan->hosts;
        plan->server[s].ideal = m->host[i].share;
        for (uint32_t j = 0; j < plan->shards; j++) {
            struct bps_book_shard *shard = &m->book.shard[s * plan->shards + j];
            shard->member = s;
            shard->weight = bps_share_weight(m->host[i].share, plan->shards);
        }
        s++;
    }
}

static bps_status check_size(const struct making *m, struct bps_report *report)
{
    const struct bps_plan *plan = m->plan;
    uint64_t partitions = 0;
    if ((uint64_t)plan->servers * plan->shards > BPS_SHARDS_LIMIT) {
        BPS_REPORT(report,
                   "%u servers with %u shards each are too many; expected at most %u shards together, lower "
                   "server.shards",
                   plan->servers, plan->shards, BPS_SHARDS_LIMIT);
        return BPS_ERR_INVALID;
    }
    for (uint32_t i = 0; i < m->model->tensors; i++) {
        const struct bps_model_tensor *t = &m->model->tensor[i];
        uint32_t n = bps_partitions(t->count * bps_dtype_size(t->dtype), plan->partition);
        if (n > BPS_PARTITIONS_LIMIT) {
            BPS_REPORT(report, "tensor '%.200s' would have %u partitions; expected at most %u, raise worker.partition",
                       t->name, n, BPS_PARTITIONS_LIMIT);
            return BPS_ERR_INVALID;
        }
        partitions += n;
    }
    if (partitions * plan->servers > STEPS_LIMIT) {
        BPS_REPORT(report, "%lu partitions on %u servers are too many to place; raise worker.partition", partitions,
                   plan->servers);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

/* ---- the bytes ---- */

static void count(struct bps_plan *plan, const struct bps_layout *layout)
{
    for (uint32_t i = 0; i < layout->n; i++) {
        uint32_t shard = layout->part[i].shard, bytes = layout->part[i].bytes;
        struct bps_plan_server *server = &plan->server[shard / plan->shards];
        server->bytes += bytes;
        server->partitions++;
        plan->shard[shard] += bytes;
    }
    plan->partitions += layout->n;
}

static uint64_t bytes_of(const struct bps_model_tensor *t)
{
    return t->count * bps_dtype_size(t->dtype);
}

/* As a job places what is declared at once. */
static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a != b ? (a < b ? 1 : -1) : 0;
}

static bps_status place_all(struct making *m)
{
    struct bps_placement placement;
    uint32_t n = m->model->tensors;
    uint64_t *bytes = bps_cmd_alloc(n, sizeof *bytes);
    bps_status status = bps_placement_init(&placement, &m->book);
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        bytes[i] = bytes_of(&m->model->tensor[i]);
        bps_placement_expect(&placement, bytes[i]);
    }
    qsort(bytes, n, sizeof *bytes, by_size);
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        struct bps_layout layout;
        status = bps_placement_add(&placement, bytes[i], m->plan->partition, false, &layout);
        if (status == BPS_OK) {
            count(m->plan, &layout);
            bps_layout_fini(&layout);
        }
    }
    bps_placement_fini(&placement);
    free(bytes);
    return status;
}

/* ---- the times ---- */

/* Without servers beside the workers; in units of all bytes over the slowest link. */
static double servers_only(const struct making *m)
{
    uint32_t all = m->plan->hosts + m->plan->others;
    if (m->plan->others == 0) {
        return -1;
    }
    struct bps_share *host = bps_cmd_alloc(all, sizeof *host);
    for (uint32_t i = 0; i < all; i++) {
        host[i] = m->host[i];
        host[i].serves = i >= m->plan->hosts;
    }
    bps_share_set(host, all);
    double time = bps_share_time(host, all);
    free(host);
    return time;
}

/* In a ring every worker waits for the slowest link. */
static double ring(const struct bps_plan *plan)
{
    double slowest = INFINITY, n = plan->hosts;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        slowest = fmin(slowest, plan->link[i].bandwidth);
    }
    return 2 * (n - 1) / n * (double)plan->bytes * 8 / slowest;
}

static void set_times(struct making *m)
{
    struct bps_plan *plan = m->plan;
    double once = (double)plan->bytes * 8 / plan->bandwidth, only = servers_only(m);
    uint32_t all = plan->hosts + plan->others, s = 0;
    plan->servers_only = only < 0 ? only : only * once;
    plan->ring = ring(plan);
    plan->ideal = bps_share_time(m->host, all) * once;
    for (uint32_t i = 0; i < all; i++) {
        struct bps_plan_server *server = m->host[i].serves ? &plan->server[s++] : NULL;
        if (server != NULL) {
            server->share = plan->bytes == 0 ? server->ideal : (double)server->bytes / (double)plan->bytes;
            m->host[i].share = server->share;
        }
        plan->link[i].busy = bps_share_busy(m->host, all, i) * once;
        if (server != NULL) {
            server->busy = plan->link[i].busy;
        }
    }
    plan->placed = bps_share_time(m->host, all) * once;
}

bps_status bps_plan_make(const struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                         struct bps_plan *out, struct bps_report *report)
{
    const struct bps_conf_cluster *cluster = &conf->cluster;
    *out = (struct bps_plan){
        .hosts = (uint32_t)cluster->workers,
        .others = (uint32_t)cluster->servers,
        .partition = conf->worker.partition,
        .bytes = model->bytes,
    };
    struct making m = {.model = model, .plan = out};
    struct bps_pinning pinning;
    bps_status status = bps_pinning_init(&pinning, conf, report);
    if (status != BPS_OK) {
        return status;
    }
    out->shards = bps_server_count_shards(conf, &pinning, "");
    bps_pinning_fini(&pinning);
    m.host = bps_cmd_alloc(out->hosts + out->others, sizeof *m.host);
    make_links(&m, links);
    make_hosts(&m, conf);
    status = check_size(&m, report);
    if (status == BPS_OK) {
        make_servers(&m);
        status = place_all(&m);
    }
    if (status == BPS_OK) {
        set_times(&m);
    } else {
        bps_plan_fini(out);
    }
    free(m.host);
    free(m.book.shard);
    return status;
}

void bps_plan_fini(struct bps_plan *plan)
{
    free(plan->server);
    free(plan->shard);
    free(plan->link);
    *plan = (struct bps_plan){0};
}
