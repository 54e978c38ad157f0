/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - see copies.h. */
#include "shards/copies.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sum/value.h"

uint32_t bps_value_copy_bytes(const struct bps_value_copy *copy, uint32_t index)
{
    return bps_partition_bytes(copy->size, copy->grid, index) + copy->tail;
}

static void copy_free(struct bps_value_copies *copies, struct bps_value_copy *copy)
{
    HASH_DEL(copies->of, copy);
    for (uint32_t i = 0; i < copy->slices; i++) {
        if (copy->slice[i].data != NULL) {
            bps_pool_put(copies->pool, copy->slice[i].data, bps_value_copy_bytes(copy, i));
        }
        if (copy->slice[i].landing != NULL) {
            bps_pool_put(copies->pool, copy->slice[i].landing, bps_value_copy_bytes(copy, i));
        }
    }
    free(copy);
}

void bps_value_copies_fini(struct bps_value_copies *copies)
{
    struct bps_value_copy *copy, *next;
    HASH_ITER(hh, copies->of, copy, next) {
        copy_free(copies, copy);
    }
}

struct bps_value_copy *bps_value_copy_find(const struct bps_value_copies *copies, uint32_t tensor, uint32_t partition)
{
    struct bps_value_copy *copy;
    uint64_t id = (uint64_t)tensor << 32 | partition;
    HASH_FIND(hh, copies->of, &id, sizeof id, copy);
    return copy;
}

static struct bps_value_copy *copy_make(struct bps_value_copies *copies, const struct bps_task *task, uint32_t grid)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    uint32_t slices = bps_partitions(task->bytes, grid);
    struct bps_value_copy *copy = calloc(1, sizeof *copy + slices * sizeof copy->slice[0]);
    if (copy == NULL) {
        return NULL;
    }
    copy->id = (uint64_t)tensor->id << 32 | task->partition;
    copy->bytes = tensor->operation.bytes;
    copy->size = task->bytes;
    copy->slices = slices;
    copy->grid = grid;
    copy->tail = bps_value_tail(tensor->worker->job.size);
    copy->dtype = (uint8_t)tensor->operation.request.dtype;
    HASH_ADD(hh, copies->of, id, sizeof copy->id, copy);
    if (copy->hh.tbl == NULL) {
        free(copy);
        return NULL;
    }
    return copy;
}

struct bps_value_copy *bps_value_copy_of(struct bps_value_copies *copies, const struct bps_task *task, uint32_t shard,
                                         uint32_t grid)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_value_copy *copy = bps_value_copy_find(copies, tensor->id, task->partition);
    bool other = copy != NULL && (copy->bytes != tensor->operation.bytes || copy->size != task->bytes ||
                                  copy->grid != grid || copy->dtype != tensor->operation.request.dtype);
    if (other) { /* the id is another tensor's now */
        copy_free(copies, copy);
        copy = NULL;
    }
    copy = copy != NULL ? copy : copy_make(copies, task, grid);
    if (copy != NULL) {
        copy->shard = shard;
    }
    return copy;
}

char *bps_value_copy_land(struct bps_value_copies *copies, struct bps_value_copy *copy, uint32_t index)
{
    struct bps_value_copy_slice *slice = &copy->slice[index];
    bps_assert(index < copy->slices);
    if (slice->landing == NULL) {
        slice->landing = bps_pool_get(copies->pool, bps_value_copy_bytes(copy, index));
    }
    return slice->landing;
}

const char *bps_value_copy_landed(struct bps_value_copies *copies, struct bps_value_copy *copy, uint32_t index)
{
    struct bps_value_copy_slice *slice = &copy->slice[index];
    bps_assert(slice->landing != NULL);
    if (slice->data != NULL) {
        bps_pool_put(copies->pool, slice->data, bps_value_copy_bytes(copy, index));
    }
    slice->data = slice->landing;
    slice->landing = NULL;
    slice->torn = 0;
    return slice->data;
}

static uint64_t number_in(const char *tail)
{
    uint64_t number;
    memcpy(&number, tail, sizeof number);
    return le64toh(number);
}

uint64_t bps_value_copy_number(const struct bps_value_copy *copy, uint32_t index)
{
    const struct bps_value_copy_slice *slice = &copy->slice[index];
    if (slice->torn > 0) {
        return slice->torn | BPS_VALUE_TORN;
    }
    return slice->data != NULL ? number_in(slice->data + bps_value_copy_bytes(copy, index) - copy->tail) : 0;
}

void bps_value_copy_tear(struct bps_value_copy *copy, uint32_t index, const char *tail)
{
    copy->slice[index].torn = number_in(tail);
}
