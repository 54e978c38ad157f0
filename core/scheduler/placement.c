/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - cuts tensors where the shares of servers, shards and leaders of a host end. */
#include "scheduler/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/tensor.h"
#include "wire/frame.h"

/* What a tensor costs besides its bytes, so that many tiny ones are spread, too. */
#define TENSOR_COST BPS_HEADER_BYTES
/* As if there were so much: before that, balance is worth less than whole tensors. */
#define LEAST_EXPECTED (512u << 10)
/* Of cuts: those of small tensors fill what the others leave. */
#define GRAIN       1024u
#define SMALL_GRAIN 64u
#define LEAST_SLACK 512u
/*
 * A bin may exceed its share by one part in so many, before a small tensor is cut for it: a server, which has a link of
 * its own; a shard or a worker, which have a core.
 */
#define SERVER_SLACK 128u
#define NEAR_SLACK   1u
#define LEAD_SPREAD  (256u << 10) /* like BPS_SPREAD_BYTES, for the leaders of a host */

/* A bin, while a tensor is divided: */
struct bps_choice {
    uint32_t bin;
    uint64_t room;  /* of its share */
    uint64_t slack; /* by which it may exceed that */
    uint64_t bytes; /* that it gets */
};

/* What is divided, and how. */
struct division {
    uint64_t bytes;
    uint64_t expected; /* load of all the bins */
    uint64_t grain, spread;
    uint32_t slack;
};

/* ---- dividing bytes among bins ---- */

static uint64_t placement_share_of(uint64_t all, uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (uint64_t)((unsigned __int128)all * part / whole);
}

static int by_room(const void *left, const void *right)
{
    const struct bps_choice *a = left, *b = right;
    return a->room != b->room ? (a->room < b->room ? 1 : -1) : a->bin < b->bin ? -1 : a->bin > b->bin;
}

/*
 * The bins that take part, those with the most room first: as few as have room for all, but as many as get `spread`
 * each. Returns how many.
 */
static uint32_t placement_choose(const struct division *d, const struct bps_bin *bin, uint32_t n,
                                 struct bps_choice *out)
{
    uint64_t weights = 0, room = 0, slack = 0;
    uint32_t bins = 0, taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        weights += bin[i].weight;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t goal = placement_share_of(d->expected, bin[i].weight, weights);
        if (bin[i].weight > 0) {
            out[bins++] = (struct bps_choice){.bin = i,
                                              .room = goal > bin[i].load ? goal - bin[i].load : 0,
                                              .slack = goal / d->slack > LEAST_SLACK ? goal / d->slack : LEAST_SLACK};
        }
    }
    qsort(out, bins, sizeof *out, by_room);
    while (taken < bins && (taken == 0 || taken < d->bytes / d->spread || room + slack < d->bytes)) {
        room += out[taken].room / d->grain * d->grain;
        slack = out[taken].slack;
        taken++;
    }
    return taken;
}

/* By their room. */
static void divide_evenly(const struct division *d, struct bps_choice *choice, uint32_t n)
{
    uint64_t room = 0, until = 0, placed = 0;
    for (uint32_t i = 0; i < n; i++) {
        room += choice[i].room;
    }
    for (uint32_t i = 0; i < n; i++) {
        until += room > 0 ? choice[i].room : 1;
        uint64_t end = placement_share_of(d->bytes, until, room > 0 ? room : n);
        end = i + 1 == n ? d->bytes : (end + d->grain / 2) / d->grain * d->grain;
        choice[i].bytes = (end < d->bytes ? end : d->bytes) - placed;
        placed += choice[i].bytes;
    }
}

/* One after the other, each as far as it has room. */
static void divide_in_order(const struct division *d, struct bps_choice *choice, uint32_t n)
{
    uint64_t rest = d->bytes;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t room = choice[i].room / d->grain * d->grain;
        choice[i].bytes = rest <= choice[i].room + choice[i].slack ? rest : room;
        rest -= choice[i].bytes;
    }
    choice[0].bytes += rest; /* no room is left, or none that is worth a cut */
}

