/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c - keys that keep a value: see value.h.
 *
 * A slice of the value lies in a block that answers under way share. As long as any is, the next push makes another
 * block, of both; else it is added in place. So an answer is never copied, and never changes while it is sent.
 * Rows (value_rows.c) are answered where they have been pushed, in a block of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/report.h"
#include "base/rows.h"
#include "plugin/use.h"
#include "sum/value_key.h"

/* A round of a worker: what it pushes, and what it gets for that. */
struct answer {
    struct bps_round_base base; /* the first member */
    uint32_t rank, root;        /* root: of a broadcast; else nobody */
    uint32_t broadcast;         /* the number of it here; 0: it is none */
    struct bps_spec spec;
    double scale;
    size_t memory;
    uint32_t begun, unanswered; /* slices */
    uint32_t tail;              /* bytes that each answer has behind the others; 0: none were asked for */
    bool resumed;               /* another shard may have answered some of it, which do not come here */
    struct answer_slice {
        struct bps_sum_slice slice; /* the first member */
        struct answer *answer;
        struct bps_value_version *version; /* that it is answered with; NULL: it is not yet, or with rows */
        uint32_t number; /* that it is among the worker's pushes to the slice; 0: it is not there yet */
        char *pushed;    /* what was: while the slice is not known, and rows until they are delivered; NULL: nothing */
        uint32_t pushed_bytes;
        bool early; /* it waits until the slice is known */
        bool begun, over;
    } of[];
};

#define NOBODY BPS_VALUE_NOBODY

static struct bps_value *value_of(const struct bps_round_base *base)
{
    return (struct bps_value *)base->key;
}

static struct answer *answer_of(const struct bps_round_base *base)
{
    return (struct answer *)(uintptr_t)base;
}

/* ---- versions ---- */

/* The newest version is this one, with a round of this worker in it. */
static void value_turn(struct bps_value *v, uint32_t index, struct bps_value_version *to, const struct answer *a)
{
    struct bps_value_slice *slice = &v->slice[index];
    if (to != slice->now) {
        bps_value_put(v, slice->now);
        slice->now = to;
    }
    to->sealed = false;
    slice->number++;
    bps_value_counts(v, index)[a->rank].next = a->base.id.round + 1;
}

/* The number of a broadcast among all of its worker, of which others may have ended at a shard that is lost. */
static uint32_t broadcast_of(const struct answer *a)
{
    return a->broadcast + value_of(&a->base)->worker[a->rank].ended;
}

static bps_status value_set(struct bps_value *v, uint32_t index, const void *data, uint32_t bytes,
                            const struct answer *a)
{
    if (broadcast_of(a) < v->slice[index].set) {
        return BPS_OK; /* the root of a later one was faster */
    }
    struct bps_value_version *version = bps_value_version(v, bytes);
    if (version == NULL) {
        return BPS_ERR_NOMEM;
    }
    memcpy(version->data, data, bytes);
    v->slice[index].set = broadcast_of(a);
    value_turn(v, index, version, a);
    return BPS_OK;
}

static bps_status value_add(struct bps_value *v, uint32_t index, const void *data, uint32_t bytes,
                            const struct answer *a)
{
    struct bps_value_slice *slice = &v->slice[index];
    if (slice->now == NULL) {
        return BPS_ERR_STATE;
    }
    struct bps_value_version *to = slice->now->uses > 1 ? bps_value_version(v, slice->now->bytes) : slice->now;
    if (to == NULL) {
        return BPS_ERR_NOMEM;
    }
    const void *const source[] = {slice->now->data, data};
    const double scales[] = {1.0, a->scale};
    if (a->spec.row > 0) {
        bps_value_add_rows(v, slice->now, to, a->spec.row, a->scale, data, bytes);
    } else {
        BPS_CALLING_KERNEL(v->reducer, "reduce", NULL);
        v->kernels.reduce(v->kernels.context, to->data, source, a->scale != 1.0 ? scales : NULL, 2,
                          bytes / bps_dtype_size(v->spec.dtype), 1.0, 1);
    }
    value_turn(v, index, to, a);
    bps_value_counts(v, index)[a->rank].pushes++;
    return BPS_OK;
}

