/* SPDX-License-Identifier: Apache-2.0 */
/* declared.c - names of tensors, their ids and where their partitions are summed. */
#include "node/declared.h"

#include <stdlib.h>
#include <string.h>

/* Out of memory in a hash table must be an error, not an exit. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "wire/frame.h"

struct bps_declared_tensor {
    char *name;
    uint32_t id;
    uint8_t dtype;
    uint64_t bytes;
    uint32_t partitions;
    uint16_t *shard; /* for each partition */
    uint16_t *lead;  /* the leader's place in its group: for each size of groups, for each partition */
    UT_hash_handle hh;
};

/* The placement over groups of this size, a new one if there was none yet. */
static bps_status find_lead(struct bps_declared *declared, uint32_t size, uint16_t *out)
{
    uint32_t i = 0;
    while (i < declared->leads && declared->lead[i].servers != size) {
        i++;
    }
    *out = (uint16_t)i;
    if (i < declared->leads) {
        return BPS_OK;
    }
    bps_status status = bps_placement_init(&declared->lead[i], size);
    declared->leads += status == BPS_OK;
    return status;
}

bps_status bps_declared_init(struct bps_declared *declared, const struct bps_book *book, uint64_t partition)
{
    memset(declared, 0, sizeof *declared);
    declared->partition = partition;
    declared->lead = calloc(book->workers, sizeof *declared->lead);
    declared->lead_of = calloc(book->workers, sizeof *declared->lead_of);
    if (declared->lead == NULL || declared->lead_of == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_status status = bps_placement_init_shards(&declared->placement, book);
    for (uint32_t rank = 0; rank < book->workers && status == BPS_OK; rank++) {
        status = find_lead(declared, bps_book_group_size(book, rank), &declared->lead_of[rank]);
    }
    return status;
}

static void tensor_free(struct bps_declared_tensor *t)
{
    free(t->name);
    free(t->shard);
    free(t->lead);
    free(t);
}

void bps_declared_fini(struct bps_declared *declared)
{
    struct bps_declared_tensor *t, *next;
    HASH_ITER(hh, declared->tensors, t, next) {
        HASH_DEL(declared->tensors, t);
        tensor_free(t);
    }
    for (uint32_t i = 0; i < declared->leads; i++) {
        bps_placement_fini(&declared->lead[i]);
    }
    free(declared->lead);
    free(declared->lead_of);
    bps_placement_fini(&declared->placement);
    memset(declared, 0, sizeof *declared);
}

/* A tensor that is not placed yet. Takes over the name. */
static struct bps_declared_tensor *tensor_new(struct bps_declared *declared, char *name, uint8_t dtype,
                                              uint64_t bytes)
{
    struct bps_declared_tensor *t = calloc(1, sizeof *t);
    if (t == NULL) {
        free(name);
        return NULL;
    }
    t->name = name;
    t->id = declared->count + 1;
    t->dtype = dtype;
    t->bytes = bytes;
    t->partitions = bps_partitions(bytes, declared->partition);
    t->shard = calloc(t->partitions, sizeof *t->shard);
    t->lead = calloc((size_t)declared->leads * t->partitions, sizeof *t->lead);
    bool added = false;
    if (t->shard != NULL && t->lead != NULL) {
        HASH_ADD_KEYPTR(hh, declared->tensors, t->name, strlen(t->name), t);
        added = t->hh.tbl != NULL;
    }
    if (!added) {
        tensor_free(t);
        return NULL;
    }
    declared->count++;
    return t;
}

/* ---- answering ---- */

/* The tensors of a message, in its order. */
struct asked {
    struct bps_declared_tensor **tensor;
    uint32_t count, room;
};

static bps_status note(struct asked *asked, struct bps_declared_tensor *t)
{
    if (asked->count == asked->room) {
        uint32_t room = asked->room == 0 ? 64 : 2 * asked->room;
        struct bps_declared_tensor **grown = realloc(asked->tensor, room * sizeof *grown);
        if (grown == NULL) {
            return BPS_ERR_NOMEM;
        }
        asked->tensor = grown;
        asked->room = room;
    }
    asked->tensor[asked->count++] = t;
    return BPS_OK;
}

static bps_status read_one(struct bps_declared *declared, struct bps_reader *request, struct asked *asked)
{
    char *name = bps_get_string_new(request, BPS_NAME_LIMIT);
    uint8_t dtype = bps_get_u8(request);
    uint64_t bytes = bps_get_u64(request);
    if (request->bad || dtype >= BPS_DTYPES || bytes > BPS_TENSOR_LIMIT ||
        bytes % bps_dtype_size(dtype) != 0 ||
        bps_partitions(bytes, declared->partition) > BPS_PARTITIONS_LIMIT) {
        free(name);
        return BPS_ERR_PROTOCOL;
    }
    struct bps_declared_tensor *t;
    HASH_FIND_STR(declared->tensors, name, t);
    if (t == NULL) {
        t = tensor_new(declared, name, dtype, bytes);
    } else {
        free(name);
    }
    return t == NULL ? BPS_ERR_NOMEM : note(asked, t);
}

typedef void (*add_fn)(struct bps_placement *placement, uint64_t bytes, uint64_t partition, uint16_t *out);

static void place(struct bps_declared *declared, struct bps_declared_tensor *t, add_fn add)
{
    add(&declared->placement, t->bytes, declared->partition, t->shard);
    for (uint32_t i = 0; i < declared->leads; i++) {
        add(&declared->lead[i], t->bytes, declared->partition, t->lead + (size_t)i * t->partitions);
    }
}

/* Those with much in their last partition first; else in the order of declaration. */
static int by_rest(const void *left, const void *right, void *arg)
{
    const struct bps_declared_tensor *a = *(struct bps_declared_tensor *const *)left;
    const struct bps_declared_tensor *b = *(struct bps_declared_tensor *const *)right;
    uint64_t partition = *(const uint64_t *)arg, x = a->bytes % partition, y = b->bytes % partition;
    return x != y ? (x < y ? 1 : -1) : a->id < b->id ? -1 : a->id > b->id;
}

/* Places the new ones. Small pieces come last: they fill what the large ones have left uneven. */
static void place_new(struct bps_declared *declared, struct bps_declared_tensor **fresh, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        place(declared, fresh[i], bps_placement_add_whole);
    }
    if (n > 1) {
        qsort_r(fresh, n, sizeof *fresh, by_rest, &declared->partition);
    }
    for (uint32_t i = 0; i < n; i++) {
        place(declared, fresh[i], bps_placement_add_rest);
    }
}

