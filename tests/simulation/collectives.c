/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.c - operations of blocks, behind each round of a job: of all workers or in a process group, of one size
 * or of many, on devices or not, two at once. What comes of them is compared with what their senders have.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "flow/flow.h"
#include "job.h"

#define AT_ONCE 2u
#define MOST    300u /* elements of a block */

/* One operation, as all workers draw it, and this one's part of it. */
struct collective {
    uint32_t kind, root, base, uneven;
    uint32_t n, own, rank[WORKERS]; /* who take part, */
    bool grouped;                   /* in a process group */
    uint64_t in_counts[WORKERS], out_counts[WORKERS];
    struct bps_process_group *group; /* used while it is open */
    float *in, *out;
    uint32_t ins, outs;
    bool on_device, in_place;
    bps_handle handle;
};

/* The numbers of a job's operations of blocks are its own: what else is drawn of it stays as it was. */
static uint32_t drawn(const struct job *job, uint32_t round, uint32_t number, uint32_t what, uint32_t n)
{
    uint64_t x = (job->seed + 1) * 0x9e3779b97f4a7c15u + (round * 97u + number * 31u + what) * 0xd1342543de82ef95u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)((x ^ x >> 32) >> 7) % n;
}

/* What a rank has in its block for a place: small whole numbers, whose sums are exact. */
static float content(uint32_t rank, uint32_t place, uint64_t i)
{
    return (float)((rank + 1) * ((i + 7 * place) % 13));
}

static uint64_t block_count(const struct collective *c, uint32_t from, uint32_t to)
{
    bool pairs = c->kind == BPS_KIND_ALL_TO_ALL;
    return c->base + (pairs                                                          ? 3 * from + 5 * to
                      : c->kind == BPS_KIND_ALL_GATHER || c->kind == BPS_KIND_GATHER ? from
                                                                                     : to) *
                         c->uneven;
}

/* Results that only one worker has, and those of groups, are not kept: a server that is lost takes them with it. */
static bool may_lose_servers(const struct job *job)
{
    return job->trouble == SERVER_KILLED || job->trouble == COMES;
}

bool collectives_in_groups(const struct job *job)
{
    return job->seed % 2 == 0 && !may_lose_servers(job);
}

static void draw(const struct worker *w, uint32_t number, struct collective *c)
{
    static const uint32_t kinds[] = {BPS_KIND_ALL_GATHER,    BPS_KIND_GATHER,          BPS_KIND_SCATTER,
                                     BPS_KIND_ALL_TO_ALL,    BPS_KIND_BLOCK_BROADCAST, BPS_KIND_REDUCE,
                                     BPS_KIND_REDUCE_SCATTER};
    const struct job *job = w->job;
    uint32_t round = w->round, size = w->worker->job.size, own = w->worker->job.rank;
    *c = (struct collective){.kind = kinds[drawn(job, round, number, 0, may_lose_servers(job) ? 5 : 7)],
                             .base = drawn(job, round, number, 1, 4) > 0 ? drawn(job, round, number, 2, MOST) : 0,
                             .uneven = drawn(job, round, number, 3, 2)};
    bool grouped = collectives_in_groups(job) && drawn(job, round, number, 4, 3) > 0;
    uint32_t set = grouped ? drawn(job, round, number, 5, 1u << size) : 0;
    c->own = UINT32_MAX;
    for (uint32_t r = 0; r < size; r++) {
        if (set == 0 || (set >> r & 1) != 0) {
            c->own = r == own ? c->n : c->own;
            c->rank[c->n++] = r;
        }
    }
    c->root = drawn(job, round, number, 6, c->n);
    c->uneven = c->kind == BPS_KIND_REDUCE || c->kind == BPS_KIND_BLOCK_BROADCAST ? 0 : c->uneven;
    c->on_device = job->devices && w->has_device && drawn(job, round, number, 7, 4) > 0;
    c->in_place = c->kind == BPS_KIND_ALL_GATHER && drawn(job, round, number, 8, 2) == 0;
    c->grouped = set != 0;
}

static bool has_side(const struct collective *c, enum bps_party party)
{
    return party != BPS_PARTY_ROOT || c->root == c->own;
}

/* The sizes of all blocks that it brings, and gets. */
static void lay_out(struct collective *c)
{
    const struct bps_kind *kind = &bps_kinds[c->kind];
    for (uint32_t p = 0; p < c->n; p++) {
        c->in_counts[p] = block_count(c, c->own, p);
        c->out_counts[p] = block_count(c, p, c->own);
        c->ins += has_side(c, kind->from) && (kind->all_in || p == c->own) ? (uint32_t)c->in_counts[p] : 0;
        c->outs += has_side(c, kind->to) && (kind->all_out || p == c->own) ? (uint32_t)c->out_counts[p] : 0;
    }
    c->out = __real_calloc(c->outs + 1, sizeof *c->out);
    c->in = __real_calloc(c->ins + 1, sizeof *c->in);
    for (uint32_t i = 0; i < c->outs; i++) {
        c->out[i] = NAN;
    }
}

/* The block of its own in what it gets. */
static float *own_place(const struct collective *c)
{
    uint64_t before = 0;
    for (uint32_t p = 0; p < c->own; p++) {
        before += c->out_counts[p];
    }
    return c->out + before;
}