/* ---- the end of a worker's round ---- */

/* Of a block for what is pushed: rows become the answer, which may have a tail. */
static uint32_t pushed_room(const struct answer_slice *s)
{
    return s->pushed_bytes + (s->answer->spec.row > 0 ? s->answer->tail : 0);
}

static void drop_pushed(struct answer_slice *s)
{
    if (s->pushed != NULL) {
        bps_pool_put(s->slice.key->sum->pool, s->pushed, pushed_room(s));
        s->pushed = NULL;
    }
    s->early = false;
}

static void value_collect(struct bps_round_base *base)
{
    struct answer *a = answer_of(base);
    struct bps_sum *sum = base->key->sum;
    bool failed = base->verdict != BPS_OK, over = a->unanswered == 0;
    bool stays = failed && base->id.round + 1 == value_of(base)->worker[a->rank].next; /* what comes late finds it */
    if (base->holds > 0 || !(failed ? !stays : over)) {
        return;
    }
    if (sum->walking > 0) {
        sum->uncollected = true;
        return;
    }
    for (uint32_t i = 0; failed && i < value_of(base)->slices; i++) {
        drop_pushed(&a->of[i]);
    }
    bps_key_remove(base);
    bps_pool_put(sum->pool, a, a->memory);
}

static void value_tell(const struct answer *a, enum bps_notice_kind kind, bps_status status, const char *text)
{
    const struct bps_sum_config *config = &a->base.key->sum->config;
    const struct bps_notice notice = {.kind = kind,
                                      .id = a->base.id,
                                      .bytes = a->spec.bytes,
                                      .size = value_of(&a->base)->size,
                                      .status = status,
                                      .text = text};
    if (!bps_bit(a->base.key->sum->gone_bits, a->rank)) {
        config->events->notice(config->owner, a->rank, &notice);
    }
}

static void answer_fail(struct answer *a, bps_status status, const char *text)
{
    if (a->base.verdict == BPS_OK) {
        bps_round_set_failure(&a->base, status, text);
        value_tell(a, BPS_NOTICE_FAILED, status, text);
    }
}

static void answer_fail_here(struct answer *a, uint32_t index, bps_status status)
{
    char text[BPS_VERDICT_BYTES];
    if (status == BPS_ERR_STATE && value_of(&a->base)->slice[index].gone) {
        snprintf(text, sizeof text,
                 "the value of the tensor, which is in mode async, was lost with a server, and no remaining worker has "
                 "all of it: broadcast it again");
    } else if (status == BPS_ERR_PROTOCOL) {
        snprintf(text, sizeof text, "worker %u sent data that is not rows of the tensor", a->rank);
    } else if (status == BPS_ERR_STATE) {
        snprintf(text, sizeof text, "the tensor is in mode async, and has no value yet: broadcast it first");
    } else {
        snprintf(text, sizeof text, "%s is out of memory", a->base.key->sum->here);
    }
    answer_fail(a, status, text);
}

/* ---- answers ---- */

/* The slice as it is now, for the worker. The root of a broadcast knows it. */
static void value_answer(struct answer_slice *s)
{
    struct answer *a = s->answer;
    struct bps_value *v = value_of(&a->base);
    const struct bps_sum_config *config = &v->key.sum->config;
    uint32_t index = s->slice.index;
    bps_assert(!s->slice.ended && v->slice[index].now != NULL);
    if (a->spec.row > 0) {
        bps_value_read_rows(v, index, a->spec.row, s->pushed, s->pushed_bytes);
        if (a->tail > 0) {
            bps_value_put_tail(v, index, s->pushed + s->pushed_bytes);
        }
        s->slice.payload = s->pushed;
        s->slice.payload_bytes = pushed_room(s);
    } else {
        if (a->tail > 0) {
            bps_value_seal(v, index);
        }
        s->version = v->slice[index].now;
        s->version->uses++;
        s->slice.payload = s->version->data;
    }
    s->slice.ended = true;
    a->base.holds++; /* until it is delivered */
    if (bps_bit(v->key.sum->gone_bits, a->rank)) {
        bps_sum_delivered(&s->slice);
        return;
    }
    if (config->events->finished != NULL) {
        config->events->finished(config->owner, &s->slice);
    }
    config->events->result(config->owner, a->rank, &s->slice);
}