static void write_one(const struct bps_declared *declared, uint32_t rank, const struct bps_declared_tensor *t,
                      struct bps_writer *reply)
{
    bps_put_u32(reply, t->id);
    bps_put_u8(reply, t->dtype);
    bps_put_u64(reply, t->bytes);
    bps_put_u32(reply, t->partitions);
    const uint16_t *lead = t->lead + (size_t)declared->lead_of[rank] * t->partitions;
    for (uint32_t i = 0; i < t->partitions; i++) {
        bps_put_u16(reply, t->shard[i]);
        bps_put_u16(reply, lead[i]);
    }
}

bps_status bps_declared_answer(struct bps_declared *declared, uint32_t rank, struct bps_reader *request,
                               struct bps_writer *reply)
{
    struct asked asked = {0}, fresh = {0};
    uint32_t n = bps_get_u32(request);
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        uint32_t known = declared->count;
        status = read_one(declared, request, &asked);
        if (status == BPS_OK && declared->count > known) {
            status = note(&fresh, asked.tensor[asked.count - 1]);
        }
    }
    place_new(declared, fresh.tensor, fresh.count);
    bps_put_u32(reply, n);
    for (uint32_t i = 0; i < asked.count && status == BPS_OK; i++) {
        write_one(declared, rank, asked.tensor[i], reply);
        status = reply->failed ? BPS_ERR_NOMEM : BPS_OK;
    }
    free(asked.tensor);
    free(fresh.tensor);
    return status == BPS_OK && !bps_reader_done(request) ? BPS_ERR_PROTOCOL : status;
}