/* Returns how many bins get something: each a multiple of the grain, except for the last. */
static uint32_t divide(const struct division *d, const struct bps_bin *bin, uint32_t n, struct bps_choice *choice)
{
    uint32_t taken = placement_choose(d, bin, n, choice), filled = 0;
    if (d->bytes / d->spread > 1) {
        divide_evenly(d, choice, taken);
    } else {
        divide_in_order(d, choice, taken);
    }
    for (uint32_t i = 0; i < taken; i++) {
        if (choice[i].bytes > 0) {
            choice[filled++] = choice[i];
        }
    }
    filled += filled == 0; /* an empty tensor */
    for (uint32_t i = 0; i + 1 < filled; i++) {
        if (choice[i].bytes % d->grain != 0) {
            const struct bps_choice odd = choice[i];
            choice[i] = choice[filled - 1];
            choice[filled - 1] = odd;
        }
    }
    return filled;
}

/* ---- the bins of a job ---- */

static struct bps_bin *bins_new(uint32_t n, uint64_t weight)
{
    struct bps_bin *bin = calloc(n, sizeof *bin);
    for (uint32_t i = 0; bin != NULL && i < n; i++) {
        bin[i].weight = weight;
    }
    return bin;
}

void bps_placement_weigh(struct bps_placement *placement, const struct bps_book *book)
{
    placement->view = book->view;
    placement->weights = 0;
    for (uint32_t s = 0; s < placement->servers; s++) {
        placement->server[s].weight = 0;
        for (uint32_t i = placement->first[s]; i < placement->first[s + 1]; i++) {
            placement->shard[i].weight = book->shard[i].weight;
            placement->server[s].weight += book->shard[i].weight;
        }
        placement->weights += placement->server[s].weight;
    }
}

static bool set_servers(struct bps_placement *placement, const struct bps_book *book)
{
    placement->server = bins_new(book->shards, 0);
    placement->shard = bins_new(book->shards, 0);
    placement->first = calloc((size_t)book->shards + 1, sizeof *placement->first);
    if (placement->server == NULL || placement->shard == NULL || placement->first == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < book->shards; i++) {
        if (i == 0 || book->shard[i].member != book->shard[i - 1].member) {
            placement->first[placement->servers++] = i;
        }
    }
    placement->first[placement->servers] = book->shards;
    bps_placement_weigh(placement, book);
    return true;
}

/* The same bins, and more of them. */
static bool bins_grow(struct bps_bin **bins, uint32_t had, uint32_t n)
{
    struct bps_bin *bin = realloc(*bins, n * sizeof *bin);
    if (bin != NULL) {
        memset(bin + had, 0, (n - had) * sizeof *bin);
        *bins = bin;
    }
    return bin != NULL;
}

bps_status bps_placement_grow(struct bps_placement *placement, const struct bps_book *book)
{
    uint32_t had = placement->first[placement->servers],
             leaders = placement->sizes > 0 ? placement->group[0].leaders : 0;
    size_t choices = 2 * (size_t)book->shards + leaders;
    uint32_t *first = realloc(placement->first, ((size_t)book->shards + 1) * sizeof *first);
    placement->first = first != NULL ? first : placement->first;
    struct bps_choice *choice = realloc(placement->choice, choices * sizeof *choice);
    placement->choice = choice != NULL ? choice : placement->choice;
    if (first == NULL || choice == NULL || !bins_grow(&placement->server, had, book->shards) ||
        !bins_grow(&placement->shard, had, book->shards)) {
        return BPS_ERR_NOMEM;
    }
    placement->first[++placement->servers] = book->shards;
    bps_placement_weigh(placement, book);
    return BPS_OK;
}

static int placement_by_size(const void *left, const void *right)
{
    const struct bps_group_bins *a = left, *b = right;
    return a->size != b->size ? (a->size < b->size ? 1 : -1) : 0;
}

static bool set_groups(struct bps_placement *placement, const struct bps_book *book)
{
    placement->group = calloc((size_t)book->workers + 1, sizeof *placement->group);
    for (uint32_t rank = 0; rank < book->workers && placement->group != NULL; rank++) {
        uint32_t size = bps_book_group_size(book, rank), i = 0;
        while (i < placement->sizes && placement->group[i].size != size) {
            i++;
        }
        if (i == placement->sizes) {
            struct bps_group_bins *group = &placement->group[placement->sizes++];
            uint32_t leaders = bps_leaders(size);
            *group = (struct bps_group_bins){.size = size, .leaders = leaders, .leader = bins_new(leaders, 1)};
            if (group->leader == NULL) {
                return false;
            }
        }
    }
    if (placement->sizes > 1) {
        qsort(placement->group, placement->sizes, sizeof *placement->group, placement_by_size);
    }
    return placement->group != NULL;
}