/* Whether this worker is more pushes behind the answer than it may be. Who is not there any more is behind nobody. */
static bool is_stale(const struct answer_slice *s, uint32_t rank)
{
    const struct bps_value *v = value_of(&s->answer->base);
    const struct bps_sum *sum = v->key.sum;
    int64_t behind = (int64_t)s->number - bps_value_counts(v, s->slice.index)[rank].pushes;
    return sum->config.staleness >= 0 && behind > sum->config.staleness && !bps_is_absent(sum, rank);
}

/* The first worker that the slice waits for; NOBODY: it is to be answered. */
static uint32_t value_waits_for(const struct answer_slice *s)
{
    const struct answer *a = s->answer;
    const struct bps_value *v = value_of(&a->base);
    if (v->slice[s->slice.index].unknown) {
        return bps_value_lacks(v, s->slice.index);
    }
    if (a->broadcast > 0) {
        return v->slice[s->slice.index].set >= broadcast_of(a) ? NOBODY : a->root;
    }
    uint32_t rank = 0;
    while (rank < v->key.sum->config.workers && !is_stale(s, rank)) {
        rank++;
    }
    return rank < v->key.sum->config.workers ? rank : NOBODY;
}

/* Whether all that it needs of its own worker is there, but not the answer. */
static bool is_waiting(const struct answer_slice *s)
{
    const struct answer *a = s->answer;
    bool there = a->broadcast > 0 ? s->begun && a->rank != a->root : s->number > 0;
    return there && !s->slice.ended && a->base.verdict == BPS_OK;
}

/* A slice has been set, or pushed to, or somebody who was behind is not there any more. */
static void answer_those_who_wait(struct bps_value *v, uint32_t index)
{
    for (struct bps_round_base *base = v->key.rounds, *next; base != NULL; base = next) {
        next = base->next;
        struct answer_slice *s = &answer_of(base)->of[index];
        if (is_waiting(s) && value_waits_for(s) == NOBODY) {
            value_answer(s);
        }
    }
}

static bool value_wants(const struct bps_sum_slice *slice, uint32_t rank)
{
    const struct answer_slice *s = (const struct answer_slice *)slice;
    return s->answer->tail > 0 || s->answer->root != rank; /* of which others may have the newest version */
}

static void value_delivered(struct bps_sum_slice *slice)
{
    struct answer_slice *s = (struct answer_slice *)slice;
    struct answer *a = s->answer;
    bps_assert(!s->over && a->unanswered > 0 && a->base.holds > 0);
    bps_value_put(value_of(&a->base), s->version);
    drop_pushed(s);
    s->over = true;
    a->unanswered--;
    a->base.holds--;
    value_collect(&a->base);
}

/* ---- what workers push ---- */

