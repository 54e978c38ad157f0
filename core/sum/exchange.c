/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - keys that are exchanged: our contribution, those of others, their sum, and failures. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sum/exchange_round.h"

/* ---- the life of a round ---- */

static struct bps_exchange_round *of(struct bps_round_base *base)
{
    return (struct bps_exchange_round *)base;
}

static const struct bps_sum_config *config_of(const struct bps_exchange_round *round)
{
    return &round->base.key->sum->config;
}

static size_t round_bytes(const struct bps_sum *sum)
{
    return sizeof(struct bps_exchange_round) + sum->config.workers * sizeof(struct bps_exchange_part);
}

static void exchange_release_blocks(struct bps_exchange_round *round)
{
    for (uint32_t i = 0; i < config_of(round)->workers; i++) {
        bps_block_put(round->base.key->sum, &round->part[i].block);
    }
}

static void exchange_collect(struct bps_round_base *base)
{
    struct bps_sum *sum = base->key->sum;
    if (of(base)->over && base->holds == 0) {
        exchange_release_blocks(of(base));
        bps_pool_put(sum->pool, base, round_bytes(sum));
    }
}

/* The round is over: nobody finds it any more. */
static void exchange_retire(struct bps_exchange_round *round)
{
    bps_key_remove(&round->base);
    round->over = true;
    exchange_collect(&round->base);
}

static struct bps_notice exchange_notice_of(const struct bps_exchange_round *round, enum bps_notice_kind kind,
                                            bps_status status, const char *text)
{
    return (struct bps_notice){
        .kind = kind, .id = round->own.id, .bytes = round->own.spec.bytes, .status = status, .text = text};
}

/* We are in a round that has failed. */
static void exchange_tell(struct bps_exchange_round *round)
{
    const struct bps_sum_config *config = config_of(round);
    char *text = round->base.failure;
    const struct bps_notice notice = exchange_notice_of(round, BPS_NOTICE_FAILED, round->base.verdict, text);
    round->base.failure = NULL;
    exchange_retire(round);
    config->events->notice(config->owner, config->leader, &notice);
    free(text);
}

/* Ends a round that has failed: we are told now, or when we come to it. */
static void exchange_end(struct bps_exchange_round *round, bps_status status, const char *text)
{
    if (round->base.verdict != BPS_OK) {
        return;
    }
    bps_round_set_failure(&round->base, status, text);
    if (round->base.holds == 0) {
        exchange_release_blocks(round); /* nobody sums them */
    }
    if (round->entered) {
        exchange_tell(round);
    }
}

/*
 * We wait for one that has left and has said nothing. It may have told the leader why it cannot, whose words reach us
 * on another way than its farewell: so the leader says how the round ends.
 */
static void poison_if_left(struct bps_exchange_round *round)
{
    const struct bps_sum *sum = round->base.key->sum;
    const struct bps_sum_config *config = &sum->config;
    char text[80];
    uint32_t i = 0;
    while (i < config->workers && (!bps_bit(sum->left_bits, i) || round->part[i].spoke)) {
        i++;
    }
    if (i < config->workers && round->entered && round->base.verdict == BPS_OK) {
        snprintf(text, sizeof text, "worker %u has left the job", i);
        const struct bps_notice notice = exchange_notice_of(round, BPS_NOTICE_POISON, BPS_ERR_LOST, text);
        config->events->notice(config->owner, config->leader, &notice);
    }
}

static struct bps_round_base *open_round(struct bps_key *key, const struct bps_contribution *c)
{
    size_t bytes = round_bytes(key->sum);
    struct bps_exchange_round *round = bps_pool_get(key->sum->pool, bytes);
    if (round == NULL) {
        return NULL;
    }
    memset(round, 0, bytes);
    bps_key_add(key, &c->id, &round->base);
    return &round->base;
}

/* ---- all are there ---- */

