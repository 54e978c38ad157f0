/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c - see kept.h. */
#include "shards/kept.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/array.h"
#include "base/assert.h"
#include "node/transport.h"

#define PAST_CACHE (16u << 10) /* bytes: what is less may be read again soon, by the next round's sender */
#define FAILURES   1024u       /* of a partition, one after the other, that are kept */

void bps_kept_init(struct bps_kept_store *store, struct bps_instance *net)
{
    store->of = NULL;
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        TAILQ_INIT(&store->unnamed[kind]);
    }
    bps_pool_init(&store->pool, bps_transport_attach, bps_transport_detach, net);
}

static bool is_unnamed(const struct bps_kept *kept)
{
    return kept->id >> 32 >= BPS_ID_UNNAMED;
}

static struct bps_kept_list *list_of(struct bps_kept_store *store, const struct bps_kept *kept)
{
    return &store->unnamed[bps_unnamed_kind((uint32_t)(kept->id >> 32))];
}

static void put_block(struct bps_kept_store *store, void **block, size_t bytes)
{
    if (*block != NULL) {
        bps_pool_put(&store->pool, *block, bytes);
        *block = NULL;
    }
}

static void empty_round(struct bps_kept_store *store, struct bps_kept_round *round)
{
    for (uint32_t i = 0; i < round->room; i++) {
        put_block(store, &round->slice[i].data, round->slice[i].room);
        put_block(store, &round->slice[i].landing, round->slice[i].landing_room);
        round->slice[i].whole = false;
    }
    round->whole = 0;
}

static void drop_failure(struct bps_kept *kept)
{
    struct bps_kept_failure *failure = STAILQ_FIRST(&kept->failures);
    STAILQ_REMOVE_HEAD(&kept->failures, entry);
    kept->failed--;
    free(failure);
}

static void kept_free(struct bps_kept_store *store, struct bps_kept *kept)
{
    HASH_DEL(store->of, kept);
    if (is_unnamed(kept)) {
        TAILQ_REMOVE(list_of(store, kept), kept, entry);
    }
    empty_round(store, &kept->now);
    empty_round(store, &kept->last);
    while (!STAILQ_EMPTY(&kept->failures)) {
        drop_failure(kept);
    }
    free(kept->now.slice);
    free(kept->last.slice);
    bps_view_put(kept->view);
    free(kept);
}

void bps_kept_fini(struct bps_kept_store *store)
{
    struct bps_kept *kept, *next;
    HASH_ITER(hh, store->of, kept, next) {
        kept_free(store, kept);
    }
    bps_pool_fini(&store->pool);
}

struct bps_kept *bps_kept_find(const struct bps_kept_store *store, uint32_t tensor, uint32_t partition)
{
    struct bps_kept *kept;
    uint64_t id = (uint64_t)tensor << 32 | partition;
    HASH_FIND(hh, store->of, &id, sizeof id, kept);
    return kept;
}

/* `view`: the one that it begins under, or the newest one. */
static struct bps_kept *find_or_make(struct bps_kept_store *store, struct bps_view *view, uint32_t tensor,
                                     uint32_t partition)
{
    struct bps_kept *kept = bps_kept_find(store, tensor, partition);
    if (kept != NULL || (kept = calloc(1, sizeof *kept)) == NULL) {
        return kept;
    }
    kept->id = (uint64_t)tensor << 32 | partition;
    STAILQ_INIT(&kept->failures);
    HASH_ADD(hh, store->of, id, sizeof kept->id, kept);
    if (kept->hh.tbl == NULL) {
        free(kept);
        return NULL;
    }
    if (is_unnamed(kept)) {
        kept->view = bps_view_get(bps_view_at(view, tensor));
        TAILQ_INSERT_TAIL(list_of(store, kept), kept, entry);
    }
    return kept;
}

/* ---- results ---- */

/* A round that is over becomes the last one; of one that has failed nothing is needed. */
static void turn(struct bps_kept *kept)
{
    struct bps_kept_round last = kept->last;
    if (kept->begun && kept->now.whole == kept->now.slices) {
        kept->last = kept->now;
        kept->now = last;
    }
}

struct bps_kept *bps_kept_begin(struct bps_kept_store *store, const struct bps_task *task, uint32_t shard,
                                uint32_t grid)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_kept *kept = find_or_make(store, tensor->operation.view, tensor->id, task->partition);
    uint32_t slices = bps_partitions(task->bytes, grid), had;
    if (kept == NULL) {
        return NULL;
    }
    turn(kept);
    struct bps_kept_round *now = &kept->now;
    empty_round(store, now);
    had = now->room;
    if (slices > now->room) {
        struct bps_kept_slice *more = realloc(now->slice, slices * sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        memset(more + had, 0, (slices - had) * sizeof *more);
        now->slice = more;
        now->room = slices;
    }
    now->bytes = task->whole;
    now->round = tensor->named.unnamed ? 0 : tensor->round;
    now->size = task->bytes;
    now->slices = slices;
    now->grid = grid;
    now->for_group = task->for_group;
    now->shard = shard;
    kept->begun = true;
    return kept;
}

