/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_heir.c - the value of a partition whose shard is lost, rebuilt from what workers have of it.
 *
 * Each worker tells which versions it has been answered with, and then that this was all. When all who are there have
 * said so, the newest version of each slice is fetched from its worker (WANT, FINAL). Versions follow one another, so
 * all that was answered is in the newest one, and what was not comes again: each push once.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sum/value_key.h"

/* ---- who has what ---- */

static uint32_t who_has_not_told(const struct bps_value *v)
{
    const struct bps_sum *sum = v->key.sum;
    uint32_t rank = 0;
    while (rank < sum->config.workers && (bps_is_absent(sum, rank) || sum->told[rank] >= v->view)) {
        rank++;
    }
    return rank < sum->config.workers ? rank : BPS_VALUE_NOBODY;
}

/* So that a later version is more, and of the same one what is whole. */
static uint64_t order_of(uint64_t number)
{
    return number == 0 ? 0 : (number & ~BPS_VALUE_TORN) << 1 | !(number & BPS_VALUE_TORN);
}

/* Who is there and has the newest version; nobody: none has any, or of that one only rows. */
static uint32_t find_newest(struct bps_value *v, uint32_t index)
{
    const struct bps_sum *sum = v->key.sum;
    const uint64_t *number = v->held != NULL ? v->held + (size_t)index * sum->config.workers : NULL;
    uint32_t newest = BPS_VALUE_NOBODY;
    for (uint32_t rank = 0; number != NULL && rank < sum->config.workers; rank++) {
        bool has = number[rank] > 0, there = !bps_is_absent(sum, rank);
        v->slice[index].gone |= has;
        if (has && there && (newest == BPS_VALUE_NOBODY || order_of(number[rank]) > order_of(number[newest]))) {
            newest = rank;
        }
    }
    bool torn = newest != BPS_VALUE_NOBODY && (number[newest] & BPS_VALUE_TORN) != 0;
    return torn ? BPS_VALUE_NOBODY : newest;
}

uint32_t bps_value_lacks(const struct bps_value *v, uint32_t index)
{
    return v->slice[index].asked > 0 ? v->slice[index].asked - 1 : who_has_not_told(v);
}

static void be_known(struct bps_value *v, uint32_t index)
{
    v->slice[index].unknown = false;
    v->slice[index].fresh = true;
    if (--v->unknown == 0) {
        free(v->held);
        v->held = NULL;
    }
}

static void ask_for(struct bps_value *v, uint32_t index, uint32_t rank)
{
    const struct bps_sum_config *config = &v->key.sum->config;
    struct bps_sum_slice slice = {.key = &v->key,
                                  .id = {(uint32_t)(v->key.id >> 32), (uint32_t)v->key.id, .kind = BPS_KEY_VALUE},
                                  .offset = index * v->grid,
                                  .index = index};
    if (v->slice[index].asked != rank + 1) {
        v->slice[index].asked = rank + 1;
        config->events->want(config->owner, rank, &slice);
    }
}

void bps_value_look(struct bps_value *v)
{
    if (v->unknown == 0 || who_has_not_told(v) != BPS_VALUE_NOBODY) {
        return;
    }
    for (uint32_t i = 0; i < v->slices; i++) {
        if (!v->slice[i].unknown) {
            continue;
        }
        uint32_t rank = find_newest(v, i);
        if (rank != BPS_VALUE_NOBODY) {
            ask_for(v, i, rank);
        } else {
            be_known(v, i);
        }
    }
}

/* ---- what workers tell ---- */

void bps_value_needs(struct bps_value *v, uint32_t view)
{
    if (v->unknown > 0 && v->view < view) {
        v->view = view;
    }
}

static bool held_fits(const struct bps_value *v, const struct bps_value_held *held)
{
    return held->size == v->size && held->grid == v->grid && held->dtype == v->spec.dtype &&
           held->bytes == v->spec.bytes && held->slices == v->slices;
}

static uint64_t number_at(const uint8_t *at)
{
    uint64_t number;
    memcpy(&number, at, sizeof number);
    return le64toh(number);
}

static bps_status note_numbers(struct bps_value *v, uint32_t rank, const uint8_t *numbers)
{
    uint32_t workers = v->key.sum->config.workers;
    if (v->unknown == 0) {
        return BPS_OK; /* it has left, and nobody has waited for it */
    }
    if (v->held == NULL) {
        v->held = calloc((size_t)v->slices * workers, sizeof *v->held);
    }
    for (uint32_t i = 0; i < v->slices && v->held != NULL; i++) {
        v->held[(size_t)i * workers + rank] = number_at(numbers + (size_t)i * sizeof *v->held);
    }
    return v->held != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

bps_status bps_value_hold(struct bps_sum *sum, uint32_t rank, const struct bps_value_held *held)
{
    struct bps_key *key;
    size_t size = bps_dtype_size(held->dtype);
    bool sane = size > 0 && held->bytes % size == 0 && held->view > 0 && bps_ranks_has(&sum->all, rank);
    bps_status status = sane ? bps_key_find(sum, &held->id, held->bytes, held->size, &key) : BPS_ERR_PROTOCOL;
    if (status != BPS_OK) {
        return status;
    }
    struct bps_value *v = (struct bps_value *)key;
    const struct bps_spec spec = {.bytes = held->bytes, .dtype = held->dtype, .op = BPS_SUM, .postscale = 1.0};
    if (v->slices == 0) {
        status = bps_value_begin(v, &spec, held->size, held->grid, held->view);
    }
    if (status == BPS_OK && (!held_fits(v, held) || v->worker[rank].held)) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        return status;
    }
    v->worker[rank].held = true;
    bps_value_needs(v, held->view);
    v->worker[rank].ended = held->broadcasts;
    return note_numbers(v, rank, held->numbers);
}

bps_status bps_value_restore(struct bps_value *v, uint32_t rank, uint32_t offset, const void *data, uint32_t bytes)
{
    uint32_t index = v->slices > 0 ? offset / v->grid : 0;
    if (index >= v->slices || offset % v->grid != 0 || v->slice[index].asked != rank + 1 || !v->slice[index].unknown) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t own = bps_partition_bytes(v->size, v->grid, index);
    if (bytes != own + bps_value_tail(v->key.sum->config.workers)) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_value_version *version = bps_value_version(v, own);
    if (version == NULL) {
        return BPS_ERR_NOMEM;
    }
    memcpy(version->data, data, own);
    v->slice[index].now = version;
    bps_value_unseal(v, index, (const char *)data + own);
    be_known(v, index);
    return BPS_OK;
}
