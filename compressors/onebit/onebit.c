/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onebit.c - the compressor "onebit": of each element only its sign, and one scale for all of a slice.
 *
 * After Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, with the scale of Karimireddy et
 * al., "Error Feedback Fixes SignSGD", ICML 2019: the mean of the magnitudes, which is what makes the squared
 * error least.
 *
 * A coded slice is the scale, a float32, little endian, and then one bit for each element, the first one in
 * the lowest bit of the first byte; 1 is negative. The bits behind the last element are zero.
 */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <byteps/compressor.h>

#define SCALE_BYTES 4u
#define BLOCK       8u /* elements in a byte of bits */
#define SIGN        0x80000000u

/* Four elements: their bits, or what they are. */
typedef uint32_t quad __attribute__((vector_size(16)));
typedef float quad_float __attribute__((vector_size(16)));

/* The signs of four elements, by their bits. */
static const quad signs[16] = {
#define LINE(b) {(b) & 1 ? SIGN : 0, (b) & 2 ? SIGN : 0, (b) & 4 ? SIGN : 0, (b) & 8 ? SIGN : 0}
    LINE(0), LINE(1), LINE(2),  LINE(3),  LINE(4),  LINE(5),  LINE(6),  LINE(7),
    LINE(8), LINE(9), LINE(10), LINE(11), LINE(12), LINE(13), LINE(14), LINE(15),
#undef LINE
};

struct onebit_options {
    bool scaling;
};

static const struct bps_option onebit_options[] = {
    {"scaling", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct onebit_options, scaling), "true", NULL,
     "Elements become the mean magnitude of their slice with their sign; false: 1 or -1."},
    {0},
};

struct onebit {
    const struct bps_host *host;
    bool scaling;
};

static bps_status onebit_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    const struct onebit_options *given = options;
    struct onebit *onebit = host->alloc(host, sizeof *onebit, 8);
    if (onebit == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *onebit = (struct onebit){.host = host, .scaling = given->scaling};
    *instance_out = onebit;
    return BPS_OK;
}

static void onebit_close(void *instance)
{
    struct onebit *onebit = instance;
    onebit->host->release(onebit->host, onebit);
}

static void onebit_describe(void *instance, char *text, size_t n)
{
    const struct onebit *onebit = instance;
    snprintf(text, n, "%s", onebit->scaling ? "scaled by the mean magnitude" : "not scaled");
}

static size_t onebit_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? SCALE_BYTES + (count + BLOCK - 1) / BLOCK : 0;
}

/* ---- coding ---- */

static quad load(const char *from)
{
    quad x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* In four lanes, which the compiler keeps in one register; slices are too short for float32 to lose much. */
static float mean_magnitude(const char *src, size_t count)
{
    quad_float sum = {0};
    float all = 0, x;
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        sum += (quad_float)(load(src + 4 * i) & ~SIGN);
    }
    for (; i < count; i++) {
        memcpy(&x, src + 4 * i, sizeof x);
        all += x < 0 ? -x : x;
    }
    for (int lane = 0; lane < 4; lane++) {
        all += sum[lane];
    }
    return count > 0 ? all / (float)count : 0;
}

/* The signs of four elements as bits. */
static uint32_t bits_of(const char *src)
{
#ifdef __SSE2__
    return (uint32_t)_mm_movemask_ps((__m128)load(src));
#else
    quad x = load(src) >> 31;
    return x[0] | x[1] << 1 | x[2] << 2 | x[3] << 3;
#endif
}

static void put_scale(char *dst, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    for (unsigned i = 0; i < SCALE_BYTES; i++) {
        dst[i] = (char)(bits >> 8 * i);
    }
}

static uint32_t get_scale(const char *src)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < SCALE_BYTES; i++) {
        bits |= (uint32_t)(uint8_t)src[i] << 8 * i;
    }
    return bits;
}

static size_t onebit_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                            const struct bps_random *random, void *dst)
{
    const struct onebit *onebit = instance;
    const char *from = src;
    char *to = dst;
    size_t i = 0;
    (void)dtype;
    (void)random;
    put_scale(to, onebit->scaling ? mean_magnitude(from, count) : 1);
    to += SCALE_BYTES;
    for (; i + BLOCK <= count; i += BLOCK) {
        *to++ = (char)(bits_of(from + 4 * i) | bits_of(from + 4 * i + 16) << 4);
    }
    if (i < count) {
        char rest[4 * BLOCK] = {0};
        memcpy(rest, from + 4 * i, 4 * (count - i));
        *to++ = (char)(bits_of(rest) | bits_of(rest + 16) << 4);
    }
    return (size_t)(to - (char *)dst);
}

/* Eight elements: the scale with their signs, or what is at `to` and these. */
static void decode_block(char *to, quad scale, uint8_t bits, bool add)
{
    quad low = scale ^ signs[bits & 15], high = scale ^ signs[bits >> 4];
    if (add) {
        low = (quad)((quad_float)load(to) + (quad_float)low);
        high = (quad)((quad_float)load(to + 16) + (quad_float)high);
    }
    memcpy(to, &low, sizeof low);
    memcpy(to + 16, &high, sizeof high);
}

static inline bps_status decode(const char *src, size_t bytes, char *dst, size_t count, bool add)
{
    size_t i = 0, whole = count / BLOCK, rest = 4 * (count % BLOCK);
    char last[4 * BLOCK] = {0};
    if (bytes != SCALE_BYTES + whole + (rest > 0)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t bits = get_scale(src);
    quad scale = {bits, bits, bits, bits};
    const uint8_t *from = (const uint8_t *)src + SCALE_BYTES;
    for (; i < whole; i++) {
        decode_block(dst + 4 * BLOCK * i, scale, from[i], add);
    }
    if (rest > 0) {
        memcpy(last, dst + 4 * BLOCK * i, rest);
        decode_block(last, scale, from[i], add);
        memcpy(dst + 4 * BLOCK * i, last, rest);
    }
    return BPS_OK;
}

static bps_status onebit_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)instance;
    (void)dtype;
    return decode(src, bytes, dst, count, false);
}

static bps_status onebit_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                    size_t count)
{
    (void)instance;
    (void)dtype;
    return decode(src, bytes, dst, count, true);
}

/* ---- the module ---- */

static const struct bps_compressor_ops onebit_ops = {
    .size = sizeof onebit_ops,
    .open = onebit_open,
    .close = onebit_close,
    .bound = onebit_bound,
    .encode = onebit_encode,
    .decode = onebit_decode,
    .decode_add = onebit_decode_add,
    .describe = onebit_describe,
};

static const struct bps_plugin onebit_plugin = {
    .size = sizeof onebit_plugin,
    .kind = BPS_KIND_COMPRESSOR,
    .name = "onebit",
    .summary = "the sign of each element, and one scale for a slice",
    .options = onebit_options,
    .options_size = sizeof(struct onebit_options),
    .ops = &onebit_ops,
};

static const struct bps_plugin *const plugins[] = {&onebit_plugin};

static const struct bps_module module = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof module,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "onebit",
    .version = PLUGIN_VERSION,
    .license = "Apache-2.0",
    .nplugins = 1,
    .plugins = plugins,
};

BPS_PLUGIN_NOTE(BPS_KIND_COMPRESSOR, "onebit", PLUGIN_VERSION);

const struct bps_module *BPS_PLUGIN_ENTRY(void)
{
    return &module;
}