static bool exchange_agree(const struct bps_exchange_round *round)
{
    for (uint32_t i = 1; i < config_of(round)->workers; i++) {
        if (!bps_spec_equal(&round->part[0].spec, &round->part[i].spec)) {
            return false;
        }
    }
    return true;
}

static void fail_mismatch(struct bps_exchange_round *round)
{
    uint32_t workers = config_of(round)->workers;
    struct bps_pushed pushed[BPS_EXCHANGE_WORKERS];
    char text[BPS_VERDICT_BYTES];
    for (uint32_t i = 0; i < workers; i++) {
        pushed[i] = (struct bps_pushed){i, round->part[i].spec};
    }
    bps_verdict_mismatch(pushed, workers, workers, text, sizeof text);
    exchange_end(round, BPS_ERR_MISMATCH, text);
}

/* Bit by bit what the pass of an aggregator's engine makes (one_pass.c). */
static void sum(struct bps_exchange_round *round)
{
    const struct bps_sum_config *config = config_of(round);
    const struct bps_spec *spec = &round->part[config->leader].spec;
    const void *source[BPS_EXCHANGE_WORKERS];
    double scale[BPS_EXCHANGE_WORKERS];
    double share = bps_share(spec->op, spec->dtype, config->workers);
    struct bps_last_factor last = bps_last_factor(spec->op, spec->dtype, config->workers, spec->postscale);
    bool scaled = false;
    for (uint32_t i = 0; i < config->workers; i++) {
        source[i] = round->part[i].data;
        scale[i] = round->part[i].scale * share;
        scaled = scaled || scale[i] != 1.0;
    }
    round->kernels.reduce(round->kernels.context, round->to, source, scaled ? scale : NULL, config->workers,
                          spec->bytes / bps_dtype_size(spec->dtype), last.scale, last.divisor);
}

static void exchange_conclude(struct bps_exchange_round *round)
{
    const struct bps_sum_config *config = config_of(round);
    const struct bps_spec *spec = &round->part[config->leader].spec;
    char text[80];
    if (!exchange_agree(round)) {
        fail_mismatch(round);
        return;
    }
    if (!bps_sums(&spec->roles) && spec->roles.from >= config->workers) {
        bps_verdict_root(spec->roles.from, config->workers, text, sizeof text);
        exchange_end(round, BPS_ERR_INVALID, text);
        return;
    }
    if (bps_sums(&spec->roles) && spec->bytes > 0) {
        sum(round);
    } else if (bps_gets(&spec->roles, config->leader) && spec->bytes > 0) {
        memcpy(round->to, round->part[spec->roles.from].data, spec->bytes);
    }
    void *task = round->task;
    exchange_retire(round);
    config->events->exchanged(config->owner, task);
}

/* Who came last, if this one did; rank 0 counts for all. */
static void note_late(struct bps_exchange_round *round, uint32_t rank)
{
    struct bps_sum *sum = round->base.key->sum;
    const struct bps_spec *spec = &round->part[rank].spec;
    uint64_t now;
    if (sum->config.leader == 0 && bps_sums(&spec->roles) && spec->bytes > 0 &&
        bps_gathering_note(&round->gathering, round->here + 1, sum->config.workers, &now)) {
        bps_wait_note(&sum->wait, &sum->recent, round->base.key, round->gathering.most, now, rank);
    }
}

static void exchange_check(const struct bps_exchange_round *round)
{
    uint32_t spoke = 0, workers = config_of(round)->workers;
    for (uint32_t i = 0; i < workers; i++) {
        const struct bps_exchange_part *part = &round->part[i];
        bps_assert(part->spoke || (part->data == NULL && part->block.data == NULL));
        bps_assert(part->spec.bytes <= BPS_EXCHANGE_BYTES);
        spoke += part->spoke;
    }
    bps_assert(round->here <= spoke && round->base.holds <= spoke);
    bps_assert((round->base.verdict == BPS_OK) == (round->base.failure == NULL));
    bps_assert(!round->over);
}

