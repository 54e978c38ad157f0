/* SPDX-License-Identifier: Apache-2.0 */
/* book.c - the membership of a job to bytes and back. */
#include "node/book.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void bps_book_write(const struct bps_book *book, struct bps_writer *w)
{
    bps_assert(book->workers > 0 && book->workers <= book->members && book->shards > 0);
    bps_put_u32(w, book->epoch);
    bps_put_u32(w, book->view);
    for (uint32_t i = 0; i < BPS_UNNAMED_KINDS; i++) {
        bps_put_u32(w, book->from[i]);
    }
    bps_put_u32(w, book->workers);
    bps_put_u32(w, book->members);
    for (uint32_t i = 0; i < book->members; i++) {
        const struct bps_book_member *m = &book->member[i];
        bps_put_u32(w, m->role);
        bps_put_u32(w, m->rank);
        bps_put_u32(w, m->local_rank);
        bps_put_u32(w, m->local_size);
        bps_put_u32(w, m->pid);
        bps_put_u32(w, m->group);
        bps_put_u64(w, m->host_id);
        bps_put_string(w, m->host);
        bps_put_string(w, m->local);
        bps_put_bytes(w, m->public_key, sizeof m->public_key);
        bps_put_u8(w, m->lost);
    }
    bps_put_u32(w, book->shards);
    for (uint32_t i = 0; i < book->shards; i++) {
        bps_put_u32(w, book->shard[i].member);
        bps_put_u32(w, book->shard[i].weight);
        bps_put_u32(w, book->shard[i].spread);
        bps_put_u8(w, (uint8_t)(book->shard[i].gone + book->shard[i].lost));
        bps_put_string(w, book->shard[i].address);
        bps_put_string(w, book->shard[i].local);
    }
}

static bps_status read_members(struct bps_reader *r, struct bps_book *out)
{
    out->workers = bps_get_u32(r);
    out->members = bps_get_u32(r);
    if (r->bad || out->members > BPS_MEMBERS_LIMIT || out->workers == 0 || out->workers > out->members) {
        return BPS_ERR_PROTOCOL;
    }
    out->member = calloc(out->members, sizeof *out->member);
    if (out->member == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < out->members && !r->bad; i++) {
        struct bps_book_member *m = &out->member[i];
        m->role = bps_get_u32(r);
        m->rank = bps_get_u32(r);
        m->local_rank = bps_get_u32(r);
        m->local_size = bps_get_u32(r);
        m->pid = bps_get_u32(r);
        m->group = bps_get_u32(r);
        m->host_id = bps_get_u64(r);
        bps_get_string(r, m->host, sizeof m->host);
        bps_get_string(r, m->local, sizeof m->local);
        bps_get_bytes(r, m->public_key, sizeof m->public_key);
        uint8_t lost = bps_get_u8(r);
        m->lost = lost == 1;
        bool worker = i < out->workers;
        bool grouped = worker ? m->group <= i && out->member[m->group].group == m->group : m->group == m->rank;
        if (!grouped || m->role != (worker ? BPS_ROLE_WORKER : BPS_ROLE_SERVER) ||
            m->rank != (worker ? i : i - out->workers) || lost > worker) {
            return BPS_ERR_PROTOCOL;
        }
    }
    return r->bad ? BPS_ERR_PROTOCOL : BPS_OK;
}

static bps_status read_shards(struct bps_reader *r, struct bps_book *out)
{
    out->shards = bps_get_u32(r);
    if (r->bad || out->shards == 0 || out->shards > BPS_SHARDS_LIMIT) {
        return BPS_ERR_PROTOCOL;
    }
    out->shard = calloc(out->shards, sizeof *out->shard);
    if (out->shard == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < out->shards; i++) {
        struct bps_book_shard *shard = &out->shard[i];
        shard->member = bps_get_u32(r);
        shard->weight = bps_get_u32(r);
        shard->spread = bps_get_u32(r);
        uint8_t gone = bps_get_u8(r);
        shard->gone = gone >= 1;
        shard->lost = gone == 2;
        bps_get_string(r, shard->address, sizeof shard->address);
        bps_get_string(r, shard->local, sizeof shard->local);
        if (shard->member >= out->members || (i > 0 && shard->member < shard[-1].member) || gone > 2 ||
            (shard->gone && shard->weight > 0)) {
            return BPS_ERR_PROTOCOL;
        }
    }
    return r->bad || !bps_book_weigh(out) ? BPS_ERR_PROTOCOL : BPS_OK;
}

