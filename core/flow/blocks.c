/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - see blocks.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/report.h"
#include "flow/process_group.h"
#include "flow/step.h"

/* ---- what is asked for ---- */

/* Elements of all blocks of one side. UINT64_MAX: more than there can be. */
static uint64_t total(const uint64_t *counts, uint64_t count, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t one = counts != NULL ? counts[i] : count;
        if (one > BPS_TENSOR_LIMIT || sum > BPS_TENSOR_LIMIT) {
            return UINT64_MAX;
        }
        sum += one;
    }
    return sum;
}

/* How many blocks a side has here. */
static uint32_t side_blocks(bool all, uint32_t n)
{
    return all ? n : 1;
}

/* Whether this worker brings anything, or gets anything. */
static bool has_side(const struct bps_call *call, enum bps_party party, uint32_t rank)
{
    return party != BPS_PARTY_ROOT || call->root == rank;
}

bps_status bps_blocks_check(const struct bps_call *call, struct bps_push_pull *request, struct bps_report *report)
{
    const struct bps_kind *kind = &bps_kinds[call->kind];
    const struct bps_call_blocks *blocks = call->blocks;
    uint32_t rank = blocks->own, n = blocks->ranks;
    bool roots = kind->from == BPS_PARTY_ROOT || kind->to == BPS_PARTY_ROOT;
    uint64_t in = total(blocks->in_counts, blocks->in_count, side_blocks(kind->all_in, n));
    uint64_t out = total(blocks->out_counts, blocks->out_count, side_blocks(kind->all_out, n));
    in = has_side(call, kind->from, rank) ? in : 0;
    out = has_side(call, kind->to, rank) ? out : 0;
    if (roots && call->root >= n) {
        return bps_fail(report, BPS_ERR_INVALID, "root %u is not a worker of this %s (0..%u)", call->root,
                        call->group != NULL ? "process group" : "job", n - 1);
    }
    if ((in > 0 && request->in == NULL) || (out > 0 && request->out == NULL)) {
        return bps_fail(report, BPS_ERR_INVALID, "%s of %s is NULL", in > 0 && request->in == NULL ? "in" : "out",
                        kind->name);
    }
    request->count = in > out ? in : out;
    return BPS_OK;
}

/* Where the blocks of one side begin, and the last one ends. */
static void layout(uint64_t *at, const uint64_t *counts, uint64_t count, uint32_t n, uint64_t size)
{
    at[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        at[i + 1] = at[i] + (counts != NULL ? counts[i] : count) * size;
    }
}

bps_status bps_blocks_init(struct bps_blocks *blocks, const struct bps_call *call, uint32_t dtype)
{
    const struct bps_kind *kind = &bps_kinds[call->kind];
    const struct bps_call_blocks *asked = call->blocks;
    uint32_t n = asked->ranks;
    uint64_t *at = calloc(2 * ((size_t)n + 1), sizeof *at);
    if (at == NULL) {
        return BPS_ERR_NOMEM;
    }
    *blocks = (struct bps_blocks){.ranks = n, .own = asked->own, .in = at, .out = at + n + 1};
    layout(blocks->in, asked->in_counts, asked->in_count, side_blocks(kind->all_in, n), bps_dtype_size(dtype));
    layout(blocks->out, asked->out_counts, asked->out_count, side_blocks(kind->all_out, n), bps_dtype_size(dtype));
    blocks->bytes = (has_side(call, kind->from, asked->own) ? blocks->in[side_blocks(kind->all_in, n)] : 0) +
                    (has_side(call, kind->to, asked->own) ? blocks->out[side_blocks(kind->all_out, n)] : 0);
    return BPS_OK;
}

void bps_blocks_fini(struct bps_blocks *blocks)
{
    free(blocks->in); /* the other one follows it */
    *blocks = (struct bps_blocks){.ranks = 0};
}

/* ---- tasks ---- */

/* A block, as this worker sees it. */
struct block {
    struct bps_roles roles;  /* by places */
    uint64_t bytes, in, out; /* in, out: where it lies */
    bool mine;               /* this worker brings it, or gets it */
};

uint32_t bps_blocks_count(const struct bps_operation *operation)
{
    return bps_kind_blocks(&bps_kinds[operation->kind], operation->blocks.ranks);
}

/* Its place in the input is that of whom it is for, in the output that of whom it is from. */
static struct block block_at(const struct bps_operation *operation, uint32_t index)
{
    uint32_t rank = operation->blocks.own;
    const struct bps_kind *kind = &bps_kinds[operation->kind];
    const struct bps_blocks *blocks = &operation->blocks;
    struct block block = {.roles = bps_kind_roles(kind, operation->root, index, blocks->ranks)};
    uint32_t in = kind->all_in ? block.roles.to : 0, out = kind->all_out ? block.roles.from : 0;
    bool brings = bps_brings(&block.roles, rank);
    bool gets = block.roles.to == BPS_EVERYBODY || block.roles.to == rank;
    block.mine = brings || gets;
    if (brings) {
        block.in = blocks->in[in];
        block.bytes = blocks->in[in + 1] - block.in;
    }
    if (gets) {
        block.out = blocks->out[out];
        block.bytes = blocks->out[out + 1] - block.out;
    }
    return block;
}