/* One more contribution, of this rank, is complete. */
static void exchange_arrive(struct bps_exchange_round *round, uint32_t rank)
{
    bps_check(exchange_check(round));
    note_late(round, rank);
    if (++round->here == config_of(round)->workers) {
        exchange_conclude(round);
    }
}

/* ---- our part ---- */

static void exchange_forget_earlier(struct bps_exchange_round *round)
{
    struct bps_round_base *next;
    while ((next = round->base.next) != NULL) {
        exchange_retire(of(next));
    }
    round->base.key->done = round->base.id.round;
}

bps_status bps_exchange_enter(struct bps_sum *sum, const struct bps_contribution *own, struct bps_exchange_round **out)
{
    struct bps_round_base *base = NULL;
    struct bps_key *key;
    bps_status status = bps_key_find(sum, &own->id, own->spec.bytes, own->size, &key);
    if (status == BPS_OK) {
        status = bps_key_round(key, own, &base);
    }
    *out = NULL;
    if (status != BPS_OK || base == NULL) {
        return status != BPS_OK ? status : BPS_ERR_INVALID;
    }
    struct bps_exchange_round *round = of(base);
    exchange_forget_earlier(round);
    round->own = *own;
    round->entered = true;
    round->base.begun = round->base.reminded = bps_now_roughly();
    if (round->base.verdict != BPS_OK) {
        exchange_tell(round);
        return BPS_OK;
    }
    base->holds++;
    poison_if_left(round);
    base->holds--;
    *out = round->over ? NULL : round;
    exchange_collect(base);
    return BPS_OK;
}

static void exchange_speak(struct bps_exchange_part *part, const struct bps_contribution *c)
{
    part->spoke = true;
    part->spec = c->spec;
    part->scale = c->prescale;
}

bps_status bps_exchange_contribute(struct bps_exchange_round *round, const void *from, void *to, void *task,
                                   struct bps_report *report)
{
    const struct bps_sum_config *config = config_of(round);
    struct bps_exchange_part *part = &round->part[config->leader];
    const struct bps_instance *by;
    bps_status status = bps_find_kernels(config->reducer, &round->own.spec, &round->kernels, &by, report);
    if (status != BPS_OK) {
        return status;
    }
    exchange_speak(part, &round->own);
    part->data = from;
    round->to = to;
    round->task = task;
    return BPS_OK;
}

void bps_exchange_ready(struct bps_exchange_round *round)
{
    exchange_arrive(round, config_of(round)->leader);
}

/* ---- that of others ---- */

static bool exchange_has(const struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size)
{
    (void)sum;
    (void)bytes;
    (void)size;
    return id->tensor < BPS_ID_UNNAMED && id->partition == 0;
}

/* What holds for every contribution of a worker that works, whatever the others do. */
static bool exchange_is_sane(const struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    bool receiver = !bps_brings(&spec->roles, rank);
    return rank != sum->config.leader && spec->bytes <= BPS_EXCHANGE_BYTES && c->offset == 0 && !c->for_group &&
           c->empty == receiver && c->length == (receiver ? 0 : spec->bytes);
}

static void *exchange_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    const struct bps_exchange_round *round = of(cursor->round);
    if (round == NULL) {
        return NULL;
    }
    *bytes = cursor->bytes - offset;
    return (char *)round->part[cursor->rank].block.data + offset;
}

static uint32_t exchange_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    struct bps_exchange_round *round = of(cursor->round);
    if (round == NULL) {
        return bytes;
    }
    struct bps_exchange_part *part = &round->part[cursor->rank];
    char *to = (char *)part->block.data + offset;
    /* The last contribution is summed before we return: if it is whole it need not be copied. */
    bool last = bytes == cursor->bytes && round->here + 1 == cursor->sum->config.workers;
    if (!last && to != data) {
        memcpy(to, data, bytes);
    }
    if (offset + bytes == cursor->bytes) {
        part->data = last ? data : part->block.data;
        bool counts = round->base.verdict == BPS_OK && !round->over;
        bps_sum_abandon(cursor);
        if (counts) {
            exchange_arrive(round, cursor->rank);
        }
    }
    return bytes;
}

