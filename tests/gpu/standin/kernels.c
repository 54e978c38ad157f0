/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - the plugin's kernels, compiled for the host: what CUDA's compiler would give them is here, and
 * a loop over all threads takes the place of a device's.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

struct uint4 {
    uint32_t word[4];
};
typedef struct uint4 uint4;

static _Thread_local struct {
    unsigned x;
} blockDim, blockIdx, threadIdx;

#define INLINE                    static inline
#define KERNEL(name, blocks)      static void name(const struct cuda_reduction reduction)
#define EACH_FURTHER_SOURCE(s, r) for (uint32_t s = 1; s < (r)->n; s++)
#define EACH(i, n)                for (unsigned i = 0; i < (n); i++)

/* ---- float16, as a device converts it ---- */

static float scaled_by(uint32_t exponent, float value)
{
    union {
        uint32_t bits;
        float value;
    } power = {.bits = exponent << 23};
    return value * power.value;
}

static float float_of_half(uint16_t half)
{
    union {
        uint32_t bits;
        float value;
    } magnitude = {.bits = (half & 0x7fffu) << 13};
    /* The product puts the exponent right, of subnormals too. Infinity and NaN have the largest one. */
    magnitude.value = scaled_by(127 + 112, magnitude.value);
    if ((half & 0x7c00u) == 0x7c00u) {
        magnitude.bits |= 0x7f800000u;
    }
    magnitude.bits |= (half & 0x8000u) << 16;
    return magnitude.value;
}

/* Of no NaN. Rounds to nearest, ties to even. */
static uint16_t half_of_float(float value)
{
    union {
        float value;
        uint32_t bits;
    } u = {.value = value}, rounded;
    uint32_t sign = u.bits >> 16 & 0x8000u, half;
    u.bits &= 0x7fffffffu;
    if (u.bits >= 0x47800000u) {
        half = 0x7c00u;
    } else if (u.bits >= 0x38800000u) {
        half = (u.bits - (112u << 23) + 0xfffu + (u.bits >> 13 & 1u)) >> 13;
    } else {
        rounded.value = u.value + 0.5f; /* beside it the last place is that of a float16 subnormal */
        half = rounded.bits - 0x3f000000u;
    }
    return (uint16_t)(sign | half);
}

#include "reducers/cuda/kernels.cu"

/* ---- functions ---- */

struct CUfunc_st {
    const char *name;
    void (*run)(const struct cuda_reduction reduction);
    size_t bytes; /* of an element */
};

#define FUNCTION(type, bytes, operation, op)                                                                           \
    {"bps_reduce_" #type "_" #operation, bps_reduce_##type##_##operation, bytes},
#define FUNCTIONS(type, dtype, bytes) CUDA_OPERATIONS(FUNCTION, type, bytes)
static struct CUfunc_st functions[] = {CUDA_TYPES(FUNCTIONS)};

cuda_result cuModuleGetFunction(struct CUfunc_st **out, struct CUmod_st *module, const char *name)
{
    for (size_t i = 0; module != NULL && i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) == 0) {
            *out = &functions[i];
            return CUDA_OK;
        }
    }
    return STANDIN_NOT_FOUND;
}

void standin_compute(const struct standin_launch *launch)
{
    blockDim.x = launch->threads;
    for (blockIdx.x = 0; blockIdx.x < launch->blocks; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) {
            launch->function->run(launch->reduction);
        }
    }
}

/* Where the kernel would find its memory. False: it would fault. */
static bool reach(const struct CUctx_st *context, struct standin_launch *launch)
{
    struct cuda_reduction *r = &launch->reduction;
    size_t bytes = r->count * launch->function->bytes;
    r->dst = standin_reach(context, (uintptr_t)r->dst, bytes);
    bool reached = r->dst != NULL && r->n >= 1 && r->n <= CUDA_SOURCES;
    for (uint32_t i = 0; reached && i < r->n; i++) {
        r->src[i] = standin_reach(context, (uintptr_t)r->src[i], bytes);
        reached = r->src[i] != NULL;
    }
    return reached;
}

cuda_result cuLaunchKernel(struct CUfunc_st *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                           unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                           struct CUstream_st *handle, void **parameters, void **extra)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct standin_work work = {.can_fail = true, .launch = {function, blocks_x, threads_x, {0}}};
    bool one_line = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1;
    if (!one_line || blocks_x == 0 || threads_x == 0 || threads_x > 1024 || shared_bytes != 0 || extra != NULL) {
        return STANDIN_INVALID_VALUE;
    }
    work.launch.reduction = *(const struct cuda_reduction *)parameters[0];
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = standin_stream(handle, &stream);
    }
    if (result == CUDA_OK) {
        result = reach(context, &work.launch) ? standin_give(stream, &work) : STANDIN_ILLEGAL_ADDRESS;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* ---- modules ---- */

struct CUmod_st {
    struct CUctx_st *context;
};

/* What is in the image is not looked at, but for its first word: it was made for devices. */
cuda_result cuModuleLoadData(struct CUmod_st **out, const void *image)
{
    static const uint8_t magic[] = {0x50, 0xed, 0x55, 0xba};
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = memcmp(image, magic, sizeof magic) != 0 ? STANDIN_INVALID_IMAGE : standin_settings.module;
    }
    if (result == CUDA_OK) {
        *out = calloc(1, sizeof **out);
        (*out)->context = context;
        standin_counts.modules++;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuModuleUnload(struct CUmod_st *module)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result != CUDA_INVALID_CONTEXT) {
        result = module->context == context ? result : CUDA_INVALID_HANDLE;
    }
    if (result != CUDA_INVALID_CONTEXT && result != CUDA_INVALID_HANDLE) {
        free(module);
        standin_counts.modules--;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