static void collective_fill(const struct worker *w, struct collective *c)
{
    const struct bps_kind *kind = &bps_kinds[c->kind];
    uint32_t rank = w->worker->job.rank, at = 0;
    float *data = __real_calloc(c->ins + 1, sizeof *data);
    for (uint32_t p = 0; p < c->n && c->ins > 0; p++) {
        for (uint64_t i = 0; i < c->in_counts[p] && (kind->all_in || p == c->own); i++) {
            data[at++] = content(rank, kind->all_in ? p : 0, i);
        }
    }
    float *to = c->in_place ? own_place(c) : c->in;
    if (c->on_device) {
        sim_device_write(to, data, c->ins * sizeof *data);
    } else {
        memcpy(to, data, c->ins * sizeof *data);
    }
    free(data);
}

static bps_status collective_start(const struct worker *w, uint32_t number, struct collective *c)
{
    const struct bps_kind *kind = &bps_kinds[c->kind];
    struct bps_report report = {""};
    bool sums = kind->from == BPS_PARTY_ALL;
    struct bps_push_pull request = {.size = sizeof request,
                                    .in = c->in_place ? own_place(c) : c->in,
                                    .out = c->out,
                                    .dtype = BPS_FLOAT32,
                                    .op = BPS_SUM,
                                    .prescale = 1,
                                    .postscale = 1,
                                    .device = {.type = c->on_device ? BPS_DEVICE_CUDA : BPS_DEVICE_HOST}};
    struct bps_call_blocks blocks = {.ranks = c->n,
                                     .own = c->own,
                                     .in_counts = kind->all_in ? c->in_counts : NULL,
                                     .out_counts = kind->all_out ? c->out_counts : NULL,
                                     .in_count = c->in_counts[c->own],
                                     .out_count = c->out_counts[c->own],
                                     .request = &request};
    bps_status status = BPS_OK;
    if (c->grouped) {
        status = bps_process_group_open(w->worker, w->round * AT_ONCE + number, c->rank, c->n, &c->group, &report);
    }
    const struct bps_call call = {.op = sums ? BPS_SUM : BPS_WIRE_BROADCAST,
                                  .kind = c->kind,
                                  .root = c->root,
                                  .group = c->group,
                                  .blocks = &blocks};
    status = status == BPS_OK ? bps_blocks_check(&call, &request, &report) : status;
    return status == BPS_OK ? bps_operation_start(w->worker, &request, &call, &c->handle, &report) : status;
}

static float wanted_at(const struct collective *c, uint32_t place, uint64_t i)
{
    const struct bps_kind *kind = &bps_kinds[c->kind];
    float sum = 0;
    if (kind->from != BPS_PARTY_ALL) {
        return content(c->rank[kind->from == BPS_PARTY_ROOT ? c->root : place], kind->all_in ? c->own : 0, i);
    }
    for (uint32_t p = 0; p < c->n; p++) {
        sum += content(c->rank[p], kind->all_in ? c->own : 0, i);
    }
    return sum;
}

static void collective_check(struct job *job, const struct collective *c)
{
    const struct bps_kind *kind = &bps_kinds[c->kind];
    uint32_t at = 0;
    if (c->on_device && !sim_device_finish()) {
        return;
    }
    for (uint32_t p = 0; p < c->n && c->outs > 0; p++) {
        for (uint64_t i = 0; i < c->out_counts[p] && (kind->all_out || p == c->own); i++, at++) {
            if (c->out[at] != wanted_at(c, p, i)) {
                printf("  a %s of %u, place %u, block %u, element %lu: %g instead of %g\n", kind->name, c->n, c->own, p,
                       i, (double)c->out[at], (double)wanted_at(c, p, i));
                job_blame(job, "a block is wrong");
                return;
            }
        }
    }
}

bool collectives_run(struct worker *w)
{
    struct collective c[AT_ONCE];
    struct bps_report report = {""};
    bps_status status = BPS_OK;
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        draw(w, k, &c[k]);
        if (c[k].own != UINT32_MAX) {
            lay_out(&c[k]);
            collective_fill(w, &c[k]);
            bps_status started = status == BPS_OK ? collective_start(w, k, &c[k]) : status;
            c[k].handle = started == BPS_OK ? c[k].handle : 0;
            status = started;
        }
        if (c[k].group != NULL) { /* with its operation in flight */
            bps_process_group_free(w->worker, c[k].group->id, NULL);
        }
    }
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        bool takes_part = c[k].own != UINT32_MAX;
        if (takes_part && c[k].handle != 0) {
            bps_status ended = bps_operation_wait(w->worker, c[k].handle, BPS_FOREVER, &report);
            status = status == BPS_OK ? ended : status;
            if (ended == BPS_OK) {
                collective_check(w->job, &c[k]);
            }
        }
        if (c[k].on_device) {
            sim_device_finish(); /* which may still write there */
        }
        free(takes_part ? c[k].in : NULL);
        free(takes_part ? c[k].out : NULL);
    }
    if (status != BPS_OK && !job_may_end(w->job)) {
        printf("  worker %u: %s\n", w->number, report.text);
        job_blame(w->job, "an operation of blocks failed for no reason");
    }
    return status == BPS_OK;
}