static bps_status exchange_push(struct bps_key *key, uint32_t rank, const struct bps_contribution *c,
                                struct bps_sum_cursor *cursor)
{
    struct bps_round_base *base;
    cursor->sink = (struct bps_sink){.place = exchange_place, .take = exchange_take};
    bps_status status = exchange_is_sane(key->sum, rank, c) ? bps_key_round(key, c, &base) : BPS_ERR_PROTOCOL;
    if (status != BPS_OK || base == NULL) {
        return status;
    }
    struct bps_exchange_round *round = of(base);
    struct bps_exchange_part *part = &round->part[rank];
    if (part->spoke) {
        return BPS_ERR_PROTOCOL;
    }
    exchange_speak(part, c);
    if (round->base.verdict != BPS_OK) {
        return BPS_OK;
    }
    if (c->length == 0) {
        exchange_arrive(round, rank);
        return BPS_OK;
    }
    if (bps_block_get(key->sum, &part->block, c->length) == NULL) {
        return BPS_ERR_NOMEM;
    }
    base->holds++;
    cursor->round = base;
    return BPS_OK;
}

/* ---- what ends a round otherwise ---- */

static bps_status exchange_fail(struct bps_key *key, const struct bps_notice *failed)
{
    struct bps_round_base *base;
    bps_status status = bps_key_ending(key, failed, &base);
    if (status == BPS_OK && base != NULL) {
        exchange_end(of(base), failed->status, failed->text);
    }
    return status;
}

/* All are told, even if it is over for us: whoever says this waits for the answer. */
static bps_status poison(struct bps_key *key, uint32_t rank, const struct bps_notice *said)
{
    const struct bps_sum_config *config = &key->sum->config;
    struct bps_round_base *base;
    struct bps_notice failed = *said;
    bps_status status = bps_key_ending(key, said, &base);
    (void)rank;
    failed.kind = BPS_NOTICE_FAILED;
    for (uint32_t i = 0; status == BPS_OK && i < config->workers; i++) {
        if (i != config->leader) {
            config->events->notice(config->owner, i, &failed);
        }
    }
    return status == BPS_OK ? exchange_fail(key, &failed) : status;
}

/* Who is lost has left before, or the job fails. */
static void exchange_leave(struct bps_round_base *base, uint32_t rank)
{
    (void)rank;
    poison_if_left(of(base));
}

/* If we have not spoken, we have poisoned it, or not come to it. */
static bool exchange_missing(const struct bps_round_base *base, char *text, size_t n, char *late, size_t room)
{
    const struct bps_exchange_round *round = (const struct bps_exchange_round *)base;
    const struct bps_sum_config *config = config_of(round);
    uint64_t silent = 0;
    for (uint32_t i = 0; i < config->workers; i++) {
        silent |= (uint64_t)!round->part[i].spoke << i;
    }
    bps_verdict_ranks(&silent, config->workers, text, n);
    snprintf(late, room, "%s", "");
    return silent != 0 && round->part[config->leader].spoke;
}

static void exchange_stalled(struct bps_round_base *base, bool overdue, const char *text)
{
    const struct bps_sum_config *config = config_of(of(base));
    const struct bps_notice notice = exchange_notice_of(of(base), overdue ? BPS_NOTICE_POISON : BPS_NOTICE_STALLED,
                                                        overdue ? BPS_ERR_TIMEOUT : BPS_OK, text);
    config->events->notice(config->owner, config->leader, &notice);
}

const struct bps_key_ops bps_exchange_ops = {
    .bytes = sizeof(struct bps_key),
    .has = exchange_has,
    .push = exchange_push,
    .poison = poison,
    .fail = exchange_fail,
    .open = open_round,
    .leave = exchange_leave,
    .missing = exchange_missing,
    .stalled = exchange_stalled,
    .collect = exchange_collect,
};