/* Something of the round that has begun comes: all have ended those before. Their blocks are used again. */
static void forget_last(struct bps_kept_store *store, struct bps_kept *kept)
{
    struct bps_kept_round *now = &kept->now, *last = &kept->last;
    for (uint32_t i = 0; i < last->slices && i < now->slices; i++) {
        if (now->slice[i].data == NULL) {
            now->slice[i].data = last->slice[i].data;
            now->slice[i].room = last->slice[i].room;
            last->slice[i].data = NULL;
        }
    }
    empty_round(store, last);
    while (!STAILQ_EMPTY(&kept->failures) && STAILQ_FIRST(&kept->failures)->poison.round < now->round) {
        drop_failure(kept);
    }
}

void *bps_kept_place(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint32_t bytes)
{
    struct bps_kept_slice *slice = &kept->now.slice[index];
    bps_assert(index < kept->now.slices && !slice->whole);
    if (kept->last.whole > 0) {
        forget_last(store, kept);
    }
    if (slice->data != NULL && slice->room < bytes) {
        put_block(store, &slice->data, slice->room);
    }
    if (slice->data == NULL) {
        slice->data = bps_pool_get(&store->pool, bytes);
        slice->room = bytes;
    }
    return slice->data;
}

/* Results are read again only if a shard is lost. They come to the block that was free last, which is in the cache. */
static void copy_past_cache(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
    const __m128i *in = from;
    __m128i *out = to;
    size_t n = bytes >= PAST_CACHE ? bytes / sizeof *in : 0;
    for (size_t i = 0; i < n; i++) {
        _mm_stream_si128(&out[i], _mm_load_si128(&in[i]));
    }
    _mm_sfence();
    memcpy(out + n, in + n, bytes - n * sizeof *in);
#else
    memcpy(to, from, bytes);
#endif
}

void *bps_kept_land(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint32_t bytes)
{
    if (bps_kept_place(store, kept, index, bytes) == NULL) {
        return NULL;
    }
    struct bps_kept_slice *slice = &kept->now.slice[index];
    if (slice->landing != NULL && slice->landing_room < bytes) {
        put_block(store, &slice->landing, slice->landing_room);
    }
    if (slice->landing == NULL) {
        slice->landing = bps_pool_get(&store->pool, bytes);
        slice->landing_room = bytes;
    }
    return slice->landing;
}

void bps_kept_landed(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, void *out)
{
    struct bps_kept_slice *slice = &kept->now.slice[index];
    bps_assert(slice->landing != NULL && slice->data != NULL);
    if (out != NULL) {
        memcpy(out, slice->landing, slice->bytes);
    }
    copy_past_cache(slice->data, slice->landing, slice->bytes);
    put_block(store, &slice->landing, slice->landing_room);
}

void bps_kept_whole(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint8_t flags)
{
    struct bps_kept_slice *slice = &kept->now.slice[index];
    bps_assert(index < kept->now.slices && !slice->whole);
    bps_assert(slice->bytes == 0 || slice->data != NULL);
    if (kept->last.whole > 0) {
        forget_last(store, kept);
    }
    slice->flags = flags;
    slice->whole = true;
    kept->now.whole++;
}

void bps_kept_again(struct bps_kept *kept)
{
    for (uint32_t i = 0; i < kept->now.slices; i++) {
        kept->now.slice[i].whole = false;
    }
    kept->now.whole = 0;
}

const struct bps_kept_slice *bps_kept_slice(const struct bps_kept *kept, uint32_t shard, uint32_t round,
                                            uint32_t offset)
{
    const struct bps_kept_round *of = kept->last.whole > 0 && kept->last.round == round ? &kept->last : &kept->now;
    uint32_t index = of->grid > 0 ? offset / of->grid : 0;
    bool there =
        of->shard == shard && of->round == round && of->whole > 0 && index < of->slices && of->slice[index].whole;
    return there ? &of->slice[index] : NULL;
}

/* ---- rounds that have failed ---- */

bps_status bps_kept_fail(struct bps_kept_store *store, struct bps_view *newest, uint32_t shard,
                         const struct bps_header *poison, const char *text)
{
    struct bps_kept *kept = find_or_make(store, newest, poison->tensor, poison->partition);
    struct bps_kept_failure *failure = malloc(sizeof *failure + strlen(text) + 1);
    if (kept == NULL || failure == NULL) {
        free(failure);
        return BPS_ERR_NOMEM;
    }
    failure->poison = *poison;
    memcpy(failure->text, text, strlen(text) + 1);
    STAILQ_INSERT_TAIL(&kept->failures, failure, entry);
    failure->shard = shard;
    if (++kept->failed > FAILURES) {
        drop_failure(kept);
    }
    return BPS_OK;
}

/* ---- calls without a name ---- */

void bps_kept_release(struct bps_kept_store *store, uint32_t kind, uint32_t number)
{
    struct bps_kept *kept;
    while ((kept = TAILQ_FIRST(&store->unnamed[kind])) != NULL &&
           bps_number_is_before((uint32_t)(kept->id >> 32) & BPS_ID_NUMBER, number)) {
        kept_free(store, kept);
    }
}
