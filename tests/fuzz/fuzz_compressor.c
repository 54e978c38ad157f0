/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_compressor.c - any bytes as a coded slice: refused, or elements, which are the same when they are added.
 *
 * An input is the method, the type and the instruction set, two bytes of how many elements, and what is coded.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/compressor_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const struct bps_module *bps_module_compressor_block(void);
const struct bps_module *bps_module_compressor_cast(void);
const struct bps_module *bps_module_compressor_dithering(void);
const struct bps_module *bps_module_compressor_lossless(void);
const struct bps_module *bps_module_compressor_onebit(void);
const struct bps_module *bps_module_compressor_randomk(void);
const struct bps_module *bps_module_compressor_topk(void);

/* onebit with scaling or without, each format of cast, dithering, topk, randomk, lossless, block with 8, 4, 2 bits */
#define METHODS 19
#define HEAD    4

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* A build may be without the compressor, or without one of its libraries. */
static bps_status open_lossless(struct rig *rig, int method)
{
#ifdef HAVE_LOSSLESS
    const struct rig_setting lossless[] = {{"method", method}, {"level", 1}};
    return rig_open(rig, bps_module_compressor_lossless(), lossless, 2);
#else
    (void)rig;
    (void)method;
    return BPS_ERR_UNSUPPORTED;
#endif
}

static bps_status open_method(struct rig *rig, int method, int isa)
{
    const struct rig_setting onebit[] = {{"scaling", method == 0}, {"isa", isa}};
    const struct rig_setting cast[] = {{"to", method - 2}, {"block", 32}, {"isa", isa}};
    const struct rig_setting dithering[] = {{"levels", method == 6 ? 127 : 5},
                                            {"partition", method == 8},
                                            {"normalize", 0},
                                            {"compat", method == 9},
                                            {"isa", isa}};
    const struct rig_setting topk[] = {{"k", method == 10 ? 0.1 : 3}, {"compat", 0}, {"isa", isa}};
    const struct rig_setting randomk[] = {{"k", 0.3}, {"independent", 0}, {"unbiased", 0}, {"compat", method == 13}};
    const struct rig_setting block[] = {{"bits", method - 16}, {"block", 32}, {"stochastic", 0}, {"isa", isa}};
    if (method >= 16) {
        return rig_open(rig, bps_module_compressor_block(), block, 4);
    }
    if (method >= 14) {
        return open_lossless(rig, method - 14);
    }
    return method < 2    ? rig_open(rig, bps_module_compressor_onebit(), onebit, 2)
           : method < 6  ? rig_open(rig, bps_module_compressor_cast(), cast, 3)
           : method < 10 ? rig_open(rig, bps_module_compressor_dithering(), dithering, 5)
           : method < 12 ? rig_open(rig, bps_module_compressor_topk(), topk, 3)
                         : rig_open(rig, bps_module_compressor_randomk(), randomk, 4);
}

static void try_slice(const struct rig *rig, uint32_t dtype, size_t count, const uint8_t *coded, size_t bytes)
{
    void *base[2];
    uint8_t *once = rig_odd(count * rig_size(dtype), &base[0]), *sum = rig_odd(count * rig_size(dtype), &base[1]);
    memset(sum, 0, count * rig_size(dtype));
    bps_status status = rig->ops->decode(rig->instance, dtype, coded, bytes, once, count);
    check(status == BPS_OK || status == BPS_ERR_PROTOCOL);
    check(rig->ops->decode_add(rig->instance, dtype, coded, bytes, sum, count) == status);
    if (status == BPS_OK) {
        check(bytes <= rig->ops->bound(rig->instance, dtype, count));
        for (size_t i = 0; i < count; i++) {
            double x = rig_get(dtype, once, i), y = rig_get(dtype, sum, i);
            check(x == y || (isnan(x) && isnan(y)));
        }
    }
    free(base[0]);
    free(base[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig rig;
    if (size < HEAD || open_method(&rig, data[0] % METHODS, data[1] / 2 % RIG_ISAS) != BPS_OK) {
        return 0;
    }
    size_t count = data[2] | (size_t)data[3] << 8;
    try_slice(&rig, data[1] % 2 ? BPS_FLOAT64 : BPS_FLOAT32, count, data + HEAD, size - HEAD);
    rig.ops->close(rig.instance);
    return 0;
}