static bps_status keep_pushed(struct answer_slice *s, const void *data, uint32_t bytes)
{
    const struct bps_spec *spec = s->slice.spec;
    s->pushed_bytes = bytes;
    s->pushed = bps_pool_get(s->slice.key->sum->pool, pushed_room(s));
    if (s->pushed == NULL) {
        return BPS_ERR_NOMEM;
    }
    memcpy(s->pushed, data, bytes);
    return spec->row == 0 || bps_value_are_rows(s->pushed, bytes, s->slice.bytes, spec) ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* All of a slice has come. What comes again from who had no answer may be in the value. */
static void value_arrived(struct answer_slice *s, const void *data, uint32_t bytes)
{
    struct answer *a = s->answer;
    struct bps_value *v = value_of(&a->base);
    uint32_t index = s->slice.index;
    const struct bps_value_count *count = &bps_value_counts(v, index)[a->rank];
    bool sets = a->rank == a->root;
    s->early = v->slice[index].unknown;
    bps_status status = s->pushed == NULL && (s->early || a->spec.row > 0) ? keep_pushed(s, data, bytes) : BPS_OK;
    if (status == BPS_OK && s->early) {
        return;
    }
    data = s->pushed != NULL ? s->pushed : data;
    if (status == BPS_OK && a->base.id.round >= count->next) {
        status = sets ? value_set(v, index, data, bytes, a) : value_add(v, index, data, bytes, a);
    }
    if (status != BPS_OK) {
        answer_fail_here(a, index, status);
        return;
    }
    s->number = count->pushes;
    if (sets) {
        value_answer(s);
    }
    answer_those_who_wait(v, index);
}

static void take_early(struct bps_round_base *base, const void *index)
{
    const struct answer_slice *slice = index;
    if (base->key != slice->slice.key) {
        return;
    }
    struct answer *a = answer_of(base);
    struct answer_slice *s = &a->of[slice->slice.index];
    if (s->early && a->base.verdict == BPS_OK) {
        value_arrived(s, s->pushed, s->pushed_bytes);
    }
    if (a->spec.row == 0) {
        drop_pushed(s);
    }
}

/* Slices that are known now: what has waited for that goes on. */
static void value_go_on(struct bps_value *v)
{
    for (uint32_t i = 0; i < v->slices; i++) {
        const struct answer_slice which = {.slice = {.key = &v->key, .index = i}};
        if (v->slice[i].fresh) {
            v->slice[i].fresh = false;
            bps_rounds_walk(v->key.sum, take_early, &which);
            answer_those_who_wait(v, i);
        }
    }
}

static void value_look(struct bps_value *v)
{
    if (v->unknown > 0) {
        bps_value_look(v);
        value_go_on(v);
    }
}

void bps_value_told(struct bps_sum *sum, uint32_t rank, uint32_t view)
{
    struct bps_key *key, *next;
    sum->told[rank] = view > sum->told[rank] ? view : sum->told[rank];
    HASH_ITER(hh, sum->keys[BPS_KEY_VALUE], key, next) {
        value_look((struct bps_value *)key);
    }
}

bps_status bps_value_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset,
                           const void *data, uint32_t bytes)
{
    struct bps_value *v = (struct bps_value *)bps_key_known(sum, id);
    if (v == NULL || bps_is_absent(sum, rank)) {
        return v == NULL ? BPS_ERR_PROTOCOL : BPS_OK; /* another one was asked */
    }
    bps_status status = bps_value_restore(v, rank, offset, data, bytes);
    value_go_on(v);
    return status;
}

static void *value_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    if (cursor->round == NULL) {
        return NULL;
    }
    if (cursor->block == NULL) {
        cursor->block = bps_pool_get(cursor->sum->pool, cursor->bytes);
    }
    *bytes = cursor->bytes - offset;
    return cursor->block != NULL ? (char *)cursor->block + offset : NULL;
}

static uint32_t value_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    uint32_t room;
    if (cursor->round == NULL) {
        return bytes;
    }
    struct answer *a = answer_of(cursor->round);
    bool whole = bytes == cursor->bytes;
    char *place = whole ? NULL : value_place(sink, offset, &room);
    if (!whole && place == NULL) {
        answer_fail_here(a, cursor->slice, BPS_ERR_NOMEM);
        bps_sum_abandon(cursor);
        return bytes;
    }
    if (!whole && place != data) {
        memcpy(place, data, bytes);
    }
    if (offset + bytes == cursor->bytes) {
        if (a->base.verdict == BPS_OK) {
            value_arrived(&a->of[cursor->slice], whole ? data : cursor->block, cursor->bytes);
        }
        bps_sum_abandon(cursor);
    }
    return bytes;
}