bps_status bps_book_read(struct bps_reader *r, struct bps_book *out)
{
    memset(out, 0, sizeof *out);
    out->epoch = bps_get_u32(r);
    out->view = bps_get_u32(r);
    for (uint32_t i = 0; i < BPS_UNNAMED_KINDS; i++) {
        out->from[i] = bps_get_u32(r);
    }
    bps_status status = read_members(r, out);
    if (status == BPS_OK) {
        status = read_shards(r, out);
    }
    if (status == BPS_OK && !bps_reader_done(r)) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        bps_book_fini(out);
    }
    return status;
}

bool bps_book_hosts(const struct bps_book *book, uint32_t member)
{
    bool hosts = false;
    for (uint32_t i = 0; i < book->shards && !hosts; i++) {
        hosts = book->shard[i].member == member && !book->shard[i].gone;
    }
    return hosts;
}

bool bps_book_needs(const struct bps_book *book, uint32_t member)
{
    return (member < book->workers && !book->member[member].lost) || bps_book_hosts(book, member);
}

uint64_t bps_book_weights(const struct bps_book *book)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < book->shards; i++) {
        all += book->shard[i].weight;
    }
    return all;
}

/* What follows from the `spread` of the shards. */
static uint64_t sum_spread(struct bps_book *book)
{
    uint64_t until = 0;
    uint32_t shards = 0, leaders = 1;
    for (uint32_t i = 0; i < book->shards; i++) {
        until += book->shard[i].spread;
        book->shard[i].until = until;
        shards += book->shard[i].spread > 0;
    }
    for (uint32_t rank = 0; rank < book->workers; rank++) {
        uint32_t own = book->member[rank].group == rank ? bps_leaders(bps_book_group_size(book, rank)) : 1;
        leaders = own > leaders ? own : leaders;
    }
    book->spread = shards > leaders ? shards : leaders;
    return until;
}

void bps_book_spread(struct bps_book *book)
{
    for (uint32_t i = 0; i < book->shards; i++) {
        book->shard[i].spread = book->shard[i].weight;
    }
    sum_spread(book);
}

bool bps_book_weigh(struct bps_book *book)
{
    uint64_t all = bps_book_weights(book);
    if (sum_spread(book) == 0) {
        bps_book_spread(book);
    }
    return all > 0 && all <= UINT32_MAX && sum_spread(book) <= UINT32_MAX;
}

bool bps_book_lose(struct bps_book *book, uint32_t member)
{
    bool others = false;
    for (uint32_t i = 0; i < book->shards; i++) {
        others |= book->shard[i].member != member && !book->shard[i].gone;
    }
    for (uint32_t i = 0; i < book->shards && others; i++) {
        struct bps_book_shard *shard = &book->shard[i];
        shard->lost |= shard->member == member;
        shard->gone |= shard->lost;
        shard->weight = shard->gone ? 0 : shard->weight;
    }
    for (uint32_t i = 0; i < book->shards && others && bps_book_weights(book) < book->shards; i++) {
        book->shard[i].weight += !book->shard[i].gone; /* those that are left had none */
    }
    return others;
}

bps_status bps_book_copy(const struct bps_book *book, struct bps_book *out)
{
    *out = *book;
    out->member = malloc(book->members * sizeof *out->member);
    out->shard = malloc(book->shards * sizeof *out->shard);
    if (out->member == NULL || out->shard == NULL) {
        bps_book_fini(out);
        return BPS_ERR_NOMEM;
    }
    memcpy(out->member, book->member, book->members * sizeof *out->member);
    memcpy(out->shard, book->shard, book->shards * sizeof *out->shard);
    return BPS_OK;
}

void bps_book_fini(struct bps_book *book)
{
    free(book->member);
    free(book->shard);
    memset(book, 0, sizeof *book);
}

bps_status bps_book_key(const struct bps_book *book, uint32_t member, const uint8_t *secret, uint8_t out[BPS_KEY_BYTES])
{
    bps_assert(member < book->members);
    return bps_identity_key(&book->self, book->member[member].public_key, secret, out);
}

uint32_t *bps_book_groups(const struct bps_book *book)
{
    uint32_t *group = calloc(book->workers, sizeof *group);
    for (uint32_t rank = 0; group != NULL && rank < book->workers; rank++) {
        group[rank] = book->member[rank].group;
    }
    return group;
}

uint32_t bps_book_group_size(const struct bps_book *book, uint32_t rank)
{
    bps_assert(rank < book->workers);
    uint32_t size = 0;
    for (uint32_t i = 0; i < book->workers; i++) {
        size += book->member[i].group == book->member[rank].group;
    }
    return size;
}

void bps_member_text(const struct bps_book_member *member, char *text, size_t n)
{
    snprintf(text, n, "%s %u (host %s, pid %u)", member->role == BPS_ROLE_WORKER ? "worker" : "server", member->rank,
             member->host, member->pid);
}
