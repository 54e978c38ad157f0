/* SPDX-License-Identifier: Apache-2.0 */
/* value_key.c - the memory of keys that keep a value, and the tails of answers. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "sum/value_key.h"

void bps_value_fini(struct bps_key *key)
{
    struct bps_value *v = (struct bps_value *)key;
    free(v->slice); /* the blocks are the pool's */
    free(v->worker);
    free(v->counts);
    free(v->held);
}

bps_status bps_value_begin(struct bps_value *v, const struct bps_spec *spec, uint32_t size, uint32_t grid,
                           uint32_t view)
{
    uint32_t slices = grid > 0 ? bps_partitions(size, grid) : 0, workers = v->key.sum->config.workers;
    if (slices == 0) {
        return BPS_ERR_PROTOCOL;
    }
    v->spec = *spec;
    v->size = size;
    v->grid = grid;
    v->slice = calloc(slices, sizeof *v->slice);
    v->worker = calloc(workers, sizeof *v->worker);
    v->counts = calloc((size_t)slices * workers, sizeof *v->counts);
    if (v->slice == NULL || v->worker == NULL || v->counts == NULL) {
        bps_value_fini(&v->key);
        v->slice = NULL;
        v->worker = NULL;
        v->counts = NULL;
        return BPS_ERR_NOMEM;
    }
    v->slices = slices;
    v->view = view;
    v->unknown = view > 0 ? slices : 0;
    for (uint32_t i = 0; i < v->unknown; i++) {
        v->slice[i].unknown = true;
    }
    return BPS_OK;
}

/* ---- versions ---- */

/* Bytes of a block for so many of a slice, and its tail; a multiple of what the struct in it is aligned to. */
static uint32_t block_bytes(const struct bps_value *v, uint32_t bytes)
{
    const uint32_t align = _Alignof(struct bps_value_version);
    uint32_t all = (uint32_t)sizeof(struct bps_value_version) + bytes + bps_value_tail(v->key.sum->config.workers);
    return (all + align - 1) / align * align;
}

struct bps_value_version *bps_value_version(struct bps_value *v, uint32_t bytes)
{
    struct bps_value_version *version = bps_pool_get(v->key.sum->pool, block_bytes(v, bytes));
    if (version != NULL) {
        version->uses = 1;
        version->bytes = bytes;
        version->sealed = false;
    }
    return version;
}

void bps_value_put(struct bps_value *v, struct bps_value_version *version)
{
    if (version != NULL && --version->uses == 0) {
        bps_pool_put(v->key.sum->pool, version, block_bytes(v, version->bytes));
    }
}

/* ---- tails ---- */

static char *tail_put(char *at, uint32_t number)
{
    number = htole32(number);
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

static uint32_t tail_get(const char **at)
{
    uint32_t number;
    memcpy(&number, *at, sizeof number);
    *at += sizeof number;
    return le32toh(number);
}

void bps_value_put_tail(const struct bps_value *v, uint32_t index, char *to)
{
    const struct bps_value_slice *slice = &v->slice[index];
    const struct bps_value_count *counts = bps_value_counts(v, index);
    uint64_t number = htole64(slice->number);
    memcpy(to, &number, sizeof number);
    to = tail_put(to + sizeof number, slice->set);
    for (uint32_t rank = 0; rank < v->key.sum->config.workers; rank++) {
        to = tail_put(to, counts[rank].next);
        to = tail_put(to, counts[rank].pushes);
    }
}

void bps_value_seal(struct bps_value *v, uint32_t index)
{
    struct bps_value_version *now = v->slice[index].now;
    if (!now->sealed) {
        bps_value_put_tail(v, index, now->data + now->bytes);
        now->sealed = true;
    }
}

void bps_value_unseal(struct bps_value *v, uint32_t index, const char *at)
{
    struct bps_value_slice *slice = &v->slice[index];
    struct bps_value_count *counts = bps_value_counts(v, index);
    memcpy(&slice->number, at, sizeof slice->number);
    slice->number = le64toh(slice->number);
    at += sizeof slice->number;
    slice->set = tail_get(&at);
    for (uint32_t rank = 0; rank < v->key.sum->config.workers; rank++) {
        counts[rank].next = tail_get(&at);
        counts[rank].pushes = tail_get(&at);
    }
}
