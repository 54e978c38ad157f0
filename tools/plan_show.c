/* SPDX-License-Identifier: Apache-2.0 */
/* plan_show.c - a plan for people and for programs. */
#include <math.h>
#include <stdio.h>

#include "conf/value.h"
#include "tools/plan.h"

static void print_time(const char *what, double seconds, const char *remark)
{
    printf("  %-34s%10s%s%s\n", what, seconds < 0 ? "-" : bps_duration_text(seconds), remark[0] != '\0' ? "  " : "",
           remark);
}

static void print_servers(const struct bps_plan *plan)
{
    bool shards = plan->shards > 1;
    printf("\n  %-22s%8s%8s%11s%12s%11s%s\n", "server", "share", "ideal", "bytes", "partitions", "link busy",
           shards ? "  its shards" : "");
    for (uint32_t i = 0; i < plan->servers; i++) {
        const struct bps_plan_server *server = &plan->server[i];
        const uint64_t *shard = &plan->shard[(size_t)i * plan->shards];
        char name[48];
        snprintf(name, sizeof name, "%s %u", server->colocated ? "colocated, host" : "server", server->rank);
        printf("  %-22s%7.2f%%%7.2f%%%11s%12u%11s", name, 100 * server->share, 100 * server->ideal,
               bps_bytes_text((double)server->bytes), server->partitions, bps_duration_text(server->busy));
        for (uint32_t j = 0; shards && j < plan->shards; j++) {
            printf("%s%s", j > 0 ? " + " : "  ", bps_bytes_text((double)shard[j]));
        }
        putchar('\n');
    }
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

/* "10 Gbit/s", or "5 Gbit/s to 10 Gbit/s". */
const char *bps_plan_links_text(const struct bps_plan *plan, char *text, size_t n)
{
    double fastest = plan->bandwidth;
    for (uint32_t i = 0; i < plan->hosts + plan->others; i++) {
        fastest = fmax(fastest, plan->link[i].bandwidth);
    }
    snprintf(text, n, "%s%s%s", bps_bandwidth_text(plan->bandwidth), fastest > plan->bandwidth ? " to " : "",
             fastest > plan->bandwidth ? bps_bandwidth_text(fastest) : "");
    return text;
}

void bps_plan_print(const struct bps_plan *plan, const struct bps_model *model)
{
    char remark[64] = "", partition[32], links[64];
    bps_format_size(plan->partition, partition, sizeof partition);
    printf("%s: %u tensor%s, %lu elements, %s in %u partition%s of at most %s\n", model->name, model->tensors,
           plural(model->tensors), model->elements, bps_bytes_text((double)model->bytes), plan->partitions,
           plural(plan->partitions), partition);
    printf("%u host%s with workers, %u with servers only; %s each way; %u shard%s on each server\n\n", plan->hosts,
           plural(plan->hosts), plan->others, bps_plan_links_text(plan, links, sizeof links), plan->shards,
           plural(plan->shards));
    print_time("servers only", plan->servers_only, plan->servers_only < 0 ? "there are none" : "");
    print_time("ring all-reduce", plan->ring, "");
    print_time("this placement, ideal", plan->ideal, "");
    if (plan->ideal > 0) {
        snprintf(remark, sizeof remark, "%+.1f %%", 100 * (plan->placed / plan->ideal - 1));
    }
    print_time("this placement, with this model", plan->placed, remark);
    print_servers(plan);
}

static json_t *seconds(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *server_json(const struct bps_plan *plan, uint32_t i)
{
    const struct bps_plan_server *server = &plan->server[i];
    json_t *shards = json_array();
    for (uint32_t j = 0; j < plan->shards; j++) {
        json_array_append_new(shards, json_integer((json_int_t)plan->shard[(size_t)i * plan->shards + j]));
    }
    return json_pack("{s:b, s:I, s:f, s:f, s:I, s:I, s:f, s:o}", "colocated", server->colocated, "rank",
                     (json_int_t)server->rank, "share", server->share, "ideal_share", server->ideal, "bytes",
                     (json_int_t)server->bytes, "partitions", (json_int_t)server->partitions, "busy_seconds",
                     server->busy, "shards", shards);
}

/* A number for equal links, else one for each host. */
static json_t *bandwidth_json(const struct bps_plan *plan)
{
    json_t *all = json_array();
    bool equal = true;
    for (uint32_t i = 0; i < plan->hosts + plan->others; i++) {
        json_array_append_new(all, json_real(plan->link[i].bandwidth));
        equal = equal && plan->link[i].bandwidth == plan->bandwidth;
    }
    if (equal) {
        json_decref(all);
        return json_real(plan->bandwidth);
    }
    return all;
}

json_t *bps_plan_json(const struct bps_plan *plan, const struct bps_model *model)
{
    json_t *servers = json_array();
    for (uint32_t i = 0; i < plan->servers; i++) {
        json_array_append_new(servers, server_json(plan, i));
    }
    return json_pack("{s:{s:s, s:I, s:I, s:I}, s:I, s:I, s:o, s:I, s:I, s:{s:o, s:o, s:o, s:o}, s:o}", "model", "name",
                     model->name, "tensors", (json_int_t)model->tensors, "elements", (json_int_t)model->elements,
                     "bytes", (json_int_t)model->bytes, "workers", (json_int_t)plan->hosts, "servers",
                     (json_int_t)plan->others, "bandwidth", bandwidth_json(plan), "partition",
                     (json_int_t)plan->partition, "partitions", (json_int_t)plan->partitions, "seconds", "servers_only",
                     seconds(plan->servers_only), "ring", seconds(plan->ring), "ideal", seconds(plan->ideal), "placed",
                     seconds(plan->placed), "placement", servers);
}
