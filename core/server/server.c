/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - the shards of one process. */
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "node/transport.h"
#include "server/shard.h"

#define AUTO_SHARDS_LIMIT 8

struct bps_server {
    uint32_t shards;
    struct bps_shard *shard[];
};

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0 || strcmp(host, "::1") == 0;
}

uint32_t bps_server_count_shards(const struct bps_conf *conf, const struct bps_pinning *pinning, const char *host)
{
    int64_t wanted = conf->server.shards;
    if (wanted > 0) {
        return (uint32_t)wanted;
    }
    /*
     * The kernel's part of the work runs beside the shards, so that half the cores are enough. On loopback
     * two cores gain by two shards, as a worker's other connection is busy while one waits for room; between
     * hosts more connections only lose more packets, and have more under way.
     */
    unsigned cores = (unsigned)hwloc_bitmap_weight(pinning->allowed);
    unsigned n = cores / 2 < 2 && is_loopback(host) ? cores : cores / 2;
    return n < 1 ? 1 : n > AUTO_SHARDS_LIMIT ? AUTO_SHARDS_LIMIT : n;
}

static bps_status add_shard(struct bps_server *server, const struct bps_conf *conf, const struct bps_pinning *pinning,
                            const char *host, uint32_t count, struct bps_report *report)
{
    struct bps_pin pin = {.bound = false};
    /* What does not work for the first shard, and has been told, is not tried for the others. */
    bool local = conf->server.local && (server->shards == 0 || bps_shard_local(server->shard[0])[0] != '\0');
    bps_status status = bps_pinning_shard(pinning, server->shards, count, &pin, report);
    if (status == BPS_OK) {
        status =
            bps_shard_new(conf, server->shards, host, local, pinning, &pin, &server->shard[server->shards], report);
    }
    bps_pin_fini(&pin);
    server->shards += status == BPS_OK;
    return status;
}

bps_status bps_server_new(const struct bps_conf *conf, const struct bps_pinning *pinning, const char *host,
                          struct bps_server **out, struct bps_report *report)
{
    uint32_t n = bps_server_count_shards(conf, pinning, host);
    struct bps_server *server = calloc(1, sizeof *server + n * sizeof server->shard[0]);
    uint64_t links = (uint64_t)conf->cluster.workers * BPS_LANES_TIMES * n;
    bps_status status = server == NULL ? BPS_ERR_NOMEM : bps_files_expect(links, report);
    while (status == BPS_OK && server->shards < n) {
        status = add_shard(server, conf, pinning, host, n, report);
    }
    if (status != BPS_OK) {
        bps_server_free(server);
        return status;
    }
    *out = server;
    return BPS_OK;
}

void bps_server_free(struct bps_server *server)
{
    if (server != NULL) {
        for (uint32_t i = 0; i < server->shards; i++) {
            bps_shard_free(server->shard[i]);
        }
        free(server);
    }
}

void bps_server_endpoints(const struct bps_server *server, struct bps_writer *endpoints)
{
    bps_put_u32(endpoints, server->shards);
    for (uint32_t i = 0; i < server->shards; i++) {
        bps_put_string(endpoints, bps_shard_address(server->shard[i]));
        bps_put_string(endpoints, bps_shard_local(server->shard[i]));
    }
}

bps_status bps_server_serve(struct bps_server *server, struct bps_view *view)
{
    for (uint32_t i = 0; i < server->shards; i++) {
        bps_status status = bps_shard_serve(server->shard[i], view);
        if (status != BPS_OK) {
            return status;
        }
    }
    return BPS_OK;
}

uint32_t bps_server_delivered(const struct bps_server *server, struct bps_writer *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < server->shards; i++) {
        n += bps_shard_delivered(server->shard[i], w);
    }
    return n;
}

void bps_server_lateness(const struct bps_server *server, struct bps_lateness *into)
{
    for (uint32_t i = 0; i < server->shards; i++) {
        bps_shard_lateness(server->shard[i], into);
    }
}

uint32_t bps_server_shards(const struct bps_server *server)
{
    return server->shards;
}