/*
 * The number of a partition of a block. Its remainder by the ranks is the worker whose it is (node/unnamed.h); the only
 * block of a reduce or a broadcast is that of all but the root, whose link has enough to do with the block itself.
 */
static uint32_t number_of(const struct bps_operation *operation, uint32_t block, uint32_t i)
{
    uint32_t n = operation->blocks.ranks, blocks = bps_blocks_count(operation);
    if (blocks > 1 || n == 1) {
        return BPS_BLOCKS + i * blocks + block;
    }
    return BPS_BLOCKS + i / (n - 1) * n + (operation->root + 1 + i % (n - 1)) % n;
}

/* Smaller pieces take longer to send than to copy; larger ones leave the cache before their receiver comes to them. */
#define SMALL  (128u << 10)
#define CACHED (1u << 20)

/*
 * Bytes of the partitions of a block. Where each worker sends as much as it receives, a large block has large ones,
 * which a receiver of the same host copies out of the sender's memory: the least work of all. Else whoever sends has
 * time to do half of the work, and hands over what fits in the cache.
 */
static uint64_t partition_of(const struct bps_tensor_entry *tensor, const struct block *block)
{
    const struct bps_kind *kind = &bps_kinds[tensor->operation.kind];
    uint64_t most = tensor->worker->partition, size = bps_tensor_cut(tensor, block->bytes);
    bool alike = kind->from != BPS_PARTY_ROOT && kind->to != BPS_PARTY_ROOT;
    if (!bps_sums(&block->roles)) {
        size = alike && block->bytes > 2 * CACHED ? most : size < SMALL ? SMALL : size < CACHED ? size : CACHED;
    }
    return size < most ? size : most;
}

/* The tasks of a block; without `out` it only counts them. */
static uint32_t cut(struct bps_tensor_entry *tensor, uint32_t index, struct bps_task *out)
{
    const struct bps_operation *operation = &tensor->operation;
    const struct block block = block_at(operation, index);
    if (!block.mine) {
        return 0;
    }
    uint64_t size = partition_of(tensor, &block), offset = 0;
    uint32_t n = bps_partitions(block.bytes, size);
    for (uint32_t i = 0; out != NULL && i < n; i++) {
        uint32_t bytes = bps_partition_bytes(block.bytes, size, i);
        out[i] = (struct bps_task){.tensor = tensor,
                                   .partition = number_of(operation, index, i),
                                   .bytes = bytes,
                                   .offset = offset,
                                   .roles = {bps_process_group_rank(operation->group, block.roles.from),
                                             bps_process_group_rank(operation->group, block.roles.to)},
                                   .whole = block.bytes,
                                   .in = block.in + offset,
                                   .out = block.out + offset};
        offset += bytes;
    }
    return n;
}

static int by_number(const void *a, const void *b)
{
    uint32_t left = ((const struct bps_task *)a)->partition, right = ((const struct bps_task *)b)->partition;
    return left < right ? -1 : left > right;
}

/* Of how many blocks this worker may have a part, and which the i-th of these is. */
static uint32_t few_blocks(const struct bps_operation *operation)
{
    uint32_t n = operation->blocks.ranks, blocks = bps_blocks_count(operation);
    return blocks > n ? 2 * n - 1 : blocks;
}

static uint32_t few_block(const struct bps_operation *operation, uint32_t rank, uint32_t i)
{
    uint32_t n = operation->blocks.ranks, blocks = bps_blocks_count(operation);
    if (blocks <= n || i < n) {
        return blocks <= n ? i : rank * n + i;
    }
    uint32_t from = i - n < rank ? i - n : i - n + 1; /* all others */
    return from * n + rank;
}

bps_status bps_blocks_tasks(struct bps_tensor_entry *tensor)
{
    const struct bps_operation *operation = &tensor->operation;
    uint32_t rank = operation->blocks.own, blocks = few_blocks(operation), n = 1;
    for (uint32_t i = 0; i < blocks; i++) {
        n += cut(tensor, few_block(operation, rank, i), NULL);
    }
    tensor->task = calloc(n, sizeof *tensor->task);
    if (tensor->task == NULL) {
        return BPS_ERR_NOMEM;
    }
    tensor->tasks = n;
    tensor->task[0] = (struct bps_task){.tensor = tensor, .roles = operation->roles};
    n = 1;
    for (uint32_t i = 0; i < blocks; i++) {
        n += cut(tensor, few_block(operation, rank, i), &tensor->task[n]);
    }
    bps_assert(n == tensor->tasks);
    qsort(tensor->task, n, sizeof *tensor->task, by_number); /* all blocks begin at once; and notice.c looks for one */
    for (uint32_t i = 1; i < n; i++) {
        tensor->task[i].staged = tensor->task[i - 1].staged + tensor->task[i - 1].bytes;
    }
    bps_assert(tensor->task[n - 1].staged + tensor->task[n - 1].bytes <= operation->blocks.bytes);
    return BPS_OK;
}
