/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - the words for contributions that disagree or are missing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "sum/round.h"

#define RANKS_SHOWN 8u

void bps_verdict_ranks(const uint64_t *bits, uint32_t n, char *text, size_t room)
{
    uint32_t count = 0, shown = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += bps_bit(bits, i);
    }
    struct bps_text out = bps_text_in(text, room);
    bps_text_add(&out, count == 0 ? "" : count == 1 ? "worker" : "workers");
    for (uint32_t i = 0; i < n && shown < RANKS_SHOWN; i++) {
        if (bps_bit(bits, i)) {
            const char *before = shown == 0 ? " " : shown + 1 == count ? " and " : ", ";
            bps_text_add(&out, "%s%u", before, i);
            shown++;
        }
    }
    if (shown < count) {
        bps_text_add(&out, " and %u more", count - shown);
    }
}

static void spec_text(const struct bps_spec *spec, char *text, size_t n)
{
    uint64_t count = spec->bytes / bps_dtype_size(spec->dtype);
    struct bps_text out = bps_text_in(text, n);
    char kind[40];
    bps_operation_text(spec->kind, spec->op, kind, sizeof kind);
    if (count > 0 || spec->kind < BPS_KIND_REDUCE) { /* else all blocks at once, whose sizes are in the shape */
        bps_text_add(&out, "%" PRIu64 " ", count);
    }
    bps_text_add(&out, "%s (%s", bps_dtype_name(spec->dtype), kind);
    if (!bps_sums(&spec->roles)) {
        bps_text_add(&out, " from %s%u", bps_kinds[spec->kind].from == BPS_PARTY_ROOT ? "root " : "worker ",
                     spec->roles.from);
    }
    bool named = bps_sums(&spec->roles) && bps_kinds[spec->kind].from == BPS_PARTY_ROOT; /* it stands for all blocks */
    if (spec->roles.to != BPS_EVERYBODY) {
        const char *root = named                                        ? " from root"
                           : bps_kinds[spec->kind].to == BPS_PARTY_ROOT ? " to root"
                                                                        : " to worker";
        bps_text_add(&out, "%s %u", root, spec->roles.to);
    }
    if (spec->shape != 0) {
        bps_text_add(&out, ", shape #%04x", spec->shape);
    }
    if (spec->postscale != 1.0) {
        bps_text_add(&out, ", postscale %g", spec->postscale);
    }
    if (spec->row > 0) {
        bps_text_add(&out, ", rows of %zu", spec->row / bps_dtype_size(spec->dtype));
    }
    if (spec->coding != NULL) {
        bps_text_add(&out, ", coded by %s", spec->coding->text);
    }
    bps_text_add(&out, ")");
}

bool bps_spec_equal(const struct bps_spec *a, const struct bps_spec *b)
{
    return a->bytes == b->bytes && a->roles.from == b->roles.from && a->roles.to == b->roles.to &&
           a->dtype == b->dtype && a->op == b->op && a->kind == b->kind && a->postscale == b->postscale &&
           a->coding == b->coding && a->row == b->row && a->exact == b->exact &&
           (a->shape == b->shape || a->shape == 0 || b->shape == 0);
}

/* ---- camps ---- */

/* One kind of contribution and who made it. */
struct camp {
    const char *what;
    uint32_t count, lowest;
    uint64_t *bits;
};

/* The fewest first; among equals the later rank, since the first one is more often right. */
static int by_rarity(const void *a, const void *b)
{
    const struct camp *x = a, *y = b;
    if (x->count != y->count) {
        return x->count < y->count ? -1 : 1;
    }
    return x->lowest > y->lowest ? -1 : 1;
}

static void add_to_camp(struct camp *camps, uint32_t *n, uint32_t words, uint64_t *bits, const struct bps_said *said)
{
    uint32_t i = 0;
    while (i < *n && strcmp(camps[i].what, said->what) != 0) {
        i++;
    }
    if (i == *n) {
        camps[i] = (struct camp){.what = said->what, .lowest = said->rank, .bits = bits + (size_t)i * words};
        (*n)++;
    }
    camps[i].count++;
    camps[i].lowest = said->rank < camps[i].lowest ? said->rank : camps[i].lowest;
    bps_set_bit(camps[i].bits, said->rank);
}