bps_status bps_placement_init(struct bps_placement *placement, const struct bps_book *book)
{
    *placement = (struct bps_placement){.expected = 0};
    bool set = set_servers(placement, book) && set_groups(placement, book);
    uint32_t largest = set && placement->sizes > 0 ? placement->group[0].leaders : 0;
    placement->choice = set ? calloc(2 * (size_t)book->shards + largest, sizeof *placement->choice) : NULL;
    if (placement->choice == NULL) {
        bps_placement_fini(placement);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void bps_placement_fini(struct bps_placement *placement)
{
    for (uint32_t i = 0; i < placement->sizes; i++) {
        free(placement->group[i].leader);
    }
    free(placement->group);
    free(placement->server);
    free(placement->shard);
    free(placement->first);
    free(placement->choice);
    *placement = (struct bps_placement){.expected = 0};
}

uint16_t bps_placement_group(const struct bps_placement *placement, uint32_t size)
{
    uint32_t i = 0;
    while (placement->group[i].size != size) {
        i++;
    }
    return (uint16_t)i;
}

void bps_layout_fini(struct bps_layout *layout)
{
    free(layout->part);
    free(layout->lead);
    *layout = (struct bps_layout){.n = 0};
}

/* ---- a tensor ---- */

/* What is being placed, and where the parts go that are made of it. */
struct placing {
    struct bps_placement *placement;
    struct bps_layout *out;
    uint64_t expected;
    uint64_t most;
    bool whole;
};

static struct division division_of(const struct placing *p, uint64_t bytes, uint64_t expected, uint64_t spread,
                                   uint32_t slack)
{
    spread = p->whole || p->most < spread ? p->most : spread;
    uint64_t fine = bytes / spread > 1 && p->most >= GRAIN ? GRAIN : SMALL_GRAIN;
    return (struct division){
        .bytes = bytes, .expected = expected, .grain = p->whole ? p->most : fine, .spread = spread, .slack = slack};
}

static uint32_t server_of(const struct bps_placement *placement, uint32_t shard)
{
    uint32_t server = 0;
    while (placement->first[server + 1] <= shard) {
        server++;
    }
    return server;
}

/* Adds to the load of everything that has this partition, or takes it away. */
static void placement_load(struct bps_placement *placement, const struct bps_layout *layout, uint32_t i, int64_t sign)
{
    uint64_t bytes = layout->part[i].bytes + (i == 0 ? TENSOR_COST : 0), change = (uint64_t)(sign * (int64_t)bytes);
    uint32_t shard = layout->part[i].shard;
    placement->shard[shard].load += change;
    placement->server[server_of(placement, shard)].load += change;
    for (uint32_t g = 0; g < placement->sizes; g++) {
        placement->group[g].leader[layout->lead[(size_t)i * placement->sizes + g]].load += change;
    }
}

static uint16_t least_loaded(const struct bps_bin *bin, uint32_t n)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < n; i++) {
        least = bin[i].load < bin[least].load ? i : least;
    }
    return (uint16_t)least;
}

/* Partitions of one shard, which one leader of the largest group sums. */
static bool placement_put(const struct placing *p, uint64_t bytes, uint32_t shard, uint32_t leader)
{
    struct bps_placement *placement = p->placement;
    struct bps_layout *out = p->out;
    do {
        uint32_t n = (uint32_t)(bytes < p->most ? bytes : p->most);
        if (!bps_array_reserve(out->part, out->room, out->n + 1) ||
            !bps_array_reserve(out->lead, out->lead_room, (out->n + 1) * (size_t)placement->sizes + 1)) {
            return false;
        }
        out->part[out->n] = (struct bps_layout_part){.bytes = n, .shard = (uint16_t)shard};
        uint16_t *lead = &out->lead[(size_t)out->n * placement->sizes];
        for (uint32_t g = 0; g < placement->sizes; g++) {
            const struct bps_group_bins *group = &placement->group[g];
            lead[g] = g == 0 ? (uint16_t)leader : least_loaded(group->leader, group->leaders);
        }
        placement_load(placement, out, out->n++, 1);
        bytes -= n;
    } while (bytes > 0);
    return true;
}

