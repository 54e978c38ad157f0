/* SPDX-License-Identifier: Apache-2.0 */
#include "sum_stubs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "sum/pool.h"

void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* ---- memory ---- */

/*
 * The pool's functions, in place of core/sum/pool.c: each block is one of malloc, so that a sanitizer sees
 * what is read or written beyond it, or after it has been given back.
 */
#define BLOCK_LIMIT (1u << 20)

struct block {
    LIST_ENTRY(block) entry;
    size_t bytes;
    uint8_t data[] __attribute__((aligned(16)));
};
static LIST_HEAD(, block) blocks;

void bps_pool_init(struct bps_pool *pool, bps_pool_fn attach, bps_pool_fn detach, void *owner)
{
    (void)attach;
    (void)detach;
    (void)owner;
    memset(pool, 0, sizeof *pool);
    LIST_INIT(&blocks);
}

static void give_back(struct block *block)
{
    LIST_REMOVE(block, entry);
    free(block);
}

void bps_pool_fini(struct bps_pool *pool)
{
    (void)pool;
    while (!LIST_EMPTY(&blocks)) {
        give_back(LIST_FIRST(&blocks));
    }
}

void *bps_pool_get(struct bps_pool *pool, size_t bytes)
{
    (void)pool;
    if (bytes > BLOCK_LIMIT) {
        return NULL;
    }
    struct block *block = malloc(sizeof *block + bytes);
    check(block != NULL);
    block->bytes = bytes;
    memset(block->data, 0xa5, bytes);
    LIST_INSERT_HEAD(&blocks, block, entry);
    return block->data;
}

void bps_pool_put(struct bps_pool *pool, void *memory, size_t bytes)
{
    struct block *block = (struct block *)((uint8_t *)memory - offsetof(struct block, data));
    (void)pool;
    check(block->bytes == bytes);
    give_back(block);
}

/* ---- arithmetic ---- */

/*
 * A reducer for three types: one that is summed as it is, and averaged in one pass; one that needs an accumulator of
 * twice its size; and this. What matters here is which bytes it is given.
 */
static void first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    (void)scale;
    memcpy(acc, src, count);
}

static void fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    (void)scale;
    for (size_t i = 0; i < count; i++) {
        ((uint8_t *)acc)[i] ^= ((const uint8_t *)src)[i];
    }
}

static void finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    (void)scale;
    (void)divisor;
    memmove(dst, acc, count);
}

static void wide_first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    (void)scale;
    for (size_t i = 0; i < 2 * count; i++) {
        memset((uint8_t *)acc + 2 * i, ((const uint8_t *)src)[i], 2);
    }
}

static void wide_fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    (void)scale;
    for (size_t i = 0; i < 4 * count; i++) {
        ((uint8_t *)acc)[i] ^= ((const uint8_t *)src)[i / 2];
    }
}

static void wide_finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    (void)scale;
    (void)divisor;
    for (size_t i = 0; i < 2 * count; i++) {
        ((uint8_t *)dst)[i] = ((const uint8_t *)acc)[2 * i];
    }
}

/*
 * Of either type: the sum of bytes is the same, only their number
 * differs. dst is no part of a source, but one.
 */
static void reduce_bytes(uint8_t *dst, const void *const *src, unsigned n, size_t bytes)
{
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *from = src[i];
        check(from == dst || from + bytes <= dst || dst + bytes <= from);
    }
    for (size_t at = 0; at < bytes; at++) {
        uint8_t total = 0;
        for (unsigned i = 0; i < n; i++) {
            total ^= ((const uint8_t *)src[i])[at];
        }
        dst[at] = total;
    }
}

static void reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor)
{
    (void)context;
    (void)scales;
    (void)scale;
    (void)divisor;
    reduce_bytes(dst, src, n, count);
}

static void wide_reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n,
                        size_t count, double scale, uint64_t divisor)
{
    (void)context;
    (void)scales;
    (void)scale;
    (void)divisor;
    reduce_bytes(dst, src, n, 2 * count);
}

static void real_first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    first(context, acc, src, 4 * count, scale);
}

static void real_fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    fold(context, acc, src, 4 * count, scale);
}

static void real_finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    finish(context, dst, acc, 4 * count, scale, divisor);
}

static void real_reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n,
                        size_t count, double scale, uint64_t divisor)
{
    (void)context;
    reduce(context, dst, src, scales, n, 4 * count, scale, divisor);
}

bps_status stub_kernels(void *self, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)self;
    if (dtype != BPS_UINT8 && dtype != BPS_FLOAT16 && dtype != BPS_FLOAT32) {
        return BPS_ERR_UNSUPPORTED;
    }
    static const struct bps_kernels plain = {BPS_UINT8, NULL, first, fold, finish, reduce, false};
    static const struct bps_kernels average = {.accumulator = BPS_UINT8, .reduce = reduce};
    static const struct bps_kernels wide = {BPS_FLOAT32, NULL, wide_first, wide_fold, wide_finish, wide_reduce, false};
    static const struct bps_kernels real = {BPS_FLOAT32, NULL, real_first, real_fold, real_finish, real_reduce, false};
    *out = dtype == BPS_FLOAT32 ? real : dtype != BPS_UINT8 ? wide : op == BPS_AVERAGE ? average : plain;
    return BPS_OK;
}
