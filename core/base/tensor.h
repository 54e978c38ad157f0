/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - what all members take for granted of tensors: their ids, their operations, and how they are cut. */
#ifndef BPS_BASE_TENSOR_H
#define BPS_BASE_TENSOR_H

#include <stdbool.h>

#include <byteps/types.h>

/*
 * Tensor ids: named ones count from 1 and are handed out by the scheduler. One that no worker knows any more is
 * used again, and its rounds go on, so that frames of earlier ones are known to be late. Unnamed ones and barriers
 * carry their number in the order of calls, so they need no declaration.
 */
#define BPS_ID_UNNAMED 0x80000000u
#define BPS_ID_BARRIER 0xc0000000u
#define BPS_ID_NUMBER  0x3fffffffu
/* Calls without a name and barriers are counted apart. */
#define BPS_UNNAMED_KINDS 2u

static inline uint32_t bps_unnamed_kind(uint32_t id)
{
    return id >= BPS_ID_BARRIER;
}

/* Whether a call of this number, which may have begun anew at 0, comes before another one. */
static inline bool bps_number_is_before(uint32_t number, uint32_t other)
{
    return ((number - other) & BPS_ID_NUMBER) > BPS_ID_NUMBER / 2;
}

/* Between members a broadcast is one more operation. */
#define BPS_WIRE_BROADCAST BPS_OPS
#define BPS_WIRE_OPS       (BPS_OPS + 1u)

/* More bytes than any memory has, so that what is computed from them cannot overflow. */
#define BPS_TENSOR_LIMIT (1ull << 46)
/* Of a tensor: 1 TiB by default. One that fails costs each worker a message for each partition that another claims. */
#define BPS_PARTITIONS_LIMIT (1u << 18)

/* A tensor is spread over more shards, or workers of a host, as long as each gets so much of it. */
#define BPS_SPREAD_BYTES (64u << 10)

/* A partition of a tensor with a name: they follow one another. */
struct bps_partition {
    uint32_t bytes;
    uint16_t shard; /* that sums it */
    uint16_t lead;  /* place in the group of the worker that sums it there */
};

/* Number of equal pieces that something is cut into: at least 1, so that empty tensors meet too. */
static inline uint32_t bps_partitions(uint64_t bytes, uint64_t partition)
{
    uint64_t n = (bytes + partition - 1) / partition;
    return n == 0 ? 1 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Bytes of piece `index`: only the last one may have less. */
static inline uint32_t bps_partition_bytes(uint64_t bytes, uint64_t partition, uint32_t index)
{
    uint64_t first = (uint64_t)index * partition;
    uint64_t rest = first < bytes ? bytes - first : 0;
    return (uint32_t)(rest < partition ? rest : partition);
}

/* Whether a tensor may have so many bytes. */
static inline bool bps_is_tensor(uint64_t bytes, uint64_t partition)
{
    return bytes <= BPS_TENSOR_LIMIT && bps_partitions(bytes, partition) <= BPS_PARTITIONS_LIMIT;
}

/* Whether a tensor of so many bytes may have a partition of this number and size, none being larger than `most`. */
static inline bool bps_is_partition(uint64_t bytes, uint64_t most, uint32_t index, uint32_t size)
{
    return bps_is_tensor(bytes, most) && index < 2 * BPS_PARTITIONS_LIMIT && size <= most && size <= bytes &&
           (size > 0 || bytes == 0);
}

/* The smallest slices, unless smaller ones are configured. */
#define BPS_LEAST_SLICE (8u << 10)

/* Whether slices may have so many bytes, none being larger than `most`; 0: these are meant. */
static inline bool bps_is_slice(uint32_t bytes, uint64_t most)
{
    return bytes == 0 || bytes == most || (bytes < most && bytes >= BPS_LEAST_SLICE && bytes % 64 == 0);
}

/*
 * True for integers; bool is none. The sum of an average of them may need more bits than they have: it is made
 * in one pass over all contributions, and never partial.
 */
static inline bool bps_is_integer(uint32_t dtype)
{
    return dtype == BPS_UINT8 || dtype == BPS_INT8 || dtype == BPS_INT16 || dtype == BPS_INT32 || dtype == BPS_INT64;
}

/* Bytes of an element by type, four bits for each: no memory is read, nothing called. */
#define BPS_ELEMENT(dtype, bytes) ((uint64_t)(bytes) << 4 * (dtype))
#define BPS_ELEMENTS                                                                                                   \
    (BPS_ELEMENT(BPS_FLOAT32, 4) | BPS_ELEMENT(BPS_FLOAT64, 8) | BPS_ELEMENT(BPS_FLOAT16, 2) |                         \
     BPS_ELEMENT(BPS_UINT8, 1) | BPS_ELEMENT(BPS_INT32, 4) | BPS_ELEMENT(BPS_INT8, 1) | BPS_ELEMENT(BPS_INT64, 8) |    \
     BPS_ELEMENT(BPS_BFLOAT16, 2) | BPS_ELEMENT(BPS_INT16, 2) | BPS_ELEMENT(BPS_BOOL, 1) |                             \
     BPS_ELEMENT(BPS_FLOAT8_E4M3FN, 1) | BPS_ELEMENT(BPS_FLOAT8_E5M2, 1))
_Static_assert(BPS_DTYPES <= 16, "bits for the size of each type");

/* bps_dtype_size(), for hot paths. */
static inline size_t bps_element_size(uint32_t dtype)
{
    return dtype < BPS_DTYPES ? BPS_ELEMENTS >> 4 * dtype & 15 : 0;
}

#endif