/* A receiver's of a broadcast, which stands for the whole partition. */
static void wait_for_broadcast(struct answer *a)
{
    struct bps_value *v = value_of(&a->base);
    a->base.holds++;
    for (uint32_t i = 0; i < v->slices; i++) {
        a->of[i].begun = true;
        a->begun++;
        answer_those_who_wait(v, i);
    }
    a->base.holds--;
    value_collect(&a->base);
}

/* ---- keys and rounds ---- */

static bool value_has(const struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size)
{
    return id->tensor < BPS_ID_UNNAMED && !bps_aggregates(sum) &&
           bps_is_partition(bytes, sum->config.partition, id->partition, size);
}

static uint32_t value_grid(const struct bps_sum *sum, const struct bps_contribution *c)
{
    return c->slice > 0 ? c->slice : (uint32_t)sum->config.slice;
}

/* Whether so many bytes of a slice can be what was pushed. */
static bool fits_value(const struct bps_contribution *c, uint32_t own)
{
    const struct bps_spec *spec = &c->spec;
    if (spec->row == 0) {
        return c->length == own;
    }
    bool cuts = spec->row % bps_dtype_size(spec->dtype) == 0 && spec->bytes % spec->row == 0;
    return bps_sums(&spec->roles) && cuts && own > 0 && c->length >= BPS_ROWS_HEAD &&
           c->length <= bps_row_parts_bound(own / spec->row + 2, own, spec->row);
}

/* What holds for every push of a worker that works. */
static bool value_is_sane(const struct bps_value *v, uint32_t rank, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    bool sums = bps_sums(&spec->roles), brings = bps_brings(&spec->roles, rank);
    bool op = sums ? spec->op == BPS_SUM || spec->op == BPS_AVERAGE : spec->roles.from < v->key.sum->config.workers;
    bool alike = spec->dtype == v->spec.dtype && spec->bytes == v->spec.bytes && c->size == v->size &&
                 value_grid(v->key.sum, c) == v->grid;
    bool plain = spec->coding == NULL && !c->for_group && spec->postscale == 1.0 && c->empty == !brings;
    uint32_t own = brings ? bps_partition_bytes(c->size, v->grid, c->offset / v->grid) : 0;
    return op && alike && plain && c->offset % v->grid == 0 && (c->offset < c->size || c->offset == 0) &&
           fits_value(c, own) && (brings || c->offset == 0);
}

/* The worker has begun another round: what has not come of this one was answered before. */
static void end_resumed(struct answer *a)
{
    for (uint32_t i = 0; a->resumed && i < value_of(&a->base)->slices; i++) {
        a->unanswered -= !a->of[i].begun;
    }
    a->resumed = false;
}

/* As the worker's round begins: earlier ones that have failed are not asked for any more. */
static void forget_failed(struct bps_value *v, const struct answer *now)
{
    for (struct bps_round_base *base = v->key.rounds, *next; base != NULL; base = next) {
        next = base->next;
        if (answer_of(base)->rank == now->rank && base != &now->base) {
            end_resumed(answer_of(base));
            value_collect(base);
        }
    }
}

static struct answer *answer_new(struct bps_value *v, uint32_t rank, const struct bps_contribution *c)
{
    struct bps_sum *sum = v->key.sum;
    size_t memory = sizeof(struct answer) + v->slices * sizeof(struct answer_slice);
    struct answer *a = bps_pool_get(sum->pool, memory);
    if (a == NULL) {
        return NULL;
    }
    memset(a, 0, memory);
    a->memory = memory;
    a->rank = rank;
    a->root = bps_sums(&c->spec.roles) ? NOBODY : c->spec.roles.from;
    a->broadcast = a->root == NOBODY ? 0 : ++v->worker[rank].broadcasts;
    a->spec = c->spec;
    a->scale = c->prescale * (c->spec.op == BPS_AVERAGE ? 1.0 / sum->config.workers : 1.0);
    a->unanswered = v->slices;
    a->tail = c->counts ? bps_value_tail(sum->config.workers) : 0;
    a->resumed = v->view > 0 && v->worker[rank].next == 0;
    a->base.begun = a->base.reminded = bps_now_roughly();
    for (uint32_t i = 0; i < v->slices; i++) {
        uint32_t bytes = bps_partition_bytes(v->size, v->grid, i);
        a->of[i].answer = a;
        a->of[i].slice = (struct bps_sum_slice){.key = &v->key,
                                                .id = c->id,
                                                .spec = &a->spec,
                                                .priority = c->priority,
                                                .offset = i * v->grid,
                                                .payload_bytes = bytes + a->tail,
                                                .index = i,
                                                .bytes = bytes,
                                                .size = v->size};
    }
    v->worker[rank].next = c->id.round + 1;
    bps_key_add(&v->key, &c->id, &a->base);
    forget_failed(v, a);
    return a;
}

