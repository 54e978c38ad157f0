/* SPDX-License-Identifier: Apache-2.0 */
/* weigh.c - the hosts of a book. */
#include "scheduler/weigh.h"

#include <stdlib.h>

/* The number of a member's host, which is new if no member before it is there. */
static uint32_t weigh_host_of(const struct bps_hosts *hosts, const struct bps_book *book, uint32_t member)
{
    for (uint32_t i = 0; i < member; i++) {
        if (book->member[i].host_id == book->member[member].host_id) {
            return hosts->of[i];
        }
    }
    return hosts->count;
}

/* Shards by member: calls for the first of each. */
static bool is_first_shard(const struct bps_book *book, uint32_t i)
{
    return i == 0 || book->shard[i].member != book->shard[i - 1].member;
}

bps_status bps_hosts_init(struct bps_hosts *hosts, const struct bps_book *book)
{
    *hosts = (struct bps_hosts){
        .of = calloc(book->members, sizeof *hosts->of),
        .share = calloc(book->members, sizeof *hosts->share),
        .servers = calloc(book->members, sizeof *hosts->servers),
    };
    if (hosts->of == NULL || hosts->share == NULL || hosts->servers == NULL) {
        bps_hosts_fini(hosts);
        return BPS_ERR_NOMEM;
    }
    for (uint32_t m = 0; m < book->members; m++) {
        uint32_t host = hosts->of[m] = weigh_host_of(hosts, book, m);
        hosts->count += host == hosts->count;
        hosts->share[host].bandwidth = 1;
        /* Of those who sum together before they push, the first one counts. */
        hosts->share[host].senders += m < book->workers && book->member[m].group == m;
    }
    uint64_t all = bps_book_weights(book);
    for (uint32_t i = 0; i < book->shards; i++) {
        uint32_t host = hosts->of[book->shard[i].member];
        if (book->shard[i].gone) {
            continue;
        }
        hosts->servers[host] += is_first_shard(book, i);
        hosts->share[host].serves = true;
        hosts->share[host].share += all > 0 ? (double)book->shard[i].weight / (double)all : 0;
    }
    return BPS_OK;
}

void bps_hosts_fini(struct bps_hosts *hosts)
{
    free(hosts->of);
    free(hosts->share);
    free(hosts->servers);
    *hosts = (struct bps_hosts){.count = 0};
}

bps_status bps_hosts_weigh(const struct bps_hosts *hosts, struct bps_book *book)
{
    for (uint32_t first = 0, next; first < book->shards; first = next) {
        uint32_t host = hosts->of[book->shard[first].member];
        for (next = first + 1; next < book->shards && !is_first_shard(book, next); next++) {
        }
        for (uint32_t i = first; i < next; i++) {
            double share = hosts->share[host].share / hosts->servers[host];
            book->shard[i].weight = book->shard[i].gone ? 0 : bps_share_weight(share, next - first);
        }
    }
    return bps_book_weigh(book) ? BPS_OK : BPS_ERR_FAILED;
}