/* What a shard gets is divided among the leaders of a host. */
static bool place_on_shard(const struct placing *p, uint64_t bytes, uint32_t shard, struct bps_choice *choice)
{
    const struct bps_placement *placement = p->placement;
    if (placement->sizes == 0) {
        return placement_put(p, bytes, shard, 0);
    }
    const struct bps_group_bins *group = &placement->group[0];
    const struct division d = division_of(p, bytes, p->expected, LEAD_SPREAD, NEAR_SLACK);
    uint32_t n = divide(&d, group->leader, group->leaders, choice), i = 0;
    while (i < n && placement_put(p, choice[i].bytes, shard, choice[i].bin)) {
        i++;
    }
    return i == n;
}

/* What a server gets is divided among its shards. */
static bool place_on_server(const struct placing *p, uint64_t bytes, uint32_t server, struct bps_choice *choice)
{
    const struct bps_placement *placement = p->placement;
    uint32_t first = placement->first[server], shards = placement->first[server + 1] - first;
    uint64_t goal = placement_share_of(p->expected, placement->server[server].weight, placement->weights);
    uint64_t after = placement->server[server].load + bytes;
    const struct division d = division_of(p, bytes, goal > after ? goal : after, BPS_SPREAD_BYTES, NEAR_SLACK);
    uint32_t n = divide(&d, placement->shard + first, shards, choice), i = 0;
    while (i < n && place_on_shard(p, choice[i].bytes, first + choice[i].bin, choice + shards)) {
        i++;
    }
    return i == n;
}

/* It is neither placed nor expected any more. */
static void take_back(struct bps_placement *placement, const struct bps_layout *layout, uint64_t bytes)
{
    for (uint32_t i = 0; i < layout->n; i++) {
        placement_load(placement, layout, i, -1);
    }
    placement->expected -= bytes + TENSOR_COST;
}

void bps_placement_expect(struct bps_placement *placement, uint64_t bytes)
{
    placement->expected += bytes + TENSOR_COST;
}

bps_status bps_placement_add(struct bps_placement *placement, uint64_t bytes, uint64_t most, bool whole,
                             struct bps_layout *out)
{
    const struct placing p = {
        .placement = placement,
        .out = out,
        .expected = placement->expected > LEAST_EXPECTED ? placement->expected : LEAST_EXPECTED,
        .most = most,
        .whole = whole,
    };
    const struct division d = division_of(&p, bytes, p.expected, BPS_SPREAD_BYTES, SERVER_SLACK);
    struct bps_choice *choice = placement->choice;
    *out = (struct bps_layout){.view = placement->view};
    uint32_t n = divide(&d, placement->server, placement->servers, choice), i = 0;
    while (i < n && place_on_server(&p, choice[i].bytes, choice[i].bin, choice + placement->servers)) {
        i++;
    }
    if (i < n) {
        take_back(placement, out, bytes);
        bps_layout_fini(out);
    }
    return i == n ? BPS_OK : BPS_ERR_NOMEM;
}

void bps_placement_restore(struct bps_placement *placement, struct bps_layout *layout, bool now)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->n; i++) {
        for (uint32_t g = 0; g < placement->sizes; g++) {
            const struct bps_group_bins *group = &placement->group[g];
            uint16_t *lead = &layout->lead[(size_t)i * placement->sizes + g];
            *lead = *lead == BPS_NO_LEADER ? least_loaded(group->leader, group->leaders) : *lead;
        }
        if (now) {
            placement_load(placement, layout, i, 1);
        }
        bytes += layout->part[i].bytes;
    }
    if (now) {
        bps_placement_expect(placement, bytes);
    }
}

void bps_placement_shift(struct bps_placement *placement, struct bps_layout *layout, uint32_t i, uint16_t shard)
{
    placement_load(placement, layout, i, -1);
    layout->part[i].shard = shard;
    placement_load(placement, layout, i, 1);
}

void bps_placement_remove(struct bps_placement *placement, const struct bps_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->n; i++) {
        bytes += layout->part[i].bytes;
    }
    if (layout->n > 0) {
        take_back(placement, layout, bytes);
    }
}