static struct answer *answer_find(const struct bps_value *v, uint32_t rank, uint32_t round)
{
    struct bps_round_base *base = v->key.rounds;
    while (base != NULL && (base->id.round != round || answer_of(base)->rank != rank)) {
        base = base->next;
    }
    return base != NULL ? answer_of(base) : NULL;
}

/* Whether a worker may begin another round: it has pushed all of the one before, or that has failed. */
static bool may_begin(const struct bps_value *v, uint32_t rank)
{
    const struct bps_round_base *base;
    for (base = v->key.rounds; base != NULL; base = base->next) {
        const struct answer *a = answer_of(base);
        if (a->rank == rank && base->verdict == BPS_OK && a->begun < v->slices && !a->resumed) {
            return false;
        }
    }
    return true;
}

/* The worker's round; NULL with BPS_OK: it is over. */
static bps_status answer_get(struct bps_value *v, uint32_t rank, const struct bps_contribution *c, struct answer **out)
{
    struct bps_report why;
    *out = answer_find(v, rank, c->id.round);
    if (*out != NULL || c->id.round < v->worker[rank].next) {
        return BPS_OK;
    }
    if (!may_begin(v, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    *out = answer_new(v, rank, c);
    if (*out == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (v->reducer == NULL) {
        struct bps_spec sum = v->spec;
        sum.op = BPS_SUM;
        sum.roles = (struct bps_roles){BPS_EVERYBODY, BPS_EVERYBODY};
        bps_status status = bps_find_kernels(v->key.sum->config.reducer, &sum, &v->kernels, &v->reducer, &why);
        if (status != BPS_OK) {
            v->reducer = NULL;
            answer_fail(*out, status, why.text);
        }
    }
    return BPS_OK;
}

static bps_status value_push(struct bps_key *key, uint32_t rank, const struct bps_contribution *c,
                             struct bps_sum_cursor *cursor)
{
    struct bps_value *v = (struct bps_value *)key;
    struct answer *a;
    cursor->sink = (struct bps_sink){.place = value_place, .take = value_take};
    bps_status status = !bps_is_slice(c->slice, key->sum->config.slice) ? BPS_ERR_PROTOCOL
                        : v->slices == 0 ? bps_value_begin(v, &c->spec, c->size, value_grid(v->key.sum, c), c->view)
                                         : BPS_OK;
    if (status == BPS_OK) {
        bps_value_needs(v, c->view);
        value_look(v);
        status = value_is_sane(v, rank, c) ? answer_get(v, rank, c, &a) : BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK || a == NULL || a->base.verdict != BPS_OK) {
        return status;
    }
    uint32_t index = c->offset / v->grid;
    if (a->of[index].begun || (a->root == NOBODY) != bps_sums(&c->spec.roles) || a->spec.row != c->spec.row) {
        return BPS_ERR_PROTOCOL;
    }
    if (c->empty) {
        wait_for_broadcast(a);
        return BPS_OK;
    }
    a->of[index].begun = true;
    a->begun++;
    if (c->length == 0) { /* of an empty tensor */
        a->base.holds++;
        value_arrived(&a->of[index], "", 0);
        a->base.holds--;
        value_collect(&a->base);
        return BPS_OK;
    }
    a->base.holds++;
    cursor->round = &a->base;
    cursor->slice = index;
    return BPS_OK;
}

/* ---- what ends a round otherwise ---- */

/* A worker cannot push: that is its own affair, but it wants to hear the end of it. */
static bps_status value_poison(struct bps_key *key, uint32_t rank, const struct bps_notice *poison)
{
    struct bps_value *v = (struct bps_value *)key;
    const struct bps_sum_config *config = &key->sum->config;
    struct answer *a = v->slices > 0 ? answer_find(v, rank, poison->id.round) : NULL;
    struct bps_notice failed = *poison;
    if (a != NULL && a->base.verdict == BPS_OK) {
        bps_round_set_failure(&a->base, poison->status, poison->text);
    }
    if (poison->answer) {
        failed.kind = BPS_NOTICE_FAILED;
        config->events->notice(config->owner, rank, &failed);
    }
    return BPS_OK;
}

static bps_status value_fail(struct bps_key *key, const struct bps_notice *failed)
{
    (void)key;
    (void)failed;
    return BPS_ERR_PROTOCOL; /* groups have none */
}

static bool waits_for_root(const struct answer *a)
{
    return a->broadcast > 0 && a->rank != a->root && a->unanswered > 0 && a->base.verdict == BPS_OK;
}

/* Its own rounds are of no use any more; nor are others to wait for it. */
static void value_leave(struct bps_round_base *base, uint32_t rank)
{
    struct answer *a = answer_of(base);
    const struct bps_sum *sum = base->key->sum;
    char text[80];
    value_look(value_of(base));
    if (a->rank == rank && bps_bit(sum->gone_bits, rank)) {
        answer_fail(a, BPS_ERR_LOST, "its worker is lost");
        value_of(base)->worker[rank].next = UINT32_MAX;
        value_collect(base);
    } else if (waits_for_root(a) && a->root == rank) {
        bool left = bps_bit(sum->left_bits, rank);
        snprintf(text, sizeof text, left ? "worker %u has left the job" : "worker %u was lost", rank);
        answer_fail(a, sum->config.elastic ? BPS_ERR_MEMBERSHIP : BPS_ERR_LOST, text);
    } else {
        for (uint32_t i = 0; i < value_of(base)->slices; i++) {
            answer_those_who_wait(value_of(base), i);
        }
    }
}

static bool value_missing(const struct bps_round_base *base, char *text, size_t n, char *late, size_t room)
{
    const struct answer *a = answer_of(base);
    const struct bps_sum *sum = base->key->sum;
    uint64_t *bits = calloc(sum->words, sizeof *bits);
    bool any = false;
    for (uint32_t i = 0; i < value_of(base)->slices && bits != NULL; i++) {
        bool waits = is_waiting(&a->of[i]) || a->of[i].early;
        uint32_t rank = waits ? value_waits_for(&a->of[i]) : NOBODY;
        if (rank != NOBODY) {
            bps_set_bit(bits, rank);
            any = true;
        }
    }
    if (any) {
        bps_verdict_ranks(bits, sum->config.workers, text, n);
        snprintf(late, room, "%s", "");
    }
    free(bits);
    return any;
}

static void value_stalled(struct bps_round_base *base, bool overdue, const char *text)
{
    if (overdue) {
        answer_fail(answer_of(base), BPS_ERR_TIMEOUT, text);
    } else {
        value_tell(answer_of(base), BPS_NOTICE_STALLED, BPS_OK, text);
    }
}

const struct bps_key_ops bps_value_ops = {
    .bytes = sizeof(struct bps_value),
    .has = value_has,
    .push = value_push,
    .poison = value_poison,
    .fail = value_fail,
    .fini = bps_value_fini,
    .leave = value_leave,
    .missing = value_missing,
    .stalled = value_stalled,
    .collect = value_collect,
    .wants = value_wants,
    .delivered = value_delivered,
};
