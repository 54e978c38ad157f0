/* SPDX-License-Identifier: Apache-2.0 */
/* compressor.h - what the tests of compressors share: slices of elements and what they become. */
#ifndef BPS_TOOLS_CHECK_COMPRESSOR_H
#define BPS_TOOLS_CHECK_COMPRESSOR_H

#include <byteps/compressor.h>

#include "tools/check/check.h"
#include "tools/check/guarded.h"

/* A compressor and a type that it codes. */
struct bps_coder {
    struct bps_check *check;
    struct bps_instance *instance;
    uint32_t dtype;
    size_t size; /* of an element */
};

/* Calls fn for float32 and float64, if the compressor codes them; with none of both the test fails. */
void bps_coder_each(struct bps_check *check, void (*fn)(struct bps_coder *coder));

/* Its operations, with what they return looked at. encode: how many bytes; at most as many as bound. */
size_t bps_coder_bound(const struct bps_coder *coder, size_t count);
size_t bps_coder_encode(const struct bps_coder *coder, const void *src, size_t count, const struct bps_random *random,
                        void *dst);
/* Of bytes that encode has made: an error fails the test. */
void bps_coder_decode(const struct bps_coder *coder, const void *src, size_t bytes, void *dst, size_t count);
void bps_coder_decode_add(const struct bps_coder *coder, const void *src, size_t bytes, void *dst, size_t count);

/* Element i as a double. */
double bps_coder_element(const struct bps_coder *coder, const void *elements, size_t i);
void bps_coder_set(const struct bps_coder *coder, void *elements, size_t i, double value);

/* The tests with foreign bytes (compressor_hostile.c). */
void bps_check_cut_bytes(struct bps_check *check);
void bps_check_mutated_bytes(struct bps_check *check);

#endif