void bps_verdict_camps(const struct bps_said *said, uint32_t n, uint32_t workers, char *text, size_t room)
{
    uint32_t words = (workers + 63) / 64, count = 0;
    struct camp *camps = calloc(n, sizeof *camps);
    uint64_t *bits = calloc((size_t)n * words, sizeof *bits);
    if (n == 0 || camps == NULL || bits == NULL) {
        snprintf(text, room, "the workers disagree about it");
    } else {
        for (uint32_t i = 0; i < n; i++) {
            add_to_camp(camps, &count, words, bits, &said[i]);
        }
        qsort(camps, count, sizeof *camps, by_rarity);
        struct bps_text out = bps_text_in(text, room);
        for (uint32_t i = 0; i < count; i++) {
            char who[160];
            bps_verdict_ranks(camps[i].bits, workers, who, sizeof who);
            bps_text_add(&out, "%s%s pushed %s", i > 0 ? ", " : "", who, camps[i].what);
        }
    }
    free(camps);
    free(bits);
}

void bps_verdict_mismatch(const struct bps_pushed *pushed, uint32_t n, uint32_t workers, char *text, size_t room)
{
    struct bps_said *said = calloc(n, sizeof *said);
    for (uint32_t i = 0; said != NULL && i < n; i++) {
        said[i].rank = pushed[i].rank;
        spec_text(&pushed[i].spec, said[i].what, sizeof said[i].what);
    }
    bps_verdict_camps(said, said != NULL ? n : 0, workers, text, room);
    free(said);
}

static const struct bps_spec *spec_of(const struct bps_round *round, uint32_t rank)
{
    const struct bps_pushed *odd = round->odd.data;
    for (uint32_t i = 0; i < round->odds; i++) {
        if (odd[i].rank == rank) {
            return &odd[i].spec;
        }
    }
    return &round->spec;
}

void bps_verdict_odd(const struct bps_round *round, char *text, size_t n)
{
    const struct bps_sum *sum = round->sum;
    const struct bps_ranks *ranks = round->ranks;
    struct bps_pushed *pushed = calloc(ranks->n, sizeof *pushed);
    for (uint32_t i = 0; pushed != NULL && i < ranks->n; i++) {
        pushed[i] = (struct bps_pushed){ranks->rank[i], *spec_of(round, ranks->rank[i])};
    }
    bps_verdict_mismatch(pushed, pushed != NULL ? ranks->n : 0, sum->config.workers, text, n);
    free(pushed);
}

void bps_verdict_root(uint32_t root, uint32_t workers, char *text, size_t n)
{
    snprintf(text, n, "root %u is not a worker of this job (0..%u)", root, workers - 1);
}

void bps_verdict_overdue(const char *missing, uint64_t limit_ns, char *text, size_t n)
{
    snprintf(text, n, "%s did not contribute within %.0f s (cluster.stall_timeout)", missing, (double)limit_ns / 1e9);
}

void bps_verdict_waiting(const char *missing, uint64_t ns, char *text, size_t n)
{
    snprintf(text, n, "has waited %.0f s for %s", (double)ns / 1e9, missing);
}

void bps_verdict_missing(const struct bps_round *round, char *text, size_t n, char *late, size_t room)
{
    const struct bps_sum *sum = round->sum;
    uint64_t *missing = calloc(sum->words, sizeof *missing);
    text[0] = late[0] = '\0';
    for (uint32_t i = 0; missing != NULL && i < round->ranks->n; i++) {
        for (uint32_t s = 0; s < round->slices; s++) {
            if (!round->slice[s].ended && !bps_bit(bps_arrived(round, s), round->ranks->rank[i])) {
                bps_set_bit(missing, round->ranks->rank[i]);
                break;
            }
        }
    }
    if (missing != NULL) {
        bps_verdict_ranks(missing, sum->config.workers, text, n);
        bps_late_words(sum, missing, late, room);
    }
    free(missing);
}
